"""The pages of a buyer's own orders, as a browser without scripts meets them."""

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from orders import notifications
from orders.models import Order, Status
from tests.factories import OrderFactory, PaymentFactory

pytestmark = pytest.mark.django_db

PAGES_OF_OWNER = ["/orders/{order}/", "/cashier/{payment}/"]


def test_order_page_is_where_frames_lead() -> None:
    order_id = uuid.uuid4()

    assert notifications.order_page(order_id) == reverse("order", args=[order_id])


def test_order_page_shows_deadline_and_ways_on(signed_in: Client, buyer: User) -> None:
    order = OrderFactory(user=buyer)

    page = signed_in.get(f"/orders/{order.pk}/").text

    assert f"{order.pay_before:%Y-%m-%d %H:%M:%S} UTC" in page
    assert f'action="/orders/{order.pk}/pay/"' in page
    assert f'action="/orders/{order.pk}/cancel/"' in page
    assert "Created" in page


@pytest.mark.parametrize("trait", ["overdue", "paid", "canceled", "expired", "refunded"])
def test_order_page_offers_no_payment_where_none_is_due(
    signed_in: Client, buyer: User, trait: str
) -> None:
    order = OrderFactory(user=buyer, **{trait: True})

    assert "/pay/" not in signed_in.get(f"/orders/{order.pk}/").text


@pytest.mark.parametrize("path", PAGES_OF_OWNER)
def test_owners_pages_are_not_found_for_others(signed_in: Client, path: str) -> None:
    payment = PaymentFactory()

    foreign = path.format(order=payment.order_id, payment=payment.pk)
    unknown = path.format(order=uuid.uuid4(), payment=uuid.uuid4())

    assert signed_in.get(foreign).status_code == 404
    assert signed_in.post(foreign).status_code in (404, 405)
    assert signed_in.get(unknown).status_code == 404
    assert Order.objects.get(pk=payment.order_id).status == Status.UNPAID


@pytest.mark.parametrize("path", ["/orders/", *PAGES_OF_OWNER, "/purchases/1/{order}/"])
def test_owners_pages_need_a_session(client: Client, path: str) -> None:
    payment = PaymentFactory()
    address = path.format(order=payment.order_id, payment=payment.pk)

    response = client.get(address)

    assert response["Location"] == f"/login/?next={address}"
    assert "no-store" in response["Cache-Control"]


def test_order_list_walks_all_pages(signed_in: Client, buyer: User) -> None:
    orders = OrderFactory.create_batch(23, user=buyer)

    first = signed_in.get("/orders/").text
    older = re.search(r'href="(\?cursor=[^"]+)"', first)
    assert older is not None
    second = signed_in.get("/orders/" + older[1]).text

    shown = set(re.findall(r'href="/orders/([0-9a-f-]{36})/"', first + second))
    assert shown == {str(order.pk) for order in orders}


@pytest.mark.parametrize("number", [1, 5])
def test_order_list_takes_three_queries_however_many(
    signed_in: Client, buyer: User, django_assert_num_queries: DjangoAssertNumQueries, number: int
) -> None:
    OrderFactory.create_batch(number, user=buyer)

    with django_assert_num_queries(3):  # the account, its orders, what was refused today
        signed_in.get("/orders/")


def test_pay_of_an_order_that_is_over_says_so(signed_in: Client, buyer: User) -> None:
    order = OrderFactory(user=buyer, expired=True)

    response = signed_in.post(f"/orders/{order.pk}/pay/")

    assert (response.status_code, "Order can&#x27;t be paid" in response.text) == (409, True)


def test_cancel_gives_the_unit_back_once(signed_in: Client, buyer: User) -> None:
    order = OrderFactory(user=buyer, sale__primed=True)

    first, second = (signed_in.post(f"/orders/{order.pk}/cancel/") for _ in range(2))

    assert (first["Location"], second.status_code) == (f"/orders/{order.pk}/", 409)
    order.sale.refresh_from_db()
    assert order.sale.allocated == 0
