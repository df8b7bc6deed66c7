"""What a buyer is told when a socket opens."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from redis.exceptions import ConnectionError as RedisConnectionError

from inventory import gate
from inventory.gate import Entry, Settlement
from inventory.models import FlashSale
from seckill import queueing
from seckill.snapshots import snapshot
from tests.factories import FlashSaleFactory, OrderFactory

pytestmark = pytest.mark.django_db


def reserve(sale: FlashSale, user: User) -> str:
    purchase_id = str(uuid.uuid4())
    (verdict,) = gate.reserve(sale.pk, [Entry(user.pk, purchase_id)]).verdicts
    assert verdict.admission is gate.Admission.RESERVED
    return purchase_id


def told(user: User) -> dict[str, str]:
    return {state["purchase_id"]: state["status"] for state in snapshot(user.pk).states}


def test_snapshot_tells_what_is_queued_in_every_running_sale(buyer: User) -> None:
    sales = FlashSaleFactory.create_batch(3, primed=True)
    mine = {reserve(sale, buyer): "queued" for sale in sales[:2]}
    reserve(sales[2], OrderFactory().user)

    assert told(buyer) == mine
    assert snapshot(buyer.pk).frames == []


def test_snapshot_tells_what_is_queued_in_a_sale_that_has_just_ended(buyer: User) -> None:
    sale = FlashSaleFactory(primed=True)
    purchase_id = reserve(sale, buyer)
    FlashSale.objects.update(ends_at=timezone.now() - timedelta(seconds=5))

    assert told(buyer) == {purchase_id: "queued"}


def test_snapshot_tells_a_decided_purchase_once(buyer: User) -> None:
    sale = FlashSaleFactory(primed=True)
    purchase_id = reserve(sale, buyer)
    OrderFactory(id=purchase_id, sale=sale, user=buyer)  # Committed, not settled yet.

    before = told(buyer)
    gate.settle(sale.pk, [Settlement(purchase_id, buyer.pk)])

    assert before == told(buyer) == {purchase_id: "succeeded"}


def test_snapshot_tells_an_unpaid_order_however_old(buyer: User) -> None:
    long_ago = timezone.now() - timedelta(days=3)
    unpaid = OrderFactory(user=buyer, created_at=long_ago)
    OrderFactory(user=buyer, paid=True, created_at=long_ago)

    assert told(buyer) == {str(unpaid.pk): "succeeded"}


def test_snapshot_tells_of_orders_while_the_gate_is_away(
    buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any) -> dict[int, str]:
        raise RedisConnectionError("away")

    monkeypatch.setattr(queueing, "queued", away)
    order = OrderFactory(user=buyer)

    assert told(buyer) == {str(order.pk): "succeeded"}


def test_snapshot_asks_little_however_many_sales_there_are(
    buyer: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for sale in FlashSaleFactory.create_batch(3, primed=True):
        OrderFactory(user=buyer, sale=sale)

    with django_assert_num_queries(2):
        assert len(told(buyer)) == 3
