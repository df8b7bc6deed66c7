"""The pages as a browser without scripts meets them."""

import re
import uuid
from typing import Any

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries
from redis.exceptions import ConnectionError as RedisConnectionError

from inventory.gate import Admission
from inventory.models import FlashSale
from orders.models import Order, Rejection, Status
from seckill import services, views
from seckill.microcache import CSRF_MARKER
from tests.factories import FlashSaleFactory, OrderFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True)
    return made


def answers(monkeypatch: pytest.MonkeyPatch, admission: Admission, **more: Any) -> uuid.UUID:
    """Make the service admit or refuse in one way; returns the purchase id that it tells."""
    purchase_id = uuid_utils.compat.uuid7()
    told = services.Purchase(purchase_id, admission, **more)
    monkeypatch.setattr(services, "purchase", lambda **kwargs: told)
    return purchase_id


# --- public pages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/sales/{sale}/", "/problems/sold_out/"])
def test_public_page_is_the_same_for_everybody(
    signed_in: Client, sale: FlashSale, path: str
) -> None:
    address = path.format(sale=sale.pk)

    mine, theirs = signed_in.get(address), Client().get(address)

    assert mine.content == theirs.content
    assert mine["Cache-Control"] == "public, max-age=1"
    assert "Cookie" not in mine["Vary"]
    assert not mine.cookies
    assert "nonce" not in mine["Content-Security-Policy"]


def test_public_page_marks_where_tokens_belong(client: Client, sale: FlashSale) -> None:
    page = client.get(f"/sales/{sale.pk}/").text

    assert page.count(f'name="csrfmiddlewaretoken" value="{CSRF_MARKER}"') == 2  # buy, language
    assert page.count("csrfmiddlewaretoken") == 2


@pytest.mark.parametrize("number", [1, 3])
def test_sale_list_takes_one_query_however_many(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries, number: int
) -> None:
    sales = FlashSaleFactory.create_batch(number)

    with django_assert_num_queries(1):
        page = client.get("/").text

    assert all(sale.product.name in page for sale in sales)


def test_sale_page_takes_one_query(
    client: Client, sale: FlashSale, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        client.get(f"/sales/{sale.pk}/")


@pytest.mark.parametrize(
    ("traits", "text"),
    [
        ({}, "Buy now"),
        ({"scheduled": True}, "Starts"),
        ({"paused": True}, "Paused"),
        ({"allocated": 10}, "Sold out"),
        ({"closed": True}, "Over"),
    ],
)
def test_sale_page_says_how_it_stands(client: Client, traits: dict[str, Any], text: str) -> None:
    sale = FlashSaleFactory(**traits)

    page = client.get(f"/sales/{sale.pk}/").text

    assert text in page
    assert (f'action="/sales/{sale.pk}/buy/"' in page) is (text != "Over")


@pytest.mark.parametrize("sale_id", ["0", "999", "x", str(2**63), "9" * 100])
def test_sale_page_that_is_not_there(client: Client, sale_id: str) -> None:
    assert client.get(f"/sales/{sale_id}/").status_code == 404


def test_sale_page_shows_what_staff_typed_as_text(client: Client) -> None:
    sale = FlashSaleFactory(product__name="<img src=x onerror=alert(1)>{{ 7 }}")

    page = client.get(f"/sales/{sale.pk}/").text

    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;{{ 7 }}" in page


@pytest.mark.parametrize("path", ["/", "/sales/{sale}/", "/login/", "/register/", "/nothing"])
def test_page_has_nothing_inline_and_nothing_from_elsewhere(
    client: Client, sale: FlashSale, path: str
) -> None:
    response = client.get(path.format(sale=sale.pk))

    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", response.text)
    assert not re.search(r'(?:src|href|action)="(?:https?:)?//', response.text)
    assert "unsafe" not in response["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/login/", "/nothing/"])
def test_page_carries_security_headers(client: Client, path: str) -> None:
    headers = client.get(path).headers

    policy = dict(
        part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]


# --- buying ---------------------------------------------------------------------------------------


def test_buy_leads_to_the_queue_and_then_to_the_order(
    signed_in: Client, sale: FlashSale, buyer: User
) -> None:
    response = signed_in.post(f"/sales/{sale.pk}/buy/")

    queue = response["Location"]
    assert re.fullmatch(rf"/purchases/{sale.pk}/[0-9a-f-]{{36}}/", queue)
    waiting = signed_in.get(queue)
    assert '<meta http-equiv="refresh" content="3">' in waiting.text
    order = OrderFactory(id=queue.split("/")[3], sale=sale, user=buyer)
    assert signed_in.get(queue)["Location"] == f"/orders/{order.pk}/"


def test_buy_again_leads_to_the_same_purchase(signed_in: Client, sale: FlashSale) -> None:
    addresses = {signed_in.post(f"/sales/{sale.pk}/buy/")["Location"] for _ in range(3)}

    assert len(addresses) == 1


def test_buy_leads_a_buyer_with_an_order_to_it(
    signed_in: Client, sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    order_id = answers(monkeypatch, Admission.ORDERED)

    assert signed_in.post(f"/sales/{sale.pk}/buy/")["Location"] == f"/orders/{order_id}/"


REFUSALS = [
    (Admission.SOLD_OUT, 409, "Sold out"),
    (Admission.NOT_OPEN, 403, "Not open yet"),
    (Admission.CLOSED, 410, "Sale over"),
    (Admission.PAUSED, 503, "Sale paused"),
    (Admission.THROTTLED, 429, "Too many tries"),
    (Admission.QUANTITY, 422, "Quantity not allowed"),
    (Admission.REBUY, 409, "No second try"),
    (Admission.NOT_PRIMED, 503, "Not available just now"),
]


@pytest.mark.parametrize(("admission", "status", "text"), REFUSALS)
def test_buy_says_plainly_why_not(
    signed_in: Client,
    sale: FlashSale,
    monkeypatch: pytest.MonkeyPatch,
    admission: Admission,
    status: int,
    text: str,
) -> None:
    answers(monkeypatch, admission, retry_after=7.0 if status == 429 else None)

    response = signed_in.post(f"/sales/{sale.pk}/buy/")

    assert (response.status_code, text in response.text) == (status, True)
    assert f'href="/sales/{sale.pk}/"' in response.text
    assert "no-store" in response["Cache-Control"]
    if status == 429:
        assert response["Retry-After"] == "7"
        assert "Try again in 7 seconds." in response.text


def test_buy_has_an_answer_to_every_admission() -> None:
    goes_on = {Admission.RESERVED, Admission.QUEUED, Admission.ORDERED, Admission.ENDED}

    assert set(views.REFUSALS) == set(Admission) - goes_on


@pytest.mark.parametrize("quantity", ["-1", "0.5", "abc", "1e9", "99999", "NaN", "0"])
def test_buy_takes_whole_numbers_only(signed_in: Client, sale: FlashSale, quantity: str) -> None:
    response = signed_in.post(f"/sales/{sale.pk}/buy/", {"quantity": quantity})

    assert response.status_code == 422
    sale.refresh_from_db()
    assert sale.allocated == 0


def test_buy_sends_strangers_to_sign_in_and_back(client: Client, sale: FlashSale) -> None:
    response = client.post(f"/sales/{sale.pk}/buy/")

    assert response["Location"] == f"/login/?next=/sales/{sale.pk}/"


def test_buy_is_not_done_by_a_link(signed_in: Client, sale: FlashSale) -> None:
    assert signed_in.get(f"/sales/{sale.pk}/buy/")["Location"] == f"/sales/{sale.pk}/"
    assert "You have no orders yet" in signed_in.get("/orders/").text


@pytest.mark.parametrize(
    "path", ["/sales/{sale}/buy/", "/orders/{order}/pay/", "/orders/{order}/cancel/", "/logout/"]
)
def test_forms_need_a_csrf_token(path: str) -> None:
    order = OrderFactory()
    client = Client(enforce_csrf_checks=True)
    client.force_login(order.user)

    response = client.post(path.format(sale=order.sale_id, order=order.pk))

    assert (response.status_code, "Request not trusted" in response.text) == (403, True)
    assert Order.objects.get(pk=order.pk).status == Status.UNPAID


def test_lost_back_end_is_a_page_that_says_come_again(
    signed_in: Client, sale: FlashSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**kwargs: object) -> None:
        raise RedisConnectionError("away")

    monkeypatch.setattr(services, "purchase", away)

    response = signed_in.post(f"/sales/{sale.pk}/buy/")

    assert (response.status_code, int(response["Retry-After"])) == (503, 2)
    assert "Not available just now" in response.text


# --- the queue page -------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [code for code, _ in Rejection.choices])
def test_purchase_that_failed_says_why_and_leads_back(
    signed_in: Client, buyer: User, cause: str
) -> None:
    order = OrderFactory(user=buyer, rejected=True, code=cause)

    response = signed_in.get(f"/purchases/{order.sale_id}/{order.pk}/")

    assert response.status_code == 200
    assert "You did not get one this time" in response.text
    assert '<a class="button" href="/">' in response.text


@pytest.mark.parametrize("purchase_id", [uuid.UUID(int=1), uuid.UUID(int=0)])
def test_purchase_that_nobody_knows(
    signed_in: Client, sale: FlashSale, purchase_id: uuid.UUID
) -> None:
    assert signed_in.get(f"/purchases/{sale.pk}/{purchase_id}/").status_code == 404


def test_purchase_made_this_moment_is_looked_for(signed_in: Client, sale: FlashSale) -> None:
    response = signed_in.get(f"/purchases/{sale.pk}/{uuid_utils.compat.uuid7()}/")

    assert (response.status_code, 'id="queue"' in response.text) == (200, True)


def test_purchase_of_another_buyer_shows_nothing(signed_in: Client) -> None:
    order = OrderFactory()

    response = signed_in.get(f"/purchases/{order.sale_id}/{order.pk}/")

    # A fresh id may still turn up, so it looks as if it was being looked for.
    assert "Location" not in response
    assert order.product_name not in response.text
