"""A process that has served very many purchases is as big as one that has served a few."""

import os
import sys
from collections.abc import Iterator

import psutil
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.e2e.conftest import OpenShop
from tests.e2e.shop import Shop
from tests.support.load import unknown
from tests.support.processes import family
from tests.support.stack import Plan

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

MEGABYTE = 1024 * 1024
PART = 5_000
# The whole takes minutes: FULL=1. The limit is 50 MB for 100,000 purchases, and a few for chance.
PARTS = 20 if os.environ.get("FULL") == "1" else 2
LIMIT = 50 * PARTS / 20 + (0 if PARTS == 20 else 5)


@pytest.fixture(scope="module")
def small_shop(open_shop: OpenShop) -> Iterator[Shop]:
    with open_shop(Plan(web=1, workers=1)) as shop:
        yield shop


def sell(shop: Shop) -> None:
    sale_id = shop.create_sale(PART)
    load = shop.load(again=unknown, connections=128).run(shop.tickets(sale_id, PART))
    shop.wait_decided(sale_id, load.accepted())
    assert len(load.accepted()) == PART


def sizes(shop: Shop) -> dict[int, int]:
    """Resident bytes of each process of web and worker."""
    found: dict[int, int] = {}
    for name in ("web1", "orders1", "timers"):
        members: list[psutil.Process] = family(shop.stack.members[name].pid)
        found |= {process.pid: process.memory_info().rss for process in members}
    return found


@pytest.mark.long
def test_memory_does_not_grow_with_purchases(small_shop: Shop) -> None:
    sell(small_shop)  # The first purchases fill caches and pools.
    before = sizes(small_shop)

    for _ in range(PARTS):
        sell(small_shop)

    after = sizes(small_shop)
    assert after.keys() == before.keys()
    growth = {pid: (after[pid] - before[pid]) / MEGABYTE for pid in before}
    sys.stdout.write(f"{PARTS * PART} purchases: {growth} MB\n")
    assert max(growth.values()) < LIMIT, growth


def visit(shop: Shop, sale_id: int, times: int) -> None:
    """Open a socket about the sale, read the first frame, and close it; so many times."""
    origin = Origin(shop.stack.base_url)
    url = f"{shop.stack.base_url.replace('http', 'ws', 1)}/ws/v1/sales/{sale_id}"
    for _ in range(times):
        with connect(url, origin=origin) as socket:
            socket.recv(timeout=10)


@pytest.mark.long
def test_sockets_that_come_and_go_leave_nothing(small_shop: Shop) -> None:
    sale_id = small_shop.create_sale(1)
    web = small_shop.stack.members["web1"].pid
    visit(small_shop, sale_id, 300)  # The first ones fill caches and pools.
    before = sum(process.memory_info().rss for process in family(web))

    visit(small_shop, sale_id, 300 * PARTS)

    after = sum(process.memory_info().rss for process in family(web))
    clients = small_shop.redis.info("clients")["connected_clients"]
    assert (after - before) / MEGABYTE < 30
    assert int(clients) < 60
