"""A short run of `make chaos`: nothing oversold, nothing lost, nobody unanswered."""

import sys
from collections.abc import Iterator

import pytest

from tests.chaos.run import Result, run
from tests.chaos.site import opened
from tests.support.postgres import Postgres
from tests.support.rabbitmq import RabbitMQ

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    # It shares the servers of tests/e2e, and needs the machine as they do.
    pytest.mark.xdist_group("e2e"),
]

SEED = 1
SECONDS = 40.0


@pytest.fixture
def result(postgres: Postgres, _migrated: str, rabbitmq: RabbitMQ) -> Iterator[Result]:
    with opened("broadcast", postgres, rabbitmq, template=_migrated) as site:
        yield run(site, seed=SEED, seconds=SECONDS, channel="broadcast")
        # pytest shows this only if the test failed.
        sys.stdout.write(site.stack.logs())


def test_no_invariant_breaks_while_everything_is_killed(result: Result) -> None:
    sys.stdout.write(result.table())

    assert result.broken == {}
    # It was a real one: all kinds of faults, and buyers who got something, and some who didn't.
    assert result.faults >= 8
    assert {entry.kind for entry in result.evidence.history.of("buy")} == {"ok", "fail", "unknown"}
    assert {order.status for order in result.evidence.rest.orders.values()} >= {1, 2, 3}
