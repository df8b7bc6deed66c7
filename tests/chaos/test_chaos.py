"""A short run of `make chaos`: nothing oversold, nothing lost, nobody unanswered."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from tests.chaos.evidence import collect
from tests.chaos.invariants import broken
from tests.chaos.run import Result, run
from tests.chaos.site import Site, opened
from tests.support.postgres import Postgres
from tests.support.rabbitmq import RabbitMQ

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    # It shares the servers of tests/e2e, and needs the machine as they do.
    pytest.mark.xdist_group("shops"),
]

SEED = 3
SECONDS = 30.0


class Run(NamedTuple):
    site: Site
    result: Result


@pytest.fixture(scope="module")
def over(_own_postgres: Postgres, _migrated: str, _rabbitmq: RabbitMQ) -> Iterator[Run]:
    """A run that is over; its servers are still there, its processes have ended."""
    with opened("broadcast", _own_postgres, _rabbitmq, template=_migrated) as site:
        result = run(site, seed=SEED, seconds=SECONDS, channel="broadcast")
        for name in site.stack.members:
            site.stack.kill(name)
        yield Run(site, result)
        # pytest shows this only if a test failed.
        sys.stdout.write(site.stack.logs())


def test_no_invariant_breaks_while_everything_is_killed(over: Run) -> None:
    result = over.result
    sys.stdout.write(result.table())

    assert result.broken == {}
    # It was a real one: faults of all kinds, buyers who got something, and some who didn't.
    assert result.faults >= 5
    assert {entry.kind for entry in result.evidence.history.of("buy")} >= {"ok", "fail"}
    assert {order.status for order in result.evidence.rest.orders.values()} >= {1, 2, 3}


# A statement that spoils rows, one that makes them whole again, and what must be found.
ONE = "(SELECT id FROM orders_order WHERE status = {} ORDER BY id LIMIT 1)"
A_SALE = "(SELECT min(sale_id) FROM orders_order WHERE status = 1)"
A_PAYMENT = "(SELECT id FROM orders_payment WHERE use = 'order' ORDER BY id LIMIT 1)"
SPOILT = {
    "allocated": (
        f"UPDATE inventory_flashsale SET allocated = allocated {{}} 1 WHERE id = {A_SALE}",
        ("-", "+"),
        {1, 3},
    ),
    "amount": (
        f"UPDATE orders_order SET amount_cents = amount_cents {{}} 1 WHERE id = {ONE.format(1)}",
        ("-", "+"),
        {8, 13},
    ),
    "restocked": (
        f"UPDATE orders_order SET restocked = {{}} WHERE id = {ONE.format(3)}",
        ("false", "true"),
        {9},
    ),
    "released": (
        f"UPDATE orders_order SET gate_released_at = {{}} WHERE id = {ONE.format(3)}",
        ("NULL", "now()"),
        {4},
    ),
    "deadline": (
        "UPDATE orders_order SET closed_at = closed_at {} interval '1 minute'"
        f" WHERE id = {ONE.format(3)}",
        ("-", "+"),
        {10},
    ),
    "gateway": (
        "UPDATE orders_sandboxcharge SET captured_at = captured_at {} interval '1 year'"
        f" WHERE payment_id = {A_PAYMENT}",
        ("+", "-"),
        {8},
    ),
    "units": (
        "UPDATE inventory_flashsale SET quantity = quantity {} 1",
        ("+", "-"),
        {1, 3},
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_rows_are_found(over: Run, case: str) -> None:
    """The control: the same evidence, but for one row in the real database."""
    statement, (spoil, mend), numbers = SPOILT[case]
    shop, evidence = over.site.shop, over.result.evidence
    shop.rows(statement.format(spoil))
    try:
        spoilt = replace(evidence, rest=collect(shop, over.site.sales))
    finally:
        shop.rows(statement.format(mend))

    assert broken(spoilt).keys() == numbers
    assert broken(replace(evidence, rest=collect(shop, over.site.sales))) == {}


def test_units_that_the_gate_lost_are_found(over: Run) -> None:
    shop, sale = over.site.shop, over.site.sales[0]
    key = shop.key(sale.sale_id, "stock")
    shop.redis.decr(key)
    try:
        spoilt = replace(over.result.evidence, rest=collect(shop, over.site.sales))
    finally:
        shop.redis.incr(key)

    assert broken(spoilt).keys() == {3}
