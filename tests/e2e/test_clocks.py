"""Web processes, workers and beat whose clocks are wrong by twenty minutes, in both directions."""

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial

import pytest

from tests.e2e.conftest import OpenShop
from tests.e2e.shop import EXPIRED, Shop
from tests.e2e.test_expiry import LONGEST, SWEEP_INTERVAL, delays
from tests.support.clocks import wrong_by
from tests.support.load import Load, Ticket
from tests.support.params import more
from tests.support.plugin import skip_if_missing
from tests.support.stack import Plan
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

MUCH = 20 * 60  # seconds
SKEWS = {"web1": MUCH, "web2": -MUCH, "orders1": -MUCH, "timers": MUCH, "beat": MUCH}
REVERSED = {"orders1": MUCH, "timers": -MUCH, "beat": -MUCH}
BUYERS = 20


def skew(shop: Shop, skews: Mapping[str, int]) -> None:
    for name, by in skews.items():
        member = shop.stack.members[name]
        member.arguments = wrong_by(by, member.arguments)
        shop.stack.restart(name)
    shop.stack.wait_ready()


@pytest.fixture(scope="module")
def shop(open_shop: OpenShop) -> Iterator[Shop]:
    with skip_if_missing():
        wrong_by(0, [])
    settings = {"PAYMENT_WINDOW": "4", "SWEEP_INTERVAL": str(SWEEP_INTERVAL)}
    with open_shop(Plan(web=2, workers=1), **settings) as shop:
        skew(shop, SKEWS)
        yield shop


def ask(shop: Shop, web: int, tickets: list[Ticket]) -> Load:
    return Load(shop.stack.ports[web : web + 1], connections=1).run(tickets)


def sells(shop: Shop, web: int, ticket: Ticket) -> bool:
    return ask(shop, web, [ticket]).kinds["ok"] == 1


@pytest.mark.long
@pytest.mark.parametrize("skews", [REVERSED, *more({})])
def test_clocks_that_differ_by_twenty_minutes(shop: Shop, skews: dict[str, int]) -> None:
    """The window opens for all at the same moment; orders expire in time, never early."""
    skew(shop, skews)
    sale_id = shop.create_sale(BUYERS, "--starts-in", "10")
    tickets = shop.tickets(sale_id, BUYERS)
    statement = "SELECT extract(epoch FROM starts_at - now())::float FROM inventory_flashsale"
    left = shop.rows(f"{statement} WHERE id = %s", sale_id)[0][0]
    opens_at = time.monotonic() + left

    halves = [tickets[web::2] for web in (0, 1)]
    for web, half in enumerate(halves):
        assert ask(shop, web, half[:1]).codes() == {"not_open": 1}
    assert time.monotonic() < opens_at
    for web, half in enumerate(halves):
        wait_until(partial(sells, shop, web, half[0]), 20, 0.1)
        assert opens_at - 0.1 <= time.monotonic() < opens_at + 3
        assert ask(shop, web, half[1:]).kinds == {"ok": len(half) - 1}

    wait_until(lambda: shop.statuses(sale_id) == {EXPIRED: BUYERS}, 60, 0.2)
    late = delays(shop, sale_id)
    assert late[0] >= timedelta(0)
    assert late[-1] <= LONGEST
    assert shop.rest(sale_id)["gate"] == BUYERS
    assert shop.corrections(sale_id) == []
