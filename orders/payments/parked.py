"""What staff does about messages that fit nothing. Each is handled once, with a reason."""

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from orders.models import OrderEvent
from orders.payments import refunds
from orders.payments.models import Payment, Refund, WebhookEvent
from orders.payments.providers import SUCCEEDED

State = Payment.State
OTHER_MONEY = ("amount_mismatch", "currency_mismatch")


def handle(event_id: int, *, actor: str, reason: str) -> bool:
    """Note what a person did about it elsewhere. False if it isn't parked (any more)."""
    with transaction.atomic():
        parked = WebhookEvent.objects.filter(pk=event_id, outcome=WebhookEvent.Outcome.PARKED)
        note = f"{actor}: {reason}"
        if not parked.update(outcome=WebhookEvent.Outcome.HANDLED, note=note[:400]):
            return False
        _tell_order(event_id, actor, reason)
    return True


def refund(event_id: int, *, actor: str, reason: str) -> bool:
    """Send back money of another amount or currency than its payment's; the order stays unpaid.

    False if it isn't parked any more, or isn't about such money.
    """
    with transaction.atomic():
        event = WebhookEvent.objects.filter(
            pk=event_id, kind=SUCCEEDED, cause__in=OTHER_MONEY, amount_cents__gt=0
        ).first()
        if event is None or not handle(event_id, actor=actor, reason=reason):
            return False
        return _send_back(event)


def _send_back(event: WebhookEvent) -> bool:
    """The payment's amount becomes what was really taken, so that exactly this goes back."""
    payment = event.payment
    if (
        payment is None
        or len(event.currency) != 3
        or not _untaken(payment).update(
            status=State.SUCCEEDED,
            use=Payment.Use.REFUND,
            amount_cents=event.amount_cents,
            currency=event.currency,
            reference=event.reference,
            ended_at=timezone.now(),
            ask_at=None,
        )
    ):
        transaction.set_rollback(True)
        return False
    payment.refresh_from_db()
    refunds.start(payment, Refund.Cause.STAFF)
    return True


def _untaken(payment: Payment) -> QuerySet[Payment]:
    return Payment.objects.filter(pk=payment.pk).exclude(status=State.SUCCEEDED)


def _tell_order(event_id: int, actor: str, reason: str) -> None:
    payment = WebhookEvent.objects.select_related("payment").get(pk=event_id).payment
    if payment is not None:
        OrderEvent.objects.create(
            order_id=payment.order_id,
            kind=OrderEvent.Kind.NOTE,
            actor=actor,
            reason=reason,
            at=Now(),
        )
