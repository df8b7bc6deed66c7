"""Starts, watches, restarts and stops the processes behind `manage.py up`.

Prefixed output, colours and process groups are honcho's. Its Manager isn't used: it stops
everything when one process ends, and has no order of stopping.
"""

import contextlib
import datetime
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from honcho.colour import get_colours
from honcho.printer import Message, Printer
from honcho.process import Popen

from config import embedded, tether

KILL_WAIT = 30.0  # seconds that a process has between SIGTERM and SIGKILL
HURRY_WAIT = 2.0  # the same after a second Ctrl-C
LAST_WAIT = 10.0  # the same for the one that is stopped last, which only writes its data
STEADY = 60.0  # seconds after which a process counts as having started well
LONGEST_PAUSE = 30.0  # between two starts of a process that keeps ending
TICK = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SYSTEM = "up"


class Stopped(Exception):
    """Raised at the next tick after a signal asked for the end."""


class Ended(Exception):
    """Raised when a process ends again and again before everything is ready."""


@dataclass
class Child:
    """One process that is kept running. `last` is stopped after all the others."""

    name: str
    command: list[str]
    last: bool = False
    once: bool = False  # a step of the preparation: not started again
    fds: tuple[int, ...] = ()
    log: str = "its last lines are above"  # where to look when it doesn't run
    colour: str = ""
    process: "subprocess.Popen[bytes] | None" = None
    reader: threading.Thread | None = None
    started_at: float = 0.0
    restart_at: float | None = None
    failures: int = 0


@dataclass
class Supervisor:
    """Everything here runs in the main thread; only the readers of output have threads."""

    output: IO[str]
    pids: Path  # where the running processes are noted, for the next `up` after a kill -9
    children: list[Child] = field(default_factory=list)
    patience: int | None = 3  # how often a process may end before everything is ready
    _signals: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._printer = Printer(self.output, width=8, colour=not os.environ.get("NO_COLOR"))
        self._colours = get_colours()

    # --- signals ------------------------------------------------------------------------------
    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Note signals instead of being interrupted by them; everything that waits looks there."""
        for number in SIGNALS:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            # Everything is stopped, so one that comes now is too late to mean anything.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Wrappers often pass on what the terminal has sent already: that isn't a second Ctrl-C.
        if not self._signals or time.monotonic() - self._signals[-1] > 0.5:
            self._signals.append(time.monotonic())

    @property
    def stopping(self) -> bool:
        return bool(self._signals)

    # --- output -------------------------------------------------------------------------------
    def say(self, text: str, *, name: str = SYSTEM, colour: str = "") -> None:
        message = Message("line", text, datetime.datetime.now(), name, colour)  # noqa: DTZ005
        # A terminal or pipe that is gone must not stop the shop.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._printer.write(message)

    def _read(self, child: Child, stream: IO[bytes]) -> None:
        for line in iter(stream.readline, b""):
            if text := line.decode(errors="replace").rstrip():
                self.say(text, name=child.name, colour=child.colour)
        stream.close()

    # --- starting -----------------------------------------------------------------------------
    def start(self, child: Child) -> None:
        child.colour = child.colour or next(self._colours)
        self.children.append(child)
        self._spawn(child)

    def _spawn(self, child: Child, stdout: IO[bytes] | None = None) -> None:
        command = [
            sys.executable,
            "-I",
            "-S",
            tether.__file__,
            str(os.getpid()),
            *child.command,
        ]
        pipes = {"stdout": stdout, "stderr": subprocess.PIPE} if stdout else {}
        child.process = Popen(
            command,
            shell=False,
            stdin=subprocess.DEVNULL,
            cwd=embedded.BASE_DIR,
            # What a process says is to be seen when it says it.
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            pass_fds=child.fds,
            **pipes,
        )
        child.started_at, child.restart_at = time.monotonic(), None
        stream = child.process.stderr if stdout else child.process.stdout
        child.reader = threading.Thread(target=self._read, args=(child, stream), daemon=True)
        child.reader.start()
        self._note_pids()

    def run(self, name: str, command: list[str], *, stdout: IO[bytes] | None = None) -> int:
        """Run a step of the preparation to its end; returns its exit code."""
        step = Child(name, command, once=True, colour="37")
        self.children.append(step)
        self._spawn(step, stdout)
        assert step.process
        while step.process.poll() is None:
            self.tick()
        code = int(step.process.returncode)
        self.children.remove(step)
        self._finish(step)
        return code

    def _note_pids(self) -> None:
        running = [c.process.pid for c in self.children if c.process and c.process.poll() is None]
        embedded.write_private(
            self.pids,
            json.dumps([{"pid": pid, "birth": embedded.birth(pid)} for pid in running]),
        )

    # --- watching -----------------------------------------------------------------------------
    def tick(self) -> None:
        """Wait a moment, then start again what has ended."""
        self._pause()
        for child in [child for child in self.children if not child.once]:
            if child.restart_at is not None:
                if time.monotonic() >= child.restart_at:
                    self._spawn(child)
            elif child.process and child.process.poll() is not None:
                self._plan_restart(child, child.process.returncode)

    def _pause(self) -> None:
        if self.stopping:
            raise Stopped
        time.sleep(TICK)
        if self.stopping:
            raise Stopped

    def _plan_restart(self, child: Child, code: int) -> None:
        self._finish(child)
        if time.monotonic() - child.started_at > STEADY:
            child.failures = 0
        child.failures += 1
        if self.patience is not None and child.failures >= self.patience:
            raise Ended(
                f"{child.name} ended {child.failures} times ({_in_words(code)}): {child.log}"
            )
        pause = min(LONGEST_PAUSE, 2.0 ** (child.failures - 1) / 2)
        child.restart_at = time.monotonic() + pause
        self.say(f"{child.name} ended ({_in_words(code)}), starting it again in {pause:g} s")

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Keep watching until the condition holds; False if it doesn't in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.tick()
        return True

    def watch(self) -> None:
        """Keep everything running until a signal comes (raises Stopped)."""
        for _ in itertools.count():
            self.tick()

    # --- stopping -----------------------------------------------------------------------------
    def stop(self) -> None:
        """Stop everything, what is `last` after the others. Never raises Stopped."""
        self._stop([child for child in self.children if not child.last], self._patience)
        self._stop([child for child in self.children if child.last], lambda: LAST_WAIT)
        if self.children:
            self.say("everything is stopped")
        self.children.clear()
        self.pids.unlink(missing_ok=True)

    def _patience(self) -> float:
        return KILL_WAIT if len(self._signals) < 2 else HURRY_WAIT

    def _stop(self, children: list[Child], wait: Callable[[], float]) -> None:
        alive = [c for c in children if c.process and c.process.poll() is None]
        if alive:
            self.say("stopping " + ", ".join(child.name for child in alive))
        for child in alive:
            _send(child, signal.SIGTERM)
        since = time.monotonic()
        while alive and time.monotonic() - since < wait():
            time.sleep(TICK)
            alive = [c for c in alive if c.process and c.process.poll() is None]
        for child in alive:
            self.say(f"{child.name} doesn't stop: killing it")
        for child in children:
            self._finish(child)

    def _finish(self, child: Child) -> None:
        """Kill what is left of a child's process group, and read its output to the end."""
        if child.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, signal.SIGKILL)
        child.process.wait()
        if child.reader:
            child.reader.join(timeout=2)
        child.process = None  # Its number may be somebody else's from now on.


def clear_stale(pids: Path, say: Callable[[str], None]) -> bool:
    """End what an `up` left behind that was killed: only processes that are the noted ones.

    True if there had been an `up` that could not clean up after itself.
    """
    try:
        noted = [(int(entry["pid"]), str(entry["birth"])) for entry in json.loads(pids.read_text())]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    left = _still_there(noted)
    if left:
        say(f"ending {len(left)} processes that an earlier `up` left behind")
    _end(left, signal.SIGTERM, wait=5.0)
    _end(_still_there(noted), signal.SIGKILL)
    pids.unlink(missing_ok=True)
    return True


def _still_there(noted: list[tuple[int, str]]) -> list[int]:
    return [pid for pid, born in noted if born and embedded.birth(pid) == born]


def _end(pids: list[int], number: int, *, wait: float = 2.0) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number) if number == signal.SIGTERM else os.killpg(pid, number)
    deadline = time.monotonic() + wait
    while any(embedded.birth(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(TICK)


def _send(child: Child, number: int) -> None:
    # To the process alone: Celery and granian tell their own children, in their own order.
    assert child.process
    with contextlib.suppress(ProcessLookupError):
        child.process.send_signal(number)


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
