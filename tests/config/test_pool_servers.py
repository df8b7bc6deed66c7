"""PooledDjango with its one thread under the real servers: what clients do to sockets."""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.processes import Command, kill_family, this_run
from tests.support.waiting import HOST, free_port, wait_until

APPLICATION = "tests.config.pool_server_app:application"
ROOT = Path(__file__).parents[2]


class Server(NamedTuple):
    port: int
    mark: Path  # written when a stream was closed

    def open(self, request: str) -> socket.socket:
        connection = socket.create_connection((HOST, self.port), timeout=10)
        connection.sendall(request.encode())
        return connection

    def ask(self, target: str) -> bytes:
        """The whole answer, up to the end of the connection."""
        with self.open(f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n") as c:
            return read_all(c)

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("/plain").startswith(b"HTTP/1.1 200")
        return False


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


@pytest.fixture(params=["granian", "daphne"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    port, mark = free_port(), tmp_path / "mark"
    options = {
        "granian": ["--interface", "asginl", "--workers", "1", "--host", HOST, "--port"],
        "daphne": ["-b", HOST, "-p"],
    }[request.param]
    command = [sys.executable, "-m", request.param, *options, str(port), APPLICATION]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "POOL_TEST_MARK": str(mark)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    process = this_run().spawn(Command(command, environment), log=tmp_path / "log")
    running = Server(port, mark)
    try:
        wait_until(running.answers, timeout=20)
        yield running
    finally:
        kill_family(process.pid)
        process.wait()
        this_run().forget(process)


def test_pool_stays_free_while_bodies_trickle_in(server: Server) -> None:
    head = f"POST /echo HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nContent-Length: 3\r\n\r\n"
    slow = [server.open(head + "a") for _ in range(8)]

    assert server.answers()

    for connection in slow:
        connection.sendall(b"bc")
        assert b'{"length": 3}' in read_all(connection)
        connection.close()


def test_pool_closes_the_stream_when_the_socket_closes(server: Server) -> None:
    connection = server.open(f"GET /endless HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
    assert connection.recv(65536)
    connection.close()

    assert wait_until(server.mark.exists)
    assert server.answers()


def test_pool_does_not_end_a_broken_stream_as_if_it_were_whole(server: Server) -> None:
    answer = server.ask("/broken")

    assert b"first" in answer
    assert not answer.endswith(b"0\r\n\r\n")
    assert server.answers()
