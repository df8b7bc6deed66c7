"""Processes that can't outlive the tests: each is noted, and a reaper ends what is left over."""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.waiting import wait_until

REAPER = Path(__file__).with_name("reaper.py")


@dataclass(frozen=True)
class Command:
    """What to start. `user` is who it runs as, if not we ourselves; `folder` is where."""

    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None
    user: str | None = None
    folder: Path | None = None
    stop_signal: int = signal.SIGTERM


class Run:
    """The folder of one test process, and everything that it has started."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="seckill-tests-"))
        # PostgreSQL runs as another user, whose own folder lies inside.
        self.directory.chmod(0o711)
        self.pids = self.directory / "pids"
        self.pids.mkdir()
        self._reaper: subprocess.Popen[bytes] | None = None
        self._started: set[subprocess.Popen[bytes]] = set()
        atexit.register(self.close)

    def folder(self, name: str) -> Path:
        """A new folder; the name is made unique."""
        path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))
        path.chmod(0o711)
        return path

    def spawn(self, command: Command, *, log: Path) -> "subprocess.Popen[bytes]":
        """Start a process as the leader of its own group; its output is appended to `log`."""
        self._start_reaper()
        with log.open("ab") as output:
            process = subprocess.Popen(
                command.arguments,
                env=command.environment,
                user=command.user,
                group=command.user,
                extra_groups=[] if command.user else None,
                cwd=command.folder or self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.add(process)
        (self.pids / str(process.pid)).write_text(str(int(command.stop_signal)))
        return process

    def forget(self, process: "subprocess.Popen[bytes]") -> None:
        """The process has ended; its number may soon be somebody else's."""
        self._started.discard(process)
        (self.pids / str(process.pid)).unlink(missing_ok=True)

    def close(self) -> None:
        """Ends what still runs, and removes the folder. Safe to call twice."""
        if self._reaper is None or self._reaper.stdin is None:
            shutil.rmtree(self.directory, ignore_errors=True)
            return
        self._reaper.stdin.close()
        while self._reaper.poll() is None:
            # The reaper waits for them to be gone, and until we have looked they are zombies.
            for process in self._started:
                process.poll()
            time.sleep(0.02)

    def _start_reaper(self) -> None:
        if self._reaper is None:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(REAPER), str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


@functools.cache
def _run_of(pid: int) -> Run:
    return Run()


def this_run() -> Run:
    """One per process: a forked child must not end what its parent started."""
    return _run_of(os.getpid())


def family(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it, the eldest first."""
    try:
        eldest = psutil.Process(pid)
        return [eldest, *eldest.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def signal_family(pid: int, number: int) -> None:
    for member in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            member.send_signal(number)


def kill_family(pid: int) -> None:
    """SIGKILL for all of them at once, and wait until they are gone."""
    members = family(pid)
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    wait_until(lambda: not any(is_alive(member) for member in members))


def is_alive(process: psutil.Process) -> bool:
    """A zombie is dead: it only waits for its parent, who may take its time.

    But its other threads may still be ending, and with them its open sockets.
    """
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return len(os.listdir(f"/proc/{process.pid}/task")) > 1
        return bool(process.is_running())
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
