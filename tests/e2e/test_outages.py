"""Workers that come and go, and a broker that is away: every 202 is kept."""

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.conftest import OpenShop
from tests.e2e.shop import UNPAID, Shop
from tests.support.load import Ticket
from tests.support.params import more
from tests.support.rabbitmq import RabbitMQ
from tests.support.stack import Plan
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

BUYERS = 200


def check(shop: Shop, sale_id: int, tickets: list[Ticket]) -> None:
    shop.wait_decided(sale_id, [ticket.purchase_id for ticket in tickets])
    report = shop.rest(sale_id)
    assert shop.statuses(sale_id) == {UNPAID: len(tickets)}
    assert (report["gate"], report["allocated"]) == (1_000 - len(tickets), len(tickets))
    assert shop.check_answers(sale_id, tickets) == {"succeeded": len(tickets)}
    assert set(shop.events(sale_id).values()) == {1}
    assert shop.corrections(sale_id) == []


def stop(shop: Shop) -> None:
    shop.stack.restart("orders1")


def stop_and_kill(shop: Shop) -> None:
    """It is ending already, and has not told the broker what it has done."""
    shop.stack.send("orders1", signal.SIGTERM)
    shop.stack.restart("orders1", signal.SIGKILL)


def buy_in_parts(shop: Shop, between: Callable[[Shop], None]) -> tuple[int, list[Ticket]]:
    sale_id = shop.create_sale(1_000)
    tickets = shop.tickets(sale_id, BUYERS)
    for start in range(0, BUYERS, 40):
        load = shop.load(connections=4).run(tickets[start : start + 40])
        assert load.kinds == {"ok": 40}
        between(shop)
    return sale_id, tickets


@pytest.mark.long
def test_worker_that_is_restarted_again_and_again(shop: Shop) -> None:
    sale_id, tickets = buy_in_parts(shop, stop)

    check(shop, sale_id, tickets)


def test_worker_that_is_stopped_and_then_killed_makes_each_order_once(shop: Shop) -> None:
    sale_id, tickets = buy_in_parts(shop, stop_and_kill)

    check(shop, sale_id, tickets)


def test_worker_that_stood_still_does_no_harm(shop: Shop) -> None:
    """What it had taken is done by another meanwhile; then it does the same again."""
    sale_id = shop.create_sale(1_000)
    tickets = shop.tickets(sale_id, BUYERS)
    load = shop.load(connections=4).start(tickets)
    wait_until(lambda: load.kinds["ok"] > 20, 30)
    shop.stack.pause("orders1")
    try:
        assert load.finish().kinds == {"ok": BUYERS}
        shop.wait_decided(sale_id, [ticket.purchase_id for ticket in tickets])
    finally:
        shop.stack.resume("orders1")

    check(shop, sale_id, tickets)


@pytest.mark.long
def test_worker_that_stands_still_in_a_transaction_keeps_no_rows(
    open_shop: OpenShop, tmp_path: Path
) -> None:
    """The database ends what holds up others; the worker that wakes up again does its work anew."""
    marker = tmp_path / "held"
    held = {"SECKILL_TESTING": "1", "FAULTPOINTS": f"in_create!hold={marker}"}
    with open_shop(Plan(web=1, workers=2), **held) as shop:
        sale_id = shop.create_sale(1_000)
        tickets = shop.tickets(sale_id, BUYERS)
        assert shop.load(connections=4).run(tickets).kinds == {"ok": BUYERS}

        shop.wait_decided(sale_id, [ticket.purchase_id for ticket in tickets])

        assert marker.exists()
        marker.unlink()
        check(shop, sale_id, tickets)


def restart(shop: Shop, rabbitmq: RabbitMQ) -> None:
    rabbitmq.restart()


def die(shop: Shop, rabbitmq: RabbitMQ) -> None:
    rabbitmq.kill()
    rabbitmq.start()


def stand_still(shop: Shop, rabbitmq: RabbitMQ) -> None:
    rabbitmq.pause()
    time.sleep(5)
    rabbitmq.resume()


def run_out_of_memory(shop: Shop, rabbitmq: RabbitMQ) -> None:
    """It takes no message any more, and answers nothing to who sends one."""
    rabbitmq.ctl("set_vm_memory_high_watermark", "0.0000001")
    time.sleep(5)
    rabbitmq.ctl("set_vm_memory_high_watermark", "0.4")


def run_out_of_disk(shop: Shop, rabbitmq: RabbitMQ) -> None:
    rabbitmq.ctl("set_disk_free_limit", "100000GB")
    time.sleep(5)
    rabbitmq.ctl("set_disk_free_limit", "50MB")


def lose_everything(shop: Shop, rabbitmq: RabbitMQ) -> None:
    """All queues and messages, and every connection with them."""
    rabbitmq.ctl("delete_vhost", shop.vhost)
    time.sleep(5)
    rabbitmq.create_vhost(shop.vhost)


TROUBLES = (stand_still, *more(restart, die, run_out_of_memory, run_out_of_disk, lose_everything))


@pytest.mark.parametrize("trouble", TROUBLES)
def test_broker_that_is_away_during_buys(
    shop: Shop, rabbitmq: RabbitMQ, trouble: Callable[[Shop, RabbitMQ], None]
) -> None:
    sale_id = shop.create_sale(1_000)
    tickets = shop.tickets(sale_id, 1_000)
    bought = 0
    with ThreadPoolExecutor(1) as executor:
        over = executor.submit(trouble, shop, rabbitmq)
        while not over.done() and bought < len(tickets):
            load = shop.load(connections=5).run(tickets[bought : bought + 10])
            assert load.kinds == {"ok": 10}, load.describe()
            assert max(a.seconds for answers in load.answers.values() for a in answers) < 3
            bought += 10
            time.sleep(0.2)
        over.result()

    assert bought >= 100
    check(shop, sale_id, tickets[:bought])
