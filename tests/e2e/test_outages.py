"""Workers that come and go, and a broker that is away: every 202 is kept."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.shop import UNPAID, Shop
from tests.support.load import Ticket
from tests.support.rabbitmq import RabbitMQ

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


def test_worker_that_is_restarted_again_and_again(shop: Shop) -> None:
    sale_id = shop.create_sale(1_000)
    tickets = shop.tickets(sale_id, BUYERS)
    for start in range(0, BUYERS, 40):
        load = shop.load(connections=4).run(tickets[start : start + 40])
        assert load.kinds == {"ok": 40}

        shop.stack.restart("orders1")

    check(shop, sale_id, tickets)


def restart(rabbitmq: RabbitMQ) -> None:
    rabbitmq.restart()


def stand_still(rabbitmq: RabbitMQ) -> None:
    rabbitmq.pause()
    time.sleep(5)
    rabbitmq.resume()


@pytest.mark.parametrize("trouble", [restart, stand_still])
def test_broker_that_is_away_during_buys(
    shop: Shop, rabbitmq: RabbitMQ, trouble: Callable[[RabbitMQ], None]
) -> None:
    sale_id = shop.create_sale(1_000)
    tickets = shop.tickets(sale_id, 1_000)
    bought = 0
    with ThreadPoolExecutor(1) as executor:
        over = executor.submit(trouble, rabbitmq)
        while not over.done() and bought < len(tickets):
            load = shop.load(connections=5).run(tickets[bought : bought + 10])
            assert load.kinds == {"ok": 10}, load.describe()
            assert max(a.seconds for answers in load.answers.values() for a in answers) < 3
            bought += 10
            time.sleep(0.2)
        over.result()

    assert bought >= 100
    check(shop, sale_id, tickets[:bought])
