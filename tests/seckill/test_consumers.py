"""The websockets, through the real channel layer: who may listen, what is told, what is borne."""

import asyncio
import uuid

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings
from redis.exceptions import ConnectionError as RedisConnectionError

from inventory import gate
from inventory.models import FlashSale
from orders import notifications
from orders.models import Order
from seckill import consumers
from seckill.snapshots import Snapshot
from tests.factories import FlashSaleFactory, OrderFactory
from tests.seckill.dialing import HOST, OWN, Dial, Tab, close_code, connected, frame, quiet, rows

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("free_connections"),
]


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
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)
    order: Order = await rows(OrderFactory, user=tab.user)
    foreign: Order = await rows(OrderFactory)

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
    hello = await connected(socket)

    told = [await frame(socket) for _ in range(3)]
    assert [(each["purchase_id"], each["status"]) for each in hello["data"]["purchases"]] == [
        (str(history["unpaid"].pk), "succeeded"),
        (str(history["paid"].pk), "succeeded"),
        (str(history["rejected"].pk), "failed"),
    ]

    assert [(f["type"], f["data"]["purchase_id"]) for f in told] == [
        ("purchase.succeeded", str(history["unpaid"].pk)),
        ("purchase.succeeded", str(history["paid"].pk)),
        ("purchase.failed", str(history["rejected"].pk)),
    ]
    assert (told[2]["data"]["code"], told[2]["data"]["redirect"]) == ("sold_out", "/")
    assert await quiet(socket)


async def test_me_tells_at_once_of_a_purchase_that_is_still_queued(dial: Dial, tab: Tab) -> None:
    sale: FlashSale = await rows(FlashSaleFactory, primed=True)
    purchase_id = str(uuid.uuid4())
    await rows(gate.reserve, sale.pk, [gate.Entry(tab.user.pk, purchase_id)])
    socket = await dial("/ws/v1/me", cookie=tab.cookie)

    hello = await connected(socket)

    queued = {"sale_id": sale.pk, "status": "queued", "order_id": None}
    assert hello["data"] == {"purchases": [{"purchase_id": purchase_id} | queued]}
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

    def late(user_id: int) -> Snapshot:
        notifications.push_orders([order])
        return Snapshot([], [])

    monkeypatch.setattr(consumers, "snapshot", late)
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
