"""What the tests of the shop's parts have, and a world with something of everybody's in it."""

from dataclasses import dataclass

import pytest
from django.contrib.auth.models import User

from inventory.models import FlashSale
from orders.models import Order, Payment
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory, UserFactory
from tests.seckill.conftest import broker, checks, dial, host, shop, tab

__all__ = ["broker", "checks", "dial", "host", "shop", "tab"]


@dataclass
class World:
    """A sale, a buyer's unpaid order in it, and the payment that was begun for it."""

    sale: FlashSale
    owner: User
    order: Order
    payment: Payment

    def state(self) -> tuple[object, ...]:
        """What nobody but the owner may change."""
        order = Order.objects.values_list().get(pk=self.order.pk)
        payment = Payment.objects.values_list().get(pk=self.payment.pk)
        sale = FlashSale.objects.values_list().get(pk=self.sale.pk)
        numbers = (Order.objects.count(), Payment.objects.count(), User.objects.count())
        return order, payment, sale, numbers


@pytest.fixture
def world(db: None) -> World:
    sale = FlashSaleFactory(primed=True)
    order = OrderFactory(sale=sale)
    payment = PaymentFactory(order=order, started=True)
    return World(sale, order.user, order, payment)


@pytest.fixture
def stranger(db: None) -> User:
    """Signed in, and owner of nothing."""
    made: User = UserFactory()
    return made
