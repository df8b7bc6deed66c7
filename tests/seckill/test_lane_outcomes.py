"""Asking for the outcome of a purchase: who is told what, and how long he waits for it."""

import uuid
from datetime import timedelta

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from inventory import gate
from inventory.models import FlashSale
from orders.models import Order, Rejection, Status
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.seckill.conftest import Shop, bearer, token_for
from tests.support.waiting import wait_until

NOBODYS = uuid.UUID(int=1)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True, quantity=10)
    return made


# --- asking for the outcome -----------------------------------------------------------------------


def test_outcome_while_queued(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)

    answer = shop.outcome(sale.pk, purchase_id, token)

    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {
        "purchase_id": str(purchase_id),
        "status": "queued",
        "code": None,
        "message": None,
        "order": None,
        "poll_after_ms": 400,
    }


def test_outcome_of_an_order(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    shop.broker.work()

    answer = shop.outcome(sale.pk, purchase_id, token)

    told = answer.json
    order = told.pop("order")
    assert told == {
        "purchase_id": str(purchase_id),
        "status": "succeeded",
        "code": None,
        "message": None,
        "poll_after_ms": 0,
    }
    assert (order["id"], order["status"], order["amount"]) == (str(purchase_id), "unpaid", "9.90")


@pytest.mark.parametrize("in_gate", [True, False])
def test_outcome_of_a_failure(shop: Shop, sale: FlashSale, buyer: User, in_gate: bool) -> None:
    order = OrderFactory(sale=sale, user=buyer, rejected=True, code=Rejection.DUPLICATE)
    if in_gate:
        gate.settle(sale.pk, [gate.Settlement(str(order.pk), buyer.pk, "duplicate")])

    answer = shop.outcome(sale.pk, order.pk, token_for(sale, buyer, order.pk))

    assert answer.json == {
        "purchase_id": str(order.pk),
        "status": "failed",
        "code": "duplicate",
        "message": str(Rejection.DUPLICATE.label),
        "order": None,
        "poll_after_ms": 0,
    }


def test_outcome_is_the_same_by_head(shop: Shop, sale: FlashSale, buyer: User) -> None:
    order = OrderFactory(sale=sale, user=buyer)
    target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}"
    headers = bearer(token_for(sale, buyer)) | {"X-Request-Id": "the-same-id"}

    get, head = (shop.ask(method, target, headers=headers) for method in ("GET", "HEAD"))

    assert head == (200, get.headers, b"")


def foreign_purchases(sale: FlashSale, other: User) -> dict[str, uuid.UUID]:
    """By how it stands: what another buyer has, or nobody."""
    queued = uuid_utils.compat.uuid7()
    gate.reserve(sale.pk, [gate.Entry(other.pk, str(queued))])
    failed = OrderFactory(sale=sale, user=other, rejected=True).pk
    gate.settle(sale.pk, [gate.Settlement(str(failed), other.pk, "sold_out")])
    return {
        "queued": queued,
        "ordered": OrderFactory(sale=sale, user=UserFactory()).pk,
        "failed": failed,
        "of my other sale": OrderFactory(user=other).pk,
        "unknown": uuid_utils.compat.uuid7(),
    }


def test_another_buyers_purchase_is_not_found(shop: Shop, sale: FlashSale, buyer: User) -> None:
    token = token_for(sale, buyer)

    for name, purchase_id in foreign_purchases(sale, UserFactory()).items():
        answer = shop.outcome(sale.pk, purchase_id, token, "?wait=5")

        assert (name, answer.status, answer.code) == (name, 404, "not_found")


def test_purchase_ids_that_are_none(shop: Shop, sale: FlashSale) -> None:
    token = bearer(token_for(sale, 1))

    for purchase_id in ("", "x", "0" * 32, "é" * 36, str(NOBODYS) + "0", "A" * 36):
        target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}"
        assert shop.ask("GET", target, headers=token).status == 404


def test_outcome_needs_a_token_or_a_session(shop: Shop, sale: FlashSale) -> None:
    target = f"/api/v1/sales/{sale.pk}/purchases/{NOBODYS}"

    nobody = shop.ask("GET", target)
    stale = shop.ask("GET", target, headers={"Cookie": "sessionid=nonsense"})
    wrong = shop.ask("GET", target, headers=bearer("wrong"))

    assert (nobody.status, nobody.code) == (stale.status, stale.code) == (401, "login_required")
    assert nobody.headers["www-authenticate"] == "Bearer"
    assert (wrong.status, wrong.code) == (403, "token_invalid")


def test_session_is_as_good_as_a_token(shop: Shop, sale: FlashSale, buyer: User) -> None:
    order = OrderFactory(sale=sale, user=buyer)
    browsers = [Client(), Client()]
    browsers[0].force_login(buyer)
    browsers[1].force_login(UserFactory())
    target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}"

    mine, theirs = (
        shop.ask("GET", target, headers={"Cookie": f"sessionid={b.cookies['sessionid'].value}"})
        for b in browsers
    )

    assert (mine.status, mine.json["status"]) == (200, "succeeded")
    assert theirs.status == 404


# --- the long poll --------------------------------------------------------------------------------


def test_long_poll_ends_with_the_state_as_it_is(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    begun = timezone.now()

    answer = shop.outcome(sale.pk, purchase_id, token, "?wait=0.5")

    assert answer.json["status"] == "queued"
    assert timedelta(seconds=0.5) <= timezone.now() - begun < timedelta(seconds=2)


def test_long_poll_of_what_has_ended_returns_at_once(
    shop: Shop, sale: FlashSale, buyer: User
) -> None:
    order = OrderFactory(sale=sale, user=buyer)
    target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}?wait=10"

    future = shop.start("GET", target, headers=bearer(token_for(sale, buyer)))[1]

    assert future.result(2).json["status"] == "succeeded"


def test_long_polls_all_hear_of_the_outcome(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}?wait=10"
    futures = [shop.start("GET", target, headers=bearer(token))[1] for _ in range(5)]
    wait_until(lambda: shop.host.tasks() >= 5)
    assert not any(future.done() for future in futures)

    shop.broker.work()

    statuses = [future.result(3).json["status"] for future in futures]
    assert statuses == ["succeeded"] * 5
    wait_until(lambda: shop.host.tasks() == 0)


def test_long_poll_ends_when_its_client_goes(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}?wait=10"
    (gone, first), (_, second) = (
        shop.start("GET", target, headers=bearer(token)) for _ in range(2)
    )
    wait_until(lambda: shop.host.tasks() >= 5)

    shop.host.loop.call_soon_threadsafe(gone.left.set)

    first.result(2)
    assert not second.done()
    shop.broker.work()
    assert second.result(3).json["status"] == "succeeded"
    wait_until(lambda: shop.host.tasks() == 0)


def test_long_poll_ends_when_the_process_does(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}?wait=10"
    future = shop.start("GET", target, headers=bearer(token))[1]
    wait_until(lambda: shop.host.tasks() >= 3)

    shop.host.call(shop.lane.close())

    assert future.result(1).json["status"] == "queued"
    assert shop.buy(sale.pk, token).code == "unavailable"


def test_rejected_order_of_a_deleted_buyer_is_nobodys(shop: Shop, sale: FlashSale) -> None:
    order = OrderFactory(sale=sale, user=None, rejected=True)

    answer = shop.outcome(sale.pk, order.pk, token_for(sale, UserFactory()))

    assert answer.status == 404
    assert Order.objects.get().status == Status.REJECTED
