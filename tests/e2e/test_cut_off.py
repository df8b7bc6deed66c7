"""A back end that swallows everything: what needs it says so in time, the rest goes on."""

import http.client
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import pytest

from tests.e2e.conftest import OpenShop
from tests.e2e.shop import UNPAID, Shop
from tests.support.load import Ticket
from tests.support.params import more
from tests.support.proxy import Mode
from tests.support.stack import Plan
from tests.support.waiting import HOST, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

IN_TIME = 3.0  # seconds
RECOVERY = 10.0
# What each needs of them, by the status of its answer.
AWAY = {
    "DATABASE_URL": {"livez": 200, "buy": 202, "known": 503, "sale": 503},
    "REDIS_URL": {"livez": 200, "buy": 503, "known": 200, "sale": 200},
    "CELERY_BROKER_URL": {"livez": 200, "buy": 202, "known": 200, "sale": 200},
}
WELL = {"livez": 200, "buy": 202, "known": 200, "sale": 200}


class Told(NamedTuple):
    status: int
    seconds: float
    retry_after: str | None


@pytest.fixture(scope="module")
def shop(open_shop: OpenShop) -> Iterator[Shop]:
    with open_shop(Plan(web=1, workers=1), through_proxies=True) as shop:
        yield shop


def ask(shop: Shop, method: str, path: str, token: str = "") -> Told:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    began = time.monotonic()
    with closing(http.client.HTTPConnection(HOST, shop.stack.ports[0], timeout=15)) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        response.read()
    seconds = time.monotonic() - began
    return Told(response.status, seconds, response.getheader("Retry-After"))


def ask_all(shop: Shop, known: Ticket, new: Ticket) -> Mapping[str, Told]:
    sale = f"/api/v1/sales/{known.sale_id}"
    return {
        "livez": ask(shop, "GET", "/livez"),
        "buy": ask(shop, "POST", f"{sale}/purchases", new.token),
        "known": ask(shop, "GET", f"{sale}/purchases/{known.purchase_id}", known.token),
        # Under an address of its own, so that no copy of it is kept.
        "sale": ask(shop, "GET", f"{sale}?{uuid.uuid4().hex}"),
    }


def statuses(told: Mapping[str, Told]) -> dict[str, int]:
    return {name: answer.status for name, answer in told.items()}


def check_in_time(told: Mapping[str, Told]) -> None:
    for name, answer in told.items():
        assert answer.seconds < IN_TIME, (name, answer)
        assert answer.status != 503 or int(answer.retry_after or 0) >= 1, (name, answer)


@pytest.mark.parametrize("mode", ["blackhole", *more("refuse")])
@pytest.mark.parametrize("back_end", AWAY)
def test_back_end_that_swallows_everything(shop: Shop, back_end: str, mode: Mode) -> None:
    sale_id = shop.create_sale(100)
    tickets = shop.tickets(sale_id, 40)
    known, away, *later = tickets
    assert statuses(ask_all(shop, known, known)) == {**WELL, "known": 200}
    shop.wait_decided(sale_id, [known.purchase_id])
    processes = {name: member.pid for name, member in shop.stack.members.items()}

    shop.ways[back_end].set(mode)
    told = ask_all(shop, known, away)
    # They hold up nobody, so whoever asks next is told as fast.
    again = ask_all(shop, known, away)
    shop.ways[back_end].heal()
    healed_at = time.monotonic()

    for answers in (told, again):
        check_in_time(answers)
        assert statuses(answers) == AWAY[back_end]
    wait_until(lambda: statuses(ask_all(shop, known, later[0])) == WELL, 30, 0.2)
    assert time.monotonic() - healed_at < RECOVERY
    bought = [known.purchase_id, later[0].purchase_id]
    if AWAY[back_end]["buy"] == 202:
        bought.append(away.purchase_id)
    shop.wait_decided(sale_id, bought)
    report = shop.rest(sale_id)
    assert shop.statuses(sale_id) == {UNPAID: report["allocated"]}
    assert set(shop.events(sale_id).values()) == {1}
    assert {name: member.pid for name, member in shop.stack.members.items()} == processes


def test_database_that_is_slow_holds_up_nobody_for_long(shop: Shop) -> None:
    """Two seconds for each of its answers."""
    sale_id = shop.create_sale(100)
    known, new, later, *_ = shop.tickets(sale_id, 4)
    ask_all(shop, known, known)
    shop.wait_decided(sale_id, [known.purchase_id])

    shop.ways["DATABASE_URL"].set("delay_reply", seconds=2)
    told = ask_all(shop, known, new)
    shop.ways["DATABASE_URL"].heal()

    check_in_time(told)
    assert (told["livez"].status, told["buy"].status) == (200, 202)
    assert told["known"].status in (200, 503)
    wait_until(lambda: statuses(ask_all(shop, known, later)) == WELL, 30, 0.2)
    shop.wait_decided(sale_id, [new.purchase_id, later.purchase_id])
    assert shop.rest(sale_id)["allocated"] == 3
