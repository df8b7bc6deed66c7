"""What pages fetch besides themselves."""

import uuid
from datetime import datetime, timedelta

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from inventory import gate
from inventory.gate import Entry
from inventory.models import FlashSale, SaleState
from orders.models import Order, Status
from seckill import calendars, faces, mine, pictures, queueing, results, stepper
from tests.factories import FlashSaleFactory, OrderFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True)
    return made


# --- who looks ------------------------------------------------------------------------------------


def test_me_is_nobody_without_a_session(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        response = client.get("/me/?sale=1")

    assert response.json() == {"name": None, "unseen": 0, "purchase": None}
    assert "no-store" in response["Cache-Control"]


def test_me_tells_a_queued_purchase(signed_in: Client, buyer: User, sale: FlashSale) -> None:
    purchase_id = str(uuid.uuid4())
    gate.reserve(sale.pk, [Entry(buyer.pk, purchase_id)])

    told = signed_in.get(f"/me/?sale={sale.pk}").json()

    url = f"/purchases/{sale.pk}/{purchase_id}/"
    assert told["purchase"] == {"id": purchase_id, "state": "queued", "url": url}


def test_me_tells_an_order_that_the_gate_does_not_know(
    signed_in: Client, buyer: User, sale: FlashSale
) -> None:
    order = OrderFactory(user=buyer, sale=sale)

    told = signed_in.get(f"/me/?sale={sale.pk}").json()

    assert told["purchase"] == {
        "id": str(order.pk),
        "state": "ordered",
        "url": f"/orders/{order.pk}/",
    }
    assert Client().get(f"/me/?sale={sale.pk}").json()["purchase"] is None


@pytest.mark.parametrize("sale", ["", "x", "-1", "9" * 30, "٣"])
def test_me_bears_any_sale(signed_in: Client, sale: str) -> None:
    assert signed_in.get("/me/", {"sale": sale}).json()["purchase"] is None


def test_unseen_counts_each_result_until_its_owner_looked(signed_in: Client, buyer: User) -> None:
    order, refused = OrderFactory(user=buyer), OrderFactory(user=buyer, rejected=True)
    OrderFactory()

    def unseen() -> int:
        return int(signed_in.get("/me/").json()["unseen"])

    assert unseen() == 2
    signed_in.get(f"/orders/{order.pk}/")
    assert unseen() == 1
    signed_in.get(f"/purchases/{refused.sale_id}/{refused.pk}/")
    assert unseen() == 0
    type(order).objects.filter(pk=order.pk).update(status=Status.PAID, paid_at=timezone.now())
    assert unseen() == 1


def test_unseen_forgets_what_is_old(buyer: User) -> None:
    OrderFactory(user=buyer, created_at=timezone.now() - timedelta(days=2))

    assert results.unseen(buyer.pk) == 0


# --- a place in the queue -------------------------------------------------------------------------


def test_place_counts_who_waits_longer(signed_in: Client, sale: FlashSale) -> None:
    ids = [str(uuid.uuid4()) for _ in range(3)]
    for number, purchase_id in enumerate(ids, 1):
        gate.reserve(sale.pk, [Entry(10_000 + number, purchase_id)])

    places = [
        queueing.place(sale.pk, purchase_id, user_id=10_000 + number)
        for number, purchase_id in enumerate(ids, 1)
    ]

    assert sorted(place.ahead for place in places if place) == [0, 1, 2]
    assert {place.waiting for place in places if place} == {3}
    answer = signed_in.get(f"/purchases/{sale.pk}/{uuid.uuid4()}/place/").json()
    assert answer == {"ahead": None, "waiting": None}


def test_place_is_its_buyers_alone(signed_in: Client, buyer: User, sale: FlashSale) -> None:
    theirs, mine = str(uuid_utils.compat.uuid7()), str(uuid_utils.compat.uuid7())
    gate.reserve(sale.pk, [Entry(buyer.pk + 1, theirs), Entry(buyer.pk, mine)])

    assert signed_in.get(f"/purchases/{sale.pk}/{mine}/place/").json()["waiting"] == 2
    answer = signed_in.get(f"/purchases/{sale.pk}/{theirs}/place/").json()
    assert answer == {"ahead": None, "waiting": None}
    # An id made this very moment may turn up as one's own, but its place isn't told.
    assert signed_in.get(f"/purchases/{sale.pk}/{theirs}/").context["place"] is None


def test_place_is_not_for_strangers(client: Client, sale: FlashSale) -> None:
    assert client.get(f"/purchases/{sale.pk}/{uuid.uuid4()}/place/").status_code == 404


# --- pictures and calendars -----------------------------------------------------------------------


def test_picture_is_the_same_for_the_same_name(client: Client) -> None:
    address = f"/pictures/{pictures.seed('Kettle')}.svg"

    first, second = client.get(address), client.get(address)

    assert first.content == second.content
    assert first["Content-Type"] == "image/svg+xml"
    assert "immutable" in first["Cache-Control"]
    assert b"script" not in first.content


@pytest.mark.parametrize("seed", ["", "xyz", "0" * 9, "0" * 11, "ABCDEF0123"])
def test_picture_of_nothing(client: Client, seed: str) -> None:
    assert client.get(f"/pictures/{seed}.svg").status_code == 404


def test_reminder_is_a_calendar_file(client: Client) -> None:
    sale = FlashSaleFactory(scheduled=True, product__name="Tea, cups; and\nmore")

    response = client.get(f"/sales/{sale.pk}/reminder.ics")

    text = response.text
    assert response["Content-Type"].startswith("text/calendar")
    assert f"DTSTART:{sale.starts_at:%Y%m%dT%H%M%SZ}\r\n" in text
    assert "SUMMARY:Tea\\, cups\\; and\\nmore: flash sale\r\n" in text
    assert f"URL:http://testserver/sales/{sale.pk}/" in text
    assert client.get("/sales/999999/reminder.ics").status_code == 404


def test_reminder_folds_long_lines(sale: FlashSale) -> None:
    sale.product.name = "壶" * 100

    body = calendars.reminder(sale, url="http://x/", now=datetime(2026, 1, 1).astimezone())

    assert max(len(line) for line in body.split(b"\r\n")) <= 75
    assert "壶" * 100 in body.decode().replace("\r\n ", "")


# --- states ---------------------------------------------------------------------------------------


def test_states_are_for_developers(client: Client, settings: Settings) -> None:
    assert client.get("/_states/").status_code == 404
    settings.DEBUG = True

    page = client.get("/_states/").text

    assert all(f'id="{name}"' in page for name in faces.FACES)


def test_every_state_of_a_sale_has_a_face() -> None:
    shown = {faces.face_of(state) for state in SaleState}

    assert shown == {"not_started", "ready", "paused", "sold_out", "ended"}
    assert faces.face_of(SaleState.SOLD_OUT, unpaid=1) == "maybe_back"
    assert shown < set(faces.FACES)


@pytest.mark.parametrize("status", [s for s in Status if s != Status.REJECTED])
def test_every_order_has_steps_and_one_of_them_is_current(status: Status) -> None:
    assert [step.current for step in stepper.steps(status)].count(True) == 1


# --- the list of orders ---------------------------------------------------------------------------


def test_orders_are_found_by_status_name_and_number(buyer: User) -> None:
    tea = OrderFactory(user=buyer, sale__product__name="Tea pot")
    cup = OrderFactory(user=buyer, sale__product__name="Cup", paid=True)

    def found(**wanted: object) -> list[Order]:
        page = mine.orders(user_id=buyer.pk, wanted=mine.Wanted(**wanted))  # type: ignore[arg-type]
        return page.orders

    assert found(status=Status.PAID) == [cup]
    assert found(text="tea") == [tea]
    assert found(text=str(cup.pk)) == [cup]
    assert found(text=str(tea.pk)[:30]) == [tea]
    assert found(text="nothing") == []
    assert found() == [cup, tea]


@pytest.mark.parametrize("query", ["status=paid", "status=nonsense", "q=%00", "q=" + "x" * 200])
def test_order_list_bears_any_filter(signed_in: Client, query: str) -> None:
    assert signed_in.get(f"/orders/?{query}").status_code == 200


def test_order_list_shows_what_was_refused_today(signed_in: Client, buyer: User) -> None:
    refused = OrderFactory(user=buyer, rejected=True)

    assert f'href="/purchases/{refused.sale_id}/{refused.pk}/"' in signed_in.get("/orders/").text
