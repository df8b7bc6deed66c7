"""The websockets' limits, and what everybody hears about a sale."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from channels.layers import get_channel_layer
from pytest_django.fixtures import Settings

from inventory import redis_clients
from inventory.models import FlashSale
from orders import notifications
from orders.models import Order
from seckill import consumers, presence
from seckill.routing import websocket_application
from tests.factories import FlashSaleFactory, OrderFactory
from tests.seckill.dialing import HOST, OWN, Dial, Tab, close_code, connected, frame, quiet, rows

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("free_connections"),
]


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


# --- what keeps a socket honest -------------------------------------------------------------------


async def test_resume_tells_how_things_stand_again(dial: Dial, tab: Tab) -> None:
    order: Order = await rows(OrderFactory, user=tab.user)
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)
    first = await frame(socket)

    await socket.send_to(text_data='{"type": "resume", "last_seq": 7}')

    assert (await frame(socket))["type"] == "hello"
    again = await frame(socket)
    assert (again["id"], again["data"]) == (first["id"], first["data"])
    assert again["data"]["order_id"] == str(order.pk)


@pytest.mark.parametrize("more", ["", ', "seq": null', ', "seq": -1', ', "last_seq": "x"'])
async def test_resume_needs_no_number(dial: Dial, tab: Tab, more: str) -> None:
    """It isn't a gap that is filled: the present state is told, whatever the client knows."""
    order: Order = await rows(OrderFactory, user=tab.user)
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)
    await frame(socket)

    await socket.send_to(text_data=f'{{"type": "resume"{more}}}')

    told = [await frame(socket), await frame(socket)]
    assert [each["type"] for each in told] == ["hello", "purchase.succeeded"]
    assert told[1]["data"]["order_id"] == str(order.pk)
    assert await quiet(socket)


async def test_resume_with_nothing_to_tell_still_gets_an_answer(dial: Dial, tab: Tab) -> None:
    socket = await dial("/ws/v1/me", cookie=tab.cookie)
    await connected(socket)

    await socket.send_to(text_data='{"type": "resume"}')

    assert ((await frame(socket))["type"], await quiet(socket)) == ("hello", True)


async def test_resume_of_a_sale_tells_its_state(dial: Dial, sale: FlashSale) -> None:
    socket = await dial(f"/ws/v1/sales/{sale.pk}")
    await connected(socket)
    await rows(FlashSale.objects.filter(pk=sale.pk).update, paused=True)

    await socket.send_to(text_data='{"type": "resume"}')

    told = await frame(socket)
    assert (told["type"], told["data"]["state"]) == ("hello", "paused")


async def test_heartbeat_comes_by_itself(
    dial: Dial, sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers.Socket, "heartbeat_every", 0.05)
    socket = await dial(f"/ws/v1/sales/{sale.pk}")
    await connected(socket)

    assert [(await frame(socket))["type"] for _ in range(2)] == ["ping", "ping"]


async def test_sale_news_are_told_at_most_twice_a_second(
    dial: Dial, sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a burst viewers hear the first, and later the last."""
    monkeypatch.setattr(consumers.Sale, "public_every", 0.4)
    socket = await dial(f"/ws/v1/sales/{sale.pk}")
    await connected(socket)
    group = notifications.sale_group(sale.pk)

    def burst() -> None:
        kinds: list[notifications.SaleFrameType] = ["sale.sold_out", "sale.back_in_stock"]
        for number in range(10):
            sent = notifications.sale_changed(sale.pk, kinds[number % 2], event=number)
            notifications.push([(group, sent)])

    await rows(burst)

    told = [await frame(socket)]
    while not await socket.receive_nothing(timeout=0.8):
        told.append(await frame(socket))
    assert told[-1]["id"] == f"sale.back_in_stock:{sale.pk}:9"
    assert len(told) <= 3


async def test_client_that_does_not_read_is_let_go(
    sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers.Socket, "slowest", 0.1)
    left: list[consumers.Socket] = []
    original = consumers.Socket.left

    async def noted(socket: consumers.Socket) -> None:
        left.append(socket)
        await original(socket)

    monkeypatch.setattr(consumers.Socket, "left", noted)
    asked: list[dict[str, Any]] = [{"type": "websocket.connect"}]

    async def receive() -> dict[str, Any]:
        if asked:
            return asked.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "websocket.send":
            await asyncio.get_running_loop().create_future()

    headers = [(b"host", HOST.encode()), (b"origin", OWN.encode())]
    scope = {"type": "websocket", "path": f"/ws/v1/sales/{sale.pk}", "headers": headers}

    await asyncio.wait_for(websocket_application(scope, receive, send), 5)

    assert [socket.too_slow for socket in left] == [True]
    layer = get_channel_layer()
    assert layer is not None
    await layer.flush()
    await redis_clients.async_client().aclose()
    redis_clients.forget()
