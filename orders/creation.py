"""Turning admitted purchases into orders: one transaction for a whole batch.

A purchase that can't become an order becomes a row in state REJECTED, so its id can never become an
order later and the buyer's answer survives the loss of Redis. Doing all this again changes nothing.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import DatabaseError, OperationalError, transaction
from django.db.models import F
from django.db.models.functions import Now

from inventory import services as inventory
from inventory.databases import is_away
from inventory.faults import faultpoint
from inventory.models import FlashSale
from orders import insertion
from orders.models import ENDED, Order, OrderEvent, Rejection, Status

log = logging.getLogger(__name__)

ATTEMPTS = 5  # so often a single purchase may fail before it is rejected
MOST_USERS, MOST_UNITS = 2**31 - 1, 2**15 - 1  # what the columns hold
_RETRIED = {"40P01", "40001", "55P03"}  # deadlock, serialization failure, lock timeout


class Purchase(NamedTuple):
    """An admitted purchase, as it travels in messages: `[purchase_id, user_id, quantity]`."""

    purchase_id: UUID
    user_id: int
    quantity: int


class _Decided(NamedTuple):
    new: list[Order]  # orders and rejections made now
    known: list[Order]  # rows that an earlier delivery made

    def all(self) -> list[Order]:
        return self.new + self.known


def parse(entries: Iterable[Sequence[str | int]]) -> list[Purchase]:
    """Read a message's entries; one that makes no sense is logged and left out."""
    purchases = []
    for entry in entries:
        try:
            purchase_id, user_id, quantity = entry
            purchases.append(_purchase(UUID(str(purchase_id)), int(user_id), int(quantity)))
        except (TypeError, ValueError, OverflowError):
            log.error("unreadable purchase in a message: %.200r", entry)
    return purchases


def _purchase(purchase_id: UUID, user_id: int, quantity: int) -> Purchase:
    if not (0 < user_id <= MOST_USERS and 0 < quantity <= MOST_UNITS):
        raise ValueError("a column can't hold it")
    return Purchase(purchase_id, user_id, quantity)


def create_orders(*, sale_id: int, purchases: Sequence[Purchase]) -> list[Order]:
    """Decide about each purchase; returns its order or rejection, in no particular order.

    Raises OperationalError if the database is away; then nothing is decided and it may be repeated.
    An entry that makes the batch fail is found by splitting and rejected alone.
    """
    unique = list({p.purchase_id: p for p in purchases}.values())
    return _create_or_split(sale_id, unique) if unique else []


def _create_or_split(sale_id: int, purchases: list[Purchase]) -> list[Order]:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return with_retries(lambda: _create(sale_id, purchases)).all()
        except FlashSale.DoesNotExist:
            return _without_sale(sale_id, purchases)
        except (DatabaseError, ValueError, TypeError, OverflowError) as error:
            if is_away(error):
                raise OperationalError(*error.args) from error
            if len(purchases) > 1:
                half = len(purchases) // 2
                first, second = purchases[:half], purchases[half:]
                return _create_or_split(sale_id, first) + _create_or_split(sale_id, second)
            log.warning(
                "purchase %s failed (%s of %s): %s",
                purchases[0],
                attempt,
                ATTEMPTS,
                error,
            )
    log.error("purchase %s can't become an order and is rejected", purchases[0].purchase_id)
    return reject_purchases(sale_id=sale_id, purchases=purchases, code=Rejection.FAILED)


def with_retries(work: Callable[[], _Decided], *, tries: int = 4) -> _Decided:
    """Do it again after a deadlock, a serialization failure or a lock timeout."""
    for attempt in range(1, tries + 1):
        try:
            return work()
        except OperationalError as error:
            code = getattr(error.__cause__, "pgcode", None)
            if attempt == tries or code not in _RETRIED:
                raise
            time.sleep(random.uniform(0.005, 0.05))
    raise AssertionError("unreachable")


def _create(sale_id: int, purchases: list[Purchase]) -> _Decided:
    with transaction.atomic():
        sale, now = _sale_and_now(sale_id)
        made = _insert(sale, now, purchases, Status.UNPAID)
        _bar_second_tries(sale, made)
        known, duplicates = _met(sale, now, purchases, made)
        made += duplicates
        # The hot row comes last, so that it is locked for as short a time as possible.
        _allocate(
            sale_id,
            [order for order in made if order.status == Status.UNPAID],
            purchases,
        )
        _write_events(made)
        faultpoint("in_create")
    return _Decided(made, known)


def _sale_and_now(sale_id: int) -> tuple[FlashSale, datetime]:
    """The sale and the database's clock, in one query."""
    sale = FlashSale.objects.select_related("product").annotate(now=Now()).get(pk=sale_id)
    return sale, sale.now


def _insert(
    sale: FlashSale,
    now: datetime,
    purchases: Sequence[Purchase],
    status: Status,
    code: Rejection | str = "",
) -> list[Order]:
    """Insert what isn't there. Sorted by buyer, so that two batches can't wait for each other."""
    ordered = sorted(purchases, key=lambda p: p.user_id)
    orders = [
        insertion.new_order(
            sale, now, purchase_id=p.purchase_id, user_id=p.user_id, quantity=p.quantity
        )
        for p in ordered
    ]
    for order in orders:
        order.status, order.code = status, code
        order.gate_return = order.quantity if code else 0
    return insertion.insert_new(orders)


def _bar_second_tries(sale: FlashSale, made: list[Order]) -> None:
    """Reject orders of buyers who had their one try, in a sale that allows no second one.

    Only after the insert: that waits for a transaction in which the buyer's first order ends.
    """
    if sale.rebuy or not made:
        return
    over = Order.objects.filter(
        sale=sale, user__in=[o.user_id for o in made], status__in=[*ENDED, Status.REFUNDED]
    )
    tried = set(over.values_list("user_id", flat=True))
    refused = [order for order in made if order.user_id in tried]
    for order in refused:
        order.status, order.code = Status.REJECTED, Rejection.REBUY
        order.gate_return = order.quantity
    if refused:
        Order.objects.filter(pk__in=[o.pk for o in refused]).update(
            status=Status.REJECTED, code=Rejection.REBUY, gate_return=F("quantity")
        )


def _met(
    sale: FlashSale, now: datetime, purchases: list[Purchase], made: list[Order]
) -> tuple[list[Order], list[Order]]:
    """What was not inserted: rows of an earlier delivery, and buyers who have a live order."""
    new = {order.pk for order in made}
    left = [p for p in purchases if p.purchase_id not in new]
    if not left:
        return [], []
    known = list(Order.objects.filter(pk__in=[p.purchase_id for p in left]))
    seen = {order.pk for order in known}
    duplicates = [p for p in left if p.purchase_id not in seen]
    return known, _insert(sale, now, duplicates, Status.REJECTED, Rejection.DUPLICATE)


def _allocate(sale_id: int, orders: list[Order], purchases: list[Purchase]) -> None:
    """Take the units of all, or of those that fit in the order of arrival; reject the others."""
    units = sum(order.quantity for order in orders)
    if not units or inventory.allocate(sale_id, units):
        return
    arrival = {p.purchase_id: i for i, p in enumerate(purchases)}
    left = inventory.lock_available(sale_id)
    taken = _reject_surplus(sorted(orders, key=lambda o: arrival[o.pk]), left)
    if taken and not inventory.allocate(sale_id, taken):
        raise AssertionError("a locked row has fewer units than it said")


def _reject_surplus(orders: list[Order], left: int) -> int:
    """Reject what doesn't fit into `left` units; returns the units of the others."""
    taken = 0
    refused: dict[int, list[UUID]] = {}
    for order in orders:
        if order.quantity <= left - taken:
            taken += order.quantity
            continue
        order.status, order.code = Status.REJECTED, Rejection.SOLD_OUT
        # The gate had units too many: what the row still had free goes back, the rest is no more.
        order.gate_return = min(order.quantity, left - taken)
        refused.setdefault(order.gate_return, []).append(order.pk)
    for gate_return, ids in refused.items():
        Order.objects.filter(pk__in=ids).update(
            status=Status.REJECTED, code=Rejection.SOLD_OUT, gate_return=gate_return
        )
    return taken


def _write_events(orders: list[Order]) -> None:
    kinds = {
        Status.UNPAID: OrderEvent.Kind.CREATED,
        Status.REJECTED: OrderEvent.Kind.REJECTED,
    }
    OrderEvent.objects.bulk_create(
        OrderEvent(order_id=o.pk, kind=kinds[Status(o.status)], reason=o.code, at=o.created_at)
        for o in orders
    )


def reject_purchases(
    *, sale_id: int, purchases: Sequence[Purchase], code: Rejection
) -> list[Order]:
    """Close purchases that never became orders; those that did are returned as they are."""
    return with_retries(lambda: _reject(sale_id, list(purchases), code)).all()


def _reject(sale_id: int, purchases: list[Purchase], code: Rejection) -> _Decided:
    with transaction.atomic():
        sale, now = _sale_and_now(sale_id)
        made = _insert(sale, now, _with_accounts(purchases), Status.REJECTED, code)
        new = {order.pk for order in made}
        ids = [p.purchase_id for p in purchases if p.purchase_id not in new]
        _write_events(made)
        return _Decided(made, list(Order.objects.filter(pk__in=ids)) if ids else [])


def _with_accounts(purchases: list[Purchase]) -> list[Purchase]:
    """The row of a buyer whose account is gone names nobody."""
    ids = [p.user_id for p in purchases]
    there = set(get_user_model().objects.filter(pk__in=ids).values_list("pk", flat=True))
    return [p if p.user_id in there else p._replace(user_id=0) for p in purchases]


def _without_sale(sale_id: int, purchases: list[Purchase]) -> list[Order]:
    """Answers for purchases of a sale that was deleted: there is nothing a row could point at."""
    log.error("sale %s is gone, %s purchases are rejected", sale_id, len(purchases))
    return [
        Order(
            id=p.purchase_id,
            sale_id=sale_id,
            user_id=p.user_id,
            quantity=p.quantity,
            status=Status.REJECTED,
            code=Rejection.FAILED,
        )
        for p in purchases
    ]
