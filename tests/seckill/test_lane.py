"""The two hot routes as a program meets them: every answer that the contract names."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.fixtures import Settings

from inventory import gate, keys
from inventory.models import FlashSale
from inventory.services import close_sale, pause_sale
from inventory.soldout import marks
from orders.models import Order, Rejection
from orders.services import cancel_order, expire_orders
from seckill import services
from tests.factories import FlashSaleFactory, UserFactory
from tests.seckill.conftest import Shop, token_for
from tests.support.waiting import wait_until

NOBODYS = uuid.UUID(int=1)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True, quantity=10)
    return made


def stock(sale: FlashSale) -> int | None:
    return gate.stocks([sale.pk])[sale.pk]


# --- trying to buy --------------------------------------------------------------------------------


def test_purchase_is_accepted_and_queued(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()

    answer = shop.buy(sale.pk, token_for(sale, buyer, purchase_id))

    assert answer.status == 202
    assert answer.json == {
        "purchase_id": str(purchase_id),
        "status": "queued",
        "poll_after_ms": 400,
    }
    assert answer.headers["location"] == f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert "idempotent-replayed" not in answer.headers
    wait_until(lambda: shop.broker.messages)
    assert shop.broker.messages == [(sale.pk, [[str(purchase_id), buyer.pk, 1]])]
    assert stock(sale) == 9


@pytest.mark.parametrize("same_token", [True, False])
def test_purchase_asked_again_is_replayed(
    shop: Shop, sale: FlashSale, buyer: User, same_token: bool
) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    other = token if same_token else token_for(sale, buyer)
    shop.buy(sale.pk, token)

    while_queued = shop.buy(sale.pk, other)
    shop.broker.work()
    once_ordered = shop.buy(sale.pk, other)

    assert (while_queued.status, once_ordered.status) == (202, 200)
    assert while_queued.json["status"] == "queued"
    assert once_ordered.json == {
        "purchase_id": str(purchase_id),
        "status": "succeeded",
        "poll_after_ms": 0,
    }
    for answer in (while_queued, once_ordered):
        assert answer.json["purchase_id"] == str(purchase_id)
        assert answer.headers["idempotent-replayed"] == "true"
        assert answer.headers["location"].endswith(f"/{purchase_id}")
    assert stock(sale) == 9
    assert shop.broker.entries == []


def test_purchase_twice_in_one_batch_is_admitted_once(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, quantity=10, per_buyer=2)
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    json = {"Content-Type": "application/json"}

    # The first call to the gate is still under way when the others come.
    first = shop.start_buy(sale.pk, token_for(sale, UserFactory()))
    pair = [
        shop.start_buy(sale.pk, token, headers=json, body=b'{"quantity":%d}' % quantity)
        for quantity in (1, 2)
    ]
    answers = [future.result(5) for future in (first, *pair)]

    assert [answer.status for answer in answers] == [202, 202, 202]
    replayed = [answer.headers.get("idempotent-replayed") for answer in answers]
    assert replayed == [None, None, "true"]
    wait_until(lambda: len(shop.broker.entries) >= 2)
    assert shop.broker.entries[1:] == [[str(purchase_id), buyer.pk, 1]]
    assert stock(sale) == 8


def test_buyer_who_asks_a_hundred_times_at_once_has_one_order(
    shop: Shop, settings: Settings
) -> None:
    settings.PURCHASE_RATE = (1000, 1.0)
    sale, buyer = FlashSaleFactory(primed=True, quantity=100), UserFactory()

    tries = [shop.start_buy(sale.pk, token_for(sale, buyer)) for _ in range(100)]
    answers = [future.result(20) for future in tries]

    assert {answer.status for answer in answers} == {202}
    purchases = {answer.json["purchase_id"] for answer in answers}
    assert len(purchases) == 1
    shop.broker.work()
    assert {str(pk) for pk in Order.objects.values_list("pk", flat=True)} == purchases
    assert gate.stocks([sale.pk]) == {sale.pk: 99}


def test_purchase_takes_the_quantity_asked_for(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, quantity=10, per_buyer=3)

    answer = shop.buy(
        sale.pk,
        token_for(sale, buyer),
        headers={"Content-Type": "application/json; charset=UTF-8"},
        body=b'{"quantity": 3, "price": "0.01", "user_id": 1}',
    )

    assert answer.status == 202
    shop.broker.work()
    order = Order.objects.get()
    assert (order.user, order.quantity, order.unit_price_cents) == (buyer, 3, sale.price_cents)


def test_body_without_a_length_counts_in_http_2(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, per_buyer=2)

    answer = shop.buy(sale.pk, token_for(sale, buyer), body=b'{"quantity":2}', http_version="2")

    assert answer.status == 202
    assert stock(sale) == 8


def test_purchase_loads_a_gate_that_was_lost(
    shop: Shop, sale: FlashSale, buyer: User, redis_client: Any
) -> None:
    shop.buy(sale.pk, token_for(sale, UserFactory()))
    shop.broker.work()
    redis_client.flushdb()

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    assert answer.status == 202
    assert stock(sale) == 8


def test_purchase_waits_while_another_process_loads_the_gate(
    shop: Shop, buyer: User, redis_client: Any
) -> None:
    sale = FlashSaleFactory()
    redis_client.set(keys.lock(f"prime:{sale.pk}"), "somebody", px=300)

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    assert answer.status == 202


# --- refusals -------------------------------------------------------------------------------------


def refused(shop: Shop, sale: FlashSale, answer: Any, status: int, code: str) -> None:
    """It is this refusal, whose text is a person's, and nothing was taken."""
    assert (answer.status, answer.code) == (status, code)
    assert set(answer.json) >= {"type", "title", "detail", "instance"}
    assert answer.json["type"] == f"/problems/{code}/"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"] == answer.json["instance"]
    assert shop.broker.entries == []
    assert gate.snapshot(sale.pk).claims == {}


def test_no_token_is_refused(shop: Shop, sale: FlashSale) -> None:
    for header in ("", "Basic dTpw", "Token x", "bear er"):
        target = f"/api/v1/sales/{sale.pk}/purchases"
        answer = shop.ask("POST", target, headers={"Authorization": header} if header else {})

        refused(shop, sale, answer, 401, "token_required")
        assert answer.headers["www-authenticate"] == "Bearer"


def wrong_tokens(sale: FlashSale, buyer: User) -> dict[str, str]:
    good = token_for(sale, buyer)
    return {
        "empty": "",
        "cut": good[:-1],
        "longer": good + "A",
        "upper case": good.upper(),
        "path": "../../" + good[6:],
        "not ASCII": "é" * 76,
        "huge": "A" * 1_000_000,
        "of another sale": token_for(FlashSaleFactory(), buyer),
        "expired": token_for(sale, buyer, lifetime=-1),
        "signature": good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
    }


def test_wrong_tokens_are_refused(shop: Shop, sale: FlashSale, buyer: User) -> None:
    for name, token in wrong_tokens(sale, buyer).items():
        answer = shop.buy(sale.pk, token)

        assert (name, answer.status, answer.code) == (name, 403, "token_invalid")
    assert stock(sale) == 10


def test_token_of_an_older_secret_is_good_as_long_as_it_is_named(
    shop: Shop, sale: FlashSale, buyer: User, settings: Settings
) -> None:
    old = settings.SECRET_KEY
    token = token_for(sale, buyer)

    settings.SECRET_KEY = "a new one " * 5
    forgotten = shop.buy(sale.pk, token)
    settings.SECRET_KEY_FALLBACKS = [old]
    remembered = shop.buy(sale.pk, token)

    assert (forgotten.status, remembered.status) == (403, 202)


def test_before_the_start_it_tells_when(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, scheduled=True)

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    refused(shop, sale, answer, 403, "not_open")
    starts_at = datetime.fromisoformat(answer.json["starts_at"])
    assert abs(starts_at - sale.starts_at) < timedelta(milliseconds=1)
    left = (sale.starts_at - timezone.now()).total_seconds()
    assert left <= int(answer.headers["retry-after"]) < left + 3


def test_after_the_end(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, closed=True)

    refused(shop, sale, shop.buy(sale.pk, token_for(sale, buyer)), 410, "closed")


def test_closed_by_staff(shop: Shop, sale: FlashSale, buyer: User) -> None:
    close_sale(sale.pk)

    refused(shop, sale, shop.buy(sale.pk, token_for(sale, buyer)), 410, "closed")


def test_paused(shop: Shop, sale: FlashSale, buyer: User) -> None:
    pause_sale(sale.pk)

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    refused(shop, sale, answer, 503, "paused")
    assert int(answer.headers["retry-after"]) >= 1


def test_sold_out(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, quantity=1, allocated=1)

    by_the_gate = shop.buy(sale.pk, token_for(sale, buyer))
    by_the_mark = shop.buy(sale.pk, token_for(sale, buyer))

    assert marks.believed() == {sale.pk: True}
    for answer in (by_the_gate, by_the_mark):
        refused(shop, sale, answer, 409, "sold_out")
        assert "retry-after" not in answer.headers


def test_too_fast(shop: Shop, sale: FlashSale, buyer: User, settings: Settings) -> None:
    settings.PURCHASE_RATE = (2, 60.0)
    token = token_for(sale, buyer)

    answers = [shop.buy(sale.pk, token) for _ in range(3)]

    assert [answer.status for answer in answers] == [202, 202, 429]
    assert answers[2].code == "rate_limited"
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30
    assert shop.buy(sale.pk, token_for(sale, UserFactory())).status == 202


def test_too_fast_over_all_processes(shop: Shop, buyer: User, settings: Settings) -> None:
    settings.PURCHASE_RATE = (2, 60.0)
    sale = FlashSaleFactory(primed=True, per_buyer=1)
    json = {"Content-Type": "application/json"}
    answers = []
    for _ in range(3):
        services.throttle.cache_clear()  # Another process, as far as the limiter tells.
        token = token_for(sale, buyer)
        answers.append(shop.buy(sale.pk, token, headers=json, body=b'{"quantity":2}'))

    assert [answer.status for answer in answers] == [422, 422, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30


def test_second_try_where_none_is_allowed(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, rebuy=False)
    shop.buy(sale.pk, token_for(sale, buyer))
    shop.broker.work()
    assert cancel_order(Order.objects.get().pk, actor=buyer.username)

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    assert (answer.status, answer.code) == (409, "rebuy_not_allowed")
    assert stock(sale) == 10


@pytest.mark.parametrize("end", ["canceled", "expired"])
def test_purchase_repeated_after_its_order_ended(
    shop: Shop, sale: FlashSale, buyer: User, end: str
) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    shop.broker.work()
    if end == "canceled":
        cancel_order(purchase_id, actor=buyer.username)
    else:
        Order.objects.update(pay_before=timezone.now() - timedelta(seconds=1))
        expire_orders()
    assert stock(sale) == 10

    again = shop.buy(sale.pk, token)
    anew = shop.buy(sale.pk, token_for(sale, buyer))

    assert (again.status, again.json["purchase_id"]) == (200, str(purchase_id))
    assert again.headers["idempotent-replayed"] == "true"
    assert shop.outcome(sale.pk, purchase_id, token).json["order"]["status"] == end
    assert anew.status == 202
    assert anew.json["purchase_id"] != str(purchase_id)


@pytest.mark.parametrize("code", list(Rejection.values))
def test_purchase_repeated_after_it_failed(
    shop: Shop, sale: FlashSale, buyer: User, code: str
) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    gate.settle(sale.pk, [gate.Settlement(str(purchase_id), buyer.pk, code)])

    answer = shop.buy(sale.pk, token)

    refused(shop, sale, answer, 410 if code == "closed" else 409, code)


def test_sale_that_is_not_there(
    shop: Shop, sale: FlashSale, buyer: User, redis_client: Any
) -> None:
    sale_id = sale.pk
    token = token_for(sale, buyer)
    gate.forget(sale_id)
    FlashSale.objects.all().delete()
    before = set(redis_client.keys())

    answer = shop.buy(sale_id, token)

    assert (answer.status, answer.code) == (404, "not_found")
    assert set(redis_client.keys()) == before
