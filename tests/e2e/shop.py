"""The running product and its back ends, as the tests of the whole see them."""

import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import kombu
import psycopg2
import redis
import uuid_utils.compat

from seckill import tokens
from tests.support.load import Load, Ticket, outcomes
from tests.support.proxy import FaultProxy
from tests.support.rabbitmq import RabbitMQ
from tests.support.redis_server import RedisServer
from tests.support.stack import Stack
from tests.support.waiting import wait_until

UNPAID, PAID, CANCELED, EXPIRED, REFUNDED, REJECTED = range(6)
FAULTPOINTS = (
    *("after_reserve", "before_publish"),
    *("in_create", "after_commit", "after_settle"),
    *("in_expire", "after_expire_commit"),
)
# Short times, so that a test sees each repair happen.
SETTINGS = {
    "CAPTCHA": "off",
    "PURCHASE_RATE": "1000/1s",
    "ADMIT_RETRY_AFTER": "1",
    "SWEEP_INTERVAL": "1",
    "SOLD_OUT_TTL": "0.5",
}
RECOVERY = 40.0  # seconds; far more than it takes, for a machine that is busy with other things


@dataclass
class Shop:
    stack: Stack
    redis_server: RedisServer
    rabbitmq: RabbitMQ | None = None
    vhost: str = "/"
    faults: Path | None = None
    ways: Mapping[str, FaultProxy] = field(default_factory=dict)  # setting → what is in its way
    _buyers: dict[str, int] = field(default_factory=dict)

    # --- the sale -----------------------------------------------------------------------------
    def create_sale(self, stock: int, *options: str) -> int:
        name = ("--name", f"Kettle {stock}", "--price", "9.90")
        made = self.stack.manage("create_sale", *name, "--stock", str(stock), *options, "--json")
        return int(made["sale_id"])

    def issued(self, sale_id: int, count: int) -> list[Ticket]:
        """One for each of the first `count` buyers, as the staff's command gives them."""
        self._make_buyers(count)
        who = ("--sale", str(sale_id), "--count", str(count))
        rows = (line.split() for line in self.stack.manage("issue_tokens", *who).splitlines())
        return [Ticket(sale_id, int(user), purchase, token) for user, purchase, token in rows]

    def tickets(self, sale_id: int, count: int, *, prefix: str = "buyer") -> list[Ticket]:
        """The same, signed here, which spares a process."""
        self._make_buyers(count, prefix)
        statement = "SELECT id FROM auth_user WHERE username = ANY(%s) ORDER BY id"
        names = [f"{prefix}{number}" for number in range(1, count + 1)]
        return [ticket(sale_id, user) for (user,) in self.rows(statement, names)]

    def _make_buyers(self, count: int, prefix: str = "buyer") -> None:
        if self._buyers.get(prefix, 0) < count:
            self.stack.manage("create_buyers", "--count", str(count), "--prefix", prefix)
            self._buyers[prefix] = count

    def name_of(self, user_id: int) -> str:
        statement = "SELECT username FROM auth_user WHERE id = %s"
        return str(self.rows(statement, user_id)[0][0])

    def load(self, **options: Any) -> Load:
        return Load(self.stack.ports, **options)

    # --- faults -------------------------------------------------------------------------------
    def arm(self, point: str) -> Path:
        """Kill the next process that comes to this point; returns a file that then is there."""
        assert self.faults is not None
        marker = self.faults / point
        marker.unlink()
        return marker

    def queue(self, task: str, *arguments: Any, queue: str) -> None:
        """Send one message to a worker."""
        number = uuid.uuid4().hex
        headers = {"lang": "py", "task": f"orders.{task}", "id": number, "root_id": number}
        body: tuple[Any, ...] = (arguments, {}, {})
        with (
            kombu.Connection(self.stack.environment["CELERY_BROKER_URL"]) as connection,
            connection.Producer() as producer,
        ):
            producer.publish(
                body, routing_key=queue, serializer="json", headers=headers, correlation_id=number
            )

    # --- the gate -----------------------------------------------------------------------------
    @cached_property
    def redis(self) -> "redis.Redis":
        return self.redis_server.client()

    def key(self, sale_id: int, name: str) -> str:
        return f"seckill:sale:{{{sale_id}}}:{name}"

    def gate_stock(self, sale_id: int) -> int | None:
        stock = self.redis.get(self.key(sale_id, "stock"))
        return None if stock is None else int(str(stock))

    def journal_size(self, sale_id: int) -> int:
        return int(self.redis.zcard(self.key(sale_id, "pending")))

    # --- the database -------------------------------------------------------------------------
    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement in a transaction of its own."""
        with self._connection() as connection, closing(connection.cursor()) as cursor:
            cursor.execute(self._dialect(statement), values)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        url = self.stack.environment["DATABASE_URL"]
        path = url.removeprefix("sqlite:///")
        opened = sqlite3.connect(path, timeout=30) if path != url else psycopg2.connect(url)
        with closing(opened) as connection, connection:
            yield connection

    def _dialect(self, statement: str) -> str:
        sqlite = self.stack.environment["DATABASE_URL"].startswith("sqlite")
        return statement.replace("%s", "?") if sqlite else statement

    def statuses(self, sale_id: int) -> Counter[int]:
        statement = "SELECT status, count(*) FROM orders_order WHERE sale_id = %s GROUP BY status"
        return Counter(dict(self.rows(statement, sale_id)))

    def decided(self, sale_id: int) -> dict[str, tuple[int, str]]:
        """Every purchase that has a row: id → (status, cause of rejection)."""
        statement = "SELECT id, status, code FROM orders_order WHERE sale_id = %s"
        dashed = self.rows(statement, sale_id)
        return {_dashed(str(pk)): (status, code) for pk, status, code in dashed}

    def events(self, sale_id: int) -> Counter[tuple[str, str]]:
        """How often each thing happened to each order."""
        statement = (
            "SELECT order_id, kind FROM orders_orderevent JOIN orders_order"
            " ON orders_order.id = order_id WHERE sale_id = %s"
        )
        return Counter((_dashed(str(pk)), kind) for pk, kind in self.rows(statement, sale_id))

    def outbox_size(self, sale_id: int) -> int:
        statement = (
            "SELECT count(*) FROM orders_order"
            " WHERE sale_id = %s AND restocked AND gate_released_at IS NULL"
        )
        return int(self.rows(statement, sale_id)[0][0])

    # --- rest ---------------------------------------------------------------------------------
    def wait_decided(self, sale_id: int, purchases: Collection[str]) -> None:
        """Until each of these purchases has a row."""
        wanted = set(purchases)

        def all_are_decided() -> bool:
            return not wanted - self.decided(sale_id).keys()

        try:
            wait_until(all_are_decided, RECOVERY, 0.2)
        except AssertionError as error:
            missing = sorted(wanted - self.decided(sale_id).keys())
            error.add_note(f"{len(missing)} of {len(wanted)} have no row: {missing[:5]}")
            raise

    def wait_quiet(self, sale_id: int) -> None:
        """Until nothing is under way between gate and database."""
        wait_until(partial(self._is_quiet, sale_id), RECOVERY, 0.2)

    def _is_quiet(self, sale_id: int) -> bool:
        under_way = self.journal_size(sale_id) or self.outbox_size(sale_id)
        return not under_way and self.gate_stock(sale_id) is not None

    def rest(self, sale_id: int) -> Mapping[str, Any]:
        """Wait for the sale to come to rest; returns its clean audit, with the gate in step."""
        self.wait_quiet(sale_id)
        report = wait_until(partial(self._clean_audit, sale_id), RECOVERY, 0.5)
        assert report["in_flight"] == 0
        assert report["gate"] == report["available"]
        return report

    def _clean_audit(self, sale_id: int) -> Any:
        report = self.stack.audit(sale_id)
        return report["sales"][0] if report["ok"] else None

    def corrections(self, sale_id: int) -> list[str]:
        """What the periodic reconciliation had to repair; nothing, unless Redis lost something.

        It also notes buyers whose order ended between its two looks; those are no repairs.
        """
        lines = [
            line
            for member in self.stack.members.values()
            for line in member.log.read_text(errors="replace").splitlines()
        ]
        ours = f"orders.repair sale {sale_id}: "
        return [line for line in lines if ours in line and "corrected" in line]

    def check_answers(self, sale_id: int, tickets: Iterable[Ticket]) -> Counter[str]:
        """Each purchase has a terminal answer, the same from the API and the database."""
        rows = self.decided(sale_id)
        told = outcomes(self.stack.ports, tickets, within=RECOVERY)
        for purchase_id, outcome in told.items():
            status, code = rows[purchase_id]
            expected = ("failed", code) if status == REJECTED else ("succeeded", None)
            assert (outcome["status"], outcome["code"]) == expected, (purchase_id, outcome)
        return Counter(outcome["status"] for outcome in told.values())


def ticket(sale_id: int, user_id: int, purchase_id: uuid.UUID | None = None) -> Ticket:
    """For a new purchase, or for one that is there already."""
    purchase_id = purchase_id or uuid_utils.compat.uuid7()
    token = tokens.issue(
        sale_id=sale_id, user_id=user_id, purchase_id=purchase_id, expires_at=time.time() + 3600
    )
    return Ticket(sale_id, user_id, str(purchase_id), token)


def _dashed(text: str) -> str:
    """SQLite keeps a UUID without dashes."""
    if "-" in text:
        return text
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
