"""The Alipay adapter, on payloads of the documented form, signed with keys that the tests make."""

import json
from base64 import b64encode
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

import alipay
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from orders.models import Order, Payment, Status
from orders.payments.alipay_gateway import TIMEZONE, Alipay
from orders.payments.providers import (
    Bill,
    GatewayError,
    MalformedEvent,
    RefundReport,
    Report,
    SignatureInvalid,
    Standing,
)
from tests.factories import PaymentFactory

PAYMENT, ORDER = "0d0d0c31-7f0c-4b8e-9b1a-000000000001", "0197a000-0000-7000-8000-000000000002"
OURS, THEIRS = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))


def sign(text: str) -> str:
    """As Alipay does, with RSA2."""
    return b64encode(THEIRS.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())).decode()


@pytest.fixture(autouse=True)
def _keys(settings: Settings, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.pem", tmp_path / "theirs.pem"
    ours.write_bytes(
        OURS.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    theirs.write_bytes(
        THEIRS.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    settings.ALIPAY_APP_ID = "2021000000000001"
    settings.ALIPAY_PRIVATE_KEY_FILE, settings.ALIPAY_PUBLIC_KEY_FILE = str(ours), str(theirs)
    settings.ALIPAY_SANDBOX = True
    settings.SITE_URL = "https://shop.example"


def bill(**changes: Any) -> Bill:
    deadline = timezone.now() + timedelta(minutes=15)
    return Bill(PAYMENT, ORDER, 990, "CNY", "水壶 Kettle", deadline, "", "")._replace(**changes)


# --- webhooks -------------------------------------------------------------------------------------


def notice(**changes: str) -> dict[str, str]:
    return {
        "notify_time": "2026-12-01 16:00:00",
        "notify_type": "trade_status_sync",
        "notify_id": "n1",
        "app_id": "2021000000000001",
        "charset": "utf-8",
        "version": "1.0",
        "sign_type": "RSA2",
        "trade_no": "2026120122001400000000000001",
        "out_trade_no": UUID(PAYMENT).hex,
        "trade_status": "TRADE_SUCCESS",
        "total_amount": "9.90",
        "receipt_amount": "9.90",
        "subject": "水壶 Kettle",
        "passback_params": ORDER,
        "fund_bill_list": '[{"amount":"9.90","fundChannel":"ALIPAYACCOUNT"}]',
    } | changes


def signed(fields: dict[str, str]) -> bytes:
    plain = {name: value for name, value in fields.items() if name != "sign_type"}
    text = "&".join(f"{name}={value}" for name, value in sorted(plain.items()))
    return urlencode(fields | {"sign": sign(text)}).encode()


@pytest.mark.parametrize(
    ("changes", "kind", "cents"),
    [
        ({}, "payment.succeeded", 990),
        ({"trade_status": "TRADE_FINISHED"}, "payment.succeeded", 990),
        ({"trade_status": "TRADE_CLOSED"}, "payment.failed", 990),
        ({"trade_status": "TRADE_CLOSED", "refund_fee": "9.90"}, "payment.refunded", 990),
        ({"refund_fee": "1.00"}, "payment.refunded", 100),
        ({"trade_status": "WAIT_BUYER_PAY"}, "alipay.WAIT_BUYER_PAY", 990),
    ],
)
def test_parse_webhook_reads_notices(changes: dict[str, str], kind: str, cents: int) -> None:
    event = Alipay().parse_webhook(signed(notice(**changes)), {})

    assert (event.kind, event.amount_cents, event.currency) == (kind, cents, "CNY")
    assert (event.event_id, event.payment_id, event.order_id) == ("n1", PAYMENT, ORDER)
    assert event.reference == "2026120122001400000000000001"


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b"9.90", b"9.91"),
        lambda body: body.replace(b"sign=", b"sgin="),
        lambda body: body.replace(b"RSA2", b"RSA"),
        lambda body: b"",
        lambda body: b"\xff",
        lambda body: b"sign=%FF",
    ],
)
def test_parse_webhook_refuses_what_alipay_did_not_sign(change: Any) -> None:
    with pytest.raises(SignatureInvalid):
        Alipay().parse_webhook(change(signed(notice())), {})


@pytest.mark.parametrize("changes", [{"app_id": "2"}, {"out_trade_no": "x"}])
def test_parse_webhook_refuses_what_is_not_about_us(changes: dict[str, str]) -> None:
    with pytest.raises(MalformedEvent):
        Alipay().parse_webhook(signed(notice(**changes)), {})


@pytest.mark.django_db
def test_webhook_is_answered_with_the_word_that_alipay_wants(
    client: Client, settings: Settings
) -> None:
    settings.PAYMENT_PROVIDERS = ["alipay"]
    payment = PaymentFactory(provider="alipay")
    about = {"out_trade_no": payment.pk.hex, "passback_params": str(payment.order_id)}
    body = signed(notice(**about))

    answers = [
        client.post(
            "/api/v1/payments/alipay/webhook",
            body,
            content_type="application/x-www-form-urlencoded",
        )
        for _ in range(2)
    ]

    assert [(a.status_code, a.text, a["Content-Type"]) for a in answers] == [
        (200, "success", "text/plain")
    ] * 2
    assert Order.objects.get().status == Status.PAID
    assert Payment.objects.get().reference == "2026120122001400000000000001"


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "expected"),
    [(timedelta(minutes=15), timedelta(minutes=15)), (timedelta(seconds=5), timedelta(minutes=1))],
)
def test_create_names_the_moment_of_the_deadline(left: timedelta, expected: timedelta) -> None:
    """Not `timeout_express`, which would start when the buyer enters the cashier."""
    now = timezone.now()

    page = Alipay().create(bill(pay_before=now + left))

    sent = dict(parse_qsl(urlsplit(page.url).query))
    content = json.loads(sent["biz_content"])
    moment = datetime.strptime(content["time_expire"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=TIMEZONE)
    assert abs(moment - now - expected) < timedelta(seconds=2)
    assert "timeout_express" not in content
    assert (content["total_amount"], content["out_trade_no"]) == ("9.90", page.session)
    assert content["passback_params"] == ORDER
    assert sent["notify_url"] == "https://shop.example/api/v1/payments/alipay/webhook"
    text = "&".join(f"{name}={value}" for name, value in sorted(sent.items()) if name != "sign")
    signature = alipay.decodebytes(sent["sign"].encode())
    OURS.public_key().verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What Alipay answers, in turn."""
    waiting: list[dict[str, str]] = []

    def opened(url: str, timeout: float) -> BytesIO:
        method = dict(parse_qsl(urlsplit(url).query))["method"]
        content = json.dumps(waiting.pop(0))
        name = method.replace(".", "_") + "_response"
        return BytesIO(f'{{"{name}":{content},"sign":"{sign(content)}"}}'.encode())

    monkeypatch.setattr(alipay, "urlopen", opened)
    return waiting


OK = {"code": "10000", "msg": "Success"}
UNKNOWN = {"code": "40004", "msg": "Business Failed", "sub_code": "ACQ.TRADE_NOT_EXIST"}
WRONG_STATE = {"code": "40004", "msg": "Business Failed", "sub_code": "ACQ.TRADE_STATUS_ERROR"}
TRADE = OK | {"trade_no": "t1", "total_amount": "9.90"}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (UNKNOWN, Report(Standing.PENDING)),
        (TRADE | {"trade_status": "WAIT_BUYER_PAY"}, Report(Standing.PENDING, 990, "CNY", "t1")),
        (TRADE | {"trade_status": "TRADE_SUCCESS"}, Report(Standing.SUCCEEDED, 990, "CNY", "t1")),
        (TRADE | {"trade_status": "TRADE_CLOSED"}, Report(Standing.FAILED, 990, "CNY", "t1")),
        (
            TRADE | {"trade_status": "TRADE_CLOSED", "send_pay_date": "2026-12-01 16:00:00"},
            Report(Standing.REFUNDED, 990, "CNY", "t1"),
        ),
    ],
)
def test_query_reads_the_trade(
    answers: list[dict[str, str]], answer: dict[str, str], expected: Report
) -> None:
    answers.append(answer)

    assert Alipay().query(bill()) == expected


@pytest.mark.parametrize(("answer", "closed"), [(OK, True), (UNKNOWN, True), (WRONG_STATE, False)])
def test_close_tells_whether_money_may_still_come(
    answers: list[dict[str, str]], answer: dict[str, str], closed: bool
) -> None:
    answers.append(answer)

    assert Alipay().close(bill()) is closed


@pytest.mark.parametrize("fund_change", ["Y", "N"])
def test_refund_asked_for_twice_is_done_both_times(
    answers: list[dict[str, str]], fund_change: str
) -> None:
    answers.append(TRADE | {"fund_change": fund_change, "refund_fee": "9.90"})

    assert Alipay().refund(bill(), refund_id="r1") == RefundReport(True, "t1")


def test_refund_that_alipay_refuses_is_an_error(answers: list[dict[str, str]]) -> None:
    answers.append(WRONG_STATE)

    with pytest.raises(GatewayError, match="TRADE_STATUS_ERROR"):
        Alipay().refund(bill(), refund_id="r1")


def test_an_answer_that_alipay_did_not_sign_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forged(url: str, timeout: float) -> BytesIO:
        content = json.dumps(TRADE | {"trade_status": "TRADE_SUCCESS"})
        return BytesIO(f'{{"alipay_trade_query_response":{content},"sign":"{sign("x")}"}}'.encode())

    monkeypatch.setattr(alipay, "urlopen", forged)

    with pytest.raises(GatewayError):
        Alipay().query(bill())


def test_a_gateway_that_is_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(url: str, timeout: float) -> BytesIO:
        raise TimeoutError("timed out")

    monkeypatch.setattr(alipay, "urlopen", away)

    with pytest.raises(GatewayError, match="timed out"):
        Alipay().query(bill())
