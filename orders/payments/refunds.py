"""Money on its way back: decided in the database first, then sent until the gateway confirms.

Lock order everywhere: payment, order, sale.
"""

import logging
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from inventory.commits import after_commit
from orders import notifications
from orders.models import Order, OrderEvent, RefundState
from orders.payments import calls, providers
from orders.payments.models import Payment, Refund
from orders.payments.providers import GatewayBusy, GatewayError, UnknownProvider

log = logging.getLogger(__name__)

LONGEST_WAIT = timedelta(hours=1)  # between two attempts
Cause = Refund.Cause


def start(payment: Payment, cause: Refund.Cause) -> Refund:
    """Write down that a payment's money goes back. For a transaction that has set its use."""
    now = timezone.now()
    refund = Refund.objects.create(
        payment=payment,
        amount_cents=payment.amount_cents,
        currency=payment.currency,
        cause=cause,
        started_at=now,
        try_at=now,
    )
    Order.objects.filter(pk=payment.order_id).update(refund=RefundState.STARTED)
    _note(payment, OrderEvent.Kind.REFUND_STARTED, cause)
    after_commit(notifications.push_refund, payment.order_id)
    return refund


def take_back(payment: Payment, cause: Refund.Cause) -> bool:
    """Send back money that serves no order. False if its use is decided already."""
    with transaction.atomic():
        unused = Payment.objects.filter(pk=payment.pk, status=Payment.State.SUCCEEDED, use="")
        if not unused.update(use=Payment.Use.REFUND):
            return False
        start(payment, cause)
    log.warning("payment %s goes back: %s", payment.pk, cause)
    return True


def confirm(payment: Payment, *, reference: str = "") -> bool:
    """The gateway has given the money back. True for the one caller who wrote that down."""
    with transaction.atomic():
        started = Refund.objects.filter(payment=payment, status=Refund.State.STARTED)
        if not started.update(
            status=Refund.State.DONE, done_at=Now(), reference=reference[:255], error=""
        ):
            return False
        others = Refund.objects.filter(payment__order=payment.order_id, status=Refund.State.STARTED)
        if not others.exists():
            Order.objects.filter(pk=payment.order_id).update(refund=RefundState.DONE)
        _note(payment, OrderEvent.Kind.REFUND_DONE, "")
        after_commit(notifications.push_refund, payment.order_id)
    return True


def _note(payment: Payment, kind: OrderEvent.Kind, reason: str) -> None:
    OrderEvent.objects.create(
        order_id=payment.order_id, kind=kind, actor=payment.provider, reason=reason, at=Now()
    )


def send_due(*, limit: int = 100) -> int:
    """Ask the gateways for the refunds that are due; returns how many were confirmed."""
    due = Refund.objects.filter(status=Refund.State.STARTED, try_at__lte=timezone.now())
    confirmed, silent = 0, set[str]()
    for refund in due.order_by("try_at").select_related("payment__order")[:limit]:
        provider = refund.payment.provider
        if provider not in silent and _claim(refund):
            try:
                confirmed += _send(refund)
            except (GatewayError, UnknownProvider) as error:
                _failed(refund, error)
                if isinstance(error, GatewayBusy):
                    silent.add(provider)
    return confirmed


def _claim(refund: Refund) -> bool:
    """One process at a time; the gateway's own key is what makes a repeat safe."""
    wait = min(
        timedelta(seconds=settings.SWEEP_INTERVAL) * 2 ** min(refund.attempts, 12), LONGEST_WAIT
    )
    same = Refund.objects.filter(
        pk=refund.pk, status=Refund.State.STARTED, attempts=refund.attempts
    )
    return bool(same.update(attempts=F("attempts") + 1, try_at=timezone.now() + wait))


def _send(refund: Refund) -> bool:
    payment = refund.payment
    provider = providers.get(payment.provider)
    bill, key = providers.bill(payment), str(refund.pk)
    report = calls.call(provider, lambda: provider.refund(bill, refund_id=key))
    return report.done and confirm(payment, reference=report.reference)


def _failed(refund: Refund, error: Exception) -> None:
    log.error("refund %s, attempt %d: %s", refund.pk, refund.attempts + 1, error)
    Refund.objects.filter(pk=refund.pk).update(error=str(error)[:200])
