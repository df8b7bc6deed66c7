"""What may become of an order, and that it becomes it once."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
import uuid_utils.compat
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from inventory import gate
from inventory.models import FlashSale
from orders import accounting, notifications, priming, repair, services
from orders.models import Order, OrderEvent, Status
from tests.conftest import RunDuring
from tests.factories import FlashSaleFactory, OrderFactory

pytestmark = pytest.mark.django_db(transaction=True)

CALLS: dict[str, Callable[..., Any]] = {
    "pay": services.pay_order,
    "cancel": services.cancel_order,
    "refund": partial(services.refund_order, restock=True),
    "refund_only": partial(services.refund_order, restock=False),
}
AFTER = {
    "pay": Status.PAID,
    "cancel": Status.CANCELED,
    "refund": Status.REFUNDED,
    "refund_only": Status.REFUNDED,
}
ALLOWED = {
    ("unpaid", "pay"),
    ("overdue", "pay"),  # while the order holds its unit, the money counts
    ("unpaid", "cancel"),
    ("overdue", "cancel"),
    ("paid", "refund"),
    ("paid", "refund_only"),
}
STATES = ["unpaid", "overdue", "paid", "canceled", "expired", "refunded", "rejected"]


def order_in(state: str, **more: Any) -> Order:
    traits = {} if state == "unpaid" else {state: True}
    order: Order = OrderFactory(**traits, **more)
    if state in ("canceled", "expired"):
        Order.objects.filter(pk=order.pk).update(gate_released_at=timezone.now())
    if order.status == Status.REFUNDED:  # without restock: its unit stays allocated
        FlashSale.objects.filter(pk=order.sale_id).update(allocated=F("allocated") + 1)
    priming.prime(order.sale_id)
    return order


def stock(order: Order) -> int | None:
    return gate.snapshot(order.sale_id).stock


def row(order: Order) -> dict[str, Any]:
    return dict(Order.objects.filter(pk=order.pk).values().get())


def allocated(order: Order) -> int:
    assert accounting.allocated_drift(order.sale_id) == 0
    return FlashSale.objects.get(pk=order.sale_id).allocated


# --- every state, every call ----------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", STATES)
def test_transition_happens_where_it_may_and_nowhere_else(state: str, call: str) -> None:
    order = order_in(state)
    before, units, in_gate = row(order), allocated(order), stock(order)

    done = CALLS[call](order.pk, actor="somebody", reason="because")

    assert done == ((state, call) in ALLOWED)
    if not done:
        assert (row(order), allocated(order), stock(order)) == (before, units, in_gate)
        assert not OrderEvent.objects.filter(order=order, actor="somebody").exists()
        return
    assert row(order)["status"] == AFTER[call]
    event = OrderEvent.objects.get(order=order, actor="somebody")
    assert (event.kind, event.reason) == (AFTER[call].name.lower(), "because")
    back = call in ("cancel", "refund")
    assert allocated(order) == units - back
    assert stock(order) == (in_gate or 0) + back


@pytest.mark.parametrize("state", STATES)
def test_expire_orders_takes_overdue_orders_only(state: str) -> None:
    order = order_in(state)
    before, units = row(order), allocated(order)

    assert services.expire_orders() == (state == "overdue")

    if state == "overdue":
        assert row(order)["status"] == Status.EXPIRED
        assert (allocated(order), stock(order)) == (0, 10)
        assert OrderEvent.objects.get(order=order, kind="expired").actor == "system"
    else:
        assert (row(order), allocated(order)) == (before, units)


@pytest.mark.parametrize("call", ["pay", "cancel"])
def test_transition_twice_happens_once(call: str) -> None:
    order = order_in("unpaid")

    assert [CALLS[call](order.pk, actor="x") for _ in range(3)] == [True, False, False]

    assert OrderEvent.objects.filter(order=order, actor="x").count() == 1
    assert stock(order) == (9 if call == "pay" else 10)


def test_transition_of_an_unknown_order_does_nothing() -> None:
    assert not services.pay_order(uuid_utils.compat.uuid7(), actor="x")
    assert OrderEvent.objects.count() == 0


def test_transition_that_is_rolled_back_tells_nobody() -> None:
    order = order_in("unpaid")

    with transaction.atomic():
        services.cancel_order(order.pk, actor="x")
        transaction.set_rollback(True)

    assert (row(order)["status"], stock(order)) == (Status.UNPAID, 9)


def test_cancel_frees_the_buyer_for_a_second_try() -> None:
    order = order_in("unpaid", sale=FlashSaleFactory(rebuy=True))
    services.cancel_order(order.pk, actor="x")

    entry = gate.Entry(order.user_id or 0, str(uuid_utils.compat.uuid7()))
    verdict = gate.reserve(order.sale_id, [entry]).verdicts[0]

    assert verdict.admission is gate.Admission.RESERVED


def test_refund_without_restock_frees_the_buyer_but_no_unit() -> None:
    order = order_in("paid")

    services.refund_order(order.pk, actor="x", restock=False)

    assert (allocated(order), stock(order), list(gate.buyers(order.sale_id))) == (1, 9, [])
    assert not row(order)["restocked"]


def test_expire_orders_takes_more_than_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "CHUNK", 2)
    sale = FlashSaleFactory(quantity=10)
    for _ in range(5):
        OrderFactory(sale=sale, overdue=True)

    assert services.expire_orders() == 5
    assert accounting.units_held(sale.pk) == FlashSale.objects.get(pk=sale.pk).allocated == 0


def test_expire_orders_of_several_sales() -> None:
    orders = [order_in("overdue") for _ in range(3)]

    assert services.expire_orders() == 3
    assert [stock(order) for order in orders] == [10, 10, 10]


@pytest.mark.postgres
def test_expire_orders_leaves_an_order_that_is_being_paid() -> None:
    paying, other = order_in("overdue"), order_in("overdue")
    held, done = threading.Event(), threading.Event()

    def pay_slowly() -> None:
        with transaction.atomic():
            services.pay_order(paying.pk, actor="x")
            held.set()
            done.wait(10)
        connection.close()

    thread = threading.Thread(target=pay_slowly)
    thread.start()
    held.wait(10)
    expired = services.expire_orders()
    done.set()
    thread.join()

    assert expired == 1
    assert row(paying)["status"] == Status.PAID
    assert row(other)["status"] == Status.EXPIRED


# --- what is told ---------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(group, type of the frame), as handed to the channel layer."""
    frames: list[tuple[str, str]] = []
    monkeypatch.setattr(
        notifications, "push", lambda sent: frames.extend((g, f["type"]) for g, f in sent)
    )
    return frames


@pytest.mark.parametrize(
    ("call", "kind"),
    [("pay", "order.paid"), ("cancel", "order.canceled")],
)
def test_transition_tells_the_owner_once(told: list[tuple[str, str]], call: str, kind: str) -> None:
    order = order_in("unpaid")

    CALLS[call](order.pk, actor="x")
    CALLS[call](order.pk, actor="x")

    assert told == [(f"buyer.{order.user_id}", kind)]


def test_expire_orders_tells_each_owner_and_the_viewers(told: list[tuple[str, str]]) -> None:
    sale = FlashSaleFactory(quantity=1)
    order = order_in("overdue", sale=sale)

    services.expire_orders()

    assert told == [
        (f"buyer.{order.user_id}", "order.expired"),
        (f"sale.{sale.pk}", "sale.back_in_stock"),
    ]


def test_tell_results_tells_orders_and_rejections_to_their_owners(
    told: list[tuple[str, str]],
) -> None:
    made, refused = OrderFactory(), OrderFactory(rejected=True)
    nobodys = OrderFactory(rejected=True, user=None)

    services.tell_results([made, refused, nobodys])

    assert told == [
        (f"buyer.{made.user_id}", "purchase.succeeded"),
        (f"buyer.{refused.user_id}", "purchase.failed"),
    ]


# --- the outbox -----------------------------------------------------------------------------------


def away(*args: Any, **kwargs: Any) -> Any:
    raise gate.GateError("Redis is away")


@pytest.mark.parametrize("call", ["cancel", "expire"])
def test_units_come_back_later_if_redis_is_away_after_the_commit(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    order = order_in("overdue")
    with monkeypatch.context() as patch:
        patch.setattr(gate, "release", away)
        if call == "cancel":
            assert services.cancel_order(order.pk, actor="x")
        else:
            assert services.expire_orders() == 1

    assert (allocated(order), stock(order)) == (0, 9)
    assert row(order)["gate_released_at"] is None
    assert [repair.sweep_releases(), repair.sweep_releases()] == [1, 0]
    assert stock(order) == 10
    assert row(order)["gate_released_at"] is not None


def test_units_come_back_once_though_the_process_dies_before_it_is_noted() -> None:
    order = order_in("overdue")
    services.expire_orders()
    Order.objects.filter(pk=order.pk).update(gate_released_at=None)

    assert repair.sweep_releases() == 1
    assert stock(order) == 10


def test_units_are_not_counted_twice_by_a_gate_loaded_after_the_commit(
    redis_client: redis.Redis,
) -> None:
    order = order_in("overdue")
    gate.forget(order.sale_id)

    services.expire_orders()

    assert (stock(order), row(order)["gate_released_at"] is None) == (10, False)


def test_units_count_if_the_order_ends_between_snapshot_and_loading(run_during: RunDuring) -> None:
    order = order_in("overdue")
    gate.forget(order.sale_id)
    run_during(gate, "prime", lambda: services.expire_orders())

    priming.prime(order.sale_id)
    repair.sweep_releases()

    assert stock(order) == 10
