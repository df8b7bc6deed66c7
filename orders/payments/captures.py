"""What providers say about payments, and what becomes of money that was taken.

The state machine decides, not the order in which messages arrive: created < failed < succeeded, and
a refund implies that the money was taken. A message and what it changes are written in one
transaction, so a crash loses neither, and the provider's repeat changes nothing.

Money that serves no order when it comes ("late", or one payment too many) is decided right after,
by `settle`: a unit again if one is free, else exactly one refund. A sweep repeats that.
Lock order everywhere: payment, order, sale.
"""

import hashlib
import logging
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from inventory import gate
from inventory import services as inventory
from inventory.commits import after_commit
from inventory.signals import announce
from orders import notifications, priming
from orders import services as orders
from orders.models import ENDED, LIVE, Order, OrderEvent, Status
from orders.payments import providers, refunds
from orders.payments.models import Payment, Refund, WebhookEvent
from orders.payments.providers import FAILED, REFUNDED, SUCCEEDED, Event

log = logging.getLogger(__name__)

State, Use = Payment.State, Payment.Use
Outcome = WebhookEvent.Outcome
SETTLE_AFTER = timedelta(seconds=2)  # whoever wrote the capture settles it himself, usually
LATE = "late"  # the reason of an order that was paid after it had ended


class Applied(NamedTuple):
    """What became of a message; `cause` tells why it was parked or ignored."""

    outcome: WebhookEvent.Outcome
    cause: str = ""
    payment: Payment | None = None


def process_webhook(provider: str, body: bytes, headers: Mapping[str, str]) -> WebhookEvent.Outcome:
    """Apply a provider's message once. Raises UnknownProvider, SignatureInvalid, MalformedEvent.

    A message that fits nothing we know is kept as "parked" for a person, and counts as received:
    the provider's repeats wouldn't make it fit.
    """
    event = providers.get(provider).parse_webhook(body, headers)
    return record(provider, event, body.decode("utf-8", "replace"))


def record(provider: str, event: Event, body: str) -> WebhookEvent.Outcome:
    """Apply an event of a provider once, by its id, and keep it."""
    with transaction.atomic():
        row, is_new = _remember(provider, event, body)
        if is_new and row.cause != "replay_changed":
            row.outcome, row.cause, row.payment = _apply(provider, event)
            row.save(update_fields=["outcome", "cause", "payment"])
    if is_new and row.outcome == Outcome.PARKED:
        log.error("webhook %s %s parked: %s", provider, event.event_id, row.cause)
    if row.payment_id and row.outcome == Outcome.APPLIED:
        settle(row.payment_id)
    return Outcome(row.outcome)


def _remember(provider: str, event: Event, body: str) -> tuple[WebhookEvent, bool]:
    """The event's row, and whether it is new. Another meaning under a known id is parked."""
    digest = hashlib.sha256(repr(tuple(event)).encode()).hexdigest()
    fresh = {
        "kind": event.kind,
        "body": body,
        "amount_cents": event.amount_cents,
        "currency": _clean(event.currency, 10),
        "reference": _clean(event.reference, 255),
        "digest": digest,
        "outcome": Outcome.IGNORED,
    }
    row, is_new = WebhookEvent.objects.get_or_create(
        provider=provider, event_id=event.event_id, defaults=fresh
    )
    if is_new or row.digest in ("", digest):
        return row, is_new
    return WebhookEvent.objects.get_or_create(
        provider=provider,
        event_id=f"{event.event_id}#{digest[:16]}",
        defaults=fresh | {"outcome": Outcome.PARKED, "cause": "replay_changed"},
    )


def _clean(text: str, length: int) -> str:
    """What a column of PostgreSQL takes."""
    return text.replace("\0", "")[:length]


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
    if event.kind == FAILED:
        return ""  # No money was taken, so there is no amount to compare.
    if event.amount_cents != payment.amount_cents:
        return "amount_mismatch"
    return "" if event.currency == payment.currency else "currency_mismatch"


def _succeeded(payment: Payment, event: Event) -> Applied:
    """Money was taken. If it can't pay the order, `settle` decides what becomes of it."""
    # Also from FAILED: messages may overtake each other, and money taken is the stronger fact.
    if not _end(payment, State.SUCCEEDED, event, after=(State.CREATED, State.FAILED)):
        return Applied(Outcome.IGNORED, "already_succeeded", payment)
    if orders.pay_order(payment.order_id, actor=payment.provider, reason=event.event_id[:200]):
        Payment.objects.filter(pk=payment.pk).update(use=Use.ORDER)
        return Applied(Outcome.APPLIED, "", payment)
    return Applied(Outcome.APPLIED, "not_payable", payment)


def _failed(payment: Payment, event: Event) -> Applied:
    if _end(payment, State.FAILED, event, after=(State.CREATED,)):
        return Applied(Outcome.APPLIED, "", payment)
    return Applied(Outcome.IGNORED, "already_ended", payment)


def _refunded(payment: Payment, event: Event) -> Applied:
    """The whole money went back: as we asked for, or by the provider's own doing."""
    _succeeded(payment, event)
    if Refund.objects.filter(payment=payment).exists():
        done = refunds.confirm(payment, reference=event.reference)
        return Applied(Outcome.APPLIED if done else Outcome.IGNORED, "", payment)
    _give_up(payment, event)
    refunds.confirm(payment, reference=event.reference)
    return Applied(Outcome.APPLIED, "refund_at_provider", payment)


def _give_up(payment: Payment, event: Event) -> None:
    """Money that went back by the provider's own doing pays no order any more."""
    cause = Refund.Cause.PROVIDER
    if Payment.objects.filter(pk=payment.pk, use=Use.ORDER).exists():
        orders.refund_order(
            payment.order_id,
            actor=payment.provider,
            restock=False,
            reason=event.event_id[:200],
            cause=cause,
        )
    else:
        refunds.take_back(payment, cause)


def _end(payment: Payment, state: int, event: Event, *, after: tuple[int, ...]) -> bool:
    """True for the one message that ended the payment."""
    return bool(
        Payment.objects.filter(pk=payment.pk, status__in=after).update(
            status=state,
            reference=_clean(event.reference, 255),
            ended_at=timezone.now(),
            ask_at=None,
        )
    )


_HANDLERS = {SUCCEEDED: _succeeded, FAILED: _failed, REFUNDED: _refunded}


# --- money that came when its order could not be paid ---------------------------------------------


def settle(payment_id: uuid.UUID) -> bool:
    """Decide what becomes of money that serves no order yet; True if this call did.

    May be repeated. What can't be done now (a back end is away) is left to the sweep.
    """
    payment = _unused().filter(pk=payment_id).select_related("order").first()
    if payment is None:
        return False
    try:
        return _settle(payment)
    except (gate.GateError, DatabaseError) as error:
        log.warning("payment %s is settled later: %s", payment_id, error)
        return False


def settle_due() -> int:
    """Settle what whoever wrote the capture could not; returns how many were."""
    due = _unused().filter(ended_at__lt=timezone.now() - SETTLE_AFTER).order_by("ended_at")
    return sum(settle(pk) for pk in due.values_list("pk", flat=True)[:500])


def _unused() -> QuerySet[Payment]:
    return Payment.objects.filter(status=State.SUCCEEDED, use=Use.NONE)


def _settle(payment: Payment) -> bool:
    order = payment.order
    if order.status in ENDED and _take_unit_again(payment):
        return True
    paid = order.status not in ENDED
    return refunds.take_back(payment, Refund.Cause.SECOND if paid else Refund.Cause.LATE)


def _take_unit_again(payment: Payment) -> bool:
    """A unit from the gate first, as a withdrawal takes it, so that no admitted buyer loses it."""
    order = payment.order
    held = gate.Held(str(order.pk), order.user_id or 0, order.quantity, final=True)
    if not _retake(order.sale_id, held):
        return False
    try:
        with transaction.atomic():
            _revive(payment)
    except (_NotRevived, IntegrityError):
        # Another live order of this buyer, no unit in the database, or another process did it.
        if not Order.objects.filter(pk=order.pk, status__in=LIVE).exists():
            announce(order.sale_id, level=gate.release(order.sale_id, [held]))
        return False
    return True


def _retake(sale_id: int, held: gate.Held) -> bool:
    level, taken = gate.retake(sale_id, held)
    if level.stock is None:
        priming.prime(sale_id)
        level, taken = gate.retake(sale_id, held)
    if level.stock is None:
        raise gate.GateError(f"the gate of sale {sale_id} is just being loaded")
    announce(sale_id, level=level)
    return taken


class _NotRevived(Exception):
    """Raised to roll back: the order can't live again."""


def _revive(payment: Payment) -> None:
    order = payment.order
    unused = Payment.objects.filter(pk=payment.pk, use=Use.NONE)
    ended = Order.objects.filter(pk=order.pk, status__in=ENDED)
    if (
        not unused.update(use=Use.ORDER)
        or not ended.update(
            status=Status.PAID,
            paid_at=Now(),
            closed_at=None,
            restocked=False,
            gate_released_at=None,
        )
        or not inventory.allocate(order.sale_id, order.quantity)
    ):
        raise _NotRevived
    OrderEvent.objects.create(
        order=order, kind=OrderEvent.Kind.PAID, actor=payment.provider, reason=LATE, at=Now()
    )
    order.refresh_from_db()
    after_commit(notifications.push_orders, [order])
