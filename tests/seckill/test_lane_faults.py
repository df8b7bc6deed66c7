"""The hot routes while a back end is away, hangs or refuses: answers in time, without a lie."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uuid_utils.compat
from django.db import connections
from pytest_django.fixtures import Settings

from inventory import gate, redis_clients
from inventory.models import FlashSale
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.seckill.conftest import Shop, bearer, token_for
from tests.support.asgi import Answer, Host
from tests.support.proxy import FaultProxy, Mode
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

IN_TIME = 3.0  # seconds, the contract's


@pytest.fixture
def way(own_redis: RedisServer, settings: Settings) -> Iterator[FaultProxy]:
    """The way to a Redis of this test's own."""
    with FaultProxy(own_redis.port) as proxy:
        settings.REDIS_URL = proxy.url(own_redis.url)
        redis_clients.forget()
        yield proxy
        proxy.heal()
        redis_clients.forget()


@pytest.fixture
def host(way: FaultProxy, host: Host) -> Host:
    """Made after the way, so that its connections are closed before that ends."""
    return host


@pytest.fixture
def sale(way: FaultProxy) -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True, quantity=100)
    return made


@pytest.fixture
def database_way(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """What new connections to the database go through; this thread has its own already."""
    options = connections.settings["default"]
    with FaultProxy(int(options["PORT"])) as proxy:
        connections["default"].ensure_connection()
        monkeypatch.setitem(options, "PORT", str(proxy.port))
        yield proxy
        proxy.heal()


def in_time(shop: Shop, method: str, target: str, token: str) -> Answer:
    begun = time.monotonic()
    answer = shop.ask(method, target, headers=bearer(token))
    assert time.monotonic() - begun < IN_TIME
    return answer


def unavailable(answer: Answer) -> None:
    assert (answer.status, answer.code) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1


def buys_again(shop: Shop, sale: FlashSale) -> None:
    """The fault is over: at most a moment later somebody buys."""
    wait_until(lambda: shop.buy(sale.pk, token_for(sale, UserFactory())).status == 202, 5)


@pytest.mark.parametrize("mode", ["refuse", "cut", "blackhole", "drop_reply"])
def test_redis_is_away(shop: Shop, sale: FlashSale, way: FaultProxy, mode: Mode) -> None:
    order = OrderFactory(sale=sale)
    purchases = f"/api/v1/sales/{sale.pk}/purchases"
    token = token_for(sale, order.user)
    shop.buy(sale.pk, token_for(sale, UserFactory()))
    way.set(mode)

    bought = in_time(shop, "POST", purchases, token)
    known = in_time(shop, "GET", f"{purchases}/{order.pk}", token)
    unknown = in_time(shop, "GET", f"{purchases}/{uuid_utils.compat.uuid7()}", token)

    unavailable(bought)
    assert (known.status, known.json["order"]["id"]) == (200, str(order.pk))
    unavailable(unknown)
    way.heal()
    buys_again(shop, sale)


def test_redis_is_paused(shop: Shop, sale: FlashSale, own_redis: RedisServer) -> None:
    shop.buy(sale.pk, token_for(sale, UserFactory()))
    own_redis.pause()
    try:
        purchases = f"/api/v1/sales/{sale.pk}/purchases"
        unavailable(in_time(shop, "POST", purchases, token_for(sale, UserFactory())))
    finally:
        own_redis.resume()

    buys_again(shop, sale)


def test_many_who_ask_during_a_hang_are_answered_in_time(
    shop: Shop, sale: FlashSale, way: FaultProxy
) -> None:
    order = OrderFactory(sale=sale)
    target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}"
    tokens = [token_for(sale, UserFactory()) for _ in range(10)]
    buys_again(shop, sale)
    way.set("blackhole")
    threads = threading.active_count()
    begun = time.monotonic()

    tries, questions = [], []
    for token in tokens:
        tries.append(shop.start_buy(sale.pk, token))
        headers = bearer(token_for(sale, order.user))
        questions.append(shop.start("GET", target, headers=headers)[1])
        # The later ones wait behind a call that hangs already.
        time.sleep(0.05)
    answers = [future.result(10) for future in tries]
    states = [future.result(10).status for future in questions]

    assert time.monotonic() - begun < IN_TIME + 0.5  # The last one came half a second later.
    for answer in answers:
        unavailable(answer)
    assert states == [200] * 10
    way.heal()
    buys_again(shop, sale)
    wait_until(lambda: shop.host.tasks() == 0)
    assert threading.active_count() <= threads + 4  # The pool's own, started when first needed.


def test_answer_that_was_lost_does_not_become_another_requests(
    shop: Shop, sale: FlashSale, way: FaultProxy
) -> None:
    buys_again(shop, sale)
    way.set("delay_reply", seconds=2.6)
    late = token_for(sale, UserFactory())
    unavailable(shop.buy(sale.pk, late))
    way.heal()

    purchase_id = uuid_utils.compat.uuid7()
    answer = shop.buy(sale.pk, token_for(sale, UserFactory(), purchase_id))

    assert (answer.status, answer.json["purchase_id"]) == (202, str(purchase_id))
    assert "idempotent-replayed" not in answer.headers
    # It was admitted: who asks again gets the same purchase, and only one unit was taken for it.
    again = shop.buy(sale.pk, late)
    assert (again.status, again.headers["idempotent-replayed"]) == (202, "true")
    assert gate.stocks([sale.pk]) == {sale.pk: 97}


@pytest.mark.parametrize("mode", ["drop_reply_once", "cut_reply_once", "cut_request_once"])
def test_one_lost_message_costs_nobody_anything(
    shop: Shop, sale: FlashSale, way: FaultProxy, mode: Mode
) -> None:
    buys_again(shop, sale)
    way.set(mode)

    answer = shop.buy(sale.pk, token_for(sale, UserFactory()))

    assert way.fired.is_set()
    assert answer.status == 202
    assert "idempotent-replayed" not in answer.headers
    assert gate.stocks([sale.pk]) == {sale.pk: 98}


def _no_replicas(client: Any, on: bool) -> None:
    client.config_set("min-replicas-to-write", int(on))


def _out_of_memory(client: Any, on: bool) -> None:
    client.config_set("maxmemory", 1 if on else 0)


def _not_permitted(client: Any, on: bool) -> None:
    client.acl_setuser("default", categories=["-@scripting" if on else "+@all"])


@pytest.mark.parametrize("refusal", [_no_replicas, _out_of_memory, _not_permitted])
def test_redis_that_refuses_is_unavailable_not_sold_out(
    shop: Shop, sale: FlashSale, own_redis: RedisServer, refusal: Any
) -> None:
    buys_again(shop, sale)
    with own_redis.client() as client:
        refusal(client, True)
        answer = shop.buy(sale.pk, token_for(sale, UserFactory()))
        refusal(client, False)

    unavailable(answer)
    buyer = UserFactory()
    assert shop.buy(sale.pk, token_for(sale, buyer)).status == 202
    assert gate.stocks([sale.pk]) == {sale.pk: 98}


@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["blackhole", "refuse"])
def test_database_is_away(
    shop: Shop, sale: FlashSale, database_way: FaultProxy, mode: Mode
) -> None:
    cold, buyer = FlashSaleFactory(), UserFactory()
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    purchases = f"/api/v1/sales/{sale.pk}/purchases"
    database_way.set(mode)

    bought = in_time(shop, "POST", purchases, token)
    queued = in_time(shop, "GET", f"{purchases}/{purchase_id}", token)
    unknown = in_time(shop, "GET", f"{purchases}/{uuid_utils.compat.uuid7()}", token)
    not_primed = in_time(shop, "POST", f"/api/v1/sales/{cold.pk}/purchases", token_for(cold, buyer))

    assert bought.status == 202
    assert (queued.status, queued.json["status"]) == (200, "queued")
    unavailable(unknown)
    unavailable(not_primed)
    database_way.heal()
    buys_again(shop, cold)


def test_broker_is_away_and_comes_back(shop: Shop, sale: FlashSale) -> None:
    shop.broker.down = True
    begun = time.monotonic()

    answers = [shop.buy(sale.pk, token_for(sale, UserFactory())) for _ in range(3)]

    assert [answer.status for answer in answers] == [202] * 3
    assert time.monotonic() - begun < 1
    shop.broker.down = False
    wait_until(lambda: len(shop.broker.entries) == 3)
    sent = [purchase_id for purchase_id, _, _ in shop.broker.entries]
    assert sent == [answer.json["purchase_id"] for answer in answers]


def test_broker_that_stays_away_leaves_it_to_the_sweep(
    shop: Shop, sale: FlashSale, settings: Settings
) -> None:
    settings.ADMIT_RETRY_AFTER = 0.2
    shop.broker.down = True
    purchase_id = uuid_utils.compat.uuid7()
    shop.buy(sale.pk, token_for(sale, UserFactory(), purchase_id))
    time.sleep(0.8)  # Its second try, after which the sweep would have queued it.

    shop.broker.down = False
    other = shop.buy(sale.pk, token_for(sale, UserFactory())).json["purchase_id"]

    wait_until(lambda: shop.broker.entries)
    assert [entry[0] for entry in shop.broker.entries] == [other]
    assert set(gate.snapshot(sale.pk).claims) == {str(purchase_id), other}
