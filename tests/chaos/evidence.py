"""All that the checker judges: history, samples, and what is there when everything is at rest."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg2

from tests.chaos.history import Entry, History
from tests.chaos.sampler import Level, Sample, levels
from tests.chaos.site import PRICE_CENTS, SOLD_OUT_TTL, SWEEP_INTERVAL, UNITS, Sale
from tests.e2e.shop import Shop


@dataclass(frozen=True)
class Order:
    id: str
    sale: int
    user: int
    quantity: int
    unit_price: int  # cents
    amount: int
    status: int
    code: str
    created_at: float
    pay_before: float
    closed_at: float
    restocked: bool
    released: bool  # the gate has been told


@dataclass(frozen=True)
class Payment:
    """With its refunds, and what the gateway's own book says of it."""

    id: str
    order: str
    status: int
    use: str
    amount: int
    captured: bool
    refunded: bool  # by the gateway
    refunds: tuple[int, ...]  # amounts of those that are done
    captures_told: int  # messages that were applied as "the money is taken"


@dataclass(frozen=True)
class Books:
    """What the gate holds of one sale: `buyers`: user → `purchase|state`."""

    stock: int | None
    journal: Collection[str]
    claims: Collection[str]
    buyers: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Rest:
    levels: Mapping[int, Level]
    books: Mapping[int, Books]
    adjusted: Mapping[int, int]  # sale → units that staff added
    orders: Mapping[str, Order]
    events: Mapping[str, Sequence[str]]  # order → kinds, in their order
    payments: Sequence[Payment]
    audit: Sequence[str] = ()  # violations, in the product's own words


@dataclass
class Closing:
    """After the last fault, fresh buyers bought whatever was left of a sale."""

    sale: int
    units: int
    accepted: int


@dataclass
class Evidence:
    history: History
    samples: Sequence[Sample]
    rest: Rest
    sales: Sequence[Sale]
    closings: Sequence[Closing] = ()
    answers: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # purchase → status, code
    unrest: Sequence[str] = ()  # what did not come to rest in time
    units: int = UNITS
    price: int = PRICE_CENTS
    sold_out_ttl: float = SOLD_OUT_TTL
    sweep_interval: float = SWEEP_INTERVAL

    @property
    def faults(self) -> list[Entry]:
        return self.history.faults


ORDERS = """
SELECT id::text, sale_id, coalesce(user_id, 0), quantity, unit_price_cents, amount_cents, status,
  code, created_at, pay_before, closed_at, restocked, gate_released_at IS NOT NULL
FROM orders_order
"""
EVENTS = "SELECT order_id::text, kind FROM orders_orderevent ORDER BY at, id"
PAYMENTS = """
SELECT p.id::text, p.order_id::text, p.status, p.use, p.amount_cents,
  coalesce(c.captured_at <= now(), false), c.refunded_at IS NOT NULL,
  array(SELECT r.amount_cents FROM orders_refund r WHERE r.payment_id = p.id AND r.status = 1),
  (SELECT count(*) FROM orders_webhookevent w WHERE w.payment_id = p.id
    AND w.kind = 'payment.succeeded' AND w.outcome = 'applied')
FROM orders_payment p LEFT JOIN orders_sandboxcharge c ON c.payment_id = p.id
"""
ADJUSTED = "SELECT sale_id, sum(delta) FROM inventory_stockadjustment GROUP BY sale_id"


def audit(shop: Shop) -> list[str]:
    """What the product itself complains of."""
    report = shop.stack.audit()
    return [
        f"sale {sale['sale_id']}: {text}" for sale in report["sales"] for text in sale["violations"]
    ]


def collect(shop: Shop, sales: Sequence[Sale], *, audited: Sequence[str] = ()) -> Rest:
    """Everything, when nothing moves any more."""
    with closing(psycopg2.connect(shop.stack.environment["DATABASE_URL"])) as connection:
        connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
        found = levels(connection)
    events: dict[str, list[str]] = {}
    for order, kind in shop.rows(EVENTS):
        events.setdefault(order, []).append(kind)
    return Rest(
        levels=found,
        books={sale.sale_id: _books(shop, sale.sale_id) for sale in sales},
        adjusted={sale: int(units) for sale, units in shop.rows(ADJUSTED)},
        orders={row[0]: _order(row) for row in shop.rows(ORDERS)},
        events=events,
        payments=[_payment(*row) for row in shop.rows(PAYMENTS)],
        audit=audited,
    )


def _order(row: tuple[Any, ...]) -> Order:
    times = [at.timestamp() if isinstance(at, datetime) else 0.0 for at in row[8:11]]
    return Order(*row[:8], *times, *row[11:])


def _payment(*columns: Any) -> Payment:
    row = list(columns)
    row[7] = tuple(row[7])
    return Payment(*row)


def _books(shop: Shop, sale_id: int) -> Books:
    client: Any = shop.redis
    buyers = client.hgetall(shop.key(sale_id, "buyers"))
    return Books(
        shop.gate_stock(sale_id),
        client.zrange(shop.key(sale_id, "pending"), 0, -1),
        client.hkeys(shop.key(sale_id, "claims")),
        {int(user): entry for user, entry in buyers.items()},
    )
