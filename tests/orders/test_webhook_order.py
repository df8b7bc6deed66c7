"""Events of a provider, many times and in any order: the end depends on their set only."""

import itertools
from functools import partial
from typing import Any

import pytest
from django.test import Client

from inventory.models import FlashSale
from orders import money_audit
from orders.models import Order, OrderEvent, Payment, Refund, RefundState, Status
from orders.payments import sandbox
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory
from tests.orders.gateways import tell
from tests.orders.races import race

pytestmark = pytest.mark.django_db

COPIES = 50
EVENTS = ("created", "succeeded", "failed", "refunded", "duplicate")


def post(body: bytes, headers: dict[str, str]) -> int:
    response = Client().post(
        "/api/v1/payments/sandbox/webhook",
        body,
        content_type="application/json",
        headers=headers,
    )
    return response.status_code


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_one_event_fifty_times_at_once_has_one_effect_and_is_always_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = FlashSaleFactory(quantity=1, primed=True)
    payment = PaymentFactory(order=OrderFactory(sale=sale))
    body, headers = sandbox.message(payment, "payment.succeeded")

    answers = race(*[partial(post, body, headers)] * COPIES)

    assert answers == [200] * COPIES
    assert Order.objects.get().status == Status.PAID
    assert list(OrderEvent.objects.values_list("kind", flat=True)) == ["created", "paid"]
    assert Refund.objects.count() == 0


def deliver(name: str, *, earlier: Payment, payment: Payment) -> str:
    """`failed` is about an earlier attempt; `duplicate` is another message of the same success."""
    kind = "succeeded" if name == "duplicate" else name
    about = earlier if name == "failed" else payment
    return tell(about, f"payment.{kind}", event_id=f"{payment.pk}-{name}")


def ending(order: Order) -> dict[str, Any]:
    order.refresh_from_db()
    payments = order.payments.order_by("created_at").values_list("status", "use", "refund__status")
    return {
        "order": (order.status, order.refund, order.restocked),
        "payments": list(payments),
        "events": sorted(order.events.values_list("kind", flat=True)),
    }


@pytest.mark.long
def test_all_orders_of_five_events_end_alike() -> None:
    sale = FlashSaleFactory(quantity=120, primed=True)
    endings = []
    for names in itertools.permutations(EVENTS):
        order = OrderFactory(sale=sale)
        earlier = PaymentFactory(order=order)
        # The buyer has begun anew; the message that the first one failed may be on its way.
        Payment.objects.filter(pk=earlier.pk).update(status=2, ended_at=order.created_at)
        payment = PaymentFactory(order=order)
        for name in names:
            deliver(name, earlier=earlier, payment=payment)
        endings.append(ending(order))

    assert len(endings) == 120
    assert endings == endings[:1] * 120
    assert endings[0] == {
        "order": (Status.REFUNDED, RefundState.DONE, False),
        "payments": [
            (Payment.State.FAILED, "", None),
            (Payment.State.SUCCEEDED, "refund", Refund.State.DONE),
        ],
        "events": ["created", "paid", "refund_done", "refund_started", "refunded"],
    }
    assert money_audit.violations(sale) == []
    assert FlashSale.objects.get().allocated == 120  # Refunded at the provider: they stay sold.


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_part_of_the_five_events_ends_alike_in_any_order(size: int) -> None:
    sale = FlashSaleFactory(quantity=200, primed=True)
    for chosen in itertools.combinations(EVENTS, size):
        endings = []
        for names in itertools.permutations(chosen):
            order = OrderFactory(sale=sale)
            payment = PaymentFactory(order=order)
            for name in names:  # Here the failure is of the same payment.
                deliver(name, earlier=payment, payment=payment)
            endings.append(ending(order))

        assert endings == endings[:1] * len(endings), chosen
