"""What brings everything back to rest after a crash: lost messages, lost releases, drift.

Each of these may run at any time, in any number of processes, during a sale. None waits, none locks
a sale for longer than one statement.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from inventory import channel, gate
from inventory import services as inventory
from inventory.models import FlashSale, StockAdjustment
from inventory.signals import announce
from orders import accounting, services
from orders.creation import ATTEMPTS, Purchase, reject_purchases
from orders.models import Order, Rejection
from orders.payments import asking
from orders.priming import prime

log = logging.getLogger(__name__)

ALONE_FROM = 3  # from this attempt on a purchase travels alone: one of its batch may be the culprit
AFTERCARE = timedelta(days=2)  # so long after its end a sale is still looked after
RETIRED_AFTER = timedelta(days=7)  # then its keys leave Redis; the database answers from then on


def cared_for() -> list[int]:
    """Sales that may have something under way; also one whose start was moved to later."""
    active = FlashSale.objects.filter(ends_at__gte=timezone.now() - AFTERCARE)
    return list(active.order_by("pk").values_list("pk", flat=True))


# --- reservations without an order ----------------------------------------------------------------


def recover_reservations() -> Iterator[tuple[int, list[Purchase]]]:
    """Look after admitted purchases that got no order in time.

    Yields (sale, purchases) to be queued again. Those that have a row are settled; those that
    failed too often, or are too old, are rejected and their units returned.
    """
    sale_ids = cared_for()
    stocks, waiting = gate.stocks(sale_ids), gate.journal_sizes(sale_ids)
    for sale_id in sale_ids:
        try:
            if stocks[sale_id] is None:
                prime(sale_id)
            if waiting[sale_id]:
                yield from ((sale_id, batch) for batch in _recover(sale_id))
        except Exception:  # One sale's trouble must not keep the others waiting.
            log.exception("sale %s: reservations not recovered", sale_id)


def _recover(sale_id: int) -> Iterator[list[Purchase]]:
    due = gate.due(
        sale_id,
        retry_after=settings.ADMIT_RETRY_AFTER,
        give_up_after=settings.ADMIT_GIVE_UP_AFTER,
    )
    if not due:
        return
    rows = list(Order.objects.filter(pk__in=[entry.purchase_id for entry in due]))
    if rows:
        services.settle(sale_id, rows)
        services.tell_results(rows)
    decided = {str(order.pk) for order in rows}
    left = [entry for entry in due if entry.purchase_id not in decided]
    yield from _batches([entry for entry in left if not _hopeless(entry)])
    if hopeless := [entry for entry in left if _hopeless(entry)]:
        _give_up(sale_id, hopeless)


def _hopeless(entry: gate.Due) -> bool:
    return entry.attempt > ATTEMPTS or entry.age_ms >= settings.ADMIT_GIVE_UP_AFTER * 1000


def _give_up(sale_id: int, entries: Sequence[gate.Due]) -> None:
    log.error("sale %s: giving up on %s purchases: %s", sale_id, len(entries), entries[:5])
    purchases = [_purchase(entry) for entry in entries]
    orders = reject_purchases(sale_id=sale_id, purchases=purchases, code=Rejection.FAILED)
    services.settle(sale_id, orders)
    services.tell_results(orders)


def _purchase(entry: gate.Due) -> Purchase:
    return Purchase(UUID(entry.purchase_id), entry.user_id, entry.quantity)


def _batches(entries: Sequence[gate.Due]) -> Iterator[list[Purchase]]:
    together = [_purchase(entry) for entry in entries if entry.attempt < ALONE_FROM]
    for start in range(0, len(together), settings.ORDER_BATCH):
        yield together[start : start + settings.ORDER_BATCH]
    for entry in entries:
        if entry.attempt >= ALONE_FROM:
            yield [_purchase(entry)]


# --- units that the database has back, but the gate doesn't ---------------------------------------


def sweep_releases() -> int:
    """Empty the outboxes: ended orders and stock adjustments that the gate doesn't know yet."""
    done = 0
    waiting = Order.objects.filter(restocked=True, gate_released_at=None).order_by(
        "closed_at", "pk"
    )
    while chunk := list(waiting[: services.CHUNK]):
        given = services.give_back(chunk)
        done += given
        if given < len(chunk):
            break
    for adjustment in StockAdjustment.objects.filter(gate_applied_at=None).order_by("created_at"):
        done += inventory.apply_adjustment(adjustment)
    return done


# --- drift ----------------------------------------------------------------------------------------


def reconcile_sales() -> None:
    """The periodic form of reconcile(); payments have beat tasks of their own."""
    for sale_id in cared_for():
        for line in _reconcile_units(sale_id, dry_run=False):
            log.warning("sale %s: %s", sale_id, line)
    _retire()


def _retire() -> None:
    now = timezone.now()
    over = FlashSale.objects.filter(
        ends_at__lt=now - RETIRED_AFTER, ends_at__gt=now - 2 * RETIRED_AFTER
    )
    ids = list(over.values_list("pk", flat=True))
    for sale_id, stock in gate.stocks(ids).items():
        if stock is not None:
            gate.forget(sale_id)
    _retire_marks()


def _retire_marks() -> None:
    recent = FlashSale.objects.filter(ends_at__gte=timezone.now() - RETIRED_AFTER)
    try:
        channel.tidy(set(recent.values_list("pk", flat=True)))
    except Exception as error:  # noqa: BLE001 - the marks' transport is away: the next run does it
        log.warning("sold-out marks of old sales stay for now: %r", error)


def reconcile(sale_id: int | None = None, *, dry_run: bool = False) -> list[str]:
    """Repair what can be derived or asked for; says what was (or would be) done.

    Safe during a sale. Asks the gateways what became of payments whose webhook didn't come.

    Raises FlashSale.DoesNotExist, gate.GateError.
    """
    if sale_id is None:
        # Also those that the periodic form has left: whatever audit looks at.
        ids = list(FlashSale.objects.order_by("pk").values_list("pk", flat=True))
        return [f"sale {pk}: {line}" for pk in ids for line in reconcile(pk, dry_run=dry_run)]
    told = asking.reconcile(sale_id, dry_run=dry_run)
    return told + _reconcile_units(sale_id, dry_run)


def _reconcile_units(sale_id: int, dry_run: bool) -> list[str]:
    done = _reconcile_allocated(sale_id, dry_run)
    return done + _reconcile_gate(sale_id, dry_run)


def _reconcile_allocated(sale_id: int, dry_run: bool) -> list[str]:
    """Make the sale's counter match its orders."""
    if not accounting.allocated_drift(sale_id):
        return []
    with transaction.atomic():
        sale = FlashSale.objects.select_for_update(no_key=True).get(pk=sale_id)
        right = accounting.units_held(sale_id)
        if sale.allocated == right:
            return []
        if not dry_run:
            FlashSale.objects.filter(pk=sale_id).update(allocated=right)
    return [f"allocated corrected from {sale.allocated} to {right}"]


def _reconcile_gate(sale_id: int, dry_run: bool) -> list[str]:
    if gate.stocks([sale_id])[sale_id] is None:
        sale = FlashSale.objects.get(pk=sale_id)
        if sale.ends_at < timezone.now() - AFTERCARE:
            return []
        return ["gate loaded"] if dry_run or prime(sale_id) else []
    if not dry_run:
        inventory.configure_gate(sale_id)
    if not accounting.read(sale_id).at_rest:
        return []
    lines = _drop_stale_buyers(sale_id, dry_run)
    books = _books(sale_id, dry_run)
    if not books.at_rest or books.drift == 0:
        return lines
    return lines + _correct_stock(sale_id, books, dry_run)


def _books(sale_id: int, dry_run: bool) -> accounting.Books:
    """A dry run goes by the counter as it would have been corrected."""
    books = accounting.read(sale_id)
    return replace(books, allocated=accounting.units_held(sale_id)) if dry_run else books


def _correct_stock(sale_id: int, books: accounting.Books, dry_run: bool) -> list[str]:
    line = f"gate stock corrected from {books.gate} to {books.right_stock}"
    if dry_run:
        return [line]
    level, done = gate.reconcile(sale_id, version=books.version, stock=books.right_stock)
    announce(sale_id, level=level)
    return [line] if done else []  # Changed meanwhile: the next run tries again.


def _drop_stale_buyers(sale_id: int, dry_run: bool) -> list[str]:
    """Release what the gate holds for orders that have ended and were thought released."""
    stale = accounting.stale_buyers(sale_id)
    if stale and not dry_run:
        announce(sale_id, level=gate.release(sale_id, stale))
    return [f"released purchase {held.purchase_id}, whose order has ended" for held in stale]


# --- a new start ----------------------------------------------------------------------------------


class NotResettable(Exception):
    """Raised when a sale has paid orders or purchases under way, and force wasn't given."""


def reset_sale(sale_id: int, *, force: bool = False, dry_run: bool = False) -> list[str]:
    """Remove all that a sale has led to: orders, payments, adjustments, a pause, what Redis knows.

    Its window stays as it is. Raises NotResettable, FlashSale.DoesNotExist, gate.GateError.
    """
    sale = FlashSale.objects.get(pk=sale_id)
    paid = sale.orders.filter(Q(paid_at__isnull=False)).count()
    under_way = len(gate.snapshot(sale_id).claims)
    if paid and not force:
        raise NotResettable(f"sale {sale_id} has {paid} paid orders")
    if under_way and not force:
        raise NotResettable(f"sale {sale_id} has {under_way} purchases under way")
    lines = [f"{sale.orders.count()} orders removed", "stock back to its start"]
    if sale.paused:
        lines.append("no longer paused")
    if not dry_run:
        with transaction.atomic():
            accounting.remove_history(sale_id)
        gate.forget(sale_id)
        prime(sale_id)
        if sale.paused:  # Last, so that nobody buys before everything is as it was.
            inventory.resume_sale(sale_id)
    return lines
