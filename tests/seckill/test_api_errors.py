"""Whatever goes wrong under /api/ leaves as a problem document, and changes nothing."""

import json
import uuid
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from pytest_django.fixtures import Settings
from redis.exceptions import ConnectionError as RedisConnectionError

from orders.models import Order
from seckill import api, captcha, services
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory

pytestmark = pytest.mark.django_db

API = "/api/v1"
SIGNED_IN_ONLY = [
    ("GET", "/orders"),
    ("GET", "/orders/{order}"),
    ("POST", "/orders/{order}/pay"),
    ("POST", "/orders/{order}/cancel"),
    ("POST", "/sales/{sale}/token"),
]
OWNER_ONLY = SIGNED_IN_ONLY[1:4]


@pytest.fixture
def other(client: Client) -> Client:
    client.force_login(UserFactory())
    return client


def call(client: Client, method: str, path: str, body: str = '{"provider":"sandbox"}') -> Any:
    return client.generic(method, API + path, body, content_type="application/json")


def assert_problem(response: Any, status: int, code: str) -> None:
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
    problem = json.loads(response.content)
    assert (problem["code"], problem["status"]) == (code, status)
    assert problem["type"] == f"/problems/{code}/"
    assert problem["instance"] == response["X-Request-Id"]
    assert response["Cache-Control"] == "no-store"


@pytest.mark.parametrize(("method", "path"), SIGNED_IN_ONLY)
def test_signed_in_only_never_redirects(client: Client, method: str, path: str) -> None:
    order = OrderFactory()

    response = call(client, method, path.format(order=order.pk, sale=order.sale_id))

    assert_problem(response, 401, "login_required")


@pytest.mark.parametrize(("method", "path"), [p for p in SIGNED_IN_ONLY if p[0] == "POST"])
def test_writing_needs_a_csrf_token(method: str, path: str) -> None:
    order = OrderFactory()
    client = Client(enforce_csrf_checks=True)
    client.force_login(order.user)

    response = call(client, method, path.format(order=order.pk, sale=order.sale_id))

    assert_problem(response, 403, "csrf_failed")
    assert Order.objects.get(pk=order.pk).status == order.status


@pytest.mark.parametrize(("method", "path"), OWNER_ONLY)
def test_owner_only_looks_the_same_for_others_as_for_nothing(
    other: Client, method: str, path: str
) -> None:
    order = OrderFactory()

    foreign = call(other, method, path.format(order=order.pk))
    unknown = call(other, method, path.format(order=uuid.uuid4()))

    for response in (foreign, unknown):
        assert_problem(response, 404, "not_found")
    assert Order.objects.get(pk=order.pk).status == order.status


@pytest.mark.parametrize(
    "order_id",
    ["0", "x" * 10_000, "../../", "{upper}", "{bare}", "{urn}", "%00", "１"],
)
def test_order_id_has_one_form(client: Client, order_id: str) -> None:
    order = OrderFactory()
    client.force_login(order.user)
    text = order_id.format(
        upper=str(order.pk).upper(), bare=order.pk.hex, urn=f"urn:uuid:{order.pk}"
    )

    assert_problem(client.get(f"{API}/orders/{text}"), 404, "not_found")


@pytest.mark.parametrize(
    "sale_id",
    ["0", "-1", "1.5", "1e9", str(2**63), "9" * 5000, "1 OR 1=1", "１", "%00", "abc", "01"],
)
def test_sale_id_that_is_none_is_not_found(client: Client, sale_id: str) -> None:
    assert_problem(client.get(f"{API}/sales/{sale_id}"), 404, "not_found")


@pytest.mark.parametrize("path", ["", "/", "/nothing", "/orders/", "/sales/1/"])
def test_unknown_address_is_not_found(client: Client, path: str) -> None:
    assert_problem(client.get(API + path, follow=True), 404, "not_found")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE"])
def test_wrong_method_names_the_right_ones(client: Client, method: str) -> None:
    response = client.generic(method, f"{API}/sales")

    assert_problem(response, 405, "method_not_allowed")
    assert response["Allow"] == "GET"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "multipart/form-data; boundary=x"]
)
def test_other_formats_are_not_taken(other: Client, content_type: str) -> None:
    sale = FlashSaleFactory()

    response = other.generic(
        "POST", f"{API}/sales/{sale.pk}/token", "{}", content_type=content_type
    )

    assert_problem(response, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 422),
        ("{", 400),
        ("\xff", 400),
        ("[" * 5000, 400),
        ("null", 422),
        ("[]", 422),
        ("1", 422),
        ('{"captcha": null}', 422),
        ('{"captcha": 5}', 422),
        ('{"captcha": "' + "x" * 5000 + '"}', 422),
        ('{"captcha": "not solved"}', 422),
    ],
)
def test_bad_bodies_are_told_so(other: Client, body: str, status: int) -> None:
    sale = FlashSaleFactory()

    response = call(other, "POST", f"/sales/{sale.pk}/token", body)

    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"


def test_validation_points_at_what_is_wrong(other: Client) -> None:
    response = call(other, "POST", f"/sales/{FlashSaleFactory().pk}/token", '{"captcha": 5}')

    assert_problem(response, 422, "invalid")
    assert [e["pointer"] for e in response.json()["errors"]] == ["/captcha"]


def test_extra_members_are_ignored(other: Client, settings: Settings) -> None:
    settings.CAPTCHA = "off"
    body = '{"price": "0.01", "user_id": 1, "is_staff": true}'

    assert call(other, "POST", f"/sales/{FlashSaleFactory().pk}/token", body).status_code == 201


@pytest.mark.parametrize(
    "error", [RedisConnectionError("x"), OperationalError("x"), TimeoutError()]
)
def test_lost_back_end_is_unavailable(
    other: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    settings.CAPTCHA = "off"

    def away(**kwargs: object) -> None:
        raise error

    monkeypatch.setattr(services, "issue_token", away)

    response = call(other, "POST", f"/sales/{FlashSaleFactory().pk}/token", "{}")

    assert_problem(response, 503, "unavailable")
    assert int(response["Retry-After"]) >= 1


def test_our_own_error_tells_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(captcha, "challenge", broken)
    client.raise_request_exception = False

    response = client.get(f"{API}/captcha")

    assert_problem(response, 500, "internal")
    assert "secret detail" not in response.text


def test_wrong_host_is_refused_as_a_problem(client: Client) -> None:
    response = client.get(f"{API}/time", headers={"host": "evil.example"})

    assert_problem(response, 400, "bad_request")


def test_detail_is_in_the_readers_language(client: Client) -> None:
    response = client.get(f"{API}/orders", headers={"accept-language": "zh-CN,zh;q=0.9"})

    assert response.json()["title"] == "请先登录"
    assert response["Content-Language"] == "zh-hans"


@pytest.mark.parametrize(
    ("offered", "taken"),
    [("abc-DEF_1.23", True), ("short", False), ("x" * 65, False), ("a b c d e f", False)],
)
def test_request_id_is_taken_if_harmless(client: Client, offered: str, taken: bool) -> None:
    response = client.get(f"{API}/time", headers={"x-request-id": offered})

    assert (response["X-Request-Id"] == offered) is taken
    assert len(response["X-Request-Id"]) >= 8


def test_only_the_webhook_does_without_csrf(settings: Settings) -> None:
    """Every other writing route of the document asks for it, which the tests above check."""
    writing = {
        path
        for path, item in api.api.get_openapi_schema()["paths"].items()
        if "post" in item and not path.endswith("/purchases")
    }

    assert writing == {
        f"{API}/sales/{{sale}}/token",
        f"{API}/orders/{{order}}/pay",
        f"{API}/orders/{{order}}/cancel",
        f"{API}/payments/{{provider}}/webhook",
    }
