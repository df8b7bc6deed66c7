"""Money against the clock, against its owner, and against itself: units once, money once.

FULL=1 runs 500 rounds of each.
"""

import os
from collections.abc import Callable
from functools import partial

import pytest
import uuid_utils.compat
from django.db.models import F
from django.utils import timezone

from inventory import gate
from inventory.models import FlashSale
from orders import audit, creation, priming, services
from orders.models import Order, OrderEvent, Payment, Refund, Status
from orders.payments import captures, refunds
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory, UserFactory
from tests.orders.gateways import tell
from tests.orders.races import race_many
from tests.support.params import LONG

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

FULL = os.environ.get("FULL") == "1"
ROUNDS = 500 if FULL else 40 if LONG else 20

Act = Callable[[Payment], object]


def pay(payment: Payment) -> object:
    return tell(payment)


def cancel(payment: Payment) -> object:
    return services.cancel_order(payment.order_id, actor="buyer")


def expire(payment: Payment) -> object:
    return services.expire_orders()


def refund(payment: Payment) -> object:
    return services.refund_order(payment.order_id, actor="staff", restock=True)


def begun(count: int) -> list[Payment]:
    sale = FlashSaleFactory(quantity=count)
    payments: list[Payment] = [PaymentFactory(order=OrderFactory(sale=sale)) for _ in range(count)]
    priming.prime(sale.pk)
    return payments


def pairs(payments: list[Payment], one: Act, other: Act) -> list[list[Callable[[], object]]]:
    return [[partial(one, payment), partial(other, payment)] for payment in payments]


def due(payment: Payment) -> object:
    return Order.objects.filter(pk=payment.order_id).update(pay_before=timezone.now())


def check(payments: list[Payment]) -> None:
    """Invariants 1, 2, 8 and 9; and each order's events tell one story."""
    captures.settle_due()
    refunds.send_due(limit=len(payments))
    report = audit.audit(payments[0].order.sale_id)["sales"][0]
    assert report["violations"] == []
    assert report["gate"] == report["available"]
    taken = Payment.objects.filter(status=Payment.State.SUCCEEDED)
    assert taken.filter(use="").count() == 0
    assert taken.filter(use="refund").count() == Refund.objects.count()
    assert Refund.objects.filter(status=Refund.State.STARTED).count() == 0
    for order in Order.objects.filter(payments__in=payments).prefetch_related("events"):
        assert ended_well(order), (order.status, [event.kind for event in order.events.all()])


STORIES = {
    Status.UNPAID: [[]],
    Status.PAID: [["paid"], ["expired", "paid"], ["canceled", "paid"]],
    Status.EXPIRED: [["expired"]],
    Status.CANCELED: [["canceled"]],
    Status.REFUNDED: [["paid", "refunded"]],
}


def ended_well(order: Order) -> bool:
    moves = {"paid", "expired", "canceled", "refunded"}
    told = [event.kind for event in order.events.all() if event.kind in moves]
    return told in STORIES[Status(order.status)]


@pytest.mark.parametrize(
    ("one", "other"),
    [(pay, expire), (pay, cancel), (expire, cancel), (pay, pay)],
    ids=lambda act: act.__name__,
)
def test_race_of_money(one: Act, other: Act) -> None:
    payments = begun(ROUNDS)
    rounds: list[list[Callable[[], object]]] = []
    for payment in payments:
        if expire in (one, other):
            rounds.append([partial(due, payment), int])
        rounds.append([partial(one, payment), partial(other, payment)])
        rounds.append([services.expire_orders, int])

    race_many(rounds)

    check(payments)
    assert not Order.objects.filter(status=Status.UNPAID).exists()
    if pay in (one, other):  # The unit stays with the money, whoever came first.
        assert Order.objects.filter(status=Status.PAID).count() == ROUNDS


@pytest.mark.parametrize("other", [refund, cancel, expire], ids=lambda act: act.__name__)
def test_race_of_refunds(other: Act) -> None:
    payments = begun(ROUNDS)
    for payment in payments:
        tell(payment)

    won = race_many(pairs(payments, refund, other))

    assert all(sum(bool(answer) for answer in pair) == 1 for pair in won)
    check(payments)
    assert Refund.objects.count() == ROUNDS


def test_race_of_money_with_another_buyer_for_the_unit() -> None:
    """Late money and the next buyer want the last unit: one gets it, or the money goes back."""
    payments = begun(ROUNDS)
    sale = payments[0].order.sale
    for payment in payments:
        due(payment)
    services.expire_orders()
    others = iter(UserFactory.create_batch(ROUNDS))
    # One unit is left for each round's two; the others are taken out.
    FlashSale.objects.filter(pk=sale.pk).update(quantity=ROUNDS // 2)
    gate.forget(sale.pk)
    priming.prime(sale.pk)

    rounds: list[list[Callable[[], object]]] = [
        [partial(tell, payment), partial(buy, sale.pk, next(others).pk)] for payment in payments
    ]
    race_many(rounds)

    check(payments)
    assert FlashSale.objects.get(pk=sale.pk).available == 0
    assert (
        Order.objects.exclude(status__in=[Status.EXPIRED, Status.REJECTED]).count() == ROUNDS // 2
    )


def buy(sale_id: int, user_id: int) -> object:
    """Admission, and the order, as a worker makes it."""
    purchase = creation.Purchase(uuid_utils.compat.uuid7(), user_id, 1)
    entry = gate.Entry(user_id, str(purchase.purchase_id))
    verdict = gate.reserve(sale_id, [entry], limited=False).verdicts[0]
    if verdict.admission is gate.Admission.RESERVED:
        orders = creation.create_orders(sale_id=sale_id, purchases=[purchase])
        services.settle(sale_id, orders)
    return verdict


# --- the control: read, check, write --------------------------------------------------------------


def naive_pay(payment: Payment) -> object:
    if Order.objects.get(pk=payment.order_id).status != Status.UNPAID:
        return False
    Order.objects.filter(pk=payment.order_id).update(status=Status.PAID, paid_at=timezone.now())
    OrderEvent.objects.create(order_id=payment.order_id, kind="paid", at=timezone.now())
    return True


def naive_end(payment: Payment) -> object:
    if Order.objects.get(pk=payment.order_id).status != Status.UNPAID:
        return False
    Order.objects.filter(pk=payment.order_id).update(
        status=Status.CANCELED, closed_at=timezone.now()
    )
    FlashSale.objects.filter(pk=payment.order.sale_id).update(allocated=F("allocated") - 1)
    OrderEvent.objects.create(order_id=payment.order_id, kind="canceled", at=timezone.now())
    return True


def naive_refund(payment: Payment) -> object:
    if Order.objects.get(pk=payment.order_id).status != Status.PAID:
        return False
    Order.objects.filter(pk=payment.order_id).update(status=Status.REFUNDED)
    return True


@pytest.mark.parametrize(
    ("one", "other", "paid"),
    [(naive_pay, naive_end, False), (naive_refund, naive_refund, True)],
    ids=["pay", "refund"],
)
def test_race_without_conditions_has_two_winners(one: Act, other: Act, paid: bool) -> None:
    """The control of the races above: the harness sees what reading first leads to."""
    payments = begun(40)
    if paid:
        Order.objects.update(status=Status.PAID, paid_at=timezone.now())

    won = race_many(pairs(payments, one, other))

    assert [True, True] in won
