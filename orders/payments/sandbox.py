"""The sandbox gateway: no money moves, but it behaves and speaks like a real one.

It has its own book (SandboxCharge), a cashier where the buyer chooses how it goes, and webhooks
that are signed and sent over HTTP until they are answered (sandbox_notices).
"""

import hashlib
import hmac
import re
import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from orders.payments.models import Payment, SandboxCharge, SandboxNotice
from orders.payments.providers import (
    FAILED,
    SUCCEEDED,
    Bill,
    Event,
    GatewayError,
    MalformedEvent,
    Page,
    RefundReport,
    Report,
    SignatureInvalid,
    Standing,
)
from orders.presentation import money, parse_money

NAME = "sandbox"
SIGNATURE_HEADER = "x-signature"
TOLERANCE = 300  # seconds by which a message may be older or newer than our clock
SLOW = timedelta(seconds=10)  # how long the slow gateway keeps its message back

_STAMP = re.compile(r"[0-9]{1,12}")
_HEX = re.compile(r"[0-9a-f]{64}")


class Action(StrEnum):
    """What the buyer may let happen at the cashier."""

    PAY = "pay"
    FAIL = "fail"
    LATE = "late"  # the money is taken after the order has expired
    TWICE = "twice"  # the same message twice
    NEVER = "never"  # the money is taken, and no message is sent
    SLOW = "slow"  # the message comes late, the money was taken in time


class Body(msgspec.Struct):
    event_id: str
    type: str
    payment_id: str = ""
    order_id: str = ""
    amount: str = ""
    currency: str = ""


class Sandbox:
    name = NAME
    remote = False
    acknowledgement = None

    def create(self, bill: Bill) -> Page:
        return Page(f"/cashier/{bill.payment_id}/", bill.payment_id)

    def parse_webhook(self, body: bytes, headers: Mapping[str, str]) -> Event:
        _check_signature(body, headers.get(SIGNATURE_HEADER, ""))
        try:
            read = msgspec.json.decode(body.decode(), type=Body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedEvent(str(error)) from None
        if not 0 < len(read.event_id) <= 100 or len(read.type) > 100:
            raise MalformedEvent("event_id has 1 to 100 characters, type at most 100")
        if "\0" in read.event_id + read.type:
            raise MalformedEvent("a name with a null character")
        cents = parse_money(read.amount)
        return Event(read.event_id, read.type, read.payment_id, read.order_id, cents, read.currency)

    def query(self, bill: Bill) -> Report:
        charge = _charge(bill).first()
        standing = _standing(charge) if charge else Standing.PENDING
        if standing in (Standing.PENDING, Standing.FAILED):
            return Report(standing)
        return Report(standing, bill.amount_cents, bill.currency, bill.payment_id)

    def close(self, bill: Bill) -> bool:
        SandboxCharge.objects.get_or_create(pk=uuid.UUID(bill.payment_id))
        return bool(_charge(bill).filter(captured_at=None).update(closed_at=timezone.now()))

    def refund(self, bill: Bill, *, refund_id: str) -> RefundReport:
        now = timezone.now()
        # Whoever asks for a refund has a signed message that the money was taken.
        key, taken = uuid.UUID(bill.payment_id), {"captured_at": now}
        SandboxCharge.objects.get_or_create(pk=key, defaults=taken)
        unused = Q(refund_id="") | Q(refund_id=refund_id)
        if not _charge(bill).filter(unused).update(refund_id=refund_id, refunded_at=now):
            raise GatewayError("refunded already, under another id")
        return RefundReport(done=True, reference=refund_id)


def _charge(bill: Bill) -> QuerySet[SandboxCharge]:
    return SandboxCharge.objects.filter(pk=uuid.UUID(bill.payment_id))


def _standing(charge: SandboxCharge) -> Standing:
    if charge.refunded_at:
        return Standing.REFUNDED
    if charge.captured_at:
        taken = charge.captured_at <= timezone.now()
        return Standing.SUCCEEDED if taken else Standing.PENDING
    return Standing.FAILED if charge.failed_at or charge.closed_at else Standing.PENDING


# --- the cashier ----------------------------------------------------------------------------------


def act(payment: Payment, action: Action, *, webhook_url: str) -> bool:
    """What a button of the cashier does; False if this payment has ended at the gateway."""
    now = timezone.now()
    with transaction.atomic():
        SandboxCharge.objects.get_or_create(pk=payment.pk)
        fresh = SandboxCharge.objects.filter(
            pk=payment.pk, captured_at=None, failed_at=None, closed_at=None
        )
        if action is Action.FAIL:
            done, kind, due = fresh.update(failed_at=now), FAILED, now
        else:
            taken = _late(payment) if action is Action.LATE else now
            done, kind = fresh.update(captured_at=taken), SUCCEEDED
            due = taken + (SLOW if action is Action.SLOW else timedelta())
        if done and action is not Action.NEVER:
            _notify(payment, kind, webhook_url, due=due, copies=2 if action is Action.TWICE else 1)
    return bool(done)


def _late(payment: Payment) -> datetime:
    """Soon after the order must have expired."""
    expired = payment.order.pay_before + timedelta(seconds=2 * settings.SWEEP_INTERVAL + 1)
    return max(expired, timezone.now())


def _notify(payment: Payment, kind: str, url: str, *, due: datetime, copies: int) -> None:
    event_id = uuid.uuid4().hex
    SandboxNotice.objects.bulk_create(
        SandboxNotice(charge_id=payment.pk, event_id=event_id, kind=kind, url=url, due_at=due)
        for _ in range(copies)
    )


# --- messages -------------------------------------------------------------------------------------


def sign(body: bytes, *, at: float | None = None) -> str:
    """The value of X-Signature."""
    stamp = str(int(time.time() if at is None else at))
    return f"t={stamp},v1={_mac(stamp, body)}"


def message(payment: Payment, kind: str, *, event_id: str = "") -> tuple[bytes, dict[str, str]]:
    """What the provider sends about a payment: body and headers."""
    body = Body(
        event_id=event_id or uuid.uuid4().hex,
        type=kind,
        payment_id=str(payment.pk),
        order_id=str(payment.order_id),
        amount=money(payment.amount_cents),
        currency=payment.currency,
    )
    raw = msgspec.json.encode(body)
    return raw, {SIGNATURE_HEADER: sign(raw)}


def _mac(stamp: str, body: bytes) -> str:
    key = settings.PAYMENT_WEBHOOK_SECRET.encode()
    return hmac.new(key, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _check_signature(body: bytes, header: str) -> None:
    """Any of several v1 signatures may match, so that the provider can change its key."""
    fields = [part.strip().partition("=") for part in header[:2000].split(",")]
    stamps = [value for name, _, value in fields if name == "t"]
    offered = [value for name, _, value in fields if name == "v1" and _HEX.fullmatch(value)]
    if len(stamps) != 1 or not _STAMP.fullmatch(stamps[0]) or not settings.PAYMENT_WEBHOOK_SECRET:
        raise SignatureInvalid("no signature")
    expected = _mac(stamps[0], body)
    if not any(hmac.compare_digest(expected, value) for value in offered):
        raise SignatureInvalid("wrong signature")
    if abs(time.time() - int(stamps[0])) > TOLERANCE:
        raise SignatureInvalid("too old")
