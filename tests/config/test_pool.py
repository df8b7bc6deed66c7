"""What PooledDjango answers, driven as an ASGI server drives it."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from config.pool import CHUNK, PooledDjango
from tests.config.pool_site import PATIENCE, Client, gates, get, run

pytestmark = pytest.mark.usefixtures("pool_site")


# --- answers ------------------------------------------------------------------------------------


def test_pool_answers_with_status_headers_and_body() -> None:
    client = run(lambda app: get(app, "/plain"))

    assert (client.status, client.body, len(client.messages)) == (200, b"plain", 2)
    assert (b"content-length", b"5") in client.headers
    assert all(name == name.lower() for name, _ in client.headers)


def test_pool_refuses_other_protocols() -> None:
    with pytest.raises(ValueError, match="websocket"):
        run(lambda app: get(app, "/plain", type="websocket"))


def test_pool_hands_the_body_to_the_view() -> None:
    client = run(lambda app: get(app, "/echo", method="POST", body=b"hello"))

    assert json.loads(client.body) == {"body": "hello", "length": "5"}


def test_pool_sends_every_cookie_and_latin1_headers() -> None:
    client = run(lambda app: get(app, "/cookies"))

    assert [value for name, value in client.headers if name == b"set-cookie"] == [
        b"a=1; Path=/",
        b"b=2; Path=/",
    ]
    assert (b"x-name", b"caf\xe9") in client.headers


def test_pool_sends_no_body_to_head() -> None:
    client = run(lambda app: get(app, "/plain", method="HEAD"))

    assert (client.status, client.body) == (200, b"")
    assert (b"content-length", b"5") in client.headers


def test_pool_never_starts_a_stream_for_head() -> None:
    client = run(lambda app: get(app, "/numbers", method="HEAD"))

    assert (client.status, client.body, gates.produced) == (200, b"", 0)


@pytest.mark.parametrize("code", [204, 304])
def test_pool_sends_neither_body_nor_length_with(code: int) -> None:
    client = run(lambda app: get(app, f"/status/{code}"))

    assert (client.status, client.body) == (code, b"")
    assert b"content-length" not in dict(client.headers)


def test_pool_gives_djangos_page_for_an_error_in_a_view(settings: Any) -> None:
    settings.DEBUG = False

    client = run(lambda app: get(app, "/fail"))

    assert client.status == 500
    assert dict(client.headers)[b"content-type"] == b"text/html; charset=utf-8"


def test_pool_keeps_its_thread_when_a_view_raises_system_exit() -> None:
    async def scenario(app: PooledDjango) -> list[int]:
        return [(await get(app, target)).status for target in ("/exit", "/plain")]

    assert run(scenario, threads=1) == [500, 200]


@pytest.mark.parametrize("declared", [b"3", b"7", b"five"])
def test_pool_refuses_a_wrong_content_length(declared: bytes) -> None:
    client = run(
        lambda app: get(app, "/api/x", method="POST", headers=[(b"content-length", declared)])
    )

    assert (client.status, json.loads(client.body)["code"]) == (
        400,
        "malformed_request",
    )
    assert (b"connection", b"close") in client.headers


def test_pool_refuses_a_body_over_its_limit_and_closes() -> None:
    client = run(lambda app: get(app, "/echo", method="POST", body=bytes(11)), max_body=10)

    assert client.status == 413
    assert (b"connection", b"close") in client.headers


def test_pool_gives_up_on_a_body_that_never_ends() -> None:
    client = run(
        lambda app: get(
            app,
            "/echo",
            method="POST",
            headers=[(b"transfer-encoding", b"chunked")],
            endless=True,
        ),
        body_deadline=0.05,
    )

    assert client.status == 408


# --- streams ------------------------------------------------------------------------------------


def test_pool_streams_chunk_by_chunk() -> None:
    client = run(lambda app: get(app, "/numbers"))

    assert client.body == b"".join(b"%d," % number for number in range(1000))
    assert len(client.messages) == 1 + 1000 + 1
    assert client.complete
    assert gates.closed.is_set()


def test_pool_streams_a_file_in_large_pieces() -> None:
    client = run(lambda app: get(app, "/file"))

    assert [len(message["body"]) for message in client.messages[1:]] == [
        CHUNK,
        CHUNK,
        1,
        0,
    ]


def test_pool_produces_no_faster_than_the_client_takes() -> None:
    async def scenario(app: PooledDjango) -> tuple[int, int]:
        client, taken, go_on = Client("/numbers"), asyncio.Event(), asyncio.Event()

        async def send(message: Any) -> None:
            client.messages.append(message)
            if len(client.messages) == 3:
                taken.set()
                await go_on.wait()

        task = asyncio.ensure_future(app(client.scope, client.receive, send))
        await asyncio.wait_for(taken.wait(), PATIENCE)
        # A second request through the only other thread: time in which a producer could run on.
        await get(app, "/plain")
        produced = gates.produced
        go_on.set()
        await asyncio.wait_for(task, PATIENCE)
        return produced, gates.produced

    assert run(scenario) == (2, 1000)


def test_pool_leaves_a_broken_stream_unfinished() -> None:
    client = run(lambda app: get(app, "/broken"))

    assert (client.status, client.body, client.complete) == (200, b"first", False)


def test_pool_closes_the_connection_of_a_broken_stream_under_daphne() -> None:
    class Protocol:
        closed = False

        @property
        def channel(self) -> "Protocol":
            return self

        def loseConnection(self) -> None:
            self.closed = True

    async def scenario(app: PooledDjango) -> bool:
        client, protocol = Client("/broken"), Protocol()

        async def reply(protocol: Protocol, message: Any) -> None:
            client.messages.append(message)

        await app(client.scope, client.receive, partial(reply, protocol))
        return protocol.closed

    assert run(scenario) is True
