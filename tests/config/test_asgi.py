"""The whole web process: what goes where, and how it ends."""

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from config import asgi
from config.asgi import Application
from inventory import redis_clients
from inventory.models import FlashSale
from seckill import admission
from seckill.publisher import Publisher
from tests.factories import FlashSaleFactory
from tests.seckill.conftest import Broker, bearer, forget, token_for
from tests.support.asgi import Answer, Exchange, Host
from tests.support.redis_server import RedisServer
from tests.support.stack import Plan, Stack
from tests.support.waiting import HOST, wait_until


class Site:
    """The application in a loop of its own."""

    def __init__(self, host: Host, application: Application) -> None:
        self.host, self.application = host, application

    def ask(self, method: str, target: str, headers: dict[str, str] | None = None) -> Answer:
        return self.host.call(Exchange(method, target, headers or {}).run(self.application))


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def site(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    forget()
    publisher = Publisher(broker)
    monkeypatch.setattr(admission, "publisher", publisher)
    monkeypatch.setattr(asgi, "publisher", publisher)
    host = Host()
    application = Application()
    yield Site(host, application)
    application.pool.close()
    publisher.close()
    host.call(_close_redis(host))
    host.close()
    forget()


async def _close_redis(host: Host) -> None:
    client = redis_clients._async.pop(host.loop, None)
    if client is not None:
        await client.aclose()


# --- what goes where ------------------------------------------------------------------------------


def test_livez_answers_while_every_thread_is_stuck(site: Site) -> None:
    release = threading.Event()

    stuck = [
        asyncio.run_coroutine_threadsafe(
            site.application.pool.run(release.wait, 10), site.host.loop
        )
        for _ in range(django_settings.WEB_THREADS)
    ]
    answer = site.ask("GET", "/livez")
    release.set()
    assert all(future.result(5) for future in stuck)

    assert (answer.status, answer.body) == (200, b"ok\n")
    assert answer.headers["cache-control"] == "no-store"
    wait_until(lambda: site.host.tasks() == 0)


def test_static_file_is_served_with_a_validator(site: Site) -> None:
    path = django_settings.STATIC_URL + "admin/css/base.css"

    first = site.ask("GET", path)
    again = site.ask("GET", path, {"If-None-Match": first.headers["etag"]})
    head = site.ask("HEAD", path)

    assert first.status == 200
    assert first.headers["content-type"].startswith("text/css")
    assert "max-age=60" in first.headers["cache-control"]
    assert (again.status, again.body) == (304, b"")
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize(
    "name", ["nothing.css", "../manage.py", "%2e%2e/manage.py", "..%2fmanage.py", "", "\0"]
)
def test_static_file_that_is_not_there(site: Site, name: str) -> None:
    assert site.ask("GET", django_settings.STATIC_URL + name).status == 404


@pytest.mark.django_db(transaction=True)
def test_lane_and_pages_and_api_are_behind_one_door(site: Site) -> None:
    lane = site.ask("POST", "/api/v1/sales/1/purchases")
    api = site.ask("GET", "/api/v1/time")
    page = site.ask("GET", "/login/")

    assert (lane.status, lane.code) == (401, "token_required")
    assert set(api.json) == {"now"}
    assert page.headers["content-type"].startswith("text/html")


def test_unknown_kind_of_connection_is_let_be(site: Site) -> None:
    async def connect() -> None:
        await site.application({"type": "other"}, _never, _never)

    site.host.call(connect())


async def _never(*_: Any) -> Any:
    raise AssertionError("nobody should ask")


# --- how it ends ----------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_lifespan_lets_purchases_finish(site: Site, broker: Broker) -> None:
    sale: FlashSale = FlashSaleFactory(primed=True, quantity=50)
    target = f"/api/v1/sales/{sale.pk}/purchases"
    asked = [Exchange("POST", target, bearer(token_for(sale, n))) for n in range(1, 31)]
    said: list[str] = []

    async def live() -> list[Answer]:
        messages = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> dict[str, str]:
            return {"type": next(messages)}

        async def send(message: Any) -> None:
            said.append(message["type"])

        waiting = [asyncio.create_task(exchange.run(site.application)) for exchange in asked]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await site.application({"type": "lifespan"}, receive, send)
        return await asyncio.gather(*waiting)

    answers = site.host.call(live())

    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert {answer.status for answer in answers} == {202}
    assert len(broker.entries) == 30


# --- real servers ---------------------------------------------------------------------------------


@pytest.fixture(params=["granian", "daphne"])
def stack(request: pytest.FixtureRequest, database_url: str) -> Iterator[Stack]:
    plan = Plan(web_server=request.param, workers=0, timers=False, beat=False)
    with RedisServer() as redis:
        settings = {"DATABASE_URL": database_url, "REDIS_URL": redis.url}
        with Stack(settings, plan=plan) as running:
            yield running


def lines(stack: Stack, number: int) -> tuple[int, list[list[str]]]:
    """A sale, and (user, purchase, token) of so many buyers."""
    sale_id: int = stack.manage(
        *("create_sale", "--name", "Thing", "--price", "1", "--stock", "100", "--json")
    )["sale_id"]
    stack.manage("create_buyers", "--count", str(number))
    text = stack.manage("issue_tokens", "--sale", str(sale_id), "--count", str(number))
    return sale_id, [line.split() for line in text.splitlines()]


def post(sale_id: int, token: str, body: str = "") -> bytes:
    head = f"POST /api/v1/sales/{sale_id}/purchases HTTP/1.1\r\nHost: {HOST}\r\n"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    head += "Content-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def read_answer(connection: socket.socket) -> int | None:
    """The status of one answer, None if the connection ended without any."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        response.read()
    except (http.client.BadStatusLine, ConnectionError):
        return None
    return response.status


@pytest.fixture
def open_to() -> Iterator[Callable[[socket.socket], socket.socket]]:
    """Closes the sockets that it is given, after the test."""
    with contextlib.ExitStack() as sockets:
        yield sockets.enter_context


@pytest.mark.e2e
def test_server_ends_cleanly_with_requests_in_flight(
    stack: Stack, open_to: Callable[[socket.socket], socket.socket]
) -> None:
    sale_id, buyers = lines(stack, 51)
    url = f"/api/v1/sales/{sale_id}/purchases"
    connections = [open_to(socket.create_connection((HOST, stack.ports[0]))) for _ in buyers]
    for connection, (_, _, token) in zip(connections[1:], buyers[1:], strict=True):
        connection.settimeout(20)
        connection.sendall(post(sale_id, token))
    # One who waits for an outcome may not hold up the end.
    _, purchase, token = buyers[0]
    connections[0].sendall(post(sale_id, token))
    assert read_answer(connections[0]) == 202
    question = f"GET {url}/{purchase}?wait=30 HTTP/1.1\r\nHost: {HOST}\r\n"
    connections[0].sendall(f"{question}Authorization: Bearer {token}\r\n\r\n".encode())
    begun = time.monotonic()

    stack.send("web1", signal.SIGTERM)
    process = stack.members["web1"].process
    assert process is not None
    code = process.wait(timeout=30)

    # Far sooner than the server's supervisor would lose patience.
    assert time.monotonic() - begun < 8
    statuses = [read_answer(connection) for connection in connections[1:]]
    assert set(statuses) <= {202, 503}
    report = stack.audit(sale_id)
    assert report["ok"], report
    assert report["sales"][0]["in_flight"] >= statuses.count(202) + 1
    assert code in (0, -signal.SIGTERM) if stack.plan.web_server == "daphne" else code == 0


@pytest.mark.e2e
def test_server_ends_at_once_with_websockets_open(stack: Stack) -> None:
    sale_id = stack.manage(
        *("create_sale", "--name", "Thing", "--price", "1", "--stock", "100", "--json")
    )["sale_id"]
    url = f"ws://{HOST}:{stack.ports[0]}/ws/v1/sales/{sale_id}"
    with connect(url, origin=Origin(stack.base_url)) as tab:
        assert json.loads(tab.recv(timeout=5))["type"] == "hello"
        begun = time.monotonic()

        stack.kill("web1", signal.SIGTERM)

        assert time.monotonic() - begun < 8
        with pytest.raises(ConnectionClosed) as closed:
            tab.recv(timeout=5)
        assert closed.value.rcvd is not None, "dropped without a word"
        assert closed.value.rcvd.code == 1012


@pytest.mark.e2e
def test_refusal_of_an_unread_body_keeps_the_connection_in_step(stack: Stack) -> None:
    sale_id, [[_, _, token]] = lines(stack, 1)
    for size in (20, 3000, 200_000):
        with socket.create_connection((HOST, stack.ports[0])) as connection:
            connection.settimeout(5)
            connection.sendall(post(sale_id, "", body=" " * size))

            assert read_answer(connection) in (401, 413)
            try:
                connection.sendall(post(sale_id, token))
                second = read_answer(connection)
            except ConnectionError:
                second = None

            # Either the server hung up, or it read on where the next request begins.
            assert second in (202, None)
            assert second == 202 or size > 4096
