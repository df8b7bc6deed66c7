"""`manage.py audit`: the invariants that can be read, checked for one sale or all."""

from datetime import timedelta
from typing import TypedDict

from django.conf import settings
from django.db.models import Count, Sum
from django.db.models.functions import Now
from django.utils import timezone

from inventory import gate
from inventory.models import FlashSale
from orders import accounting, money_audit
from orders.models import LIVE, Status

READ_TRIES = 5


class SaleReport(TypedDict):
    sale_id: int
    quantity: int
    allocated: int
    available: int
    gate: int | None
    in_flight: int
    orders: dict[str, int]
    violations: list[str]


class Report(TypedDict):
    ok: bool
    sales: list[SaleReport]


def audit(sale_id: int | None = None) -> Report:
    """Raises FlashSale.DoesNotExist for an unknown sale, gate.GateError if Redis is away."""
    if sale_id is None:
        ids = list(FlashSale.objects.order_by("pk").values_list("pk", flat=True))
    else:
        ids = [FlashSale.objects.get(pk=sale_id).pk]
    sales = [_audit(pk) for pk in ids]
    return {"ok": not any(sale["violations"] for sale in sales), "sales": sales}


def _audit(sale_id: int) -> SaleReport:
    books, steady = _steady_books(sale_id)
    sale = FlashSale.objects.get(pk=sale_id)
    violations = [*_database(sale), *_gate(sale, books)] if steady else _database(sale)
    return {
        "sale_id": sale_id,
        "quantity": books.quantity,
        "allocated": books.allocated,
        "available": books.quantity - books.allocated,
        "gate": books.gate,
        "in_flight": books.in_flight,
        "orders": _orders(sale),
        "violations": violations,
    }


def _steady_books(sale_id: int) -> tuple[accounting.Books, bool]:
    """Both sides, and whether the gate stood still while the database was read."""
    for _ in range(READ_TRIES):
        books = accounting.read(sale_id)
        if gate.snapshot(sale_id).version == books.version:
            return books, True
    return books, False


def _orders(sale: FlashSale) -> dict[str, int]:
    counts = dict(sale.orders.values_list("status").annotate(n=Count("pk")).order_by())
    return {status.name.lower(): counts.get(status.value, 0) for status in Status}


def _database(sale: FlashSale) -> list[str]:
    found = []
    if drift := accounting.allocated_drift(sale.pk):
        found.append(f"allocated differs from the orders by {drift:+d} units")
    if not 0 <= sale.allocated <= sale.quantity:
        found.append(f"{sale.allocated} units allocated of {sale.quantity}")
    live = sale.orders.filter(status__in=LIVE).values("user")
    if twice := live.annotate(n=Count("pk")).filter(n__gt=1).count():
        found.append(f"{twice} buyers have more than one live order")
    greedy = live.annotate(units=Sum("quantity")).filter(units__gt=sale.per_buyer).count()
    if greedy:
        found.append(f"{greedy} buyers have more units than allowed")
    late = timedelta(seconds=2 * settings.SWEEP_INTERVAL + 1)
    overdue = sale.orders.filter(status=Status.UNPAID, pay_before__lt=Now() - late).count()
    if overdue:
        found.append(f"{overdue} unpaid orders are past their deadline")
    return found + money_audit.violations(sale)


def _gate(sale: FlashSale, books: accounting.Books) -> list[str]:
    now = timezone.now()
    if books.gate is None:
        running = sale.starts_at <= now < sale.ends_at
        return ["the gate is not primed"] if running else []
    found = []
    if books.gate < 0:
        found.append(f"gate stock is {books.gate}")
    if books.at_rest and books.drift:
        found.append(f"gate stock is {books.gate}, should be {books.right_stock}")
    if stale := _stale_buyers(sale.pk, books):
        found.append(f"{stale} buyers are held up by orders that have ended")
    return found


def _stale_buyers(sale_id: int, books: accounting.Books) -> int:
    """Counts only if the gate stood still: an order that ends meanwhile would look the same."""
    if not books.at_rest or books.in_flight:
        return 0
    stale = accounting.stale_buyers(sale_id)
    return len(stale) if stale and gate.snapshot(sale_id).version == books.version else 0
