"""What a payment provider is, and which ones this shop takes.

WebhookError
  x SignatureInvalid   the message isn't the provider's, or is too old
  x MalformedEvent     it is the provider's, but can't be read
GatewayError           the provider can't be reached, or refused
  x GatewayBusy        it doesn't answer in time
UnknownProvider        there is no such provider, or it isn't switched on

To add one: write a module with a class that follows `Provider`, and name it in `_CLASSES`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from django.conf import settings

from orders.payments.models import Payment

# Imported only if PAYMENT_PROVIDERS names them: the gateways need packages of requirements/pay.txt.
_CLASSES = {
    "sandbox": "orders.payments.sandbox:Sandbox",
    "alipay": "orders.payments.alipay_gateway:Alipay",
    "stripe": "orders.payments.stripe_gateway:Stripe",
}

SUCCEEDED, FAILED, REFUNDED = "payment.succeeded", "payment.failed", "payment.refunded"


class WebhookError(Exception):
    """The base of what is wrong with a provider's message."""


class SignatureInvalid(WebhookError):
    """Raised when a message's signature is missing, wrong or too old."""


class MalformedEvent(WebhookError):
    """Raised when a signed message can't be read."""


class GatewayError(Exception):
    """Raised when a provider can't be reached or refuses; trying again later is safe."""


class GatewayBusy(GatewayError):
    """Raised when a provider doesn't answer in time, or already keeps too many of us waiting."""


class UnknownProvider(LookupError):
    """Raised when a provider doesn't exist or isn't switched on."""


class Event(NamedTuple):
    """A provider's message. `amount_cents` is None if the amount can't be read as money.

    `reference` is the provider's name for the money, needed for a refund by some.
    """

    event_id: str
    kind: str
    payment_id: str
    order_id: str
    amount_cents: int | None
    currency: str
    reference: str = ""


class Bill(NamedTuple):
    """All that a provider needs to know of a payment, so that it never reads our database."""

    payment_id: str
    order_id: str
    amount_cents: int
    currency: str
    subject: str
    pay_before: datetime
    session: str
    reference: str


class Page(NamedTuple):
    """Where the buyer pays, and the provider's name for this try to pay."""

    url: str
    session: str = ""


class Standing(Enum):
    """What became of a payment so far, by the provider's book."""

    PENDING = ""
    SUCCEEDED = SUCCEEDED
    FAILED = FAILED
    REFUNDED = REFUNDED


class Report(NamedTuple):
    """A provider's answer to a question. The amount is that which was taken, if any."""

    standing: Standing
    amount_cents: int | None = None
    currency: str = ""
    reference: str = ""


class RefundReport(NamedTuple):
    """`done`: the provider confirms it. Otherwise it will say so by a webhook, or when asked."""

    done: bool
    reference: str = ""


class Acknowledgement(NamedTuple):
    """What a provider wants to hear, so that it doesn't send a message again."""

    content_type: str
    body: str


class Provider(Protocol):
    """Each method but `parse_webhook` may take long and raises GatewayError.

    They are called through calls.call, never inside a transaction; each may be repeated.
    """

    name: str
    remote: bool  # False: answers at once, from our own database

    @property
    def acknowledgement(self) -> Acknowledgement | None:
        """None: our usual JSON will do."""

    def create(self, bill: Bill) -> Page:
        """Prepare the payment; for the same bill the same one again."""

    def parse_webhook(self, body: bytes, headers: Mapping[str, str]) -> Event:
        """Check the signature, then read; raises WebhookError. Header names are lower case."""

    def query(self, bill: Bill) -> Report:
        """What became of it."""

    def close(self, bill: Bill) -> bool:
        """Take no money any more; False if it was taken already, or can't be stopped."""

    def refund(self, bill: Bill, *, refund_id: str) -> RefundReport:
        """Give the money back, once for one `refund_id` however often this is called."""


def get(name: str) -> Provider:
    if name not in settings.PAYMENT_PROVIDERS or name not in _CLASSES:
        raise UnknownProvider(name)
    return _load(name)


@cache
def _load(name: str) -> Provider:
    module, _, attribute = _CLASSES[name].partition(":")
    return cast(Provider, getattr(import_module(module), attribute)())


def bill(payment: Payment) -> Bill:
    """The payment's order is read if it isn't loaded."""
    order = payment.order
    return Bill(
        payment_id=str(payment.pk),
        order_id=str(order.pk),
        amount_cents=payment.amount_cents,
        currency=payment.currency,
        subject=order.product_name,
        pay_before=order.pay_before,
        session=payment.session,
        reference=payment.reference,
    )
