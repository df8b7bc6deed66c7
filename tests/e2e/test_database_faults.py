"""PostgreSQL fails in the middle of a sale: buying goes on, and every order is made afterwards."""

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from urllib.parse import urlsplit

import psycopg2
import pytest

from tests.e2e.conftest import OpenShop, revived
from tests.e2e.shop import UNPAID, Shop
from tests.support.load import Load, Ticket
from tests.support.params import more
from tests.support.postgres import Postgres
from tests.support.rabbitmq import RabbitMQ
from tests.support.stack import Plan
from tests.support.waiting import HOST, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

BUYERS = 600
LASTING = 4.0  # seconds
RECOVERY = 10.0  # seconds until pages are there again, without a restart of anything


@pytest.fixture(scope="module")
def _small_shop(open_shop: OpenShop) -> Iterator[Shop]:
    with open_shop(Plan(web=1, workers=1)) as shop:
        yield shop


@pytest.fixture
def shop(_small_shop: Shop, postgres: Postgres, rabbitmq: RabbitMQ) -> Shop:
    return revived(_small_shop)


def database(shop: Shop) -> str:
    return urlsplit(shop.stack.environment["DATABASE_URL"]).path[1:]


def end_sessions(shop: Shop, postgres: Postgres) -> None:
    """All of them, twice a second."""
    until = time.monotonic() + LASTING
    while time.monotonic() < until:
        postgres.terminate_connections(database(shop))
        time.sleep(0.5)


def die(shop: Shop, postgres: Postgres) -> None:
    postgres.kill()
    time.sleep(LASTING / 2)
    postgres.start()


def become_a_replica(shop: Shop, postgres: Postgres) -> None:
    """As the old primary is after a failover: everything can be read, nothing written."""
    postgres.query("ALTER SYSTEM SET default_transaction_read_only = on")
    postgres.query("SELECT pg_reload_conf()")
    time.sleep(LASTING)
    postgres.query("ALTER SYSTEM RESET default_transaction_read_only")
    postgres.query("SELECT pg_reload_conf()")


def let_nobody_in(shop: Shop, postgres: Postgres) -> None:
    """As when all its connections are taken."""
    postgres.query(f"ALTER DATABASE {database(shop)} ALLOW_CONNECTIONS false")
    postgres.terminate_connections(database(shop))
    time.sleep(LASTING)
    postgres.query(f"ALTER DATABASE {database(shop)} ALLOW_CONNECTIONS true")


def lock_the_sale(shop: Shop, postgres: Postgres) -> None:
    """Somebody holds the hot row for longer than anybody waits for it."""
    with closing(psycopg2.connect(shop.stack.environment["DATABASE_URL"])) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM inventory_flashsale FOR UPDATE")
            time.sleep(LASTING)
        connection.rollback()


TROUBLES = (end_sessions, *more(die, become_a_replica, let_nobody_in, lock_the_sale))


@pytest.mark.parametrize("trouble", TROUBLES)
def test_database_that_fails_in_a_burst(
    shop: Shop, postgres: Postgres, trouble: Callable[[Shop, Postgres], None]
) -> None:
    sale_id = shop.create_sale(1_000)
    tickets = shop.tickets(sale_id, BUYERS)
    processes = {name: member.pid for name, member in shop.stack.members.items()}

    bought = buy_meanwhile(shop, tickets, partial(trouble, shop, postgres))

    began = time.monotonic()
    wait_until(lambda: page_is_there(shop, sale_id), 30)
    assert time.monotonic() - began < RECOVERY
    shop.wait_decided(sale_id, [ticket.purchase_id for ticket in bought])
    report = shop.rest(sale_id)
    assert shop.statuses(sale_id) == {UNPAID: len(bought)}
    assert (report["gate"], report["allocated"]) == (1_000 - len(bought), len(bought))
    assert set(shop.events(sale_id).values()) == {1}
    assert {name: member.pid for name, member in shop.stack.members.items()} == processes


def buy_meanwhile(shop: Shop, tickets: list[Ticket], trouble: Callable[[], None]) -> list[Ticket]:
    """Somebody buys all the time while the trouble lasts, and nobody waits for long."""
    bought = 0
    with ThreadPoolExecutor(1) as executor:
        over = executor.submit(trouble)
        while not over.done() and bought < len(tickets):
            load = shop.load(connections=5).run(tickets[bought : bought + 5])
            assert load.kinds == {"ok": 5}, load.describe()
            assert max(a.seconds for answers in load.answers.values() for a in answers) < 3
            bought += 5
            time.sleep(0.05)
        over.result()
    assert bought >= 50
    return tickets[:bought]


def page_is_there(shop: Shop, sale_id: int) -> bool:
    """Fetched anew: nothing is kept under an address that nobody has asked for."""
    ticket = Ticket(sale_id, 0, uuid.uuid4().hex, "")
    load = Load(shop.stack.ports[:1], build=public_page).run([ticket])
    return load.last(ticket).status == 200


def public_page(ticket: Ticket) -> bytes:
    path = f"/api/v1/sales/{ticket.sale_id}?{ticket.purchase_id}"
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def owned_page(ticket: Ticket) -> bytes:
    """With a session that nobody has, so that the database is asked for it."""
    cookie = f"sessionid={uuid.uuid4().hex}"
    return f"GET /api/v1/orders HTTP/1.1\r\nHost: {HOST}\r\nCookie: {cookie}\r\n\r\n".encode()


def test_connections_to_the_database_stay_few(shop: Shop, postgres: Postgres) -> None:
    requests = [Ticket(0, number, "", "") for number in range(500)]
    statement = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"

    load = shop.load(build=owned_page, connections=32).run(requests)

    assert {answer.status for answers in load.answers.values() for answer in answers} == {401}
    [(number,)] = postgres.query(statement, database(shop))
    # Eight threads of pages, as many for the lane and for probes, and two for each of two workers.
    assert number <= 32
