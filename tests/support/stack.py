"""The product as it is deployed: web processes, workers and beat, with a database of their own."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tests.support import environment
from tests.support.commands import Commands, Done
from tests.support.processes import Command, kill_family, signal_family, this_run
from tests.support.waiting import HOST, free_port, wait_until

# Celery warns about the superuser; a test machine's root is nobody's server.
QUIET = "ignore:You're running the worker with superuser privileges"


class CommandFailed(Exception):
    """A management command ended with another exit code than expected."""


@dataclass(frozen=True)
class Plan:
    """How many of what. The queues of the workers: orders and sweeps; timers and payments apart."""

    web: int = 1
    web_server: Literal["granian", "daphne"] = "granian"
    workers: int = 1
    concurrency: int = 2
    timers: bool = True
    beat: bool = True
    migrate: bool = True  # False: the database has its tables already


@dataclass
class Member:
    """One process of the stack; `pid` is that of its first process, its children belong to it.

    `settings` are its own, on top of those of the stack.
    """

    name: str
    arguments: list[str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise LookupError(f"{self.name} isn't running")
        return self.process.pid


class Stack:
    """Names of the processes: web1, web2, …, orders1, …, timers, beat."""

    def __init__(self, settings: Mapping[str, str], *, plan: Plan | None = None) -> None:
        self.plan = plan or Plan()
        self.directory = this_run().folder("stack")
        self.environment = {
            **environment.neutral(),
            **environment.SECRETS,
            "VAR_DIR": str(self.directory / "var"),
            "PYTHONUNBUFFERED": "1",
            **settings,
        }
        self._commands_in: tuple[dict[str, str], Commands] | None = None
        self.ports = [free_port() for _ in range(self.plan.web)]
        self.members = {name: self._member(name, command) for name, command in self._commands()}

    # --- life ---------------------------------------------------------------------------------
    def start(self) -> Self:
        """Migrate, start everything, and wait until every web process is ready."""
        if self.plan.migrate:
            self.manage("migrate", "--no-input", "-v", "0")
        for name in self.members:
            self.launch(name)
        return self.wait_ready()

    def stop(self) -> None:
        """The ordinary end of everything, web processes first; then SIGKILL for what is left."""
        running = [member for member in self.members.values() if member.is_running]
        for member in running:
            signal_family(member.pid, signal.SIGCONT)
            self.send(member.name, signal.SIGTERM)
        for member in running:
            self._end(member)
        self._close_commands()

    def discard(self) -> None:
        """A quick end, for processes of which nothing is needed any more."""
        if "COVERAGE_PROCESS_CONFIG" in os.environ:
            self.stop()  # They have yet to write down which lines they ran.
        for member in self.members.values():
            if member.is_running:
                self.kill(member.name)

    def launch(self, name: str) -> None:
        """Start one process that doesn't run."""
        member = self.members[name]
        variables = {**self.environment, **member.settings}
        command = Command(member.arguments, variables, folder=environment.ROOT)
        member.process = this_run().spawn(command, log=member.log)

    def wait_ready(self, timeout: float = 60) -> Self:
        """Raises AssertionError with the logs if a web process isn't ready in time."""
        try:
            for port in self.ports:
                wait_until(partial(self._is_ready, port), timeout, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error
        return self

    # --- faults -------------------------------------------------------------------------------
    def send(self, name: str, number: int) -> None:
        """To the first process alone, as a supervisor would."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.members[name].pid, number)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a process and wait for that. SIGKILL takes its children with it."""
        member = self.members[name]
        if number == signal.SIGKILL:
            kill_family(member.pid)
        else:
            self.send(name, number)
        self._end(member)

    def kill_first(self, name: str) -> None:
        """SIGKILL for the first process alone; its children find themselves without a parent."""
        self.send(name, signal.SIGKILL)
        self._end(self.members[name])

    def pause(self, name: str) -> None:
        signal_family(self.members[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        signal_family(self.members[name].pid, signal.SIGCONT)

    def restart(self, name: str, number: int = signal.SIGTERM) -> None:
        self.kill(name, number)
        self.launch(name)

    def relaunch(self) -> list[str]:
        """What a supervisor does: start again what has ended; returns the names."""
        ended = [name for name, member in self.members.items() if not member.is_running]
        for name in ended:
            self._end(self.members[name])
            self.launch(name)
        return ended

    # --- use ----------------------------------------------------------------------------------
    @property
    def base_urls(self) -> list[str]:
        return [f"http://{HOST}:{port}" for port in self.ports]

    @property
    def base_url(self) -> str:
        return self.base_urls[0]

    def manage(self, *arguments: str, expect: Collection[int] = (0,)) -> Any:
        """Run a management command; with --json among the arguments its output is parsed.

        Raises CommandFailed if it ends with an exit code that isn't in `expect`.
        """
        code, output, errors = self._run(arguments)
        if code not in expect:
            told = f"{output}{errors}"
            raise CommandFailed(f"{' '.join(arguments)}: exit code {code}\n{told}")
        return json.loads(output) if "--json" in arguments else output

    def _run(self, arguments: Sequence[str]) -> Done:
        if arguments[0] == "migrate":  # Before all else, and once.
            return self._run_anew(arguments)
        if self._commands_in is None or self._commands_in[0] != self.environment:
            self._close_commands()
            self._commands_in = dict(self.environment), Commands(self.environment)
        done = self._commands_in[1].run(arguments)
        if done is not None:
            return done
        self._close_commands()
        return self._run_anew(arguments)  # It tells why.

    def _run_anew(self, arguments: Sequence[str]) -> Done:
        result = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            env=self.environment,
            cwd=environment.ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(result.returncode, result.stdout, result.stderr)

    def _close_commands(self) -> None:
        if self._commands_in is not None:
            self._commands_in[1].close()
            self._commands_in = None

    def audit(self, sale_id: int | None = None) -> Any:
        """The audit's report, whether or not it found violations."""
        only = () if sale_id is None else ("--sale", str(sale_id))
        return self.manage("audit", "--json", *only, expect=(0, 3))

    def logs(self, size: int = 4000) -> str:
        """The end of what each process wrote."""
        parts = []
        for member in self.members.values():
            text = member.log.read_text(errors="replace") if member.log.exists() else ""
            state = "running" if member.is_running else "not running"
            parts.append(f"--- {member.name} ({state})\n{text[-size:]}")
        return "\n".join(parts)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.logs())
        self.stop()

    # --- commands -----------------------------------------------------------------------------
    def _commands(self) -> list[tuple[str, list[str]]]:
        plan = self.plan
        commands = [(f"web{i}", self._web(port)) for i, port in enumerate(self.ports, 1)]
        for number in range(1, plan.workers + 1):
            commands.append(self._worker(f"orders{number}", "orders,sweeps", plan.concurrency))
        if plan.timers:
            commands.append(self._worker("timers", "timers,payments", 2))
        if plan.beat:
            commands.append(("beat", [*self._celery("beat"), "--pidfile="]))
        return commands

    def _web(self, port: int) -> list[str]:
        if self.plan.web_server == "daphne":
            place = ["-b", HOST, "-p", str(port)]
            return [sys.executable, "-m", "daphne", *place, "config.asgi:application"]
        options = ["--interface", "asgi", "--host", HOST, "--port", str(port), "--workers", "1"]
        options += ["--no-access-log", "--log-level", "warning", "--workers-kill-timeout", "10"]
        options += ["--respawn-failed-workers"]  # As `manage.py up` has it.
        return [sys.executable, "-m", "granian", *options, "config.asgi:application"]

    def _worker(self, name: str, queues: str, concurrency: int) -> tuple[str, list[str]]:
        options = ["-Q", queues, "-c", str(concurrency), "-n", f"{name}@%h"]
        options += ["--without-gossip", "--without-mingle", "-l", "INFO"]
        return name, [*self._celery("worker"), *options]

    def _celery(self, command: str) -> list[str]:
        return [sys.executable, "-W", QUIET, "-m", "celery", "-q", "-A", "config", command]

    def _member(self, name: str, arguments: list[str]) -> Member:
        return Member(name, arguments, self.directory / f"{name}.log")

    def _is_ready(self, port: int) -> bool:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end(self, member: Member, patience: float = 30) -> None:
        if member.process is None:
            return
        try:
            member.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            kill_family(member.pid)
            member.process.wait()
        this_run().forget(member.process)
        member.process = None
