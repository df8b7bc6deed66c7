"""Who watches a sale is told when it opens and when it ends."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from redis.exceptions import ConnectionError as RedisConnectionError

from inventory import services as inventory
from inventory.models import FlashSale, SaleState
from seckill import catalog, consumers, windows
from seckill.windows import Windows
from tests.factories import FlashSaleFactory
from tests.seckill.dialing import Dial, connected, frame, quiet, rows

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("free_connections"),
]

SOON = timedelta(seconds=1.5)  # enough to begin to watch, also on a busy machine
HOUR = timedelta(hours=1)


def scheduled(starts_in: timedelta = HOUR) -> FlashSale:
    now = timezone.now()
    sale: FlashSale = FlashSaleFactory(starts_at=now + starts_in, ends_at=now + 2 * HOUR)
    return sale


async def move(sale: FlashSale, **columns: Any) -> None:
    await rows(FlashSale.objects.filter(pk=sale.pk).update, **columns)


class Watcher:
    """Counts as a socket; remembers what it was told."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Any] = asyncio.Queue()

    async def frame(self, event: Mapping[str, Any]) -> None:
        self.told.put_nowait(event["frame"])

    async def next(self) -> Any:
        return await asyncio.wait_for(self.told.get(), 5)


class Site:
    """The windows of one process. `broken`: so many looks fail first."""

    def __init__(self) -> None:
        self.windows = Windows(self.look, away=(RedisConnectionError,))
        self.looks = self.broken = 0
        self.looked = asyncio.Event()

    async def look(self, sale_id: int) -> catalog.Offer | None:
        self.looks += 1
        if self.broken:
            self.broken -= 1
            raise RedisConnectionError("away")
        try:
            return await rows(catalog.offer, sale_id)
        finally:
            self.looked.set()

    async def watch(self, sale: FlashSale, number: int = 1) -> list[Watcher]:
        offer = await rows(catalog.offer, sale.pk)
        assert offer
        watchers = [Watcher() for _ in range(number)]
        for watcher in watchers:
            self.windows.watch(watcher, offer)
        return watchers

    async def has_looked(self) -> None:
        self.looked.clear()
        await asyncio.wait_for(self.looked.wait(), 5)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "EVERY", 0.05)
    monkeypatch.setattr(windows, "AGAIN", 0.05)


@pytest.mark.parametrize(
    ("starts_in", "ends_in", "wait"),
    [
        (3.0, 60.0, 3.0),
        (-3.0, 4.0, 4.0),
        (60.0, 90.0, 10.0),
        (-3.0, 60.0, 10.0),
        (-9.0, -3.0, 10.0),
    ],
)
def test_next_look_is_right_after_the_window_changes(
    starts_in: float, ends_in: float, wait: float
) -> None:
    now = timezone.now()
    times = {"starts_at": now + timedelta(seconds=starts_in)}
    times["ends_at"] = now + timedelta(seconds=ends_in)
    offer = catalog.Offer(FlashSaleFactory.build(**times), 10, SaleState.OPEN)

    seconds = windows._Watched(offer).wait(now)

    assert wait <= seconds <= wait + 0.01


async def test_socket_is_told_of_start_and_end(dial: Dial, quick: None) -> None:
    sale: FlashSale = await rows(scheduled)
    starts_at = sale.starts_at - HOUR
    socket = await dial(f"/ws/v1/sales/{sale.pk}")
    hello = await connected(socket)

    await move(sale, starts_at=starts_at)
    opened = await frame(socket)
    await move(sale, ends_at=timezone.now())
    closed = await frame(socket)

    assert hello["data"]["state"] == "scheduled"
    assert (opened["type"], closed["type"]) == ("sale.opened", "sale.closed")
    assert opened["data"] == closed["data"] == {"sale_id": sale.pk}
    assert opened["id"] == f"sale.opened:{sale.pk}:{starts_at.timestamp() * 1000:.0f}"
    assert await quiet(socket)


async def test_socket_hears_once_that_staff_closed_a_sale(dial: Dial, quick: None) -> None:
    sale: FlashSale = await rows(FlashSaleFactory, primed=True)
    socket = await dial(f"/ws/v1/sales/{sale.pk}")
    await connected(socket)

    await rows(inventory.close_sale, sale.pk)

    assert (await frame(socket))["type"] == "sale.closed"
    assert await quiet(socket)


async def test_socket_that_leaves_is_not_watched_any_more(dial: Dial) -> None:
    sale: FlashSale = await rows(FlashSaleFactory)
    sockets = [await dial(f"/ws/v1/sales/{sale.pk}") for _ in range(2)]
    for socket in sockets:
        await connected(socket)
    watched = consumers._windows._sales[sale.pk]

    for socket in sockets:
        await socket.disconnect()

    assert watched.task is not None
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(watched.task, 5)
    assert sale.pk not in consumers._windows._sales


async def test_all_viewers_of_a_process_cost_one_look_at_the_start() -> None:
    site, sale = Site(), await rows(scheduled, SOON)
    watchers = await site.watch(sale, 120)

    told = [await watcher.next() for watcher in watchers]

    assert {each["type"] for each in told} == {"sale.opened"}
    assert len({each["id"] for each in told}) == site.looks == 1
    assert timezone.now() > sale.starts_at


async def test_start_is_told_to_nobody_after_something_newer(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "PAUSE", 0.5)
    site, sale = Site(), await rows(scheduled)
    watchers = await site.watch(sale, 2 * windows.CHUNK)
    until_told = [asyncio.create_task(watcher.next()) for watcher in watchers]
    await move(sale, starts_at=timezone.now())
    await asyncio.wait(until_told, return_when=asyncio.FIRST_COMPLETED)

    site.windows.heard(sale.pk, "sale.sold_out")

    await site.has_looked()  # The one after the start, so all that was to be told was told.
    assert sum(task.done() for task in until_told) == windows.CHUNK
    for task in until_told:
        task.cancel()


async def test_paused_sale_is_not_told_to_open(quick: None) -> None:
    site, sale = Site(), await rows(scheduled)
    (watcher,) = await site.watch(sale)
    await move(sale, paused=True, starts_at=timezone.now())

    for _ in range(3):
        await site.has_looked()

    assert watcher.told.empty()


async def test_window_that_is_moved_counts_as_it_is_now(quick: None) -> None:
    site, sale = Site(), await rows(scheduled, SOON)
    (watcher,) = await site.watch(sale)
    await move(sale, starts_at=sale.starts_at + HOUR)
    while timezone.now() < sale.starts_at + SOON / 4:
        await site.has_looked()
    was_quiet = watcher.told.empty()

    await move(sale, starts_at=timezone.now())

    assert was_quiet
    assert (await watcher.next())["type"] == "sale.opened"


async def test_sale_that_is_prolonged_after_its_end_is_told_to_open_again(quick: None) -> None:
    site, sale = Site(), await rows(FlashSaleFactory, closed=True)
    (watcher,) = await site.watch(sale)

    await move(sale, ends_at=timezone.now() + HOUR)

    assert (await watcher.next())["type"] == "sale.opened"


async def test_start_is_told_later_if_nobody_can_tell_now(quick: None) -> None:
    site, sale = Site(), await rows(scheduled)
    (watcher,) = await site.watch(sale)
    site.broken = 12
    await move(sale, starts_at=timezone.now())

    assert (await watcher.next())["type"] == "sale.opened"
    assert site.broken == 0
