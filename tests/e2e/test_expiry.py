"""Orders that nobody pays: closed in time, once, and their units are on sale again."""

import json
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from math import inf

import pytest

from tests.e2e.conftest import OpenShop, revived
from tests.e2e.shop import EXPIRED, Shop
from tests.support.load import unknown
from tests.support.postgres import Postgres
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

ORDERS = 2_000
SWEEP_INTERVAL = 1.0  # seconds; the processes of a whole shop share two cores with other tests
LONGEST = timedelta(seconds=2 * SWEEP_INTERVAL)


@pytest.fixture(scope="module")
def shop_of_this_module(open_shop: OpenShop) -> Iterator[Shop]:
    with open_shop(PAYMENT_WINDOW="3", SWEEP_INTERVAL=str(SWEEP_INTERVAL)) as shop:
        yield shop


@pytest.fixture
def impatient_shop(shop_of_this_module: Shop, postgres: Postgres, rabbitmq: RabbitMQ) -> Shop:
    return revived(shop_of_this_module)


@pytest.fixture
def sale_id(impatient_shop: Shop) -> int:
    return impatient_shop.create_sale(ORDERS)


def sell_out(shop: Shop, sale_id: int) -> None:
    load = shop.load(again=unknown).run(shop.tickets(sale_id, ORDERS))
    accepted = load.accepted()
    assert len(accepted) == ORDERS, load.codes()
    shop.wait_decided(sale_id, accepted)


def delays(shop: Shop, sale_id: int) -> list[timedelta]:
    """By how much each order outlived its deadline; ascending."""
    statement = "SELECT closed_at - pay_before FROM orders_order WHERE sale_id = %s ORDER BY 1"
    return [late for (late,) in shop.rows(statement, sale_id)]


def check_all_came_back_once(shop: Shop, sale_id: int) -> None:
    wait_until(lambda: shop.statuses(sale_id) == {EXPIRED: ORDERS}, 60, 0.2)
    report = shop.rest(sale_id)
    assert (report["gate"], report["available"]) == (ORDERS, ORDERS)
    events = shop.events(sale_id)
    assert len(events) == 2 * ORDERS
    assert set(events.values()) == {1}
    assert shop.corrections(sale_id) == []


def test_unpaid_orders_expire_in_time_and_their_units_sell_again(
    impatient_shop: Shop, sale_id: int
) -> None:
    sell_out(impatient_shop, sale_id)

    check_all_came_back_once(impatient_shop, sale_id)
    late = delays(impatient_shop, sale_id)
    assert late[0] >= timedelta(0)
    assert late[-1] <= LONGEST
    again = impatient_shop.load(again=unknown).run(impatient_shop.tickets(sale_id, 100))
    assert len(again.accepted()) == 100
    impatient_shop.wait_decided(sale_id, again.accepted())


def test_orders_expire_in_time_when_every_queue_is_lost(impatient_shop: Shop, sale_id: int) -> None:
    shop, rabbitmq = impatient_shop, impatient_shop.rabbitmq
    assert rabbitmq is not None
    shop.stack.kill("timers")  # So that no timer is with a worker, where no purge reaches it.
    sell_out(shop, sale_id)

    lost = {name: rabbitmq.purge(name, vhost=shop.vhost) for name in ("orders", "timers", "sweeps")}

    assert lost["timers"] > 0
    check_all_came_back_once(shop, sale_id)
    late = delays(shop, sale_id)
    assert late[0] >= timedelta(0)
    assert late[-1] <= LONGEST


def sweep_age(shop: Shop) -> float:
    with urllib.request.urlopen(f"{shop.stack.base_url}/readyz", timeout=5) as answer:
        age = json.loads(answer.read())["sweep_age_seconds"]
        return inf if age is None else float(age)


def test_beat_that_stands_still_is_seen_and_timers_go_on(
    impatient_shop: Shop, sale_id: int
) -> None:
    shop = impatient_shop
    wait_until(lambda: sweep_age(shop) < 2 * SWEEP_INTERVAL, 20, 0.2)
    shop.stack.pause("beat")
    try:
        sell_out(shop, sale_id)
        wait_until(lambda: shop.statuses(sale_id) == {EXPIRED: ORDERS}, 60, 0.2)
        wait_until(lambda: sweep_age(shop) > 3 * SWEEP_INTERVAL, 20, 0.2)
    finally:
        shop.stack.resume("beat")

    wait_until(lambda: sweep_age(shop) < 2 * SWEEP_INTERVAL, 20, 0.2)
    check_all_came_back_once(shop, sale_id)


@pytest.mark.long
def test_timers_and_sweeps_at_the_same_moment_expire_each_order_once(
    impatient_shop: Shop, sale_id: int
) -> None:
    shop = impatient_shop
    shop.stack.kill("timers")
    shop.stack.pause("beat")
    try:
        sell_out(shop, sale_id)
        due = "SELECT bool_and(pay_before < now()) FROM orders_order WHERE sale_id = %s"
        wait_until(lambda: shop.rows(due, sale_id) == [(True,)], 30)
        for _ in range(10):
            shop.queue("expire_orders", queue="timers")
            shop.queue("sweep_expired", queue="sweeps")
    finally:
        shop.stack.resume("beat")
        shop.stack.launch("timers")

    check_all_came_back_once(shop, sale_id)
