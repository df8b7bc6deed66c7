"""What a payment provider is, and which ones this shop takes.

WebhookError
  x SignatureInvalid   the message isn't the provider's, or is too old
  x MalformedEvent     it is the provider's, but can't be read
UnknownProvider        there is no such provider, or it isn't switched on
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from django.conf import settings

from orders.payments.models import Payment


class WebhookError(Exception):
    """The base of what is wrong with a provider's message."""


class SignatureInvalid(WebhookError):
    """Raised when a message's signature is missing, wrong or too old."""


class MalformedEvent(WebhookError):
    """Raised when a signed message can't be read."""


class UnknownProvider(LookupError):
    """Raised when a provider doesn't exist or isn't switched on."""


class Event(NamedTuple):
    """A provider's message. `amount_cents` is None if the amount can't be read as money."""

    event_id: str
    kind: str
    payment_id: str
    order_id: str
    amount_cents: int | None
    currency: str


class Provider(Protocol):
    name: str

    def payment_url(self, payment: Payment) -> str:
        """Where the buyer pays."""

    def parse_webhook(self, body: bytes, headers: Mapping[str, str]) -> Event:
        """Check the signature, then read; raises WebhookError. Header names are lower case."""


def register(provider: Provider) -> None:
    _providers[provider.name] = provider


def get(name: str) -> Provider:
    if name not in settings.PAYMENT_PROVIDERS or name not in _providers:
        raise UnknownProvider(name)
    return _providers[name]


_providers: dict[str, Provider] = {}
