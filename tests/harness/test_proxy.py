"""Each mode of the fault proxy does what its name says, to new and to existing connections."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.proxy import FaultProxy
from tests.support.waiting import HOST, wait_until

DELAY = 0.3


class Echo:
    """A server that answers each piece with the same piece, and remembers what it got."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Closing alone doesn't wake the thread that waits for connections.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while piece := connection.recv(65536):
                    self.received.append(piece)
                    connection.sendall(piece)
            except OSError:
                return


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    """A connection that was made, and worked, before the fault."""
    with connect(proxy) as connection:
        assert ask(connection, b"hello") == b"hello"
        yield connection


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=5)


def ask(connection: socket.socket, piece: bytes, *, timeout: float = 5) -> bytes:
    connection.settimeout(timeout)
    connection.sendall(piece)
    return connection.recv(65536)


def test_proxy_passes_large_content_both_ways(proxy: FaultProxy) -> None:
    content = bytes(range(256)) * 8192
    with connect(proxy) as connection:
        threading.Thread(target=connection.sendall, args=[content], daemon=True).start()

        got = bytearray()
        while len(got) < len(content):
            got += connection.recv(65536)

    assert bytes(got) == content


def test_proxy_passes_the_end_of_a_connection_on(proxy: FaultProxy, client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)

    assert client.recv(1) == b""
    wait_until(lambda: proxy.connections() == 0)


def test_proxy_url_keeps_account_and_path(proxy: FaultProxy) -> None:
    place = f"127.0.0.1:{proxy.port}"

    assert proxy.url("amqp://guest:guest@localhost:5672//") == f"amqp://guest:guest@{place}//"
    assert proxy.url("redis://127.0.0.1:6379/0") == f"redis://{place}/0"


def test_refuse_resets_and_refuses_until_healed(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.set("refuse")

    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as connection:
        assert ask(connection, b"again") == b"again"


def test_cut_resets_old_and_new_connections(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.set("cut")

    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionResetError), connect(proxy) as connection:
        connection.recv(1)


def test_blackhole_answers_nothing_and_delivers_after_healing(
    proxy: FaultProxy, client: socket.socket, echo: Echo
) -> None:
    proxy.set("blackhole")

    with pytest.raises(TimeoutError):
        ask(client, b"lost?", timeout=DELAY)
    with connect(proxy) as connection, pytest.raises(TimeoutError):
        ask(connection, b"new", timeout=DELAY)
    assert echo.received == [b"hello"]
    proxy.heal()
    client.settimeout(5)
    assert client.recv(100) == b"lost?"


@pytest.mark.parametrize(
    ("mode", "sooner"),
    [
        pytest.param("delay_request", [b"hello"], id="the request is late"),
        pytest.param("delay_reply", [b"hello", b"late"], id="only the reply is late"),
    ],
)
def test_delay_holds_back_one_direction(
    proxy: FaultProxy, client: socket.socket, echo: Echo, mode: str, sooner: list[bytes]
) -> None:
    proxy.set(mode, seconds=DELAY)  # type: ignore[arg-type]
    started = time.monotonic()

    with pytest.raises(TimeoutError):
        ask(client, b"late", timeout=DELAY / 2)

    assert echo.received == sooner
    client.settimeout(5)
    assert client.recv(100) == b"late"
    assert DELAY <= time.monotonic() - started < DELAY + 1


def test_delay_does_not_add_up_over_pieces(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.set("delay_reply", seconds=DELAY)
    started = time.monotonic()

    for _ in range(10):
        client.sendall(b"x" * 10)
        time.sleep(DELAY / 20)  # So that they come as pieces of their own.
    got = b""
    while len(got) < 100:
        got += client.recv(100)

    assert DELAY <= time.monotonic() - started < 3 * DELAY


def test_drop_reply_loses_every_reply(proxy: FaultProxy, client: socket.socket, echo: Echo) -> None:
    proxy.set("drop_reply")

    for piece in (b"one", b"two"):
        with pytest.raises(TimeoutError):
            ask(client, piece, timeout=DELAY / 2)

    assert echo.received == [b"hello", b"one", b"two"]


def test_drop_reply_once_loses_one_reply(
    proxy: FaultProxy, client: socket.socket, echo: Echo
) -> None:
    proxy.set("drop_reply_once")

    with pytest.raises(TimeoutError):
        ask(client, b"one", timeout=DELAY)

    assert proxy.fired.is_set()
    assert ask(client, b"two") == b"two"
    assert echo.received == [b"hello", b"one", b"two"]


def test_cut_reply_once_happens_after_the_server_has_acted(
    proxy: FaultProxy, client: socket.socket, echo: Echo
) -> None:
    proxy.set("cut_reply_once")

    with pytest.raises(ConnectionResetError):
        ask(client, b"one")

    assert echo.received == [b"hello", b"one"]
    with connect(proxy) as connection:
        assert ask(connection, b"two") == b"two"


def test_cut_request_once_happens_before_the_server_has_acted(
    proxy: FaultProxy, client: socket.socket, echo: Echo
) -> None:
    proxy.set("cut_request_once")

    with pytest.raises(ConnectionResetError):
        ask(client, b"one")

    assert echo.received == [b"hello"]


def test_one_time_fault_waits_for_a_piece_with_that_content(
    proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.set("cut_reply_once", when=lambda piece: b"COMMIT" in piece)

    assert ask(client, b"SELECT") == b"SELECT"
    assert not proxy.fired.is_set()
    with pytest.raises(ConnectionResetError):
        ask(client, b"COMMIT")
    assert proxy.fired.is_set()


def test_proxy_resets_the_client_if_nothing_listens_behind_it(
    proxy: FaultProxy, echo: Echo
) -> None:
    echo.close()

    with pytest.raises(ConnectionResetError), connect(proxy) as connection:
        connection.recv(1)
