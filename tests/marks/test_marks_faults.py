"""The transport fails in every way; buyers don't notice, and afterwards all is right again."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from inventory.zookeeper import ROOT, SESSION
from tests.marks.site import LONGEST, TTL, Site
from tests.support.params import more
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

RECOVERY = 15.0  # seconds
SLACK = 0.5  # seconds that a busy machine takes for an answer
FULL = os.environ.get("FULL") == "1"

over_rabbitmq = pytest.mark.parametrize("shared_site", ["rabbitmq"], indirect=True)
# One kind for all, where the code is the same for all.
over_one = pytest.mark.parametrize(
    "shared_site", ["rabbitmq", *more("zookeeper", "redis")], indirect=True
)
over_zookeeper = pytest.mark.parametrize("shared_site", ["zookeeper"], indirect=True)


def check_that_marks_work(site: Site) -> None:
    sale_id = site.sale()
    site.sell_out(sale_id)
    site.wait_orders(sale_id)
    assert site.refused(sale_id) == ["sold_out"] * 3
    site.expire(sale_id)
    site.sells_again(sale_id, site.wait_stock(sale_id), within=[1.0] * 3)


def check_that_sale_goes_on(site: Site) -> None:
    """Each process sells a unit, and none takes long."""
    sale_id = site.sale()
    answers = [site.buy(sale_id, web) for web in range(3)]
    assert [answer.status for answer in answers] == [202] * 3
    assert max(answer.seconds for answer in answers) < LONGEST


def check_recovery(site: Site, what: str) -> None:
    seconds = site.wait_listening(RECOVERY)
    sys.stdout.write(f"{site.kind}, {what}: all hear again after {seconds:.1f} s\n")
    check_that_marks_work(site)


@pytest.mark.parametrize("accident", ["raise", *more("kill")])
def test_listener_that_has_an_accident_comes_back(site: Site, accident: str) -> None:
    """An exception in the callback; something that ends the thread."""
    losses = site.metric(1, "seckill_sold_out_losses_total")
    site.switches.set(accident)

    check_that_sale_goes_on(site)
    site.clerk.do("channel.publish(News(9_999_999, 1, False))")
    wait_until(lambda: not site.switches.is_set(accident))
    wait_until(lambda: site.metric(1, "seckill_sold_out_losses_total") == losses + 1)

    check_recovery(site, accident)


@over_one
def test_process_that_is_cut_off_sells_again_when_its_mark_has_run_out(site: Site) -> None:
    """Its connection stays, but swallows everything; later it is whole again."""
    site.prepare()
    site.proxy.set("blackhole")
    sale_id = site.sale()
    site.sell_out(sale_id)
    site.wait_orders(sale_id)
    assert site.refused(sale_id) == ["sold_out"] * 3
    site.expire(sale_id)
    since = site.wait_stock(sale_id)

    times = site.sells_again(sale_id, since, within=[1.0, TTL + SLACK, 1.0])

    sys.stdout.write(f"{site.kind}, cut off: {[round(t, 2) for t in times]}\n")
    assert times[1] > max(times[0], times[2])  # It did hear nothing.
    wait_until(lambda: site.listener(1) != "ok", 20, 0.1)
    check_that_sale_goes_on(site)
    assert site.ready(1)["degraded"]
    assert site.ready(1)["ready"] or site.kind != "zookeeper"  # The broker itself is away.
    site.proxy.heal()
    check_recovery(site, "half-open")


@over_one
def test_transport_is_restarted(site: Site) -> None:
    site.prepare()
    site.server.kill()
    down_at = time.monotonic()
    wait_until(lambda: site.listener(0) != "ok", 10, 0.1)

    check_that_sale_goes_on(site)
    if site.kind == "zookeeper":  # Away for longer than a session.
        wait_until(lambda: time.monotonic() - down_at > SESSION + 0.5, 10)
        check_that_sale_goes_on(site)
    site.server.start()

    check_recovery(site, "restarted")


@over_zookeeper
def test_zookeeper_loses_its_data(site: Site) -> None:
    site.prepare()
    site.server.wipe()
    wait_until(lambda: site.listener(0) != "ok", 10, 0.1)
    check_that_sale_goes_on(site)
    site.server.start()

    check_recovery(site, "data lost")


@over_zookeeper
def test_stale_node_of_an_older_sale_refuses_nobody(site: Site) -> None:
    sale_id = site.sale()
    client = KazooClient(site.server.url)
    client.start()
    try:
        data = json.dumps({"epoch": 1, "sold_out": True}).encode()
        client.ensure_path(f"{ROOT}/{sale_id}")  # A sweep may have written it already.
        client.set(f"{ROOT}/{sale_id}", data)
        site.proxy.set("cut")
        wait_until(lambda: site.listener(1) != "ok", 10, 0.1)
        site.proxy.heal()
        wait_until(lambda: site.belief(1, sale_id) == (1, False))
        site.sells_again(sale_id, time.monotonic(), within=[1.0] * 3)
        client.ensure_path(f"{ROOT}/9999999")
        site.queue("reconcile_sales", queue="sweeps")
        wait_until(lambda: client.exists(f"{ROOT}/9999999") is None, 20, 0.1)
        assert client.exists(f"{ROOT}/{sale_id}") is not None
    finally:
        client.stop()
        client.close()


@over_zookeeper
def test_processes_without_a_connection_to_zookeeper_sell_as_well(
    site: Site, zookeeper: ZooKeeper
) -> None:
    """The server takes two connections from one address; five processes want one."""
    site.prepare()
    zookeeper.most_connections = 2
    zookeeper.restart()
    try:
        check_that_sale_goes_on(site)
        sale_id = site.sale()
        site.sell_out(sale_id)
        site.wait_orders(sale_id)
        assert site.refused(sale_id) == ["sold_out"] * 3
        site.expire(sale_id)
        site.sells_again(sale_id, site.wait_stock(sale_id), within=[TTL + SLACK] * 3)
        assert [site.listener(web) for web in range(3)] != ["ok"] * 3
    finally:
        zookeeper.most_connections = ZooKeeper.most_connections
        zookeeper.restart()
    check_recovery(site, "too many connections")


@over_rabbitmq
def test_no_queue_is_left_of_a_killed_process(site: Site, rabbitmq: RabbitMQ) -> None:
    def queues() -> int:
        names = rabbitmq.ctl("list_queues", "name").split()
        return sum("sold-out" in name for name in names)

    wait_until(lambda: queues() == 3, 60, 0.5)  # None of what earlier tests have cut.
    site.stack.kill("web3")
    wait_until(lambda: queues() == 2, 60, 0.5)
    site.stack.launch("web3")
    site.wait_listening(30)


def cpu(pid: int) -> float:
    """Seconds of processor time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory(pid: int) -> int:
    """KiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4


def flip(site: Site, number: int, *, epoch: int, pause: float = 0) -> None:
    """So many news about a thousand sales in turn; `pause` in seconds, between two."""
    site.clerk.do(
        "began = time.monotonic()",
        f"for n in range({number}):",
        f"    channel.publish(News(10_000 + n % 1000, {epoch} + n, n % 2 == 0))",
        f"    time.sleep(max(0, began + {pause} * n - time.monotonic()))",
    )


@over_one
def test_many_marks_that_flip_cost_little(site: Site) -> None:
    """web3 does nothing but listen."""
    seconds = 30 if FULL else 3
    pid = site.pid(2)
    flip(site, 1000, epoch=1)
    wait_until(lambda: site.belief(2, 10_999) == (1000, False), 30)
    size, before = memory(pid), cpu(pid)

    flip(site, 100 * seconds, epoch=10**9, pause=0.01)
    busy, grown = (cpu(pid) - before) / seconds, memory(pid) - size

    sys.stdout.write(f"{site.kind}: at 100 flips/s {busy:.1%} of a core, {grown} KiB more\n")
    # The kernel counts in hundredths of a second, so a short look tells less.
    assert busy < (0.02 if FULL else 0.03)
    assert grown < 4096
