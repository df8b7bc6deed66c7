"""Asking the gateways: about payments whose webhook doesn't come, and before an order expires."""

import logging
import time
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from orders.models import Order, Status
from orders.payments import calls, captures, providers
from orders.payments.models import Payment, WebhookEvent
from orders.payments.providers import (
    Event,
    GatewayBusy,
    GatewayError,
    Report,
    Standing,
    UnknownProvider,
)

log = logging.getLogger(__name__)

BUDGET = 10  # seconds that one run may take; the next one goes on
LONGEST_WAIT = timedelta(hours=1)  # between two questions about the same payment


def first_question(pay_before: datetime) -> datetime:
    """When a payment that starts now is asked about."""
    return min(timezone.now() + timedelta(seconds=settings.PAYMENT_QUERY_AFTER), pay_before)


def ask_due() -> int:
    """Ask about the payments that are due; returns how many have ended by it.

    Whoever is due because the order's time is over comes first. The gateway is told to close what
    nobody paid. A gateway that doesn't answer is left alone for the rest of the run.
    """
    until, ended, silent = time.monotonic() + BUDGET, 0, set[str]()
    due = _open().filter(ask_at__lte=timezone.now()).order_by("ask_at").select_related("order")
    for payment in due[:500]:
        if time.monotonic() > until:
            break
        if payment.provider in silent or not _claim(payment):
            continue
        try:
            ended += ask(payment)
        except GatewayBusy as error:
            silent.add(payment.provider)
            log.warning("%s: %s", payment.provider, error)
        except (GatewayError, UnknownProvider) as error:
            log.warning("payment %s: %s", payment.pk, error)
    return ended


def is_due() -> bool:
    return _open().filter(ask_at__lte=timezone.now()).exists()


def _open() -> QuerySet[Payment]:
    """Also those that the buyer has left for another provider, until they are closed there."""
    return Payment.objects.exclude(ask_at=None)


def _claim(payment: Payment) -> bool:
    """One process asks; the next question is due later and later, but at the deadline."""
    now, deadline = timezone.now(), payment.order.pay_before
    step = timedelta(seconds=settings.PAYMENT_QUERY_AFTER)
    if now < deadline:
        later = min(now + max(step, (now - payment.created_at) / 2), deadline)
    else:
        later = now + min(max(step, now - deadline), LONGEST_WAIT)
    same = _open().filter(pk=payment.pk, asked=payment.asked)
    return bool(same.update(asked=F("asked") + 1, ask_at=later))


def ask(payment: Payment) -> bool:
    """True if the payment has ended by now. Raises GatewayError, UnknownProvider."""
    provider, bill = providers.get(payment.provider), providers.bill(payment)
    report = calls.call(provider, lambda: provider.query(bill))
    if report.standing is not Standing.PENDING:
        return _tell(payment, report)
    if payment.status == Payment.State.CREATED and not _is_over(payment.order_id):
        return False
    if not calls.call(provider, lambda: provider.close(bill)):
        return False  # The money is on its way; we ask again.
    _closed(payment)
    return True


def _tell(payment: Payment, report: Report) -> bool:
    """The answer takes the way of a message, so that it counts once and is checked alike."""
    event = Event(
        event_id=f"asked:{payment.pk}:{report.standing.value}",
        kind=report.standing.value,
        payment_id=str(payment.pk),
        order_id=str(payment.order_id),
        amount_cents=report.amount_cents,
        currency=report.currency,
        reference=report.reference,
    )
    told = captures.record(payment.provider, event, msgspec.json.encode(event).decode())
    Payment.objects.filter(pk=payment.pk).update(ask_at=None)
    return told is not WebhookEvent.Outcome.PARKED


def _is_over(order_id: uuid.UUID) -> bool:
    """Whether the order can't be paid any more, or not in time."""
    payable = Order.objects.filter(pk=order_id, status=Status.UNPAID, pay_before__gt=Now())
    return not payable.exists()


def _closed(payment: Payment) -> None:
    rows = Payment.objects.filter(pk=payment.pk)
    rows.filter(status=Payment.State.CREATED).update(
        status=Payment.State.FAILED, ended_at=timezone.now()
    )
    rows.update(ask_at=None)


def reconcile(sale_id: int, *, dry_run: bool) -> list[str]:
    """Ask about every open payment of a sale, due or not; says what was found out."""
    lines = []
    for payment in _open().filter(order__sale_id=sale_id).select_related("order"):
        try:
            found = _standing(payment) if dry_run else _asked(payment)
        except (GatewayError, UnknownProvider) as error:
            found = f"not answered for: {error}"
        if found:
            lines.append(f"payment {payment.pk}: {found}")
    return lines + _unsettled(sale_id, dry_run)


def _standing(payment: Payment) -> str:
    provider, bill = providers.get(payment.provider), providers.bill(payment)
    standing = calls.call(provider, lambda: provider.query(bill)).standing
    return "" if standing is Standing.PENDING else f"{standing.name.lower()}, by its provider"


def _asked(payment: Payment) -> str:
    if not ask(payment):
        return ""
    payment.refresh_from_db()
    return f"{Payment.State(payment.status).name.lower()}, by its provider"


def _unsettled(sale_id: int, dry_run: bool) -> list[str]:
    """Money of which nothing has become yet, e.g. because a process died."""
    unused = Payment.objects.filter(
        Q(order__sale_id=sale_id), status=Payment.State.SUCCEEDED, use=Payment.Use.NONE
    )
    keys: Sequence[object] = list(unused.values_list("pk", flat=True))
    if not dry_run:
        for pk in unused.values_list("pk", flat=True):
            captures.settle(pk)
    return [f"payment {pk}: money decided about" for pk in keys]
