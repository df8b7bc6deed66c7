"""The end of a worker whose process runs a task that the worker has forgotten."""

import array
import fcntl
import os
import subprocess
import sys
import termios
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from config import celery_app, pulse
from tests.support.environment import ROOT
from tests.support.processes import Command, kill_family, this_run
from tests.support.waiting import wait_until


def has_to_read(pid: int) -> bool:
    """Whether any pipe of the process holds bytes."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        if os.readlink(path).startswith("pipe:"):
            size = array.array("i", [0])
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
                fcntl.ioctl(pipe, termios.FIONREAD, size)
            if size[0]:
                return True
    return False


@contextmanager
def worker_that_forgot(tmp_path: Path, **variables: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A task was handed to its process; before it said to have begun, the worker was stopped."""
    queue, log = f"parting-{uuid.uuid4().hex[:8]}", tmp_path / "worker.log"
    options = ["-Q", queue, "-c", "1", "-n", f"{queue}@%h", "--without-gossip", "--without-mingle"]
    arguments = ["-m", "celery", "-q", "-A", "tests.config.worker_app", "worker", "-l", "INFO"]
    settings = {**os.environ, **variables}
    command = Command([sys.executable, *arguments, *options], settings, folder=ROOT)
    worker = this_run().spawn(command, log=log)
    try:
        wait_until(lambda: pulse.TASK in log.read_text(), 30)  # Its own, at the start.
        wait_until(lambda: "succeeded" in log.read_text())
        (process,) = psutil.Process(worker.pid).children()
        process.suspend()
        celery_app.send_task(pulse.TASK, queue=queue, serializer="json")
        wait_until(lambda: has_to_read(process.pid))
        threads = psutil.Process(worker.pid).num_threads()
        worker.terminate()
        # It waits for its processes now, and has a thread more meanwhile.
        wait_until(lambda: psutil.Process(worker.pid).num_threads() > threads)
        process.resume()
        yield worker
    finally:
        kill_family(worker.pid)
        worker.wait()
        this_run().forget(worker)


def test_worker_ends_soon_though_a_process_has_results_that_it_forgot(tmp_path: Path) -> None:
    with worker_that_forgot(tmp_path) as worker:
        assert worker.wait(timeout=10) == 0


@pytest.mark.long
def test_worker_without_the_guard_waits_for_long(tmp_path: Path) -> None:
    with (
        worker_that_forgot(tmp_path, WORKER_TEST_GUARD="off") as worker,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        worker.wait(timeout=6)
