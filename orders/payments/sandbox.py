"""The sandbox provider: no money moves, but its messages are signed and handled like real ones."""

import hashlib
import hmac
import re
import time
import uuid
from collections.abc import Mapping

import msgspec
from django.conf import settings

from orders.payments import providers
from orders.payments.models import Payment
from orders.payments.providers import Event, MalformedEvent, SignatureInvalid
from orders.presentation import money

NAME = "sandbox"
SIGNATURE_HEADER = "x-signature"
TOLERANCE = 300  # seconds by which a message may be older or newer than our clock

_MONEY = re.compile(r"([0-9]{1,15})\.([0-9]{2})")
_STAMP = re.compile(r"[0-9]{1,12}")
_HEX = re.compile(r"[0-9a-f]{64}")


class Body(msgspec.Struct):
    event_id: str
    type: str
    payment_id: str = ""
    order_id: str = ""
    amount: str = ""
    currency: str = ""


class Sandbox:
    name = NAME

    def payment_url(self, payment: Payment) -> str:
        return f"/cashier/{payment.pk}/"

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
        cents = _cents(read.amount)
        return Event(
            read.event_id,
            read.type,
            read.payment_id,
            read.order_id,
            cents,
            read.currency,
        )


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


def _cents(amount: str) -> int | None:
    match = _MONEY.fullmatch(amount)
    return int(match[1]) * 100 + int(match[2]) if match else None


providers.register(Sandbox())
