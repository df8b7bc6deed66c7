"""Refunds: decided once, sent until the gateway confirms, and never twice."""

from functools import partial

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from orders import audit, priming, services
from orders.models import Order, OrderEvent, Payment, Refund, RefundState, Status
from orders.payments import refunds
from orders.payments.models import SandboxCharge
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory
from tests.orders.gateways import FakeGateway, tell
from tests.orders.races import race, race_many

pytestmark = pytest.mark.django_db(transaction=True)


def refunded(*, provider: str = "fake", restock: bool = False) -> Refund:
    """A refund that staff has decided about."""
    order = OrderFactory()
    priming.prime(order.sale_id)
    tell(PaymentFactory(order=order, provider=provider))
    assert services.refund_order(order.pk, actor="anna", restock=restock, reason="broken")
    return Refund.objects.get()


def due_now() -> None:
    Refund.objects.update(try_at=timezone.now())


def kinds() -> list[str]:
    return list(OrderEvent.objects.values_list("kind", flat=True))


def test_refund_order_writes_down_who_and_why_and_sends_the_money(gateway: FakeGateway) -> None:
    refund = refunded()

    assert refunds.send_due() == 1

    refund.refresh_from_db()
    assert (refund.status, refund.cause) == (Refund.State.DONE, Refund.Cause.STAFF)
    assert refund.reference == f"back-{refund.pk}"
    assert kinds() == ["created", "paid", "refunded", "refund_started", "refund_done"]
    event = OrderEvent.objects.get(kind="refunded")
    assert (event.actor, event.reason) == ("anna", "broken")
    order = Order.objects.get()
    assert (order.status, order.refund) == (Status.REFUNDED, RefundState.DONE)


@pytest.mark.parametrize("restock", [True, False])
def test_refund_order_gives_units_back_only_if_told(gateway: FakeGateway, restock: bool) -> None:
    refund = refunded(restock=restock)

    sale = audit.audit(refund.payment.order.sale_id)["sales"][0]
    assert sale["violations"] == []
    assert (sale["allocated"], sale["gate"]) == ((0, 10) if restock else (1, 9))


def test_send_due_tries_until_the_gateway_confirms(gateway: FakeGateway) -> None:
    refund = refunded()
    gateway.down = True
    assert refunds.send_due() == 0
    refund.refresh_from_db()
    assert (refund.attempts, refund.error) == (1, "down")
    assert refunds.send_due() == 0  # Not due again yet.
    assert gateway.called("refund") == 1

    gateway.down, gateway.confirms = False, False
    due_now()
    assert refunds.send_due() == 0
    gateway.confirms = True
    due_now()
    assert refunds.send_due() == 1

    due_now()
    assert refunds.send_due() == 0
    assert gateway.refund_ids == [str(refund.pk)] * 2  # The key that makes repeats safe.


def test_send_due_of_a_gateway_that_hangs_leaves_its_other_refunds(
    gateway: FakeGateway, settings: Settings
) -> None:
    settings.PAYMENT_TIMEOUT = 0.2
    refunded()
    order = OrderFactory()
    tell(PaymentFactory(order=order, provider="fake"))
    services.refund_order(order.pk, actor="x", restock=False)
    gateway.hang()

    refunds.send_due()
    gateway.released.set()

    assert gateway.called("refund") == 1


def test_send_due_waits_for_a_provider_that_is_switched_off() -> None:
    refunded()

    assert refunds.send_due() == 0
    assert Refund.objects.get().status == Refund.State.STARTED


def test_a_refund_that_the_webhook_confirms_is_not_sent_again(gateway: FakeGateway) -> None:
    refund = refunded()
    gateway.confirms = False
    refunds.send_due()

    assert tell(refund.payment, "payment.refunded") == "applied"
    assert tell(refund.payment, "payment.refunded") == "ignored"
    due_now() if Refund.objects.filter(status=0) else None

    assert refunds.send_due() == 0
    assert kinds().count("refund_done") == 1


def test_the_sandbox_gives_money_back_once() -> None:
    refund = refunded(provider="sandbox")

    assert refunds.send_due() == 1

    charge = SandboxCharge.objects.get()
    assert (charge.refund_id, charge.refunded_at is None) == (str(refund.pk), False)


@pytest.mark.postgres
def test_send_due_by_many_at_once_asks_once(gateway: FakeGateway) -> None:
    refunded()

    assert sum(race(*[refunds.send_due] * 4)) == 1
    assert gateway.called("refund") == 1


@pytest.mark.postgres
def test_refund_against_refund_has_one_winner(gateway: FakeGateway) -> None:
    """Two of the staff, and the gateway itself, at the same moment."""
    sale = FlashSaleFactory(quantity=30)
    payments = [PaymentFactory(order=OrderFactory(sale=sale), provider="fake") for _ in range(30)]
    priming.prime(sale.pk)
    for payment in payments:
        tell(payment)

    def staff(payment: Payment, restock: bool) -> bool:
        return services.refund_order(payment.order_id, actor="x", restock=restock)

    def provider(payment: Payment) -> bool:
        return tell(payment, "payment.refunded") == "never"

    won = race_many(
        [
            [partial(staff, p, True), partial(staff, p, False), partial(provider, p)]
            for p in payments
        ]
    )

    assert all(sum(answers) <= 1 for answers in won)
    assert Refund.objects.count() == 30
    assert Order.objects.filter(status=Status.REFUNDED).count() == 30
    assert [kinds().count(kind) for kind in ("refunded", "refund_started")] == [30, 30]
    assert audit.audit(sale.pk)["sales"][0]["violations"] == []
