"""The common part of all private services: start, stop, kill, pause, resume, restart."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.support.processes import Command, kill_family, signal_family, this_run
from tests.support.waiting import free_port, wait_until


class NotStarted(Exception):
    """The service ended instead of getting ready, or took too long; holds the end of its log."""


class Service:
    """One server process on a free port. Its data outlives stop, kill and restart, until `wipe`.

    Making one starts nothing, so its address can be handed out before anybody needs it.
    Raises `binaries.Missing` when the service isn't on this machine.
    """

    name: ClassVar[str]
    patience: ClassVar[float] = 30.0  # seconds until it must be ready, or gone

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self.directory: Path = this_run().folder(self.name)
        self.process: subprocess.Popen[bytes] | None = None

    # --- what a subclass says -----------------------------------------------------------------
    @property
    def url(self) -> str:
        raise NotImplementedError

    def command(self) -> Command:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def prepare(self) -> None:
        """Called before every start; makes the data folder if it isn't there."""

    def cleanup(self) -> None:
        """Called after the process has ended."""

    # --- life ---------------------------------------------------------------------------------
    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise NotStarted(f"{self.name} isn't running")
        return self.process.pid

    def start(self) -> Self:
        """Start it and wait until it answers; nothing happens if it runs already."""
        if self.is_running:
            return self
        self.prepare()
        self.process = this_run().spawn(self.command(), log=self.log)
        try:
            wait_until(self._ready_or_over, self.patience)
        except (AssertionError, NotStarted) as error:
            self.kill()
            raise NotStarted(f"{self.name}: {error}\n{self.log_tail()}") from error
        return self

    def stop(self) -> None:
        """The ordinary end; SIGKILL if that takes too long."""
        if self.process is None:
            return
        process, number = self.process, self.command().stop_signal
        signal_family(process.pid, signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        try:
            process.wait(timeout=self.patience)
        except subprocess.TimeoutExpired:
            kill_family(process.pid)
        self._gone()

    def kill(self) -> None:
        """As if the machine lost its power: SIGKILL for the process and all its children."""
        if self.process is None:
            return
        kill_family(self.process.pid)
        self._gone()

    def pause(self) -> None:
        """It keeps its connections, and answers nothing."""
        signal_family(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        signal_family(self.pid, signal.SIGCONT)

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def wipe(self) -> None:
        """Stop it and lose its data."""
        self.stop()
        for path in self.directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def log_tail(self, size: int = 2000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _ready_or_over(self) -> bool:
        if not self.is_running:
            raise NotStarted("it ended instead of getting ready")
        return self.is_ready()

    def _gone(self) -> None:
        if self.process is None:
            return
        self.process.wait()
        this_run().forget(self.process)
        self.process = None
        self.cleanup()
