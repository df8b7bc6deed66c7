"""Money that comes when its order has ended: a unit again, or back to the buyer, exactly once."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
import uuid_utils.compat
from django.utils import timezone
from pytest_django.fixtures import Settings

from inventory import gate, keys
from inventory.models import FlashSale
from inventory.redis_clients import sync_client
from orders import audit, notifications, priming, repair, services
from orders.models import Order, OrderEvent, Payment, Refund, RefundState, Status
from orders.payments import captures, refunds
from tests.conftest import RunDuring
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory
from tests.orders.gateways import tell
from tests.orders.races import race_many

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 100


def begun(sale: FlashSale, **order: object) -> Payment:
    """A payment of an order that is about to expire, in a sale whose gate knows it."""
    made: Payment = PaymentFactory(order=OrderFactory(sale=sale, overdue=True, **order))
    priming.prime(sale.pk)
    return made


def expired(sale: FlashSale) -> Payment:
    payment = begun(sale)
    assert services.expire_orders() == 1
    return payment


def kinds(payment: Payment) -> list[str]:
    return list(payment.order.events.values_list("kind", flat=True))


def check(sale: FlashSale) -> None:
    """Invariants 1, 2, 3, 8 and 9, as far as they can be read."""
    report = audit.audit(sale.pk)
    assert report["ok"], report["sales"][0]["violations"]
    assert report["sales"][0]["gate"] == report["sales"][0]["available"]


def test_settle_takes_a_free_unit_again() -> None:
    sale = FlashSaleFactory(quantity=1)
    payment = expired(sale)

    tell(payment)

    order = Order.objects.get(pk=payment.order_id)
    assert (order.status, order.restocked, order.closed_at) == (Status.PAID, False, None)
    payment.refresh_from_db()
    assert payment.use == Payment.Use.ORDER
    assert kinds(payment) == ["created", "expired", "paid"]
    assert OrderEvent.objects.get(order=order, kind="paid").reason == captures.LATE
    check(sale)


def test_settle_takes_the_unit_from_the_gate_first() -> None:
    """The last unit is with a buyer who was admitted and has no order yet: it stays with him."""
    sale = FlashSaleFactory(quantity=1)
    payment = expired(sale)
    gate.reserve(sale.pk, [gate.Entry(10**6, str(uuid_utils.compat.uuid7()))])

    tell(payment)

    assert Order.objects.get(pk=payment.order_id).status == Status.EXPIRED
    assert FlashSale.objects.get(pk=sale.pk).available == 1
    assert Refund.objects.get().cause == Refund.Cause.LATE


def test_settle_sends_money_back_when_the_unit_went_to_another() -> None:
    sale = FlashSaleFactory(quantity=1)
    payment = expired(sale)
    OrderFactory(sale=sale, paid=True)
    gate.forget(sale.pk)
    priming.prime(sale.pk)

    tell(payment)

    order = Order.objects.get(pk=payment.order_id)
    assert (order.status, order.refund) == (Status.EXPIRED, RefundState.STARTED)
    assert Refund.objects.get().amount_cents == payment.amount_cents
    assert refunds.send_due() == 1
    order.refresh_from_db()
    assert order.refund == RefundState.DONE
    assert kinds(payment) == ["created", "expired", "refund_started", "refund_done"]
    check(sale)


def test_settle_sends_money_back_when_the_buyer_has_another_order() -> None:
    sale = FlashSaleFactory(quantity=5)
    payment = expired(sale)
    again = OrderFactory(sale=sale, user=payment.order.user)
    gate.forget(sale.pk)
    priming.prime(sale.pk)

    tell(payment)

    assert Order.objects.get(pk=payment.order_id).status == Status.EXPIRED
    assert Order.objects.get(pk=again.pk).status == Status.UNPAID
    assert Refund.objects.count() == 1
    check(sale)


def test_settle_sends_money_back_when_only_the_database_knows_the_other_order() -> None:
    sale = FlashSaleFactory(quantity=5)
    payment = expired(sale)
    OrderFactory(sale=sale, user=payment.order.user)

    tell(payment)

    assert Refund.objects.count() == 1
    assert gate.snapshot(sale.pk).stock == 5  # What was held for a moment is back.


def test_settle_in_a_gate_that_is_not_loaded_loads_it() -> None:
    sale = FlashSaleFactory(quantity=1)
    payment = expired(sale)
    gate.forget(sale.pk)

    tell(payment)

    assert Order.objects.get(pk=payment.order_id).status == Status.PAID
    check(sale)


def test_settle_waits_for_a_gate_that_is_away_and_the_sweep_does_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = FlashSaleFactory(quantity=1)
    payment = expired(sale)

    def away(*args: object) -> None:
        raise gate.GateError("away")

    with monkeypatch.context() as patch:
        patch.setattr(gate, "retake", away)
        assert tell(payment) == "applied"
    payment.refresh_from_db()
    assert (payment.status, payment.use) == (Payment.State.SUCCEEDED, "")

    Payment.objects.update(ended_at=timezone.now() - timedelta(minutes=1))
    assert audit.audit(sale.pk)["sales"][0]["violations"] == [
        "1 payments were taken, and neither pay an order nor go back"
    ]
    assert captures.settle_due() == 1
    check(sale)


def test_settle_that_died_after_the_gate_is_repeated_without_a_second_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = FlashSaleFactory(quantity=3)
    payment = expired(sale)

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(captures, "_revive", die)
        with pytest.raises(KeyboardInterrupt):
            tell(payment)
    assert gate.snapshot(sale.pk).stock == 2
    repair.reconcile_sales()  # It must not take for drift what is being decided.

    captures.settle(payment.pk)

    assert Order.objects.get(pk=payment.order_id).status == Status.PAID
    check(sale)


def test_a_release_that_comes_late_does_not_touch_an_order_that_lives_again(
    run_during: RunDuring,
) -> None:
    """The expiry's own release runs after the money has taken the unit again."""
    sale = FlashSaleFactory(quantity=1)
    payment = begun(sale)

    run_during(gate, "release", partial(tell, payment))
    services.expire_orders()

    order = Order.objects.get(pk=payment.order_id)
    assert (order.status, order.gate_released_at) == (Status.PAID, None)
    assert gate.snapshot(sale.pk).stock == 0
    check(sale)


def test_units_of_an_order_that_lived_again_come_back_with_its_refund() -> None:
    sale = FlashSaleFactory(quantity=1)
    payment = expired(sale)
    tell(payment)

    services.refund_order(payment.order_id, actor="staff", restock=True, reason="broken")

    assert gate.snapshot(sale.pk).stock == 1
    check(sale)


def test_an_order_that_lives_again_keeps_its_buyer_from_a_second_one() -> None:
    sale = FlashSaleFactory(quantity=3)
    payment = expired(sale)
    tell(payment)

    buyer = payment.order.user_id
    assert buyer is not None
    tried = gate.reserve(sale.pk, [gate.Entry(buyer, str(uuid_utils.compat.uuid7()))])

    assert tried.verdicts[0] == gate.Verdict(gate.Admission.ORDERED, str(payment.order_id))


@pytest.mark.parametrize("sold", [False, True])
def test_late_money_is_told_by_a_frame(sold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, notifications.Frame]] = []
    sale = FlashSaleFactory(quantity=1)
    payment = expired(sale)
    if sold:
        OrderFactory(sale=sale)
        sync_client().set(keys.of_sale(sale.pk, "stock"), 0)
    monkeypatch.setattr(notifications, "push", told.extend)

    tell(payment)

    group = f"buyer.{payment.order.user_id}"
    (frame,) = [frame for to, frame in told if to == group]
    order = frame["data"]["order"]
    expected = ("order.refunded", "expired", "started") if sold else ("order.paid", "paid", None)
    assert (frame["type"], order["status"], order["refund"]) == expected


@pytest.mark.postgres
def test_money_in_the_very_second_of_expiry(settings: Settings) -> None:
    """Money, expiry and other buyers at the same moment, a hundred times."""
    sale = FlashSaleFactory(quantity=ROUNDS)
    payments = [begun(sale) for _ in range(ROUNDS)]
    gate.forget(sale.pk)
    priming.prime(sale.pk)
    Order.objects.update(pay_before=timezone.now() + timedelta(hours=1))

    def due(payment: Payment) -> int:
        return Order.objects.filter(pk=payment.order_id).update(pay_before=timezone.now())

    rounds: list[list[Callable[[], object]]] = []
    for payment in payments:
        rounds.append([partial(due, payment), int, int])
        rounds.append([partial(tell, payment), services.expire_orders, services.expire_orders])
        rounds.append([services.expire_orders, int, int])
    race_many(rounds)
    captures.settle_due()

    # Each unit was free, or still held: all the money buys.
    assert Order.objects.filter(status=Status.PAID).count() == ROUNDS
    assert Payment.objects.filter(use=Payment.Use.ORDER).count() == ROUNDS
    assert OrderEvent.objects.filter(kind="paid").count() == ROUNDS
    check(sale)


@pytest.mark.postgres
def test_settle_many_times_at_once_decides_once() -> None:
    sale = FlashSaleFactory(quantity=20)
    payments = [begun(sale) for _ in range(20)]
    gate.forget(sale.pk)
    priming.prime(sale.pk)
    services.expire_orders()
    OrderFactory.create_batch(10, sale=sale)  # Half of the units are gone by now.
    gate.forget(sale.pk)
    priming.prime(sale.pk)
    Payment.objects.filter(status=0).update(status=1, ended_at=timezone.now())

    race_many([[partial(captures.settle, payment.pk)] * 4 for payment in payments])

    uses = Payment.objects.filter(pk__in=[p.pk for p in payments]).values_list("use", flat=True)
    assert sorted(uses) == ["order"] * 10 + ["refund"] * 10
    assert Refund.objects.count() == 10
    check(sale)
