"""How sales are shown: in sessions, with what is taken, and what may still come back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from inventory.models import FlashSale, SaleState
from seckill import catalog
from seckill.catalog import Offer, Session
from tests.factories import FlashSaleFactory, OrderFactory

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def offer(
    stock: int, *, quantity: int = 100, state: SaleState = SaleState.OPEN, **sale: Any
) -> Offer:
    own = {"price_cents": 990, "starts_at": NOON, "ends_at": NOON + timedelta(days=3)} | sale
    return Offer(FlashSale(quantity=quantity, **own), stock, state)


@pytest.mark.parametrize(
    ("stock", "quantity", "percent"),
    [(100, 100, 0), (50, 100, 50), (999, 1000, 1), (1, 1000, 99), (0, 100, 100), (150, 100, 0)],
)
def test_taken_percent_says_untouched_and_sold_out_only_if_it_is_so(
    stock: int, quantity: int, percent: int
) -> None:
    assert offer(stock, quantity=quantity).taken_percent == percent


@pytest.mark.parametrize(
    ("list_price", "percent"), [(None, None), (990, None), (1980, 50), (9900, 90), (995, None)]
)
def test_discount_percent_is_told_where_there_is_one(
    list_price: int | None, percent: int | None
) -> None:
    assert offer(1, list_price_cents=list_price).discount_percent == percent


def test_sessions_are_now_next_tomorrow_and_ended() -> None:
    hour = timedelta(hours=1)
    soon = SaleState.SCHEDULED
    offers = [
        offer(5, starts_at=NOON - hour),
        offer(0, starts_at=NOON - hour, state=SaleState.SOLD_OUT),
        offer(5, starts_at=NOON - hour, state=SaleState.PAUSED),
        offer(5, starts_at=NOON + 11 * hour, state=soon),
        offer(5, starts_at=NOON + 12 * hour, state=soon),
        offer(5, starts_at=NOON - hour, state=SaleState.CLOSED),
    ]

    found = catalog.sessions(offers, NOON)

    assert [(session.key, len(session.offers)) for session in found] == [
        ("now", 3),
        ("next", 1),
        ("tomorrow", 1),
        ("ended", 1),
    ]
    assert catalog.sessions(offers[3:4], NOON) == [
        Session("next", catalog._LABELS["next"], offers[3:4])
    ]


@pytest.mark.django_db
def test_sold_out_counts_what_may_come_back() -> None:
    sale = FlashSaleFactory()
    now = timezone.now()
    OrderFactory(sale=sale, created_at=now - timedelta(minutes=2))
    OrderFactory(sale=sale, paid=True, created_at=now - timedelta(minutes=1))
    OrderFactory(sale=sale, expired=True)
    OrderFactory()

    assert catalog.sold_out(sale.pk) == (1, now - timedelta(minutes=1))
    assert catalog.sold_out(sale.pk + 1000) == (0, None)
