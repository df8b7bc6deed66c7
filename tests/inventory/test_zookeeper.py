"""Nodes with a real server: chroot, access, conditional writes, and what is left over."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from pytest_django import Settings

from inventory.news import News
from inventory.nodes import Bulletin, State
from inventory.zookeeper import ROOT, Lost, ZooKeeper
from tests.support.waiting import wait_until

SALE = 7


@pytest.fixture
def transport(zookeeper_hosts: str, settings: Settings) -> Iterator[ZooKeeper]:
    settings.ZOOKEEPER_HOSTS = f"{zookeeper_hosts}/shops/one"
    settings.ZOOKEEPER_USER, settings.ZOOKEEPER_PASSWORD = "seckill", "secret"
    transport = ZooKeeper()
    yield transport
    transport._acquire().delete("/seckill", recursive=True)
    transport.close()


@pytest.fixture
def stranger(zookeeper_hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper_hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def state(transport: ZooKeeper, sale_id: int = SALE) -> State:
    return State.parse(transport._acquire().get(f"{ROOT}/{sale_id}")[0])


def bulletin(transport: ZooKeeper) -> Bulletin:
    return Bulletin.parse(transport._acquire().get(ROOT)[0])


def test_nodes_lie_below_the_chroot_and_belong_to_the_user(
    transport: ZooKeeper, stranger: KazooClient
) -> None:
    transport.send([News(SALE, 5, True)])

    assert state(transport) == State(5, True)
    with pytest.raises(NoAuthError):
        stranger.get(f"/shops/one{ROOT}/{SALE}")


def test_older_epoch_is_not_written(transport: ZooKeeper) -> None:
    transport.send([News(SALE, 5, False)])
    transport.send([News(SALE, 4, True)])

    assert state(transport) == State(5, False)
    assert [news.epoch for news in bulletin(transport).news] == [5]


def connects(transport: ZooKeeper) -> bool:
    try:
        return bool(transport._acquire().connected)
    except Lost:  # The machine is busy.
        return False


def test_many_who_write_at_once_lose_nothing(transport: ZooKeeper) -> None:
    others = [ZooKeeper() for _ in range(3)]
    for other in others:
        wait_until(partial(connects, other))
    transport.send([News(SALE, 1, True)])

    def write(number: int) -> None:
        for epoch in range(2 + number, 20, 3):
            others[number].send([News(SALE, epoch, True), News(100 + epoch, epoch, True)])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    for other in others:
        other.close()

    assert state(transport) == State(19, True)
    told = bulletin(transport)
    assert [news.number for news in told.news] == list(range(1, told.number + 1))
    assert {news.sale_id for news in told.news} == {SALE, *range(102, 120)}


def test_lost_client_is_replaced_by_who_sends(transport: ZooKeeper) -> None:
    transport.send([News(SALE, 5, False)])
    first = transport._acquire()
    first.stop()
    wait_until(lambda: not first.connected)

    transport.send([News(SALE, 6, True)])

    assert transport._acquire() is not first
    assert state(transport) == State(6, True)


def test_tidy_removes_the_nodes_of_other_sales(transport: ZooKeeper) -> None:
    transport.send([News(SALE, 5, True), News(8, 5, True), News(9, 5, True)])

    removed = transport.tidy(keep={8})

    assert removed == 2
    assert transport._acquire().get_children(ROOT) == ["8"]
