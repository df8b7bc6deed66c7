"""The JSON interface, as a program meets it."""

import json
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from inventory import gate
from orders.models import Order, Status, WebhookEvent
from orders.payments import sandbox
from orders.payments import services as payments
from orders.payments.providers import GatewayBusy
from seckill import captcha
from tests.factories import FlashSaleFactory, OrderFactory, PaymentFactory
from tests.seckill.test_captcha import solve

pytestmark = pytest.mark.django_db

API = "/api/v1"


@pytest.fixture
def signed_in(client: Client, buyer: User) -> Client:
    client.force_login(buyer)
    client.get(f"{API}/orders")  # Whatever a session does once, it did now.
    return client


def post(client: Client, path: str, body: Any = None, **headers: str) -> Any:
    return client.post(API + path, body, content_type="application/json", headers=headers)


# --- public ---------------------------------------------------------------------------------------


def test_time_is_the_servers(client: Client) -> None:
    response = client.get(f"{API}/time")

    now = datetime.fromisoformat(response.json()["now"])
    assert abs(timezone.now() - now) < timedelta(seconds=5)
    assert response["Cache-Control"] == "no-store"


def test_sale_tells_what_the_contract_names(client: Client) -> None:
    sale = FlashSaleFactory(list_price_cents=1990, per_buyer=2)

    response = client.get(f"{API}/sales/{sale.pk}")

    assert response.json() == {
        "id": sale.pk,
        "product": sale.product.name,
        "description": "",
        "state": "open",
        "stock_band": "10",
        "starts_at": sale.starts_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "ends_at": sale.ends_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "price": "9.90",
        "list_price": "19.90",
        "currency": "CNY",
        "per_buyer": 2,
    }


@pytest.mark.parametrize("path", ["/sales", "/sales/{sale}"])
def test_sales_are_the_same_for_everybody(signed_in: Client, path: str) -> None:
    sale = FlashSaleFactory()

    response = signed_in.get(API + path.format(sale=sale.pk))

    assert response["Cache-Control"] == "public, max-age=1"
    assert "Cookie" not in response["Vary"]
    assert not response.cookies


@pytest.mark.parametrize("number", [1, 3])
def test_sales_take_one_query_however_many(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries, number: int
) -> None:
    sales = FlashSaleFactory.create_batch(number)

    with django_assert_num_queries(1):
        response = client.get(f"{API}/sales")

    assert [s["id"] for s in response.json()["sales"]] == [s.pk for s in sales]


@pytest.mark.parametrize(
    ("traits", "state"),
    [
        ({}, "open"),
        ({"scheduled": True}, "scheduled"),
        ({"closed": True}, "closed"),
        ({"paused": True}, "paused"),
        ({"allocated": 10}, "sold_out"),
    ],
)
def test_sale_state(client: Client, traits: dict[str, Any], state: str) -> None:
    sale = FlashSaleFactory(**traits)

    assert client.get(f"{API}/sales/{sale.pk}").json()["state"] == state


@pytest.mark.parametrize(("quantity", "band"), [(100, "plenty"), (99, "99"), (1, "1")])
def test_sale_stock_band(client: Client, quantity: int, band: str) -> None:
    sale = FlashSaleFactory(quantity=quantity)

    assert client.get(f"{API}/sales/{sale.pk}").json()["stock_band"] == band


def test_sale_is_sold_out_as_soon_as_the_gate_is_empty(client: Client) -> None:
    sale = FlashSaleFactory(quantity=1, primed=True)
    gate.reserve(sale.pk, [gate.Entry(1, str(uuid.uuid4()))])

    shown = client.get(f"{API}/sales/{sale.pk}").json()

    assert (shown["state"], shown["stock_band"]) == ("sold_out", "0")


def test_sale_shows_the_databases_stock_while_the_gate_is_away(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = FlashSaleFactory(quantity=5)

    def away(ids: list[int]) -> dict[int, int | None]:
        raise gate.GateError("away")

    monkeypatch.setattr(gate, "stocks", away)

    assert client.get(f"{API}/sales/{sale.pk}").json()["stock_band"] == "5"


def test_captcha_is_a_challenge_that_can_be_solved(client: Client) -> None:
    assert captcha.verify(solve(client.get(f"{API}/captcha").json())) is True


# --- the purchase token ---------------------------------------------------------------------------


@pytest.mark.parametrize("traits", [{}, {"scheduled": True}])
def test_token_is_given_for_a_solved_challenge(signed_in: Client, traits: dict[str, bool]) -> None:
    sale = FlashSaleFactory(**traits)

    response = post(signed_in, f"/sales/{sale.pk}/token", {"captcha": solve(captcha.challenge())})

    assert response.status_code == 201
    issued = response.json()
    assert set(issued) == {"token", "purchase_id", "valid_from", "expires_at"}
    assert uuid.UUID(issued["purchase_id"]).version == 7
    assert datetime.fromisoformat(issued["valid_from"]) <= sale.starts_at
    assert response["Cache-Control"] == "no-store"


def test_token_needs_no_challenge_where_it_is_off(signed_in: Client, settings: Settings) -> None:
    settings.CAPTCHA = "off"

    assert post(signed_in, f"/sales/{FlashSaleFactory().pk}/token", {}).status_code == 201


@pytest.mark.parametrize("body", ["", "null", "{}"])
@pytest.mark.parametrize(("mode", "status"), [("off", 201), ("altcha", 422)])
def test_token_may_be_asked_for_without_a_body(
    signed_in: Client, settings: Settings, body: str, mode: str, status: int
) -> None:
    settings.CAPTCHA = mode
    path = f"{API}/sales/{FlashSaleFactory().pk}/token"

    response = signed_in.generic("POST", path, body, content_type="application/json" * bool(body))

    assert response.status_code == status
    assert response.json().get("code") == {201: None, 422: "captcha_invalid"}[status]


def test_token_needs_a_new_challenge_each_time(signed_in: Client) -> None:
    sale, answer = FlashSaleFactory(), solve(captcha.challenge())

    statuses = [
        post(signed_in, f"/sales/{sale.pk}/token", {"captcha": answer}).status_code
        for _ in range(2)
    ]

    assert statuses == [201, 422]


def test_token_is_refused_after_the_end(signed_in: Client, settings: Settings) -> None:
    settings.CAPTCHA = "off"

    response = post(signed_in, f"/sales/{FlashSaleFactory(closed=True).pk}/token", {})

    assert (response.status_code, response.json()["code"]) == (410, "closed")


# --- orders ---------------------------------------------------------------------------------------


def test_order_shows_its_owner_all(signed_in: Client, buyer: User) -> None:
    order = OrderFactory(user=buyer, paid=True)

    shown = signed_in.get(f"{API}/orders/{order.pk}").json()

    assert (shown["id"], shown["status"], shown["amount"]) == (str(order.pk), "paid", "9.90")
    names = "id sale_id product quantity unit_price amount currency status"
    assert set(shown) == {*names.split(), "created_at", "pay_before", "paid_at", "refund"}


@pytest.mark.parametrize("number", [1, 3])
def test_orders_take_two_queries_however_many(
    signed_in: Client, buyer: User, django_assert_num_queries: DjangoAssertNumQueries, number: int
) -> None:
    OrderFactory.create_batch(number, user=buyer)

    with django_assert_num_queries(2):  # the user, the orders; the session is in the cache
        response = signed_in.get(f"{API}/orders")

    assert len(response.json()["orders"]) == number


def test_orders_are_walked_page_by_page(signed_in: Client, buyer: User) -> None:
    at = timezone.now()
    made = OrderFactory.create_batch(5, user=buyer, created_at=at)  # All in the same instant.
    OrderFactory()  # Somebody else's.
    OrderFactory(user=buyer, rejected=True)

    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = signed_in.get(f"{API}/orders?limit=2&cursor={cursor}").json()
        seen += [order["id"] for order in page["orders"]]
        cursor = page["next"]

    assert sorted(seen) == sorted(str(order.pk) for order in made)


@pytest.mark.parametrize(
    "query", ["cursor=x", "cursor=%ff", "cursor=MHww", "limit=0", "limit=101", "limit=x"]
)
def test_orders_refuse_a_cursor_or_limit_that_is_none(signed_in: Client, query: str) -> None:
    response = signed_in.get(f"{API}/orders?{query}")

    assert (response.status_code, response.json()["code"]) == (422, "invalid")


def test_pay_gives_an_address_and_keeps_the_deadline(signed_in: Client, buyer: User) -> None:
    order = OrderFactory(user=buyer)

    response = post(signed_in, f"/orders/{order.pk}/pay", {"provider": "sandbox"})

    payment = order.payments.get()
    assert response.json() == {"payment_url": f"/cashier/{payment.pk}/"}
    assert Order.objects.get(pk=order.pk).pay_before == order.pay_before


def test_pay_refuses_an_order_that_is_over(signed_in: Client, buyer: User) -> None:
    order = OrderFactory(user=buyer, expired=True)

    response = post(signed_in, f"/orders/{order.pk}/pay", {"provider": "sandbox"})

    assert (response.status_code, response.json()["code"]) == (409, "order_not_payable")


def test_pay_refuses_a_provider_that_is_not_there(signed_in: Client, buyer: User) -> None:
    order = OrderFactory(user=buyer)

    response = post(signed_in, f"/orders/{order.pk}/pay", {"provider": "nobody"})

    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/provider")


def test_pay_says_when_the_provider_does_not_answer(
    signed_in: Client, buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = OrderFactory(user=buyer)

    def silent(*args: object, **kwargs: object) -> None:
        raise GatewayBusy("silent")

    monkeypatch.setattr(payments, "start_payment", silent)
    response = post(signed_in, f"/orders/{order.pk}/pay", {"provider": "sandbox"})
    page = signed_in.post(f"/orders/{order.pk}/pay/")

    assert (response.status_code, response.json()["code"]) == (503, "payment_unavailable")
    assert (page.status_code, response["Retry-After"], page["Retry-After"]) == (503, "3", "3")


def test_cancel_closes_an_unpaid_order_once(signed_in: Client, buyer: User) -> None:
    order = OrderFactory(user=buyer, sale__primed=True)

    first, second = (post(signed_in, f"/orders/{order.pk}/cancel") for _ in range(2))

    assert (first.status_code, first.json()["status"]) == (200, "canceled")
    assert (second.status_code, second.json()["code"]) == (409, "order_not_cancelable")
    order.sale.refresh_from_db()
    assert order.sale.allocated == 0


# --- what providers say ---------------------------------------------------------------------------


def webhook(client: Client, body: bytes, signature: str, provider: str = "sandbox") -> Any:
    return client.post(
        f"{API}/payments/{provider}/webhook",
        body,
        content_type="application/json",
        headers={"x-signature": signature},
    )


def test_webhook_pays_and_may_be_repeated(client: Client) -> None:
    payment = PaymentFactory()
    body, headers = sandbox.message(payment, "payment.succeeded")

    statuses = [webhook(client, body, headers["x-signature"]).status_code for _ in range(2)]

    assert statuses == [200, 200]
    assert Order.objects.get(pk=payment.order_id).status == Status.PAID


def test_webhook_takes_what_came_too_late(client: Client) -> None:
    payment = PaymentFactory(order__expired=True)
    body, headers = sandbox.message(payment, "payment.succeeded")

    response = webhook(client, body, headers["x-signature"])

    assert (response.status_code, response.json()) == (200, {"status": "applied"})


def test_webhook_refuses_a_forged_message(client: Client) -> None:
    body, _ = sandbox.message(PaymentFactory(), "payment.succeeded")

    response = webhook(client, body, f"t=1,v1={'0' * 64}")

    assert (response.status_code, response.json()["code"]) == (400, "signature_invalid")
    assert WebhookEvent.objects.count() == 0


def test_webhook_of_a_provider_that_is_not_there(client: Client) -> None:
    assert webhook(client, b"{}", "", provider="nobody").status_code == 404


def test_webhook_refuses_a_signed_message_that_it_can_not_read(client: Client) -> None:
    response = webhook(client, b"[]", sandbox.sign(b"[]"))

    assert (response.status_code, response.json()["code"]) == (422, "invalid")


# --- the document ---------------------------------------------------------------------------------


def test_openapi_describes_every_route_and_only_those(client: Client) -> None:
    paths = client.get(f"{API}/openapi.json").json()["paths"]

    assert {(path, method) for path, item in paths.items() for method in item} == {
        (f"{API}/time", "get"),
        (f"{API}/sales", "get"),
        (f"{API}/sales/{{sale}}", "get"),
        (f"{API}/captcha", "get"),
        (f"{API}/sales/{{sale}}/token", "post"),
        (f"{API}/sales/{{sale}}/purchases", "post"),
        (f"{API}/sales/{{sale}}/purchases/{{purchase}}", "get"),
        (f"{API}/orders", "get"),
        (f"{API}/orders/{{order}}", "get"),
        (f"{API}/orders/{{order}}/pay", "post"),
        (f"{API}/orders/{{order}}/cancel", "post"),
        (f"{API}/payments/{{provider}}/webhook", "post"),
    }


def test_openapi_refers_only_to_what_it_contains(client: Client) -> None:
    text = client.get(f"{API}/openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]

    wanted = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert wanted <= set(schemas)
    assert "Problem" in wanted


def test_docs_load_nothing_from_elsewhere(client: Client) -> None:
    page = client.get(f"{API}/docs").text

    assert "http://" not in page
    assert "https://" not in page
