"""Start a payment; apply what a provider says about one.

The state machine decides, not the order in which messages arrive. A message and what it changes
are written in one transaction, so a crash loses neither, and the provider's repeat changes nothing.
"""

import logging
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from orders import services as orders
from orders.models import Order, Status
from orders.payments import providers, sandbox
from orders.payments.models import Payment, WebhookEvent
from orders.payments.providers import Event

log = logging.getLogger(__name__)

State = Payment.State
Outcome = WebhookEvent.Outcome


class OrderNotPayable(Exception):
    """Raised when an order is paid, over or past its deadline."""


class Applied(NamedTuple):
    """What became of a message; `cause` tells why it was parked or ignored."""

    outcome: WebhookEvent.Outcome
    cause: str = ""
    payment: Payment | None = None


def start_payment(order_id: uuid.UUID, *, user_id: int, provider: str = "") -> tuple[Payment, str]:
    """The order's active payment (made if there is none) and where to pay it.

    Without a provider it is the first that we take. The deadline stays as it is. Raises
    Order.DoesNotExist (also for another buyer's order), OrderNotPayable, UnknownProvider.
    """
    provider = provider or settings.PAYMENT_PROVIDERS[0]
    taker = providers.get(provider)
    order = Order.objects.exclude(status=Status.REJECTED).get(pk=order_id, user_id=user_id)
    if order.status != Status.UNPAID or order.pay_before <= timezone.now():
        raise OrderNotPayable(order_id)
    # A payment that another provider was asked for may still be paid; its message finds it.
    order.payments.filter(status=State.CREATED).exclude(provider=provider).update(
        status=State.FAILED, ended_at=timezone.now()
    )
    payment, _ = Payment.objects.get_or_create(
        order=order,
        status=State.CREATED,
        defaults={
            "provider": provider,
            "amount_cents": order.amount_cents,
            "currency": order.currency,
        },
    )
    return payment, taker.payment_url(payment)


def process_webhook(provider: str, body: bytes, headers: Mapping[str, str]) -> WebhookEvent.Outcome:
    """Apply a provider's message once. Raises UnknownProvider, SignatureInvalid, MalformedEvent.

    A message that fits nothing we know is kept as "parked" for a person, and counts as received:
    the provider's repeats wouldn't make it fit.
    """
    event = providers.get(provider).parse_webhook(body, headers)
    with transaction.atomic():
        record, is_new = WebhookEvent.objects.get_or_create(
            provider=provider,
            event_id=event.event_id,
            defaults={
                "kind": event.kind,
                "body": body.decode("utf-8", "replace"),
                "outcome": Outcome.IGNORED,
            },
        )
        if is_new:
            applied = _apply(provider, event)
            record.outcome, record.cause, record.payment = applied
            record.save(update_fields=["outcome", "cause", "payment"])
    if is_new and record.outcome == Outcome.PARKED:
        log.error("webhook %s %s parked: %s", provider, event.event_id, record.cause)
    return Outcome(record.outcome)


def _apply(provider: str, event: Event) -> Applied:
    handle = _HANDLERS.get(event.kind)
    if handle is None:
        return Applied(Outcome.IGNORED, "unknown_type")
    payment = _payment(provider, event.payment_id)
    mismatch = _mismatch(payment, event)
    if mismatch or payment is None:
        return Applied(Outcome.PARKED, mismatch, payment)
    return handle(payment, event)


def _payment(provider: str, payment_id: str) -> Payment | None:
    try:
        key = uuid.UUID(payment_id)
    except ValueError:
        return None
    return Payment.objects.filter(pk=key, provider=provider).first()


def _mismatch(payment: Payment | None, event: Event) -> str:
    if payment is None:
        return "unknown_payment"
    if event.order_id.lower() != str(payment.order_id):
        return "order_mismatch"
    if event.amount_cents != payment.amount_cents:
        return "amount_mismatch"
    return "" if event.currency == payment.currency else "currency_mismatch"


def _succeeded(payment: Payment, event: Event) -> Applied:
    """Money was taken. If the order can't be paid any more, the money waits for its refund."""
    # Also from FAILED: messages may overtake each other, and money taken is the stronger fact.
    if not _end(payment, State.SUCCEEDED, event, after=(State.CREATED, State.FAILED)):
        return Applied(Outcome.IGNORED, "already_succeeded", payment)
    if orders.pay_order(payment.order_id, actor=payment.provider, reason=event.event_id):
        return Applied(Outcome.APPLIED, "", payment)
    return Applied(Outcome.PARKED, "refund_needed", payment)


def _failed(payment: Payment, event: Event) -> Applied:
    if _end(payment, State.FAILED, event, after=(State.CREATED,)):
        return Applied(Outcome.APPLIED, "", payment)
    return Applied(Outcome.IGNORED, "already_ended", payment)


def _refunded(payment: Payment, event: Event) -> Applied:
    """Nobody here asks for refunds yet, so one that happened elsewhere needs a person."""
    return Applied(Outcome.PARKED, "refund_unexpected", payment)


def _end(payment: Payment, state: int, event: Event, *, after: tuple[int, ...]) -> bool:
    """True for the one message that ended the payment."""
    return bool(
        Payment.objects.filter(pk=payment.pk, status__in=after).update(
            status=state, reference=event.event_id, ended_at=timezone.now()
        )
    )


_HANDLERS = {
    "payment.succeeded": _succeeded,
    "payment.failed": _failed,
    "payment.refunded": _refunded,
}


def sandbox_pays(payment: Payment, kind: str) -> WebhookEvent.Outcome:
    """What the sandbox cashier's buttons do: the provider signs a message and hands it in."""
    body, headers = sandbox.message(payment, kind)
    return process_webhook(sandbox.NAME, body, headers)
