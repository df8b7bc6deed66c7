"""A gateway for tests: remote, and as obedient as the test wants it."""

import threading
from collections.abc import Mapping
from uuid import uuid4

from django.db import connection

from orders.models import Payment
from orders.payments import captures
from orders.payments.providers import (
    Acknowledgement,
    Bill,
    Event,
    GatewayError,
    Page,
    RefundReport,
    Report,
    SignatureInvalid,
    Standing,
)


class FakeGateway:
    """`says`: what it answers when asked. `down`: it refuses all. `hang`: it doesn't answer."""

    name = "fake"
    remote = True
    acknowledgement = Acknowledgement("text/plain", "success")

    def __init__(self) -> None:
        self.says: dict[str, Report] = {}
        self.down = False
        self.closes = True
        self.confirms = True
        self.released = threading.Event()
        self.released.set()
        self.calls: list[tuple[str, str]] = []
        self.refund_ids: list[str] = []

    def hang(self) -> None:
        self.released.clear()

    def called(self, name: str) -> int:
        return sum(call == name for call, _ in self.calls)

    def _note(self, name: str, bill: Bill) -> None:
        self.calls.append((name, bill.payment_id))
        # A thread of its own: no query of ours, so no connection that could hold a lock.
        assert connection.connection is None
        self.released.wait(10)
        if self.down:
            raise GatewayError("down")

    def create(self, bill: Bill) -> Page:
        self._note("create", bill)
        return Page(f"https://fake.example/{bill.payment_id}", f"session-{bill.payment_id}")

    def parse_webhook(self, body: bytes, headers: Mapping[str, str]) -> Event:
        raise SignatureInvalid("it sends none")

    def query(self, bill: Bill) -> Report:
        self._note("query", bill)
        return self.says.get(bill.payment_id, Report(Standing.PENDING))

    def close(self, bill: Bill) -> bool:
        self._note("close", bill)
        return self.closes

    def refund(self, bill: Bill, *, refund_id: str) -> RefundReport:
        self._note("refund", bill)
        self.refund_ids.append(refund_id)
        return RefundReport(done=self.confirms, reference=f"back-{refund_id}")

    # --- what a test lets happen there --------------------------------------------------------
    def takes_the_money(self, payment: Payment) -> None:
        """Without a word."""
        self.says[str(payment.pk)] = taken(payment)


def taken(payment: Payment) -> Report:
    return Report(Standing.SUCCEEDED, payment.amount_cents, payment.currency, "money")


def tell(payment: Payment, kind: str = "payment.succeeded", *, event_id: str = "") -> str:
    """What its webhook would do."""
    event = Event(
        event_id or uuid4().hex,
        kind,
        str(payment.pk),
        str(payment.order_id),
        payment.amount_cents,
        payment.currency,
    )
    return captures.record(payment.provider, event, "{}")
