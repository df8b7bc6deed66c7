"""The websockets, through the real channel layer: who may listen, what is told, what is borne."""

import asyncio
import gc
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from channels.layers import get_channel_layer
from channels.testing import WebsocketCommunicator
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings
from redis.exceptions import ConnectionError as RedisConnectionError

from inventory import redis_clients
from inventory.models import FlashSale
from orders import notifications
from orders.models import Order
from seckill import consumers, presence
from seckill.routing import websocket_application
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)

HOST = "localhost"
OWN = f"http://{HOST}"
T = TypeVar("T")
Dial = Callable[..., Awaitable[WebsocketCommunicator]]


@pytest.fixture(autouse=True, scope="module")
def _free_connections() -> Iterator[None]:
    """Threads of closed event loops leave connections that the collector has to find."""
    yield
    gc.collect()


class Tab:
    """A signed-in browser tab: its cookies, and what it may do to its session."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.client = Client()
        self.client.force_login(user)
        key = self.client.cookies[django_settings.SESSION_COOKIE_NAME].value
        self.cookie = f"{django_settings.SESSION_COOKIE_NAME}={key}"


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


async def rows(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call what uses the database; its connection doesn't outlive the call."""

    def work() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connection.close()

    return await asyncio.to_thread(work)


async def connected(socket: WebsocketCommunicator) -> Any:
    """Connect, and return the first frame."""
    assert await socket.connect(timeout=3) == (True, None)
    return await frame(socket)


async def frame(socket: WebsocketCommunicator) -> Any:
    return json.loads(await socket.receive_from(timeout=3))


async def close_code(socket: WebsocketCommunicator) -> int:
    """Read up to the close and return its code."""
    while True:
        message = await socket.receive_output(timeout=3)
        if message["type"] == "websocket.close":
            code: int = message["code"]
            return code


async def quiet(socket: WebsocketCommunicator) -> bool:
    return bool(await socket.receive_nothing(timeout=0.3))


# --- the door -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "host", "trusted", "allowed"),
    [
        (OWN, HOST, [], True),
        ("http://localhost:8000", "localhost:8000", [], True),
        (None, HOST, [], False),
        ("null", HOST, [], False),
        ("", HOST, [], False),
        ("http://evil.example", HOST, [], False),
        ("http://localhost.evil.example", HOST, [], False),
        ("https://localhost", HOST, [], False),
        ("http://localhost:8001", "localhost:8000", [], False),
        ("http://evil.example", "evil.example", [], False),
        ("https://shop.example", HOST, ["https://shop.example"], True),
        ("http://shop.example", HOST, ["https://shop.example"], False),
        ("https://a.shop.example", HOST, ["https://*.shop.example"], True),
        ("https://*.shop.example", HOST, ["https://*.shop.example"], False),
        ("https://[", HOST, ["https://*.shop.example"], False),
    ],
)
async def test_door_lets_own_and_trusted_origins_in(
    dial: Dial,
    settings: Settings,
    origin: str | None,
    host: str,
    trusted: list[str],
    allowed: bool,
) -> None:
    settings.ALLOWED_HOSTS, settings.CSRF_TRUSTED_ORIGINS = [HOST], trusted
    socket = await dial("/ws/v1/sales/1", origin=origin, host=host)

    accepted, code = await socket.connect(timeout=3)

    assert (accepted, None if accepted else code) == (allowed, None if allowed else 4403)


async def test_door_wants_https_where_the_site_has_it(dial: Dial, settings: Settings) -> None:
    settings.HTTPS = True

    plain = await dial("/ws/v1/sales/1", origin=OWN)
    secure = await dial("/ws/v1/sales/1", origin=f"https://{HOST}")

    assert await plain.connect(timeout=3) == (False, 4403)
    assert (await secure.connect(timeout=3))[0] is True


@pytest.mark.parametrize(
    "path", ["/ws/v1/", "/ws/v1/sales/", "/ws/v1/sales/0", "/ws/v1/sales/x", "/ws/v1/sales/😀", "/"]
)
async def test_door_knows_no_other_address(dial: Dial, path: str) -> None:
    socket = await dial(path)

    assert await socket.connect(timeout=3) == (False, 4404)


async def test_door_turns_a_lost_back_end_into_come_again(
    dial: Dial, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(cookie: bytes) -> int:
        raise RedisConnectionError("away")

    monkeypatch.setattr(consumers, "session_user", away)
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await socket.connect(timeout=3)

    assert await close_code(socket) == 1012


# --- /ws/v1/me ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cookie", ["", "sessionid=nonsense", "sessionid=\x7f"])
async def test_me_sends_strangers_to_sign_in(dial: Dial, cookie: str) -> None:
    socket = await dial("/ws/v1/me", cookie=cookie)

    assert await socket.connect(timeout=3) == (True, None)
    assert await close_code(socket) == 4401


async def test_me_says_hello_first(dial: Dial, tab: Tab) -> None:
    socket = await dial("/ws/v1/me", cookie=tab.cookie)

    hello = await connected(socket)

    assert set(hello) == {"type", "id", "ts", "data"}
    assert hello["type"] == "hello"
    assert await quiet(socket)


async def test_me_forwards_frames_of_its_buyer_and_of_nobody_else(dial: Dial, tab: Tab) -> None:
    order: Order = await rows(OrderFactory, user=tab.user)
    foreign: Order = await rows(OrderFactory)
    await rows(Order.objects.all().update, created_at="2020-01-01T00:00:00Z")
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    await rows(notifications.push_orders, [foreign, order])

    told = await frame(socket)
    assert told["type"] == "purchase.succeeded"
    assert told["data"] == {
        "purchase_id": str(order.pk),
        "sale_id": order.sale_id,
        "code": "order_created",
        "message": "Your order is made. Pay before the deadline.",
        "order_id": str(order.pk),
        "redirect": f"/orders/{order.pk}/",
    }
    assert await quiet(socket)


@pytest.fixture
def history(tab: Tab) -> dict[str, Order]:
    return {
        "unpaid": OrderFactory(user=tab.user),
        "paid": OrderFactory(user=tab.user, paid=True),
        "rejected": OrderFactory(user=tab.user, rejected=True),
        "expired": OrderFactory(user=tab.user, expired=True),
        "foreign": OrderFactory(),
    }


async def test_me_starts_with_the_present_state(
    dial: Dial, tab: Tab, history: dict[str, Order]
) -> None:
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    told = [await frame(socket) for _ in range(3)]

    assert [(f["type"], f["data"]["purchase_id"]) for f in told] == [
        ("purchase.succeeded", str(history["unpaid"].pk)),
        ("purchase.succeeded", str(history["paid"].pk)),
        ("purchase.failed", str(history["rejected"].pk)),
    ]
    assert (told[2]["data"]["code"], told[2]["data"]["redirect"]) == ("sold_out", "/")
    assert await quiet(socket)


async def test_me_snapshot_and_push_of_one_event_have_the_same_id(dial: Dial, tab: Tab) -> None:
    order: Order = await rows(OrderFactory, user=tab.user)
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)
    first = await frame(socket)

    await rows(notifications.push_orders, [order])

    assert (await frame(socket))["id"] == first["id"]


async def test_me_misses_nothing_that_happens_while_it_connects(
    dial: Dial, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order made after the snapshot was read, but before the socket is ready."""
    order: Order = await rows(OrderFactory, user=tab.user)

    def late(user_id: int) -> list[notifications.Frame]:
        notifications.push_orders([order])
        return []

    monkeypatch.setattr(consumers, "live_purchases", late)
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    assert (await frame(socket))["data"]["order_id"] == str(order.pk)


# --- the session ends -----------------------------------------------------------------------------


async def test_me_closes_when_its_session_signs_out(dial: Dial, tab: Tab) -> None:
    other = await rows(Tab, tab.user)
    leaving = await dial("/ws/v1/me", cookie=tab.cookie)
    staying = await dial("/ws/v1/me", cookie=other.cookie)
    await connected(leaving)
    await connected(staying)

    await rows(tab.client.post, "/logout/")

    assert await close_code(leaving) == 4401
    assert await quiet(staying)


async def test_me_closes_when_the_account_is_shut(dial: Dial, tab: Tab) -> None:
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    tab.user.is_active = False
    await rows(tab.user.save)

    assert await close_code(socket) == 4401


async def test_me_looks_at_its_session_from_time_to_time(
    dial: Dial, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers.Me, "recheck_every", 0.05)
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    await rows(User.objects.filter(pk=tab.user.pk).update, is_active=False)

    assert await close_code(socket) == 4401


async def test_me_keeps_a_socket_open_while_it_can_not_look(
    dial: Dial, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    monkeypatch.setattr(consumers.Me, "recheck_every", 0.01)
    await connected(socket)
    loop = asyncio.get_running_loop()

    def away(cookie: bytes) -> int:
        loop.call_soon_threadsafe(asked.set)
        raise RedisConnectionError("away")

    monkeypatch.setattr(consumers, "session_user", away)
    await asyncio.wait_for(asked.wait(), 3)

    assert await quiet(socket)


# --- limits ---------------------------------------------------------------------------------------


async def test_me_a_sixth_socket_closes_the_oldest(dial: Dial, tab: Tab) -> None:
    sockets = [await dial("/ws/v1/me", cookie=tab.cookie) for _ in range(presence.MOST + 1)]

    for socket in sockets:
        await connected(socket)

    assert await close_code(sockets[0]) == 4429
    assert await quiet(sockets[1])
    assert await quiet(sockets[-1])


async def test_me_a_closed_socket_makes_room(dial: Dial, tab: Tab) -> None:
    sockets = [await dial("/ws/v1/me", cookie=tab.cookie) for _ in range(presence.MOST + 1)]
    for socket in sockets[:-1]:
        await connected(socket)
    await sockets[1].disconnect(timeout=3)

    await connected(sockets[-1])

    assert await quiet(sockets[0])


async def test_ping_is_answered(dial: Dial, tab: Tab) -> None:
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    await socket.send_to(text_data='{"type": "ping", "more": 1}')

    assert (await frame(socket))["type"] == "pong"


BAD: list[dict[str, Any]] = [
    {"text": ""},
    {"text": "{"},
    {"text": "[]"},
    {"text": "5"},
    {"text": "null"},
    {"text": "[" * 4000},
    {"text": "{}"},
    {"text": '{"type": null}'},
    {"text": '{"type": ["ping"]}'},
    {"text": '{"type": "websocket.disconnect"}'},
    {"text": '{"type": "frame", "frame": {}}'},
    {"text": '{"type": "revalidate"}'},
    {"text": '{"type": "__class__"}'},
    {"text": '"' + "x" * 5000 + '"'},
    {"text": "x" * (1024 * 1024 + 1)},
    {"bytes": b""},
    {"bytes": b"\xff\x00"},
]


@pytest.mark.parametrize("message", BAD)
async def test_bad_message_gets_an_error_and_the_socket_lives(
    dial: Dial, message: dict[str, Any]
) -> None:
    socket = await dial("/ws/v1/sales/1")
    await rows(FlashSaleFactory, pk=1)
    await connected(socket)

    await socket.send_input({"type": "websocket.receive", **message})
    told = await frame(socket)
    await socket.send_to(text_data='{"type": "ping"}')

    assert told["type"] == "error"
    assert set(told["data"]) == {"code", "message"}
    assert (await frame(socket))["type"] == "pong"


async def test_bad_messages_close_in_the_end(dial: Dial, tab: Tab) -> None:
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    for _ in range(consumers.BAD_MESSAGES):
        await socket.send_to(text_data="nonsense")

    assert await close_code(socket) == 4400


async def test_too_many_messages_close_at_once(dial: Dial, tab: Tab) -> None:
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    for _ in range(consumers.RATE + 1):
        await socket.send_to(text_data='{"type": "ping"}')

    pongs = [await frame(socket) for _ in range(consumers.RATE)]
    assert {p["type"] for p in pongs} == {"pong"}
    assert await close_code(socket) == 4429


# --- /ws/v1/sales/{sale} --------------------------------------------------------------------------


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory()
    return made


async def test_sale_hello_tells_the_state(dial: Dial, sale: FlashSale) -> None:
    hello = await connected(await dial(f"/ws/v1/sales/{sale.pk}"))

    assert (hello["type"], hello["data"]["id"], hello["data"]["state"]) == (
        "hello",
        sale.pk,
        "open",
    )


async def test_sale_tells_all_viewers_and_only_those_of_the_sale(
    dial: Dial, sale: FlashSale
) -> None:
    other: FlashSale = await rows(FlashSaleFactory)
    near = [await dial(f"/ws/v1/sales/{sale.pk}") for _ in range(2)]
    far = await dial(f"/ws/v1/sales/{other.pk}")
    for socket in [*near, far]:
        await connected(socket)
    news = notifications.sale_changed(sale.pk, "sale.back_in_stock", event=7)

    await rows(notifications.push, [(notifications.sale_group(sale.pk), news)])

    for socket in near:
        assert await frame(socket) == news
    assert await quiet(far)


async def test_sale_that_is_not_there(dial: Dial) -> None:
    socket = await dial("/ws/v1/sales/999999")

    assert (await connected(socket))["data"]["code"] == "not_found"
    assert await close_code(socket) == 4404


# --- push -----------------------------------------------------------------------------------------


def test_push_never_raises_and_counts_what_it_lost(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = notifications.frames_dropped._value.get()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    redis_clients.forget()

    notifications.push([("buyer.1", notifications.sale_changed(1, "sale.closed"))] * 3)

    redis_clients.forget()
    assert notifications.frames_dropped._value.get() == before + 3


def test_push_opens_no_connection_per_call() -> None:
    client = redis_clients.sync_client()
    sent = [("buyer.1", notifications.sale_changed(1, "sale.closed", event=uuid.uuid4()))]
    notifications.push(sent)
    before = len(client.client_list())

    for _ in range(500):
        notifications.push(sent)

    assert len(client.client_list()) <= before + 1


def test_push_takes_one_round_trip_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    client = redis_clients.sync_client()
    made: list[int] = []
    original = client.pipeline

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(client, "pipeline", counted)

    notifications.push([("buyer.1", notifications.sale_changed(1, "sale.closed"))] * 100)

    assert len(made) == 1
