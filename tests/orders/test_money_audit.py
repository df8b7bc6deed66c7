"""What the audit finds about money; each violation is made by hand, as no service makes it."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from inventory.models import FlashSale
from orders import money_audit
from orders.models import Order, Payment, Refund, Status
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory
from tests.orders.gateways import tell

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def sale() -> FlashSale:
    """With an order in every state of money, all in order."""
    made: FlashSale = FlashSaleFactory(primed=True)
    OrderFactory(sale=made)
    PaymentFactory(order__sale=made, started=True)
    OrderFactory(sale=made, paid=True)
    back = PaymentFactory(order__sale=made)
    tell(back)
    tell(back, "payment.refunded")
    return made


def forgotten(sale: FlashSale) -> None:
    payment = PaymentFactory(order__sale=sale, order__expired=True, captured=True)
    Payment.objects.filter(pk=payment.pk).update(ended_at=timezone.now() - HOUR)


def unpaid_although_it_pays(sale: FlashSale) -> None:
    PaymentFactory(order__sale=sale, captured=True, use="order")


def cheap(sale: FlashSale) -> None:
    Order.objects.filter(status=Status.PAID).update(amount_cents=1)


def foreign(sale: FlashSale) -> None:
    Order.objects.filter(status=Status.PAID).update(currency="USD")


def not_sent_back(sale: FlashSale) -> None:
    PaymentFactory(order__sale=sale, order__expired=True, captured=True, use="refund")


def too_little(sale: FlashSale) -> None:
    Refund.objects.update(amount_cents=1)


def both(sale: FlashSale) -> None:
    payment = Payment.objects.get(use="order")
    now = timezone.now()
    Refund.objects.create(
        payment=payment, amount_cents=990, currency="CNY", cause="staff", started_at=now, try_at=now
    )


def free(sale: FlashSale) -> None:
    Payment.objects.filter(use="order").delete()


VIOLATIONS: dict[Callable[[FlashSale], None], list[str]] = {
    forgotten: ["1 payments were taken, and neither pay an order nor go back"],
    unpaid_although_it_pays: ["1 payments pay orders that aren't paid"],
    cheap: ["1 payments pay orders of another amount"],
    foreign: ["1 payments pay orders of another amount"],
    not_sent_back: ["1 payments go back without a refund of their amount"],
    too_little: ["1 payments go back without a refund of their amount"],
    both: ["1 refunds belong to payments that weren't to go back"],
    free: ["1 orders are paid without a payment"],
}


@pytest.mark.parametrize("spoil", VIOLATIONS, ids=lambda spoil: spoil.__name__)
def test_violations_names_money_that_is_neither_here_nor_there(
    sale: FlashSale, spoil: Callable[[FlashSale], None]
) -> None:
    assert money_audit.violations(sale) == []

    spoil(sale)

    assert money_audit.violations(sale) == VIOLATIONS[spoil]


def test_violations_waits_for_money_that_is_just_being_decided_about(sale: FlashSale) -> None:
    PaymentFactory(order__sale=sale, order__expired=True, captured=True)

    assert money_audit.violations(sale) == []


def test_violations_of_another_sale_are_not_ours(sale: FlashSale) -> None:
    not_sent_back(FlashSaleFactory())

    assert money_audit.violations(sale) == []
