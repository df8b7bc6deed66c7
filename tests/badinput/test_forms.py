"""What people and programs put into forms and addresses: plain words back, and nothing changed."""

import base64
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from inventory import gate
from inventory.models import FlashSale
from orders.models import Order, Status, WebhookEvent
from orders.payments import sandbox
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory, UserFactory

pytestmark = pytest.mark.django_db

ODD = {
    "empty": "",
    "NUL": "a\0b",
    "10 kB": "x" * 10_000,
    "four bytes": "🎉" * 40,
    "right to left": "\u202eevil\u202c",
    "zero width": "a\u200bb\u2060c",
    "lone surrogate": "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "new lines": "a\r\nSet-Cookie: x=1",
    "markup": "<script>alert(1)</script>",
    "quotes": "' OR '1'='1' --",
    "template": "{{ 7|add:7 }}{% debug %}${7*7}",
    "path": "../../../../etc/passwd",
    "format": "%s%n{0}",
    "number": "9" * 400,
    "negative": "-1",
    "not a number": "NaN",
    "full width": "１",
    "array": "[]",
}


def each_but(*good: str) -> pytest.MarkDecorator:
    """`good`: those that are no mistake in this place."""
    bad = {name: text for name, text in ODD.items() if name not in good}
    return pytest.mark.parametrize("text", bad.values(), ids=bad)


each = each_but()


@pytest.fixture
def order() -> Order:
    made: Order = OrderFactory(sale=FlashSaleFactory(primed=True))
    return made


@pytest.fixture
def owner(client: Client, order: Order) -> Client:
    assert order.user is not None
    client.force_login(order.user)
    return client


def state(order: Order) -> tuple[Any, ...]:
    sale = FlashSale.objects.values_list("quantity", "allocated", "paused").get()
    accounts = User.objects.count()
    return list(Order.objects.values_list()), sale, gate.stocks([order.sale_id]), accounts


@each_but("empty", "full width")  # One unit, and a digit of another script is a digit.
def test_quantity_that_is_none_buys_nothing(owner: Client, order: Order, text: str) -> None:
    owner.force_login(UserFactory())
    before = state(order)

    response = owner.post(f"/sales/{order.sale_id}/buy/", {"quantity": text})

    assert response.status_code == 422
    assert state(order) == before


@each_but("empty")  # Then it is the first of those that are switched on.
def test_provider_that_is_none_begins_no_payment(owner: Client, order: Order, text: str) -> None:
    before = state(order)

    response = owner.post(f"/orders/{order.pk}/pay/", {"provider": text})

    assert response.status_code == 422
    assert (state(order), order.payments.count()) == (before, 0)


@each
def test_button_that_is_none_pays_nothing(owner: Client, order: Order, text: str) -> None:
    payment = PaymentFactory(order=order, started=True)
    before = state(order)

    response = owner.post(f"/cashier/{payment.pk}/", {"result": text})

    assert response["Location"] == f"/cashier/{payment.pk}/"
    assert state(order) == before


@each_but("negative", "not a number", "full width")  # Letters, digits and hyphens are a name.
def test_name_that_does_not_fit_makes_no_account(client: Client, order: Order, text: str) -> None:
    form = {"username": text, "password1": "long enough 7x", "password2": "long enough 7x"}
    before = state(order)

    response = client.post("/register/", form)

    assert response.status_code == 200
    assert state(order) == before


@each
def test_sign_in_with_anything_is_refused(client: Client, order: Order, text: str) -> None:
    for path in ("/login/", "/admin/login/"):
        form = {"username": text, "password": text, "next": text, "extra": text}
        response = client.post(path, form, REMOTE_ADDR="192.0.2.9")
        assert response.status_code in (200, 429)
        assert "_auth_user_id" not in client.session


@each
def test_searches_and_filters_bear_anything(owner: Client, order: Order, text: str) -> None:
    before = state(order)
    query = {"q": text, "status": text, "cursor": text, "sale": text, "next": text, "wait": text}

    assert owner.get("/orders/", {**query, "cursor": ""}).status_code == 200
    assert owner.get("/orders/", {"cursor": text}).status_code == (404 if text else 200)
    assert owner.get("/api/v1/orders", {"cursor": text}).status_code == (422 if text else 200)
    assert owner.get("/api/v1/orders", {"limit": text}).status_code in (200, 422)
    for path in ("/", "/me/", "/login/", f"/sales/{order.sale_id}/"):
        assert owner.get(path, query).status_code in (200, 302)
    assert state(order) == before


@pytest.mark.parametrize(
    "edge", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-01-01T00:00:00"]
)
def test_cursor_at_the_end_of_time(owner: Client, order: Order, edge: str) -> None:
    cursor = base64.urlsafe_b64encode(f"{edge}|{order.pk}".encode()).decode().rstrip("=")

    assert owner.get("/orders/", {"cursor": cursor}).status_code == 404
    assert owner.get("/api/v1/orders", {"cursor": cursor}).status_code == 422


@each
def test_language_that_is_none_is_not_remembered(client: Client, order: Order, text: str) -> None:
    response = client.post("/i18n/setlang/", {"language": text, "next": "/"})

    assert response.status_code == 302
    assert response["Location"] == "/"
    assert "django_language" not in response.cookies


@pytest.mark.parametrize(
    "language", ["", "x" * 20_000, "zh;q=9", "*", "\0", "zh-hans-x-" + "a" * 900, "é", "../../x"]
)
def test_accept_language_of_any_kind(client: Client, order: Order, language: str) -> None:
    headers = {"accept-language": language, "cookie": f"django_language={language[:100]}"}

    for path in ("/", "/login/", "/api/v1/orders"):
        assert client.get(path, headers=headers).status_code in (200, 401)


@pytest.mark.parametrize("path", ["/login/", "/orders/{order}/cancel/", "/sales/{sale}/buy/"])
def test_a_thousand_and_one_fields_are_refused(owner: Client, order: Order, path: str) -> None:
    before = state(order)
    address = path.format(order=order.pk, sale=order.sale_id)
    if path == "/login/":
        owner.logout()

    response = owner.post(address, {f"f{number}": "1" for number in range(1001)})

    assert response.status_code in (302, 400)
    if path != "/orders/{order}/cancel/":  # It reads no field, so none is too many for it.
        assert state(order) == before


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a'),
        ("multipart/form-data", b"--x--"),
        ("multipart/form-data; boundary=" + "x" * 500, b"--x--"),
        ("application/x-www-form-urlencoded; charset=no-such", b"quantity=1"),
        ("application/x-www-form-urlencoded; charset=utf-16", "quantity=1".encode("utf-16")),
        ("application/x-www-form-urlencoded", b"%ff%fe=%00&&&==&quantity=%"),
        ("\x00", b"quantity=2"),
    ],
)
def test_body_of_another_form_is_no_order(
    owner: Client, order: Order, kind: str, body: bytes
) -> None:
    before = state(order)

    for path in (f"/orders/{order.pk}/pay/", "/login/", "/register/"):
        status = owner.generic("POST", path, body, content_type=kind).status_code
        assert status in (200, 302, 400, 422), path

    assert state(order) == before


@pytest.mark.parametrize("trait", ["paid", "canceled", "expired", "refunded", "overdue"])
def test_order_that_is_over_takes_no_payment(client: Client, trait: str) -> None:
    order = OrderFactory(sale=FlashSaleFactory(primed=True), **{trait: True})
    client.force_login(order.user)
    before = state(order)

    page = client.post(f"/orders/{order.pk}/pay/", {"provider": "sandbox"})
    body = '{"provider":"sandbox"}'
    api = client.post(f"/api/v1/orders/{order.pk}/pay", body, "application/json")

    assert (page.status_code, api.status_code) == (409, 409)
    assert api.json()["code"] == "order_not_payable"
    assert state(order) == before


# --- webhooks -------------------------------------------------------------------------------------

MEGABYTE = b'{"event_id":"' + b"x" * 1_000_000 + b'"}'
BODIES = [b"", b"{", b"[]", b"null", b"1", b"\xff\xfe\x00", b"[" * 5000, b'{"a":NaN}', MEGABYTE]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: f"{len(body)} bytes {body[:6]!r}")
@pytest.mark.parametrize("signed", [True, False])
def test_webhook_that_can_not_be_read(
    client: Client, order: Order, body: bytes, signed: bool
) -> None:
    before = state(order)
    signature = sandbox.sign(body) if signed else "t=1,v1=0"

    response = client.generic(
        "POST",
        "/api/v1/payments/sandbox/webhook",
        body,
        "application/json",
        headers={"x-signature": signature},
    )

    expected = (422, "invalid") if signed else (400, "signature_invalid")
    assert (response.status_code, response.json()["code"]) == expected
    assert (state(order), WebhookEvent.objects.count()) == (before, 0)


SIGNATURES = [
    "",
    "x",
    "t=,v1=",
    "t=1",
    "v1=00",
    "t=-1,v1=é",
    "t=1e9,v1=0",
    "t=" + "9" * 400,
    "\0",
    ",,,=",
]


@pytest.mark.parametrize("signature", SIGNATURES)
def test_webhook_signed_by_nobody(client: Client, order: Order, signature: str) -> None:
    payment = PaymentFactory(order=order)
    body, _ = sandbox.message(payment, "payment.succeeded")

    response = client.generic(
        "POST",
        "/api/v1/payments/sandbox/webhook",
        body,
        "application/json",
        headers={"x-signature": signature},
    )

    assert (response.status_code, response.json()["code"]) == (400, "signature_invalid")
    assert Order.objects.get().status == Status.UNPAID
    assert WebhookEvent.objects.count() == 0
