"""Redis forgets in the middle of a sale."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.e2e.shop import UNPAID, Shop
from tests.support.load import Answer, Load
from tests.support.params import more
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

UNITS, BUYERS = 2_000, 3_000


def forget_all(shop: Shop, sale_id: int) -> None:
    shop.redis.flushall()


def forget_stock(shop: Shop, sale_id: int) -> None:
    shop.redis.delete(shop.key(sale_id, "stock"))


def has_accepted(load: Load, enough: int) -> bool:
    return load.kinds["ok"] > enough


def not_in(answer: Answer) -> bool:
    return answer.kind != "ok"


@pytest.mark.parametrize("forget", [forget_all, *more(forget_stock)])
def test_gate_that_was_lost_twice_in_a_burst(
    shop: Shop, forget: Callable[[Shop, int], None]
) -> None:
    sale_id = shop.create_sale(UNITS)
    tickets = shop.tickets(sale_id, BUYERS)
    load = shop.load(again=not_in, lasting=90).start(tickets)

    for enough in (300, 1_000):
        wait_until(partial(has_accepted, load, enough), 60)
        forget(shop, sale_id)

    # Those who were refused keep trying until the database has no unit left.
    wait_until(lambda: shop.statuses(sale_id)[UNPAID] == UNITS, 90, 0.2)
    load.stop()
    accepted = load.accepted()
    shop.wait_decided(sale_id, accepted)
    report = shop.rest(sale_id)
    assert (report["gate"], report["available"], report["allocated"]) == (0, 0, UNITS)
    assert load.codes().keys() <= {"", "sold_out", "unavailable"}
    answers = shop.check_answers(sale_id, accepted.values())
    assert answers["succeeded"] == UNITS
    assert sum(answers.values()) == len(accepted)
    assert set(shop.events(sale_id).values()) == {1}
