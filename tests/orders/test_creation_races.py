"""The database alone keeps every promise about units; a control shows that the harness bites."""

from functools import partial
from typing import Any

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User

from inventory.models import FlashSale
from orders import accounting, creation
from orders.creation import Purchase
from orders.models import Order, Status
from tests.factories import FlashSaleFactory
from tests.orders.races import race_many

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def naive(sale_id: int, bought: Purchase) -> bool:
    """What never to do: read, decide, write."""
    sale = FlashSale.objects.get(pk=sale_id)
    if sale.available < bought.quantity:
        return False
    FlashSale.objects.filter(pk=sale_id).update(allocated=sale.allocated + bought.quantity)
    Order.objects.create(
        id=bought.purchase_id,
        sale_id=sale_id,
        user_id=bought.user_id,
        quantity=bought.quantity,
        unit_price_cents=1,
        amount_cents=1,
        currency="CNY",
        status=Status.UNPAID,
        created_at=sale.created_at,
        pay_before=sale.created_at,
    )
    return True


def sold_by_threads(sale: FlashSale, service: Any) -> int:
    """200 buyers, each in a call of its own, at once; returns how many orders there are."""
    users = User.objects.bulk_create(User(username=f"r{sale.pk}-{n}") for n in range(200))
    lanes = 20
    rounds = [
        [
            partial(service, sale.pk, Purchase(uuid_utils.compat.uuid7(), user.pk, 1))
            for user in users[start : start + lanes]
        ]
        for start in range(0, len(users), lanes)
    ]
    race_many(rounds)
    return Order.objects.filter(sale=sale, status=Status.UNPAID).count()


def test_two_hundred_buyers_without_the_gate_get_fifty_units() -> None:
    sale = FlashSaleFactory(quantity=50)

    sold = sold_by_threads(
        sale, lambda pk, bought: creation.create_orders(sale_id=pk, purchases=[bought])
    )

    assert (sold, accounting.allocated_drift(sale.pk)) == (50, 0)
    assert Order.objects.filter(sale=sale, code="sold_out").count() == 150


def test_two_hundred_buyers_with_a_naive_check_get_too_many() -> None:
    """The control of the test above."""
    sale = FlashSaleFactory(quantity=50)

    assert sold_by_threads(sale, naive) > 50
