"""`manage.py up` as real processes: it starts, serves, heals and leaves nothing behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from tests.support import environment
from tests.support.waiting import free_port, wait_until

ROOT = Path(__file__).resolve().parents[1]
SECOND_START = 15.0  # seconds, on an idle machine with so many cores:
CORES = 2
READY_WITHIN = 90.0

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]


class Up:
    """One run of `manage.py up` with a `var` folder of its own."""

    def __init__(self, var: Path, *, port: int | None = None, **variables: str) -> None:
        self.var = var
        self.port = port or free_port()
        self.environment = _environment(var) | variables
        self.out, self.log = var / "out", var / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.family: dict[int, psutil.Process] = {}

    def start(self, *arguments: str) -> "Up":
        with self.out.open("wb") as out, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_manage("up", "--port", str(self.port)), *arguments],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )
        return self

    def said(self) -> str:
        return self.out.read_text()

    def wait_ready(self) -> "Up":
        self.wait_for(lambda: "ready" in self.said(), READY_WITHIN)
        self.note_family()
        return self

    def wait_for(self, condition: Callable[[], object], timeout: float = 60) -> None:
        """Wait while it runs; if it ends instead, the test fails with what it wrote."""
        wait_until(lambda: condition() or not self.alive, timeout)
        assert self.alive, self.log.read_text()[-3000:]

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def note_family(self) -> list[psutil.Process]:
        """Remember all processes below this one, so that none can hide by losing its parent."""
        with suppress(psutil.NoSuchProcess):
            self.family |= {p.pid: p for p in psutil.Process(self.pid).children(recursive=True)}
        return list(self.family.values())

    def child(self, word: str) -> psutil.Process:
        """The direct child whose command line has this word in it; waits until there is one."""

        def find() -> list[psutil.Process]:
            return [p for p in psutil.Process(self.pid).children() if word in _command(p)]

        return wait_until(find, 30)[0]

    def worked(self) -> float:
        """Seconds of work so far of all its processes.

        The clock on the wall would tell how busy the machine is with other tests.
        """
        times = [p.cpu_times() for p in (psutil.Process(self.pid), *self.note_family())]
        return sum(t.user + t.system + t.children_user + t.children_system for t in times)

    def has(self, word: str) -> bool:
        return any(word in _command(process) for process in self.note_family())

    def left(self) -> list[psutil.Process]:
        return [process for process in self.family.values() if _runs(process)]

    def signal(self, number: int) -> None:
        """As a terminal does: to the whole process group."""
        self.note_family()
        os.killpg(self.pid, number)

    def wait(self, timeout: float = 60) -> int:
        assert self.process
        code = self.process.wait(timeout)
        sys.stdout.write(self.log.read_text()[-3000:])  # shown only if the test fails
        return code

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return int(answer.status)
        except OSError:
            return 0

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.var / "up.json").read_text())
        return found

    def manage(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            _manage(*arguments),
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def clean_up(self) -> None:
        if self.alive:
            self.signal(signal.SIGKILL)
            self.wait()
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _manage(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), *arguments]


def _environment(var: Path) -> dict[str, str]:
    return environment.neutral() | {"VAR_DIR": str(var)}


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def running(var: Path, **options: Any) -> Iterator[Up]:
    up = Up(var, **options)
    try:
        yield up
    finally:
        up.clean_up()


@pytest.fixture
def var(tmp_path: Path) -> Path:
    path = tmp_path / "var"
    path.mkdir()
    return path


def test_up_serves_the_shop_and_leaves_nothing_behind(var: Path) -> None:
    with running(var) as up:
        up.start().wait_ready()

        lines = up.said().splitlines()
        assert lines[0] == f"ready http://127.0.0.1:{up.port}"
        assert lines[1:] == ["admin: admin / admin", "buyer: demo / demo"]
        assert (var / "up.json").stat().st_mode & 0o777 == 0o600
        assert up.get("/readyz") == 200
        report = up.manage("audit", "--json")
        assert (report.returncode, json.loads(report.stdout)["ok"]) == (0, True)
        # Web, workers and beat count together, and nobody else does.
        counting = {int(path.stem.split("_")[1]) for path in (var / "metrics").glob("counter_*.db")}
        assert len(counting & {process.pid for process in up.note_family()}) >= 3

        up.signal(signal.SIGINT)

        assert up.wait() == 0
        assert up.left() == []
        assert not (var / "up.json").exists()


@pytest.mark.long
def test_up_starts_again_within_seconds_and_keeps_its_data(var: Path) -> None:
    with running(var) as first:
        first.start().wait_ready()
        made = first.manage(
            "create_sale", "--name", "Kept", "--price", "1", "--stock", "7", "--json"
        )
        sale = json.loads(made.stdout)["sale_id"]
        sales = _sales(first)
        os.kill(first.pid, signal.SIGTERM)
        assert first.wait() == 0

    with running(var) as second:
        second.start().wait_ready()

        assert second.worked() / CORES < SECOND_START
        assert _sales(second) == sales
        report = json.loads(second.manage("audit", "--sale", str(sale), "--json").stdout)
        assert (report["sales"][0]["gate"], report["ok"]) == (7, True)


def _sales(up: Up) -> list[int]:
    report = json.loads(up.manage("audit", "--json").stdout)
    return [sale["sale_id"] for sale in report["sales"]]


@pytest.mark.long
def test_up_starts_again_what_dies(var: Path) -> None:
    with running(var) as up:
        up.start("--no-demo").wait_ready()
        url = up.state()["redis_url"]
        with redis.Redis.from_url(url) as client:
            client.set("kept", "yes")
            # appendfsync everysec: what is killed now may lose the last second.
            wait_until(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)
            client.execute_command("WAITAOF", 1, 0, 3000)
        web, server = up.child("-m granian"), up.child("valkey-server")

        server.kill()
        web.kill()

        wait_until(lambda: up.child("-m granian").pid != web.pid and up.get("/readyz") == 200, 60)
        assert up.state()["redis_url"] == url
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"yes"
        assert up.alive
        up.signal(signal.SIGTERM)
        assert up.wait() == 0
        assert up.left() == []


@pytest.mark.long
def test_up_runs_daphne_too(var: Path) -> None:
    with running(var, WEB_SERVER="daphne", WEB_WORKERS="2", WORKERS="2") as up:
        up.start("--no-demo").wait_ready()

        commands = [_command(process) for process in psutil.Process(up.pid).children()]
        assert sum("-m daphne" in command for command in commands) == 2
        assert sum("-Q orders,sweeps" in command for command in commands) == 2
        assert up.get("/readyz") == 200
        up.child("-m daphne").kill()
        wait_until(lambda: up.get("/readyz") == 200, 30)

        up.signal(signal.SIGTERM)
        assert up.wait() == 0
        assert up.left() == []


@pytest.mark.long
def test_up_killed_takes_its_children_along(var: Path) -> None:
    with running(var) as up:
        up.start("--no-demo").wait_ready()
        up.note_family()

        os.kill(up.pid, signal.SIGKILL)

        up.wait()
        wait_until(lambda: up.left() == [], 40)

    with running(var, port=up.port) as again:
        again.start("--no-demo").wait_ready()
        assert again.get("/readyz") == 200


@pytest.mark.long
@pytest.mark.parametrize("step", ["redis", "db.sqlite3", "static", "ready"])
def test_up_stops_during_its_start(var: Path, step: str) -> None:
    with running(var) as up:
        up.start()
        if step == "ready":  # The web process is there, but the shop isn't ready yet.
            up.wait_for(lambda: up.has("-m granian"))
        else:
            up.wait_for(lambda: (var / step).exists())

        up.signal(signal.SIGINT)
        time.sleep(0.7)  # The second one is meant as one, not an echo of the first.
        with suppress(ProcessLookupError):
            up.signal(signal.SIGINT)

        assert up.wait() == 0
        assert up.left() == []
        assert not (var / "up.json").exists()


def test_up_refuses_a_second_one_and_a_port_in_use(var: Path, tmp_path: Path) -> None:
    with running(var) as up, socket.socket() as taken:
        up.start("--no-demo")
        up.wait_for(lambda: (var / "up.json").exists())
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        second = up.manage("up", "--port", str(free_port()))
        other = Up(tmp_path).manage("up", "--port", str(port))

        assert (second.returncode, second.stdout) == (1, "")
        assert f"runs already at http://127.0.0.1:{up.port} (process {up.pid})" in second.stderr
        assert (other.returncode, other.stdout) == (1, "")
        assert other.stderr.startswith(f"Port {port} is in use by another program.")
        up.signal(signal.SIGINT)
        assert up.wait() == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "80a"), ("PORT", "70000"), ("WEB_SERVER", "gunicorn"), ("WEB_WORKERS", "0"),
     ("WORKERS", "-1"), ("PAYMENT_WINDOW", "soon")],
)  # fmt: skip
def test_up_refuses_a_variable_that_makes_no_sense(var: Path, name: str, value: str) -> None:
    result = subprocess.run(
        _manage("up"),
        cwd=ROOT,
        env=_environment(var) | {name: value},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"configuration error: {name}: ")
    assert len(result.stderr.splitlines()) == 1
