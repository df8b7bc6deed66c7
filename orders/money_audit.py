"""The money of a sale: every payment that was taken pays its order, or goes back exactly once."""

from datetime import timedelta

from django.conf import settings
from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Now

from inventory.models import FlashSale
from orders.models import Order, Payment, Refund, Status

GRACE = 5  # seconds on top of two sweeps, in which money may wait for the decision about it


def violations(sale: FlashSale) -> list[str]:
    """Each check is one statement, so that it sees one state, also during a sale."""
    return [f"{count} {text}" for text, rows in _checks(sale).items() if (count := rows.count())]


def _checks(sale: FlashSale) -> "dict[str, QuerySet[Payment] | QuerySet[Order]]":
    taken = Payment.objects.filter(order__sale=sale, status=Payment.State.SUCCEEDED)
    pays, back = taken.filter(use=Payment.Use.ORDER), taken.filter(use=Payment.Use.REFUND)
    patience = timedelta(seconds=2 * settings.SWEEP_INTERVAL + GRACE)
    refund = Refund.objects.filter(payment=OuterRef("pk"))
    same = refund.filter(amount_cents=OuterRef("amount_cents"), currency=OuterRef("currency"))
    paying = Payment.objects.filter(order=OuterRef("pk"), use=Payment.Use.ORDER)
    return {
        "payments were taken, and neither pay an order nor go back": taken.filter(
            use=Payment.Use.NONE, ended_at__lt=Now() - patience
        ),
        "payments pay orders that aren't paid": pays.exclude(order__status=Status.PAID),
        "payments pay orders of another amount": pays.exclude(
            amount_cents=F("order__amount_cents"), currency=F("order__currency")
        ),
        "payments go back without a refund of their amount": back.exclude(Exists(same)),
        "refunds belong to payments that weren't to go back": Payment.objects.filter(
            Exists(refund), order__sale=sale
        ).exclude(use=Payment.Use.REFUND),
        "orders are paid without a payment": sale.orders.filter(status=Status.PAID).exclude(
            Exists(paying)
        ),
    }
