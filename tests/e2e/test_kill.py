"""kill -9 at every step of a purchase: what was promised is kept, once."""

from collections.abc import Sequence

import pytest

from tests.e2e.shop import EXPIRED, UNPAID, Shop
from tests.support.load import Load, Ticket, unknown
from tests.support.params import more
from tests.support.processes import family, is_alive
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

BUYERS, STOCK = 1_200, 1_500


def buying(shop: Shop, tickets: Sequence[Ticket]) -> Load:
    """Everybody buys, and asks again until there is an answer; returns in the middle of it."""
    load = shop.load(again=unknown, connections=16).start(tickets)
    wait_until(lambda: load.kinds["ok"] > 50, 30)
    return load


def check(shop: Shop, sale_id: int, loads: Sequence[Load]) -> None:
    """Each buyer has exactly one order, and knows it; the gate was never wrong."""
    for load in loads:
        assert load.codes().keys() <= {"", "unavailable"}
        assert load.accepted().keys() == {ticket.purchase_id for ticket in load.answers}
    accepted = dict(pair for load in loads for pair in load.accepted().items())
    shop.wait_decided(sale_id, accepted)
    report = shop.rest(sale_id)
    assert shop.statuses(sale_id) == {UNPAID: BUYERS}
    assert (report["gate"], report["allocated"]) == (STOCK - BUYERS, BUYERS)
    assert shop.check_answers(sale_id, accepted.values()) == {"succeeded": BUYERS}
    assert set(shop.events(sale_id).values()) == {1}
    assert shop.corrections(sale_id) == []


@pytest.mark.parametrize(
    "points",
    [("after_reserve", "before_publish"), ("in_create", "after_commit", "after_settle")],
    ids=["web", "worker"],
)
def test_kill_at_each_step_of_a_purchase(shop: Shop, points: Sequence[str]) -> None:
    sale_id = shop.create_sale(STOCK)
    tickets, loads = shop.tickets(sale_id, BUYERS), []
    for part, point in enumerate(points):
        load = buying(shop, tickets[part :: len(points)])

        died = shop.arm(point)

        wait_until(died.exists, 30)
        loads.append(load.finish())
    check(shop, sale_id, loads)


@pytest.mark.parametrize("point", ["after_expire_commit", *more("in_expire")])
def test_kill_in_expiry(shop: Shop, point: str) -> None:
    sale_id = shop.create_sale(STOCK)
    load = buying(shop, shop.tickets(sale_id, BUYERS)).finish()
    shop.wait_decided(sale_id, load.accepted())
    shop.wait_quiet(sale_id)
    died = shop.arm(point)

    shop.rows("UPDATE orders_order SET pay_before = now() WHERE sale_id = %s", sale_id)

    wait_until(died.exists, 30)
    wait_until(lambda: shop.statuses(sale_id) == {EXPIRED: BUYERS}, 30)
    report = shop.rest(sale_id)
    assert (report["gate"], report["allocated"]) == (STOCK, 0)
    events = shop.events(sale_id)
    assert len(events) == 2 * BUYERS
    assert set(events.values()) == {1}
    assert shop.corrections(sale_id) == []


@pytest.mark.long
def test_kill_a_web_process_during_load(shop: Shop) -> None:
    sale_id = shop.create_sale(STOCK)
    load = buying(shop, shop.tickets(sale_id, BUYERS))

    shop.stack.kill("web1")

    shop.stack.launch("web1")
    check(shop, sale_id, [load.finish()])


@pytest.mark.long
def test_kill_the_first_process_of_workers_and_beat_during_load(shop: Shop) -> None:
    """It alone: its children are left without a parent, and must not stay."""
    sale_id = shop.create_sale(STOCK)
    names = ("orders1", "timers", "beat")
    load = buying(shop, shop.tickets(sale_id, BUYERS))
    everybody = [process for name in names for process in family(shop.stack.members[name].pid)]

    for name in names:
        shop.stack.kill_first(name)

    wait_until(lambda: not any(map(is_alive, everybody)), 30)
    for name in names:
        shop.stack.launch(name)
    check(shop, sale_id, [load.finish()])
