"""Stripe: Checkout sessions.

The window: a session can't expire before half an hour, nor after a day. So it is made as short as
Stripe allows, and closed (`expire`) when the order is over, whose deadline may be sooner.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

import stripe
from django.conf import settings
from django.utils import timezone

from orders.payments.providers import (
    FAILED,
    REFUNDED,
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

SHORTEST, LONGEST = timedelta(minutes=31), timedelta(hours=23, minutes=59)
TIMEOUT = 10  # seconds, of the client's socket; calls.call stops waiting sooner
SIGNATURE_HEADER = "stripe-signature"

T = TypeVar("T")


class Stripe:
    name = "stripe"
    remote = True
    acknowledgement = None

    @cached_property
    def client(self) -> stripe.StripeClient:
        return stripe.StripeClient(
            settings.STRIPE_SECRET_KEY,
            http_client=stripe.RequestsClient(timeout=TIMEOUT),
            max_network_retries=0,
        )

    def create(self, bill: Bill) -> Page:
        session = self._ask(
            lambda: self.client.v1.checkout.sessions.create(
                _session(bill), {"idempotency_key": f"pay-{bill.payment_id}"}
            )
        )
        if not session.url:
            raise GatewayError("stripe: a session without an address")
        return Page(session.url, session.id)

    def parse_webhook(self, body: bytes, headers: Mapping[str, str]) -> Event:
        try:
            text = body.decode()
            stripe.WebhookSignature.verify_header(
                text,
                headers.get(SIGNATURE_HEADER, ""),
                settings.STRIPE_WEBHOOK_SECRET,
                stripe.Webhook.DEFAULT_TOLERANCE,
            )
        except (stripe.SignatureVerificationError, UnicodeDecodeError) as error:
            raise SignatureInvalid(str(error)) from None
        try:
            sent = json.loads(text)
            return _event(sent, sent["data"]["object"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedEvent(f"not an event: {error!r}") from None

    def query(self, bill: Bill) -> Report:
        if not bill.session:
            return Report(Standing.PENDING)
        session = self._ask(
            lambda: self.client.v1.checkout.sessions.retrieve(
                bill.session, {"expand": ["payment_intent.latest_charge"]}
            )
        )
        return _report(session.to_dict())

    def close(self, bill: Bill) -> bool:
        if not bill.session:
            return True  # The buyer never had an address to pay at.
        try:
            self._ask(lambda: self.client.v1.checkout.sessions.expire(bill.session))
        except Refused:
            # Only an open session can be closed: this one is paid, or closed already.
            return self.query(bill).standing is Standing.FAILED
        return True

    def refund(self, bill: Bill, *, refund_id: str) -> RefundReport:
        wanted: Any = {
            "payment_intent": bill.reference,
            "amount": bill.amount_cents,
            "metadata": _metadata(bill),
        }
        options: Any = {"idempotency_key": f"refund-{refund_id}"}
        try:
            made = self._ask(lambda: self.client.v1.refunds.create(wanted, options))
        except Refused as refusal:
            # Stripe forgets a key after a day; the whole amount still goes back only once.
            if refusal.code == "charge_already_refunded":
                return RefundReport(done=True)
            raise
        if made.status in ("failed", "canceled"):
            raise GatewayError(f"stripe: refund {made.id} {made.status}")
        return RefundReport(done=made.status == "succeeded", reference=made.id)

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except stripe.InvalidRequestError as error:
            raise Refused(f"stripe: {error}", code=error.code or "") from error
        except stripe.StripeError as error:
            raise GatewayError(f"stripe: {error}") from error


class Refused(GatewayError):
    """Raised when Stripe understood, and won't; `code` is its own word for why."""

    def __init__(self, text: str, *, code: str) -> None:
        super().__init__(text)
        self.code = code


def _session(bill: Bill) -> Any:
    return {
        "mode": "payment",
        "client_reference_id": bill.payment_id,
        "line_items": [
            {
                "quantity": 1,
                "price_data": {
                    "currency": bill.currency.lower(),
                    "unit_amount": bill.amount_cents,
                    "product_data": {"name": bill.subject},
                },
            }
        ],
        "expires_at": _moment(bill.pay_before),
        "metadata": _metadata(bill),
        # So that what is told about a charge names the payment, too.
        "payment_intent_data": {"metadata": _metadata(bill)},
        "success_url": f"{settings.SITE_URL}/orders/{bill.order_id}/",
        "cancel_url": f"{settings.SITE_URL}/orders/{bill.order_id}/",
    }


def _metadata(bill: Bill) -> dict[str, str]:
    return {"payment_id": bill.payment_id, "order_id": bill.order_id}


def _moment(pay_before: datetime) -> int:
    now = timezone.now()
    return int(min(max(pay_before, now + SHORTEST), now + LONGEST).timestamp())


def _event(sent: dict[str, Any], about: dict[str, Any]) -> Event:
    kind, amount = _meaning(sent["type"], about)
    names = about.get("metadata") or {}
    return Event(
        event_id=str(sent["id"])[:100],
        kind=kind[:100],
        payment_id=str(names.get("payment_id", "")),
        order_id=str(names.get("order_id", "")),
        amount_cents=amount,
        currency=str(about.get("currency") or "").upper(),
        reference=_id(about.get("payment_intent")),
    )


def _meaning(kind: str, about: dict[str, Any]) -> tuple[str, int | None]:
    """Our word for it, and the amount. Words of ours that we don't know are ignored later."""
    match kind:
        case "checkout.session.completed" | "checkout.session.async_payment_succeeded":
            # "unpaid": a slow way to pay, of which another event will tell.
            paid = about.get("payment_status") == "paid"
            return (SUCCEEDED if paid else f"stripe.{kind}"), about.get("amount_total")
        case "checkout.session.expired" | "checkout.session.async_payment_failed":
            return FAILED, about.get("amount_total")
        case "charge.refunded":
            return REFUNDED, about.get("amount_refunded")
        case _:
            return f"stripe.{kind}", None


def _report(session: dict[str, Any]) -> Report:
    intent = session.get("payment_intent")
    charge = intent.get("latest_charge") if isinstance(intent, dict) else None
    standing = Standing.PENDING
    if session.get("payment_status") == "paid":
        back = isinstance(charge, dict) and bool(charge.get("refunded"))
        standing = Standing.REFUNDED if back else Standing.SUCCEEDED
    elif session.get("status") == "expired":
        standing = Standing.FAILED
    currency = str(session.get("currency") or "").upper()
    return Report(standing, session.get("amount_total"), currency, _id(intent))


def _id(thing: Any) -> str:
    """Stripe gives a thing's id, or the thing itself if we asked it to."""
    return str(thing.get("id", "") if isinstance(thing, dict) else thing or "")
