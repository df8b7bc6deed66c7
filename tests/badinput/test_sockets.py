"""What websockets get from clients that mean no good, at a real web process."""

import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from seckill.consumers import BAD_MESSAGE, NOT_FOUND, SIGN_IN, TOO_FAST
from tests.e2e.shop import Shop
from tests.support.waiting import HOST

UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
)


@pytest.fixture(scope="module")
def sale_id(site: Shop) -> int:
    return site.create_sale(10)


@pytest.fixture(autouse=True)
def _others_are_served(site: Shop, sale_id: int) -> Iterator[None]:
    yield
    with dial(site, f"/ws/v1/sales/{sale_id}") as other:
        started = time.monotonic()
        assert '"hello"' in str(other.recv(timeout=5))
        assert time.monotonic() - started < 3
    assert site.gate_stock(sale_id) == 10


def dial(
    site: Shop, path: str, *, origin: str | None = "own", cookie: str = ""
) -> AbstractContextManager[ClientConnection]:
    place = f"{HOST}:{site.stack.ports[0]}"
    own = Origin(f"http://{place}") if origin == "own" else Origin(origin) if origin else None
    headers = {"Cookie": cookie} if cookie else {}
    return connect(f"ws://{place}{path}", origin=own, additional_headers=headers, max_size=None)


def close_code(link: ClientConnection) -> int | None:
    """Read up to the end."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            link.recv(timeout=8)
    return link.close_code


@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://evil.example", "https://127.0.0.1", "http://127.0.0.1.evil.example"],
)
@pytest.mark.parametrize("path", ["/ws/v1/me", "/ws/v1/sales/{sale}", "/ws/v1/nothing"])
def test_another_origin_gets_no_socket(
    site: Shop, sale_id: int, path: str, origin: str | None
) -> None:
    refused: pytest.ExceptionInfo[InvalidStatus]
    with (
        pytest.raises(InvalidStatus) as refused,
        dial(site, path.format(sale=sale_id), origin=origin),
    ):
        pass

    assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    "cookie", ["", "sessionid=", "sessionid=" + "x" * 32, 'sessionid="\\000a"']
)
def test_no_session_no_results(site: Shop, cookie: str) -> None:
    with dial(site, "/ws/v1/me", cookie=cookie) as link:
        assert close_code(link) == SIGN_IN


# Names that would make other groups, or none at all, if they came that far.
PATHS = [
    "1 2",
    "%20",
    "x" * 200,
    "1/../2",
    "%F0%9F%8E%89",
    "0",
    "-1",
    "9" * 19,
    "1%00",
    "１",
    "1%0a",
]


@pytest.mark.parametrize("name", PATHS)
def test_sale_that_can_not_be_one(site: Shop, name: str) -> None:
    path = f"/ws/v1/sales/{name}".encode().decode("latin-1")
    refused: pytest.ExceptionInfo[InvalidStatus]
    with pytest.raises(InvalidStatus) as refused, dial(site, path):
        pass

    assert refused.value.response.status_code in (400, 403, 404)


def test_sale_that_is_not_there(site: Shop) -> None:
    with dial(site, "/ws/v1/sales/999999999999") as link:
        assert close_code(link) == NOT_FOUND


BAD = {
    "no JSON": "{",
    "empty": "",
    "array": "[]",
    "number": "1",
    "null": "null",
    "deep": "[" * 4000,
    "huge number": '{"type":' + "9" * 4000 + "}",
    "no type": "{}",
    "type of another kind": '{"type":["ping"]}',
    "name of a handler": '{"type":"websocket.disconnect"}',
    "name of a method": '{"type":"evicted"}',
    "dunder": '{"type":"__class__"}',
    "frame of a buyer": '{"type":"purchase.succeeded","data":{"order_id":"1"}}',
    "lone surrogate": '{"type":"\\ud800"}',
}


@pytest.mark.parametrize("name", BAD)
def test_bad_message_is_complained_of_until_it_is_enough(
    site: Shop, sale_id: int, name: str
) -> None:
    with dial(site, f"/ws/v1/sales/{sale_id}") as link:
        link.recv(timeout=5)
        for _ in range(3):
            link.send(BAD[name])
            assert '"error"' in str(link.recv(timeout=5))
        assert close_code(link) == BAD_MESSAGE


@pytest.mark.parametrize("size", [4097, 1_048_577, 20_000_000])
def test_message_that_is_too_long(site: Shop, sale_id: int, size: int) -> None:
    with dial(site, f"/ws/v1/sales/{sale_id}") as link:
        link.recv(timeout=5)
        with contextlib.suppress(ConnectionClosed):
            for _ in range(3):
                link.send("x" * size)
        assert close_code(link) in (BAD_MESSAGE, 1009, 1006, 1005, None)


def test_binary_frame_is_no_message(site: Shop, sale_id: int) -> None:
    with dial(site, f"/ws/v1/sales/{sale_id}") as link:
        link.recv(timeout=5)
        link.send(b"\xff\xfe")
        assert '"bad_message"' in str(link.recv(timeout=5))


def test_message_in_a_hundred_thousand_pieces(site: Shop, sale_id: int) -> None:
    with dial(site, f"/ws/v1/sales/{sale_id}") as link:
        link.recv(timeout=5)
        with contextlib.suppress(ConnectionClosed):
            link.send("x" for _ in range(100_000))
            assert '"bad_message"' in str(link.recv(timeout=10))


@pytest.mark.parametrize("number", [30, 5000])
def test_flood_from_one_socket_closes_it_alone(site: Shop, sale_id: int, number: int) -> None:
    path = f"/ws/v1/sales/{sale_id}"
    with dial(site, path) as link, dial(site, path) as other:
        other.recv(timeout=5)
        with contextlib.suppress(ConnectionClosed):
            for _ in range(number):
                link.send('{"type":"ping"}')
        # Who goes on writing after the close doesn't read what it said.
        assert close_code(link) in ((TOO_FAST,) if number < 100 else (TOO_FAST, 1006))
        other.send('{"type":"ping"}')
        assert '"pong"' in str(other.recv(timeout=5))


def test_frames_that_break_the_protocol_end_the_socket(site: Shop, sale_id: int) -> None:
    odd = [
        Frame(Opcode.CONT, b"x").serialize(mask=True),  # continues nothing
        Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 3 + b"\x8f\x80\0\0\0\0",  # opcode 15
        Frame(Opcode.TEXT, b"\xff\xff").serialize(mask=True),  # no text
        Frame(Opcode.TEXT, b"x").serialize(mask=False),  # not masked
        b"\x81\xff" + b"\xff" * 12,  # a length of 2^64 - 1
    ]
    for bytes_ in odd:
        with socket.create_connection((HOST, site.stack.ports[0]), timeout=5) as link:
            place = f"{HOST}:{site.stack.ports[0]}"
            origin = f"Origin: http://{place}\r\n"
            path = f"/ws/v1/sales/{sale_id}"
            link.sendall(UPGRADE.format(path=path, host=place, more=origin).encode())
            assert b" 101 " in link.recv(65536)
            link.sendall(bytes_)
            with contextlib.suppress(ConnectionError):
                while link.recv(65536):
                    pass  # Until it is closed; the timeout of the socket is the limit.


def test_half_a_handshake_holds_nobody_up(site: Shop, sale_id: int) -> None:
    links = [socket.create_connection((HOST, site.stack.ports[0])) for _ in range(50)]
    for link in links:
        link.sendall(b"GET /ws/v1/me HTTP/1.1\r\nHost: x\r\nConnection: Upg")

    with dial(site, f"/ws/v1/sales/{sale_id}") as other:
        assert '"hello"' in str(other.recv(timeout=3))
    for link in links:
        link.close()


def test_two_hundred_sockets_of_one_visitor_leave_room_for_others(site: Shop, sale_id: int) -> None:
    """Without a session they are a sale's viewers, who may be many; a buyer's own are bounded."""
    path = f"/ws/v1/sales/{sale_id}"
    with ExitStack() as links:
        for _ in range(200):
            links.enter_context(dial(site, path))

        with dial(site, path) as other:
            assert '"hello"' in str(other.recv(timeout=5))
