"""The Stripe adapter, on payloads of the documented form, signed with a secret of the test."""

import json
from datetime import timedelta
from typing import Any

import pytest
import stripe
from django.utils import timezone
from pytest_django.fixtures import Settings

from orders.models import Order, Payment, Refund, Status
from orders.payments import captures, providers
from orders.payments.providers import (
    Bill,
    GatewayError,
    MalformedEvent,
    RefundReport,
    Report,
    SignatureInvalid,
    Standing,
)
from orders.payments.stripe_gateway import Stripe
from tests.factories import PaymentFactory

SECRET = "whsec_of_the_tests"
PAYMENT, ORDER = "0d0d0c31-7f0c-4b8e-9b1a-000000000001", "0197a000-0000-7000-8000-000000000002"
NAMES = {"payment_id": PAYMENT, "order_id": ORDER}


class FakeClient(stripe.HTTPClient):
    """Answers instead of Stripe; remembers what it was asked."""

    name = "fake"

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], str]] = []

    def request(
        self, method: str, url: str, headers: Any, post_data: Any = None, *, _usage: Any = None
    ) -> tuple[str, int, dict[str, str]]:
        self.asked.append((method, url, dict(headers), str(post_data or "")))
        status, body = self.answers.pop(0)
        return json.dumps(body), status, {"request-id": "req_1"}

    def close(self) -> None:
        pass


def gateway(*answers: tuple[int, dict[str, Any]]) -> tuple[Stripe, FakeClient]:
    made, client = Stripe(), FakeClient(*answers)
    made.client = stripe.StripeClient("sk_test_x", http_client=client, max_network_retries=0)
    return made, client


def bill(**changes: Any) -> Bill:
    plain = Bill(
        PAYMENT, ORDER, 990, "CNY", "Kettle", timezone.now() + timedelta(minutes=15), "cs_1", "pi_1"
    )
    return plain._replace(**changes)


def session(**changes: Any) -> dict[str, Any]:
    return {
        "id": "cs_1",
        "object": "checkout.session",
        "url": "https://checkout.stripe.com/c/pay/cs_1",
        "status": "open",
        "payment_status": "unpaid",
        "amount_total": 990,
        "currency": "cny",
        "payment_intent": None,
        "metadata": NAMES,
    } | changes


REFUSED = (
    400,
    {"error": {"type": "invalid_request_error", "message": "no", "code": "resource_missing"}},
)


@pytest.fixture(autouse=True)
def _keys(settings: Settings) -> None:
    settings.STRIPE_WEBHOOK_SECRET = SECRET
    settings.SITE_URL = "https://shop.example"
    settings.PAYMENT_PROVIDERS = ["stripe"]


# --- webhooks -------------------------------------------------------------------------------------


def signed(kind: str, about: dict[str, Any], *, at: float | None = None) -> tuple[bytes, Any]:
    body = json.dumps({"id": "evt_1", "object": "event", "type": kind, "data": {"object": about}})
    stamp = int(timezone.now().timestamp() if at is None else at)
    header = stripe.WebhookSignature.generate_signature_header(body, SECRET, stamp)
    return body.encode(), {"stripe-signature": header}


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("checkout.session.completed", {"payment_status": "paid"}, "payment.succeeded"),
        ("checkout.session.completed", {}, "stripe.checkout.session.completed"),
        (
            "checkout.session.async_payment_succeeded",
            {"payment_status": "paid"},
            "payment.succeeded",
        ),
        ("checkout.session.async_payment_failed", {}, "payment.failed"),
        ("checkout.session.expired", {"status": "expired"}, "payment.failed"),
        ("payment_intent.created", {}, "stripe.payment_intent.created"),
    ],
)
def test_parse_webhook_reads_events_of_a_session(
    kind: str, changes: dict[str, Any], expected: str
) -> None:
    about = session(payment_intent="pi_1", **changes)

    event = Stripe().parse_webhook(*signed(kind, about))

    assert (event.event_id, event.kind) == ("evt_1", expected)
    assert (event.payment_id, event.order_id) == (PAYMENT, ORDER)
    assert (event.currency, event.reference) == ("CNY", "pi_1")


def test_parse_webhook_reads_the_refund_of_a_charge() -> None:
    charge = {
        "id": "ch_1",
        "object": "charge",
        "amount": 990,
        "amount_refunded": 990,
        "refunded": True,
        "currency": "cny",
        "payment_intent": "pi_1",
        "metadata": NAMES,
    }

    event = Stripe().parse_webhook(*signed("charge.refunded", charge))

    assert (event.kind, event.amount_cents) == ("payment.refunded", 990)


@pytest.mark.parametrize("case", ["changed", "old", "none", "other_secret"])
def test_parse_webhook_refuses_what_stripe_did_not_sign_just_now(case: str) -> None:
    now = timezone.now().timestamp()
    about = session(payment_status="paid")
    at = now - 3600 if case == "old" else now
    body, headers = signed("checkout.session.completed", about, at=at)
    if case == "changed":
        body = body.replace(b"990", b"1")
    elif case == "none":
        headers = {}
    elif case == "other_secret":
        header = stripe.WebhookSignature.generate_signature_header(body.decode(), "whsec_x")
        headers = {"stripe-signature": header}

    with pytest.raises(SignatureInvalid):
        Stripe().parse_webhook(body, headers)


@pytest.mark.parametrize("body", ["[]", "{}", "1", '{"data": 1, "type": "x", "id": "y"}', "no"])
def test_parse_webhook_refuses_what_it_can_not_read(body: str) -> None:
    header = stripe.WebhookSignature.generate_signature_header(body, SECRET)

    with pytest.raises(MalformedEvent):
        Stripe().parse_webhook(body.encode(), {"stripe-signature": header})


@pytest.mark.django_db
def test_a_completed_session_pays_the_order_and_a_refunded_charge_refunds_it() -> None:
    payment = PaymentFactory(provider="stripe", session="cs_1")
    names = {"payment_id": str(payment.pk), "order_id": str(payment.order_id)}
    paid = session(payment_status="paid", metadata=names, payment_intent="pi_1")
    back = {"amount_refunded": 990, "currency": "cny", "metadata": names, "payment_intent": "pi_1"}

    captures.process_webhook("stripe", *signed("checkout.session.completed", paid))
    assert Order.objects.get().status == Status.PAID
    assert Payment.objects.get().reference == "pi_1"
    body, _ = signed("charge.refunded", back)
    body = body.replace(b"evt_1", b"evt_2")
    header = stripe.WebhookSignature.generate_signature_header(body.decode(), SECRET)
    captures.process_webhook("stripe", body, {"stripe-signature": header})

    assert Order.objects.get().status == Status.REFUNDED
    assert Refund.objects.get().cause == Refund.Cause.PROVIDER


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "shortest", "longest"),
    [
        (timedelta(minutes=15), timedelta(minutes=30), timedelta(minutes=32)),
        (timedelta(hours=2), timedelta(minutes=119), timedelta(minutes=120)),
        (timedelta(days=3), timedelta(hours=23), timedelta(hours=24)),
    ],
)
def test_create_maps_the_window_to_what_stripe_can_do(
    window: timedelta, shortest: timedelta, longest: timedelta
) -> None:
    made, client = gateway((200, session()))

    page = made.create(bill(pay_before=timezone.now() + window))

    assert page == providers.Page("https://checkout.stripe.com/c/pay/cs_1", "cs_1")
    ((method, url, headers, sent),) = client.asked
    assert (method, url) == ("post", "https://api.stripe.com/v1/checkout/sessions")
    assert headers["Idempotency-Key"] == f"pay-{PAYMENT}"
    (moment,) = [part[11:] for part in sent.split("&") if part.startswith("expires_at=")]
    assert shortest <= timedelta(seconds=int(moment) - timezone.now().timestamp()) <= longest
    assert f"metadata[payment_id]={PAYMENT}" in sent
    assert f"payment_intent_data[metadata][order_id]={ORDER}" in sent
    assert "line_items[0][price_data][unit_amount]=990" in sent


PAID = {"payment_status": "paid", "status": "complete"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Report(Standing.PENDING, 990, "CNY", "")),
        ({"status": "expired"}, Report(Standing.FAILED, 990, "CNY", "")),
        (PAID | {"payment_intent": {"id": "pi_1"}}, Report(Standing.SUCCEEDED, 990, "CNY", "pi_1")),
        (
            PAID | {"payment_intent": {"id": "pi_1", "latest_charge": {"refunded": True}}},
            Report(Standing.REFUNDED, 990, "CNY", "pi_1"),
        ),
    ],
)
def test_query_reads_the_session(changes: dict[str, Any], expected: Report) -> None:
    made, _ = gateway((200, session(**changes)))

    assert made.query(bill()) == expected


def test_query_of_a_payment_without_a_session_asks_nobody() -> None:
    made, client = gateway()

    assert made.query(bill(session="")).standing is Standing.PENDING
    assert made.close(bill(session=""))
    assert client.asked == []


def test_close_expires_the_session() -> None:
    made, client = gateway((200, session(status="expired")))

    assert made.close(bill())
    assert client.asked[0][1] == "https://api.stripe.com/v1/checkout/sessions/cs_1/expire"


@pytest.mark.parametrize(("changes", "closed"), [(PAID, False), ({"status": "expired"}, True)])
def test_close_of_a_session_that_is_not_open_looks_why(
    changes: dict[str, Any], closed: bool
) -> None:
    made, _ = gateway(REFUSED, (200, session(**changes)))

    assert made.close(bill()) is closed


@pytest.mark.parametrize(("status", "done"), [("succeeded", True), ("pending", False)])
def test_refund_carries_the_key_that_makes_repeats_safe(status: str, done: bool) -> None:
    made, client = gateway((200, {"id": "re_1", "object": "refund", "status": status}))

    assert made.refund(bill(), refund_id="r1") == RefundReport(done, "re_1")
    _, _, headers, sent = client.asked[0]
    assert headers["Idempotency-Key"] == "refund-r1"
    assert "payment_intent=pi_1" in sent


def test_refund_that_was_made_long_ago_is_done() -> None:
    error = {"type": "invalid_request_error", "code": "charge_already_refunded", "message": "x"}
    made, _ = gateway((400, {"error": error}))

    assert made.refund(bill(), refund_id="r1").done


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"id": "re_1", "object": "refund", "status": "failed"}),
        (500, {"error": {"type": "api_error", "message": "x"}}),
        REFUSED,
    ],
)
def test_refund_that_fails_is_an_error(answer: tuple[int, dict[str, Any]]) -> None:
    made, _ = gateway(answer)

    with pytest.raises(GatewayError):
        made.refund(bill(), refund_id="r1")
