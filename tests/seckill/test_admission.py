"""Batches on their way to the gate, and what a sold-out sale still asks of it."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uuid_utils.compat
from django.utils import timezone
from pytest_django.fixtures import Settings

from inventory import gate, soldout
from inventory.models import FlashSale
from inventory.soldout import marks
from orders.models import Order
from orders.services import expire_orders
from seckill import admission as module
from seckill import services
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.seckill.conftest import Shop, bearer, token_for
from tests.support.asgi import Exchange
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Counted:
    """Stands for gate.reserve_async; remembers how many came in each call.

    `pause`: seconds before each call; `error`: what the next one raises.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[int] = []
        self.pause = 0.0
        self.error: Exception | None = None
        self._real = gate.reserve_async
        monkeypatch.setattr(gate, "reserve_async", self)

    async def __call__(self, sale_id: int, entries: list[gate.Entry]) -> gate.Reservation:
        self.calls.append(len(entries))
        await asyncio.sleep(self.pause)
        if (error := self.error) is not None:
            self.error = None
            raise error
        return await self._real(sale_id, entries)


@pytest.fixture
def gate_calls(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def exchanges(sale: FlashSale, number: int) -> list[Exchange]:
    """Tries of as many buyers."""
    target = f"/api/v1/sales/{sale.pk}/purchases"
    return [
        Exchange("POST", target, bearer(token_for(sale, user_id)))
        for user_id in range(1, number + 1)
    ]


async def together(shop: Shop, asked: list[Exchange]) -> list[int]:
    answers = await asyncio.gather(*(exchange.run(shop.lane) for exchange in asked))
    return [answer.status for answer in answers]


def test_who_comes_together_goes_in_one_call_and_one_message(
    shop: Shop, gate_calls: Counted
) -> None:
    sale = FlashSaleFactory(primed=True, quantity=60)

    statuses = shop.host.call(together(shop, exchanges(sale, 100)))

    assert gate_calls.calls == [100]
    assert (statuses.count(202), statuses.count(409)) == (60, 40)
    shop.broker.work(60)
    assert Order.objects.count() == 60
    assert gate.snapshot(sale.pk).claims == {}


def test_crossing_is_announced_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(
        module, "announce", lambda sale_id, *, level: told.append((sale_id, level.stock))
    )
    sale = FlashSaleFactory(primed=True, quantity=3)

    for batch in (2, 2, 2):
        shop.host.call(together(shop, exchanges(sale, 10)[-batch:]))

    shop.host.call(shop.lane.close())
    assert told == [] or told == [(sale.pk, 0)]
    shop.host.call(together(shop, exchanges(sale, 4)))
    assert len(told) <= 1


@pytest.mark.slow
def test_sold_out_asks_the_gate_once_per_ttl(
    shop: Shop, gate_calls: Counted, settings: Settings
) -> None:
    settings.SOLD_OUT_TTL = 0.5
    sale = FlashSaleFactory(primed=True, quantity=1, allocated=1)
    asked = exchanges(sale, 100)  # Few at once, so that a busy machine delays no timer for long.
    shop.host.call(together(shop, asked[:1]))
    gate_calls.calls.clear()
    begun = time.monotonic()

    statuses: list[int] = []
    while len(statuses) < 10_000:
        statuses += shop.host.call(together(shop, asked))

    assert set(statuses) == {409}
    assert len(gate_calls.calls) <= 1 + (time.monotonic() - begun) / settings.SOLD_OUT_TTL


def end_of_mark(sale: FlashSale) -> None:
    """As if the gate had said "sold out" a minute ago."""
    epoch = gate.snapshot(sale.pk).epoch
    marks.observe(sale.pk, epoch=epoch, sold_out=True, seen_at=time.monotonic() - 60)


def test_one_call_answers_all_who_come_at_the_end_of_a_mark(
    shop: Shop, gate_calls: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the lane and those of the form, while the one call takes its time."""
    sale = FlashSaleFactory(primed=True, quantity=1, allocated=1)
    end_of_mark(sale)
    gate_calls.pause = 0.15
    monkeypatch.setattr(soldout, "PATIENCE", 10)
    monkeypatch.delattr(gate, "reserve")  # The form's way.
    first = shop.start_buy(sale.pk, token_for(sale, 1))
    wait_until(lambda: gate_calls.calls == [1])

    with ThreadPoolExecutor(4) as pool:
        forms = pool.map(lambda user: services.purchase(sale_id=sale.pk, user_id=user), range(2, 6))
        statuses = shop.host.call(together(shop, exchanges(sale, 50)[10:]))

    assert first.result(5).status == 409
    assert statuses == [409] * 40
    assert [form.admission for form in forms] == [gate.Admission.SOLD_OUT] * 4
    assert gate_calls.calls == [1]


def test_a_gate_that_fails_at_the_end_of_a_mark_lets_the_next_one_ask(
    shop: Shop, gate_calls: Counted
) -> None:
    sale = FlashSaleFactory(primed=True)
    end_of_mark(sale)
    gate_calls.error = gate.GateError("away")

    assert shop.buy(sale.pk, token_for(sale, 1)).status == 503
    assert shop.buy(sale.pk, token_for(sale, 2)).status == 202


def test_without_marks_every_refusal_asks_the_gate(
    shop: Shop, gate_calls: Counted, settings: Settings
) -> None:
    """The control of the test above."""
    settings.SOLD_OUT_TTL = 0
    sale = FlashSaleFactory(primed=True, quantity=1, allocated=1)

    shop.host.call(together(shop, exchanges(sale, 50)))
    shop.host.call(together(shop, exchanges(sale, 50)))

    assert sum(gate_calls.calls) == 100


def test_stock_that_came_back_is_sold_within_the_ttl(shop: Shop, settings: Settings) -> None:
    settings.SOLD_OUT_TTL = 0.5
    settings.PURCHASE_RATE = (1000, 10.0)
    sale = FlashSaleFactory(primed=True, quantity=1)
    OrderFactory(sale=sale, overdue=True)
    gate.forget(sale.pk)
    buyer = UserFactory()
    assert shop.buy(sale.pk, token_for(sale, buyer)).status == 409
    assert marks.refuses(sale.pk)

    expire_orders()
    back_at = time.monotonic()
    while (status := shop.buy(sale.pk, token_for(sale, buyer)).status) == 409:
        assert time.monotonic() - back_at < 3

    assert status == 202
    assert time.monotonic() - back_at < settings.SOLD_OUT_TTL + 0.4


def test_ids_of_many_sales_leave_nothing_behind(shop: Shop) -> None:
    sales = FlashSaleFactory.create_batch(3, primed=True)

    for sale in sales:
        shop.buy(sale.pk, token_for(sale, 1))

    admissions: Any = shop.lane._admissions
    assert admissions._batcher._lanes == {}
    assert admissions._batcher.waiting == 0


def test_purchase_that_waits_longer_than_its_client_is_still_answered(shop: Shop) -> None:
    """Who closes the lane gives those who wait their answer, and their messages are sent."""
    sale = FlashSaleFactory(primed=True, quantity=60)

    async def close_meanwhile() -> list[int]:
        asked = asyncio.create_task(together(shop, exchanges(sale, 50)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await shop.lane.close()
        return await asked

    statuses = shop.host.call(close_meanwhile())

    assert set(statuses) == {202}
    shop.publisher.close()
    assert len(shop.broker.entries) == 50
    assert shop.buy(sale.pk, token_for(sale, 99)).code == "unavailable"


def test_window_is_told_to_each_who_came_too_early(shop: Shop) -> None:
    early = FlashSaleFactory(primed=True, scheduled=True)
    purchase_id = uuid_utils.compat.uuid7()

    async def verdict() -> gate.Verdict:
        entry = gate.Entry(1, str(purchase_id))
        return await shop.lane._admissions.submit(early.pk, entry)

    told = shop.host.call(verdict())

    starts_ms, now_ms = map(int, told.detail.split())
    assert told.admission is gate.Admission.NOT_OPEN
    assert abs(starts_ms - early.starts_at.timestamp() * 1000) <= 1
    assert abs(now_ms - timezone.now().timestamp() * 1000) < 5000
