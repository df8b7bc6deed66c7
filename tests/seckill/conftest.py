"""The lane in an event loop of its own, in front of a pool of threads, as in a web process."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any
from uuid import UUID

import pytest
import uuid_utils.compat
from channels.layers import get_channel_layer
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from config.pool import PooledDjango
from inventory import redis_clients
from inventory.models import FlashSale
from inventory.soldout import marks
from orders.tasks import create_orders
from seckill import admission, health, services, tokens
from seckill.lane import Lane
from seckill.publisher import Entry, Publisher
from seckill.routing import websocket_application
from tests.factories import UserFactory
from tests.seckill.dialing import HOST, OWN, Dial, Tab
from tests.support.asgi import Answer, Exchange, Host
from tests.support.waiting import wait_until

HOUR = 3600.0


class Broker:
    """What the publisher sent. `down`: it fails."""

    def __init__(self) -> None:
        self.down = False
        self.messages: list[tuple[int, list[Entry]]] = []

    def __call__(self, sale_id: int, entries: list[Entry]) -> None:
        if self.down:
            raise OSError("the broker is down")
        self.messages.append((sale_id, entries))

    def close(self) -> None:
        pass

    @property
    def entries(self) -> list[Entry]:
        return [entry for _, entries in self.messages for entry in entries]

    def work(self, number: int = 1) -> None:
        """Wait for so many purchases, and make their orders."""
        wait_until(lambda: len(self.entries) >= number)
        while self.messages:
            sale_id, entries = self.messages.pop(0)
            create_orders(sale_id, entries)


class Shop:
    """A lane and who asks it."""

    def __init__(self, host: Host, lane: Lane, publisher: Publisher, broker: Broker) -> None:
        self.host, self.lane = host, lane
        self.publisher, self.broker = publisher, broker

    def start(self, method: str, target: str, **more: Any) -> "tuple[Exchange, Future[Answer]]":
        """Ask without waiting for the answer."""
        exchange = Exchange(method, target, **more)
        return exchange, asyncio.run_coroutine_threadsafe(exchange.run(self.lane), self.host.loop)

    def ask(self, method: str, target: str, **more: Any) -> Answer:
        return self.start(method, target, **more)[1].result(20)

    def buy(self, sale_id: int, token: str, **more: Any) -> Answer:
        return self.start_buy(sale_id, token, **more).result(20)

    def start_buy(self, sale_id: int, token: str, **more: Any) -> "Future[Answer]":
        headers = bearer(token) | more.pop("headers", {})
        target = f"/api/v1/sales/{sale_id}/purchases"
        return self.start("POST", target, headers=headers, **more)[1]

    def outcome(self, sale_id: int, purchase: UUID | str, token: str, query: str = "") -> Answer:
        target = f"/api/v1/sales/{sale_id}/purchases/{purchase}{query}"
        return self.ask("GET", target, headers=bearer(token))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def token_for(
    sale: FlashSale, user: User | int, purchase_id: UUID | None = None, *, lifetime: float = HOUR
) -> str:
    return tokens.issue(
        sale_id=sale.pk,
        user_id=user if isinstance(user, int) else user.pk,
        purchase_id=purchase_id or uuid_utils.compat.uuid7(),
        expires_at=time.time() + lifetime,
    )


def _closing(function: Callable[..., Any], *args: Any) -> Any:
    """A thread of a test leaves no connection."""
    try:
        return function(*args)
    finally:
        connections.close_all()


async def _not_found(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": [(b"x-behind", b"yes")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def buyer() -> User:
    made: User = UserFactory()
    return made


@pytest.fixture
def signed_in(client: Client, buyer: User) -> Client:
    """The buyer's browser."""
    client.force_login(buyer)
    client.get("/orders/")  # Whatever a session does once, it did now.
    return client


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host

    async def let_go() -> None:
        if host.loop in redis_clients._async:
            await redis_clients._async.pop(host.loop).aclose()

    host.call(let_go())
    host.close()


@pytest.fixture(scope="module")
def checks() -> Iterator[None]:
    """The threads of /readyz keep connections, which would keep the test database in use."""
    yield
    health._pool().shutdown()
    health._pool.cache_clear()
    gc.collect()  # Only now are the connections of the ended threads closed.


@pytest.fixture
def shop(host: Host, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Needs a database whose rows other threads see."""
    forget()
    publisher = Publisher(broker)
    monkeypatch.setattr(admission, "publisher", publisher)
    pool = PooledDjango(threads=4)

    async def run(function: Callable[..., Any], *args: Any, deadline: float | None = None) -> Any:
        return await pool.run(_closing, function, *args, deadline=deadline)

    lane = Lane(_not_found, run)
    yield Shop(host, lane, publisher, broker)
    host.call(lane.close())
    publisher.close()
    pool.close()
    forget()


def forget() -> None:
    """What a process that starts doesn't know."""
    marks.forget()
    services.throttle.cache_clear()


# --- websockets -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def free_connections() -> Iterator[None]:
    """Threads of closed event loops leave connections that the collector has to find."""
    yield
    gc.collect()


@pytest.fixture
def tab() -> Tab:
    return Tab(UserFactory())


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Open a socket: `await dial(path, cookie=…)`; all are closed at the end."""
    opened: list[WebsocketCommunicator] = []

    async def open_one(
        path: str, *, cookie: str = "", origin: str | None = OWN, host: str = HOST
    ) -> WebsocketCommunicator:
        pairs = [("host", host), ("cookie", cookie)] + ([("origin", origin)] if origin else [])
        headers = [(name.encode(), value.encode()) for name, value in pairs if value]
        socket = WebsocketCommunicator(websocket_application, path, headers=headers)
        opened.append(socket)
        return socket

    yield open_one
    for socket in opened:
        await socket.disconnect(timeout=3)
    layer = get_channel_layer()
    assert layer is not None
    await layer.flush()
    await redis_clients.async_client().aclose()
    redis_clients.forget()
