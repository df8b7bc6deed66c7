"""Looks into database and gate five times a second, past the proxies and the product's code."""

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg2
import redis

from tests.e2e.shop import Shop

EVERY = 0.2  # seconds
LEVELS = """
SELECT s.id, s.quantity, s.allocated, s.per_buyer,
  coalesce(sum(o.quantity) FILTER (WHERE o.status = 0), 0),
  coalesce(sum(o.quantity) FILTER (WHERE o.status = 1 OR o.status = 4 AND NOT o.restocked), 0),
  count(o.id) FILTER (WHERE o.status = 3 AND o.closed_at < o.pay_before)
FROM inventory_flashsale s LEFT JOIN orders_order o ON o.sale_id = s.id GROUP BY s.id
"""
GREEDIEST = """
SELECT sale_id, max(n), max(units) FROM (
  SELECT sale_id, count(*) AS n, sum(quantity) AS units FROM orders_order
  WHERE status IN (0, 1) GROUP BY sale_id, user_id
) AS live GROUP BY sale_id
"""


@dataclass(frozen=True)
class Gate:
    """`stock` None: not loaded. `began`, `ended`: Unix time around the look."""

    began: float
    ended: float
    stock: int | None
    epoch: int


@dataclass(frozen=True)
class Level:
    """A sale in one snapshot of the database; letters as in docs/design.md."""

    at: float
    quantity: int  # T
    allocated: int  # T − R
    per_buyer: int
    unpaid: int  # H, units
    sold: int  # S, units
    early: int  # orders that expired before their deadline
    most_orders: int  # live ones of one buyer
    most_units: int


@dataclass(frozen=True)
class Sample:
    sale: int
    level: Level
    gate: Gate | None  # None: Redis didn't answer


def levels(connection: Any) -> dict[int, Level]:
    """Every sale, in one snapshot."""
    with connection, closing(connection.cursor()) as cursor:
        at = time.time()
        cursor.execute(LEVELS)
        rows = cursor.fetchall()
        cursor.execute(GREEDIEST)
        greedy = {sale: (orders, units) for sale, orders, units in cursor.fetchall()}
    return {
        sale: Level(at, *map(int, row), *map(int, greedy.get(sale, (0, 0)))) for sale, *row in rows
    }


def gates(client: "redis.Redis", keys: Mapping[int, tuple[str, str]]) -> dict[int, Gate]:
    """`keys`: the names of stock and epoch of each sale."""
    names = [name for pair in keys.values() for name in pair]
    began = time.time()
    values = client.mget(names)
    ended = time.time()
    pairs = zip(values[::2], values[1::2], strict=True)
    return {
        sale: Gate(began, ended, None if stock is None else int(stock), int(epoch or 0))
        for sale, (stock, epoch) in zip(keys, pairs, strict=True)
    }


class Sampler:
    """A thread that looks until it is stopped; a back end that is away is looked at later."""

    def __init__(self, shop: Shop, sale_ids: Iterable[int]) -> None:
        self.samples: list[Sample] = []
        self._url = shop.stack.environment["DATABASE_URL"]
        self._redis = shop.redis_server.client()
        self._keys = {pk: (shop.key(pk, "stock"), shop.key(pk, "epoch")) for pk in sale_ids}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> "Sampler":
        self._thread.start()
        return self

    def stop(self) -> list[Sample]:
        self._over.set()
        self._thread.join(timeout=30)
        return self.samples

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with closing(psycopg2.connect(self._url, connect_timeout=2)) as connection:
                    connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
                    self._look_while_there(connection)
            except psycopg2.Error:
                self._over.wait(EVERY)

    def _look_while_there(self, connection: Any) -> None:
        while not self._over.wait(EVERY):
            seen = levels(connection)
            try:
                looked = gates(self._redis, self._keys)
            except redis.RedisError:
                looked = {}
            for sale in self._keys:
                self.samples.append(Sample(sale, seen[sale], looked.get(sale)))
