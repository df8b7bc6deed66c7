"""Waiting for a condition instead of sleeping, and ports that nobody else takes."""

import random
import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

HOST = "127.0.0.1"
# Below the range that the system gives to outgoing connections: the port of a service that a test
# has stopped must still be free when the service comes back.
PORTS = range(15_000, 32_000)


def wait_until(predicate: Callable[[], T], timeout: float = 10, interval: float = 0.02) -> T:
    """The first true value of the predicate. Raises AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            name = getattr(predicate, "__qualname__", repr(predicate))  # A partial has none.
            raise AssertionError(f"{name} was still {value!r} after {timeout:g} s")
        time.sleep(interval)


def free_port() -> int:
    # Not the seeded generator of the tests: two workers with one seed would want the same ports.
    choose = random.SystemRandom().choice
    while True:
        port = choose(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
