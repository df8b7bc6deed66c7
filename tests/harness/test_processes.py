"""Nothing that a test process starts outlives it, however it ends."""

import subprocess
import sys
import textwrap
from collections.abc import Callable

import psutil
import pytest

from tests.support import environment
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

# Starts a service and a stack member with a child of its own, tells their ids, and waits.
OWNER = """
    import sys, time
    from tests.support.processes import Command, this_run
    from tests.support.redis_server import RedisServer

    server = RedisServer().start()
    parent = "import subprocess, time; child = subprocess.Popen(['sleep', '60'])"
    parent += "; print(child.pid, flush=True); time.sleep(60)"
    log = this_run().directory / "log"
    process = this_run().spawn(Command([sys.executable, "-c", parent]), log=log)
    while not log.read_text().endswith("\\n"):
        time.sleep(0.01)
    print(server.pid, process.pid, log.read_text().strip(), this_run().directory, flush=True)
    end()
"""
ENDS: dict[str, tuple[str, Callable[["subprocess.Popen[str]"], None]]] = {
    "by itself": ("def end(): pass", lambda _owner: None),
    "by an exception": ("def end(): raise ZeroDivisionError", lambda _owner: None),
    # Whoever runs the tests in the background has SIGINT ignored, here too.
    "by Ctrl-C": (
        "import signal\ndef end():\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    signal.raise_signal(signal.SIGINT)",
        lambda _owner: None,
    ),
    "by kill -9": ("def end(): time.sleep(60)", lambda owner: owner.kill()),
}


@pytest.mark.parametrize("how", ENDS)
def test_what_a_process_started_ends_with_it(how: str) -> None:
    definition, finish = ENDS[how]
    script = f"{definition}\n{textwrap.dedent(OWNER)}"
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=environment.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    *pids, directory = owner.stdout.readline().split()
    started = [process for pid in pids if (process := find(int(pid)))]
    finish(owner)

    owner.wait(timeout=30)

    wait_until(lambda: not any(is_alive(process) for process in started))
    wait_until(lambda: not (environment.ROOT / directory).exists())
    owner.stdout.close()


def find(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def test_wait_until_returns_the_first_true_value() -> None:
    values = iter([0, "", "ready"])

    assert wait_until(lambda: next(values)) == "ready"


def test_wait_until_tells_what_it_saw_last() -> None:
    with pytest.raises(AssertionError, match=r"was still 0 after 0\.05 s"):
        wait_until(int, timeout=0.05)
