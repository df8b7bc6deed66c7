"""Workers that are deaf, that die of what they do, and that meet messages they don't know."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from config.pulse import FAILED, queue_of
from tests.e2e.conftest import OpenShop, revived
from tests.e2e.shop import EXPIRED, REJECTED, UNPAID, Shop
from tests.support.load import Ticket
from tests.support.processes import this_run
from tests.support.rabbitmq import RabbitMQ
from tests.support.redis_server import RedisServer
from tests.support.stack import Plan
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

POISONED = "tests.e2e.poisoned"


@pytest.fixture(scope="module")
def poison() -> Path:
    """Where the users stand whose purchases kill the worker."""
    path = this_run().folder("poison") / "users"
    path.touch()
    return path


@pytest.fixture(scope="module")
def _small_shop(open_shop: OpenShop, poison: Path) -> Iterator[Shop]:
    settings = {"ADMIT_RETRY_AFTER": "0.5", "WORKER_DEAF_AFTER": "4", "POISON": str(poison)}
    with open_shop(Plan(web=1, workers=1), **settings) as shop:
        worker = shop.stack.members["orders1"]
        worker.arguments = [POISONED if part == "config" else part for part in worker.arguments]
        shop.stack.restart("orders1")
        yield shop


@pytest.fixture
def shop(_small_shop: Shop) -> Shop:
    return revived(_small_shop)


def buy(shop: Shop, tickets: list[Ticket]) -> None:
    load = shop.load(connections=1).run(tickets)
    assert load.kinds == {"ok": len(tickets)}, load.describe()


def check(shop: Shop, sale_id: int, tickets: list[Ticket]) -> None:
    shop.wait_decided(sale_id, [ticket.purchase_id for ticket in tickets])
    assert shop.statuses(sale_id) == {UNPAID: len(tickets)}
    assert shop.rest(sale_id)["allocated"] == len(tickets)


def remote(shop: Shop) -> Celery:
    """Tells workers what to do, as an operator would."""
    return Celery(broker=shop.stack.environment["CELERY_BROKER_URL"], set_as_current=False)


def names(app: Celery) -> list[str]:
    """Of the workers that answer."""
    replies = app.control.ping(timeout=1) or []
    return [name for reply in replies for name in reply]


def test_worker_that_is_deaf_ends_and_its_successor_works(shop: Shop) -> None:
    """It is connected and answers, but takes no messages: as after some breaks of connections."""
    sale_id = shop.create_sale(100)
    tickets = shop.tickets(sale_id, 10)
    app = remote(shop)
    [worker] = wait_until(lambda: [n for n in names(app) if n.startswith("orders1@")], 30)

    for queue in ("orders", "sweeps", queue_of(worker)):
        app.control.cancel_consumer(queue, destination=[worker], reply=True, timeout=5)
    buy(shop, tickets)
    assert worker in names(app)
    assert not shop.decided(sale_id)

    process = shop.stack.members["orders1"].process
    assert process is not None
    assert process.wait(timeout=60) == FAILED
    assert shop.stack.relaunch() == ["orders1"]
    check(shop, sale_id, tickets)


@pytest.mark.long
def test_worker_whose_broker_was_killed_works_again(
    open_shop: OpenShop, own_redis: RedisServer
) -> None:
    """Over Redis a worker may also end at its first try to connect again; a supervisor helps."""
    plan = Plan(web=1, workers=1)
    with open_shop(plan, CELERY_BROKER_URL=own_redis.url, WORKER_DEAF_AFTER="10") as shop:
        sale_id = shop.create_sale(100)
        tickets = shop.tickets(sale_id, 40)
        buy(shop, tickets[:20])

        own_redis.kill()
        buy(shop, tickets[20:])
        own_redis.start()

        def all_decided() -> bool:
            shop.stack.relaunch()
            return len(shop.decided(sale_id)) == len(tickets)

        wait_until(all_decided, 60, 0.5)
        check(shop, sale_id, tickets)


@pytest.mark.long
def test_purchase_that_kills_its_worker_is_rejected_alone(shop: Shop, poison: Path) -> None:
    sale_id = shop.create_sale(100)
    tickets = shop.tickets(sale_id, 10)
    bad, *good = tickets
    poison.write_text(f"{bad.user_id}\n")

    try:
        buy(shop, tickets)
        shop.wait_decided(sale_id, [ticket.purchase_id for ticket in good])
        wait_until(lambda: bad.purchase_id in shop.decided(sale_id), 90, 0.5)
    finally:
        poison.write_text("")

    assert shop.decided(sale_id)[bad.purchase_id] == (REJECTED, "failed")
    report = shop.rest(sale_id)
    assert shop.statuses(sale_id) == {UNPAID: 9, REJECTED: 1}
    assert (report["gate"], report["allocated"]) == (91, 9)
    assert shop.check_answers(sale_id, tickets) == {"succeeded": 9, "failed": 1}


def test_messages_of_another_version_cost_nothing(shop: Shop) -> None:
    """A worker of an older version meets what a newer one would understand."""
    assert shop.rabbitmq is not None
    sale_id = shop.create_sale(100)
    tickets = shop.tickets(sale_id, 5)
    shop.stack.kill("orders1")
    buy(shop, tickets)
    shop.rabbitmq.purge("orders", vhost=shop.vhost)
    entries = [[ticket.purchase_id, ticket.user_id, 1] for ticket in tickets]
    shop.queue("create_orders_99", sale_id, entries, queue="orders")
    shop.queue("create_orders", sale_id, entries, {"v": 99}, queue="orders")
    shop.queue("create_orders", sale_id, {"v": 99, "entries": entries}, queue="orders")

    shop.stack.launch("orders1")

    check(shop, sale_id, tickets)
    assert shop.rabbitmq.depth("orders", vhost=shop.vhost) == 0
    assert shop.stack.members["orders1"].is_running


@pytest.fixture
def hasty_broker(rabbitmq: RabbitMQ) -> Iterator[RabbitMQ]:
    """It closes a channel when a message waits for longer than a second to be acknowledged."""
    usual = {"consumer_timeout": "1800000", "channel_tick_interval": "60000"}
    set_env = "application:set_env(rabbit, {}, {})."
    for name, value in (("consumer_timeout", "1000"), ("channel_tick_interval", "500")):
        rabbitmq.ctl("eval", set_env.format(name, value))
    yield rabbitmq
    for name, value in usual.items():
        rabbitmq.ctl("eval", set_env.format(name, value))


@pytest.mark.long
@pytest.mark.usefixtures("hasty_broker")
def test_timers_outlive_a_broker_that_closes_their_channel(open_shop: OpenShop) -> None:
    """They wait with their worker, unacknowledged, until their time has come."""
    with open_shop(Plan(web=1, workers=1), PAYMENT_WINDOW="8") as shop:
        sale_id = shop.create_sale(20)
        tickets = shop.tickets(sale_id, 20)
        buy(shop, tickets)
        shop.wait_decided(sale_id, [ticket.purchase_id for ticket in tickets])

        def all_expired() -> bool:
            shop.stack.relaunch()
            return shop.statuses(sale_id) == {EXPIRED: 20}

        wait_until(all_expired, 60, 0.2)
        report = shop.rest(sale_id)
        assert (report["gate"], report["allocated"]) == (20, 0)
        assert set(shop.events(sale_id).values()) == {1}
        # It did happen, and the worker is there again.
        assert "PRECONDITION_FAILED" in shop.stack.members["timers"].log.read_text()
        wait_until(lambda: any(n.startswith("timers@") for n in names(remote(shop))), 60, 0.5)
