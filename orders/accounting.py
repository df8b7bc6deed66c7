"""The books of a sale, read from both sides, database and gate, as nearly as possible at once."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, Sum
from django.db.models.functions import Coalesce

from inventory import gate
from inventory.models import FlashSale
from orders.models import LIVE, Order, OrderEvent, Payment, Refund, Status, WebhookEvent
from orders.priming import one_snapshot

HOLDING = Q(restocked=False) & ~Q(status=Status.REJECTED)  # orders whose units are allocated

UNDECIDED = Payment.objects.filter(status=Payment.State.SUCCEEDED, use=Payment.Use.NONE)


@dataclass(frozen=True)
class Books:
    """Units everywhere. The letters are those of docs/design.md, section "Invariants"."""

    quantity: int  # T
    allocated: int  # A
    gate: int | None  # r; None = not primed
    in_flight: int  # V': journal without a row
    undecided: int  # journal entries that have a row, but are not settled yet
    unreleased: int  # P: orders, adjustments and late money that the gate doesn't know yet
    version: str = field(default="")

    @property
    def at_rest(self) -> bool:
        """Nothing between the two sides, so that the gate's stock can be told exactly."""
        return self.gate is not None and not self.undecided and not self.unreleased

    @property
    def right_stock(self) -> int:
        return max(0, self.quantity - self.allocated - self.in_flight)

    @property
    def drift(self) -> int:
        return 0 if self.gate is None else self.gate - self.right_stock


def read(sale_id: int) -> Books:
    """Gate first, then the database: an order that ends in between shows as unreleased."""
    seen = gate.snapshot(sale_id)
    with transaction.atomic():
        one_snapshot()
        sale = FlashSale.objects.get(pk=sale_id)
        known = _with_rows(seen.claims)
        return Books(
            quantity=sale.quantity,
            allocated=sale.allocated,
            gate=seen.stock,
            in_flight=sum(units for pk, (_, units) in seen.claims.items() if pk not in known),
            undecided=len(known),
            unreleased=_unreleased(sale),
            version=seen.version,
        )


def _with_rows(claims: Iterable[str]) -> set[str]:
    ids = list(claims)
    known: set[str] = set()
    for start in range(0, len(ids), 5000):
        rows = Order.objects.filter(pk__in=ids[start : start + 5000])
        known |= {str(pk) for pk in rows.values_list("pk", flat=True)}
    return known


def _unreleased(sale: FlashSale) -> int:
    orders = sale.orders.filter(restocked=True, gate_released_at=None).count()
    # The gate may hold a unit for money that came late, and that is just being decided about.
    undecided = UNDECIDED.filter(order__sale=sale).count()
    return orders + undecided + sale.adjustments.filter(gate_applied_at=None).count()


def units_held(sale_id: int) -> int:
    """What `allocated` has to be: the units of all orders that didn't give them back."""
    held = Order.objects.filter(HOLDING, sale_id=sale_id)
    return int(held.aggregate(units=Coalesce(Sum("quantity"), 0))["units"])


def allocated_drift(sale_id: int) -> int:
    with transaction.atomic():
        one_snapshot()
        return FlashSale.objects.get(pk=sale_id).allocated - units_held(sale_id)


def stale_buyers(sale_id: int) -> list[gate.Held]:
    """Entries of the gate that belong to orders which have ended and count as released."""
    held = {purchase: user for user, purchase, state in gate.buyers(sale_id) if state in "oqp"}
    stale: list[gate.Held] = []
    ids = list(held)
    for start in range(0, len(ids), 5000):
        over = Order.objects.filter(pk__in=ids[start : start + 5000]).exclude(status__in=LIVE)
        undecided = UNDECIDED.filter(order=OuterRef("pk"))
        over = over.exclude(Exists(undecided))  # It may live again in this very moment.
        for order in over.filter(Q(gate_released_at__isnull=False) | Q(restocked=False)):
            units = order.quantity if order.restocked else order.gate_return
            stale.append(gate.Held(str(order.pk), held[str(order.pk)], units, final=True))
    return stale


def remove_history(sale_id: int) -> None:
    """Delete all orders of a sale with what hangs on them, and undo its stock adjustments."""
    sale = FlashSale.objects.select_for_update(no_key=True).get(pk=sale_id)
    payments = Payment.objects.filter(order__sale=sale)
    for model in (Refund, WebhookEvent):
        model._default_manager.filter(payment__in=payments).delete()
    payments.delete()
    OrderEvent.objects.filter(order__sale=sale).delete()
    sale.orders.all().delete()
    added = sale.adjustments.aggregate(units=Coalesce(Sum("delta"), 0))["units"]
    sale.adjustments.all().delete()
    FlashSale.objects.filter(pk=sale_id).update(quantity=sale.quantity - added, allocated=0)
