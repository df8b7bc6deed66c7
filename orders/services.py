"""The life of an order. Every change is one conditional UPDATE: the row count says who won.

Lock order: a payment, its order, the sale's row last. Effects outside the database come after the
commit; each may be repeated, and a sweep repairs its loss (orders/repair.py).
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from inventory import gate
from inventory import services as inventory
from inventory.commits import after_commit
from inventory.faults import faultpoint
from inventory.models import FlashSale
from inventory.signals import announce
from orders import notifications, priming
from orders.models import LIVE, Order, OrderEvent, Payment, Refund, RefundState, Rejection, Status
from orders.payments import refunds

log = logging.getLogger(__name__)

CHUNK = 500  # orders that one transaction expires


def pay_order(order_id: UUID, *, actor: str, reason: str = "") -> bool:
    """Mark an unpaid order paid. True for the one caller that did.

    Money that arrives after the deadline still counts while the order holds its unit.
    """
    return _move(
        order_id,
        Q(status=Status.UNPAID),
        OrderEvent(kind=OrderEvent.Kind.PAID, actor=actor, reason=reason),
        status=Status.PAID,
        paid_at=Now(),
    )


def cancel_order(order_id: UUID, *, actor: str, reason: str = "") -> bool:
    """Close an unpaid order and give its units back. True for the one caller that did."""
    canceled = _move(
        order_id,
        Q(status=Status.UNPAID),
        OrderEvent(kind=OrderEvent.Kind.CANCELED, actor=actor, reason=reason),
        status=Status.CANCELED,
        closed_at=Now(),
        restocked=True,
    )
    if canceled:  # Nobody shall pay it any more: the provider is told by the next run.
        open_ones = Payment.objects.filter(order=order_id, status=Payment.State.CREATED)
        open_ones.exclude(ask_at=None).update(ask_at=timezone.now())
    return canceled


def refund_order(
    order_id: UUID,
    *,
    actor: str,
    restock: bool,
    reason: str = "",
    cause: Refund.Cause = Refund.Cause.STAFF,
) -> bool:
    """Mark a paid order refunded, once, and send its money back. True if this call did.

    `restock` gives its units back.
    """
    paying = Payment.objects.filter(order=order_id, use=Payment.Use.ORDER)
    with transaction.atomic():
        payment = paying.first()
        taken = payment is not None and paying.update(use=Payment.Use.REFUND)
        moved = _move(
            order_id,
            Q(status=Status.PAID),
            OrderEvent(kind=OrderEvent.Kind.REFUNDED, actor=actor, reason=reason),
            status=Status.REFUNDED,
            closed_at=Now(),
            restocked=restock,
            gate_released_at=None,
            refund=RefundState.STARTED if taken else RefundState.NONE,
        )
        if not moved:
            transaction.set_rollback(True)
        elif payment is not None and taken:
            refunds.start(payment, cause)
    return moved


def _move(order_id: UUID, condition: Q, event: OrderEvent, **columns: Any) -> bool:
    with transaction.atomic():
        if not Order.objects.filter(condition, pk=order_id).update(**columns):
            return False
        order = Order.objects.get(pk=order_id)
        event.order, event.at = order, Now()
        event.save(force_insert=True)
        if order.restocked:
            inventory.release(order.sale_id, order.quantity)
        after_commit(_after_change, [order])
    return True


def _after_change(orders: Sequence[Order]) -> None:
    group = notifications.buyer_group
    notifications.push(
        [(group(o.user_id), notifications.order_changed(o)) for o in orders if o.user_id]
    )
    give_back([order for order in orders if order.status not in LIVE])


def expire_orders() -> int:
    """Close all unpaid orders past their deadline, by the database's clock; returns how many."""
    expired = 0
    while True:
        orders = _expire_chunk()
        expired += len(orders)
        if len(orders) < CHUNK:
            return expired


def _overdue() -> QuerySet[Order]:
    """Not yet those that somebody has begun to pay: their provider is asked first, for a while."""
    asking = Payment.objects.filter(order=OuterRef("pk"), status=Payment.State.CREATED)
    # Less than a whole interval: together with the wait for the next sweep it stays below two.
    patience = timedelta(seconds=0.75 * settings.SWEEP_INTERVAL)
    return Order.objects.filter(status=Status.UNPAID, pay_before__lte=Now()).filter(
        Q(pay_before__lte=Now() - patience) | ~Exists(asking.exclude(ask_at=None))
    )


def _expire_chunk() -> list[Order]:
    with transaction.atomic():
        # A row that somebody else holds is being paid, canceled or expired right now: leave it.
        rows = _overdue().select_for_update(skip_locked=True, no_key=True).order_by("pay_before")
        orders = list(rows.annotate(now=Now())[:CHUNK])
        if not orders:
            return []
        ids = [order.pk for order in orders]
        changed = Order.objects.filter(pk__in=ids, status=Status.UNPAID).update(
            status=Status.EXPIRED, closed_at=Now(), restocked=True
        )
        if changed != len(orders):
            raise AssertionError("locked orders changed under the lock")
        OrderEvent.objects.bulk_create(
            OrderEvent(order=o, kind=OrderEvent.Kind.EXPIRED, actor="system", at=o.now)
            for o in orders
        )
        for sale_id, units in sorted(_units(orders).items()):
            inventory.release(sale_id, units)
        for order in orders:
            order.status, order.restocked = Status.EXPIRED, True
        faultpoint("in_expire")
        after_commit(faultpoint, "after_expire_commit")
        after_commit(_after_change, orders)
    return list(orders)


def _units(orders: Sequence[Order]) -> dict[int, int]:
    units: dict[int, int] = defaultdict(int)
    for order in orders:
        units[order.sale_id] += order.quantity
    return units


def give_back(orders: Sequence[Order]) -> int:
    """Give the units of ended orders back to the gate; returns how many orders were done.

    May be repeated. What can't be done now stays in the outbox, for repair.sweep_releases.
    """
    by_sale: dict[int, list[Order]] = defaultdict(list)
    for order in orders:
        by_sale[order.sale_id].append(order)
    done = 0
    for sale_id, group in by_sale.items():
        try:
            done += _give_back(sale_id, group)
        except gate.GateError as error:
            log.warning("gate of sale %s is away, its units come back later: %s", sale_id, error)
    return done


def _give_back(sale_id: int, orders: Sequence[Order]) -> int:
    # A refund without restock frees the buyer, but no unit.
    held = [
        gate.Held(
            str(o.pk),
            o.user_id or 0,
            o.quantity if o.restocked else 0,
            final=o.status == Status.REFUNDED,
        )
        for o in orders
    ]
    level = gate.release(sale_id, held)
    if level.stock is None:
        # The snapshot that loads the gate has these units already, unless it was taken before.
        priming.prime(sale_id)
        level = gate.release(sale_id, held)
        if level.stock is None:
            return 0
    # One that lives again meanwhile, because its money came late, holds its units.
    released = Order.objects.filter(pk__in=[o.pk for o in orders], gate_released_at=None)
    released.exclude(status__in=LIVE).update(gate_released_at=Now())
    announce(sale_id, level=level)
    return len(orders)


def tell_results(orders: Sequence[Order]) -> None:
    """Tell buyers what became of their purchases. A lost frame is repaired by polling."""
    group = notifications.buyer_group
    notifications.push([(group(o.user_id), _result_frame(o)) for o in orders if o.user_id])


def _result_frame(order: Order) -> notifications.Frame:
    if order.status == Status.REJECTED:
        return notifications.purchase_failed(
            order.pk, sale_id=order.sale_id, code=order.code, at=order.created_at
        )
    return notifications.purchase_succeeded(order)


def settle(sale_id: int, orders: Sequence[Order]) -> bool:
    """Tell the gate what became of admitted purchases. May be repeated; False = not now."""
    over = [o for o in orders if o.restocked]
    current = [o for o in orders if not o.restocked]
    try:
        settled = not current or _settle(sale_id, current)
    except gate.GateError as error:
        log.warning("gate of sale %s is away, settling later: %s", sale_id, error)
        return False
    except FlashSale.DoesNotExist:
        log.error("sale %s is gone, and so is its gate", sale_id)
        return False
    give_back(over)
    return settled


def _settle(sale_id: int, orders: Sequence[Order]) -> bool:
    settlements = _settlements(sale_id, orders)
    level = gate.settle(sale_id, settlements)
    if level.stock is None:
        priming.prime(sale_id)  # Its snapshot has these orders; what is in the journal comes again.
        return False
    announce(sale_id, level=level)
    _free_buyers_of_ended(sale_id, settlements)
    return True


def _free_buyers_of_ended(sale_id: int, settlements: Sequence[gate.Settlement]) -> None:
    """An order may have ended while the gate was told that it is its buyer's live one."""
    users = {s.live_purchase_id: s.user_id for s in settlements if s.live_purchase_id}
    if not users:
        return
    ended = Order.objects.filter(pk__in=users).exclude(status__in=LIVE)
    held = [gate.Held(str(pk), users[str(pk)], 0) for pk in ended.values_list("pk", flat=True)]
    if held:
        gate.release(sale_id, held)


def _settlements(sale_id: int, orders: Sequence[Order]) -> list[gate.Settlement]:
    met = [o.user_id for o in orders if o.code == Rejection.DUPLICATE]
    live = {}
    if met:
        rows = Order.objects.filter(sale_id=sale_id, user__in=met, status__in=LIVE)
        live = {user: str(pk) for user, pk in rows.values_list("user_id", "pk")}
    return [
        gate.Settlement(
            str(o.pk),
            o.user_id or 0,
            o.code,
            o.gate_return,
            live.get(o.user_id or 0, "") if o.code == Rejection.DUPLICATE else "",
        )
        for o in orders
    ]
