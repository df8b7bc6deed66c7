"""Redis fails in the middle of a sale: it dies, forgets the latest, throws away, refuses writes."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.e2e.conftest import OpenShop, revived
from tests.e2e.shop import UNPAID, Shop
from tests.support.load import Answer, Load
from tests.support.params import more
from tests.support.rabbitmq import RabbitMQ
from tests.support.stack import Plan
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

UNITS, BUYERS = 2_000, 3_000
PAUSE = 2.0  # seconds that a refusal lasts


@pytest.fixture(scope="module")
def _forgetful_shop(open_shop: OpenShop) -> Iterator[Shop]:
    """Its Redis keeps what it was told to save, and no more."""
    with open_shop(Plan(web=2, workers=1), append_only=False) as shop:
        yield shop


@pytest.fixture
def shop(_forgetful_shop: Shop, rabbitmq: RabbitMQ) -> Shop:
    return revived(_forgetful_shop)


def die(shop: Shop, _load: Load) -> None:
    shop.redis_server.kill()
    shop.redis_server.start()


def roll_back(shop: Shop, load: Load) -> None:
    """What came after the last snapshot is gone: units that were sold are back."""
    shop.redis.save()
    enough = load.kinds["ok"] + 300
    wait_until(lambda: load.kinds["ok"] > enough, 30)
    die(shop, load)


def throw_away(shop: Shop, _load: Load) -> None:
    shop.redis.config_set("maxmemory-policy", "allkeys-lru")
    shop.redis.config_set("maxmemory", 1)
    wait_until(lambda: shop.redis.dbsize() == 0, 10)
    shop.redis.config_set("maxmemory", 0)
    shop.redis.config_set("maxmemory-policy", "noeviction")


def forbid_writes(shop: Shop, _load: Load) -> None:
    shop.redis.execute_command("ACL", "SETUSER", "default", "-@write")
    time.sleep(PAUSE)
    shop.redis.execute_command("ACL", "SETUSER", "default", "+@all")


def lose_the_replica(shop: Shop, _load: Load) -> None:
    shop.redis.config_set("min-replicas-to-write", 1)
    time.sleep(PAUSE)
    shop.redis.config_set("min-replicas-to-write", 0)


def not_in(answer: Answer) -> bool:
    return answer.kind != "ok"


def has_accepted(load: Load, enough: int) -> bool:
    return load.kinds["ok"] > enough


@pytest.mark.parametrize(
    "trouble", [roll_back, *more(die, throw_away, forbid_writes, lose_the_replica)]
)
def test_redis_that_fails_in_a_burst(shop: Shop, trouble: Callable[[Shop, Load], None]) -> None:
    sale_id = shop.create_sale(UNITS)
    load = shop.load(again=not_in, lasting=90, connections=16)
    load.start(shop.tickets(sale_id, BUYERS))
    wait_until(partial(has_accepted, load, 300), 30)
    assert load.kinds["ok"] < UNITS

    trouble(shop, load)

    # Those who were refused keep trying until the database has no unit left.
    wait_until(lambda: shop.statuses(sale_id)[UNPAID] == UNITS, 90, 0.2)
    load.stop()
    accepted = load.accepted()
    shop.wait_decided(sale_id, accepted)
    report = shop.rest(sale_id)
    assert (report["gate"], report["available"], report["allocated"]) == (0, 0, UNITS)
    assert load.codes().keys() <= {"", "sold_out", "unavailable"}
    assert shop.check_answers(sale_id, accepted.values())["succeeded"] == UNITS
    assert set(shop.events(sale_id).values()) == {1}
