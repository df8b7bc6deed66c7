"""The transport fails in every way; buyers don't notice, and afterwards all is right again."""

import json
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from inventory.zookeeper import ROOT
from tests.marks.conftest import OpenSite
from tests.marks.site import LONGEST, Site
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

RECOVERY = 15.0  # seconds


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


def test_transport_is_restarted(site: Site) -> None:
    site.prepare()
    site.server.stop()
    wait_until(lambda: site.listener(0) != "ok", 10, 0.1)

    check_that_sale_goes_on(site)
    site.server.start()
    seconds = site.wait_listening(RECOVERY)

    sys.stdout.write(f"{site.kind}: all hear again after {seconds:.1f} s\n")
    check_that_marks_work(site)


def test_connection_is_half_open(site: Site) -> None:
    site.prepare()
    site.proxy.set("blackhole")
    wait_until(lambda: site.listener(1) != "ok", 20, 0.1)

    check_that_sale_goes_on(site)
    assert site.ready(1)["degraded"]
    assert site.ready(1)["ready"] or site.kind != "zookeeper"  # The broker itself is away.
    site.proxy.heal()
    seconds = site.wait_listening(RECOVERY)

    sys.stdout.write(f"{site.kind}: hears again after {seconds:.1f} s\n")
    check_that_marks_work(site)


def test_zookeeper_is_away_longer_than_a_session_and_loses_its_data(open_site: OpenSite) -> None:
    with open_site("zookeeper") as site:
        check_that_marks_work(site)
        site.prepare()
        site.server.wipe()
        began = time.monotonic()
        check_that_sale_goes_on(site)
        wait_until(lambda: time.monotonic() - began > 8, 10)  # A session lasts six seconds.
        check_that_sale_goes_on(site)
        site.server.start()

        seconds = site.wait_listening(RECOVERY)

        sys.stdout.write(f"data lost: all hear again after {seconds:.1f} s\n")
        check_that_marks_work(site)


def test_stale_node_of_an_older_sale_refuses_for_a_moment_at_most(open_site: OpenSite) -> None:
    with open_site("zookeeper") as site:
        site.prepare()
        sale_id = site.sale()
        client = KazooClient(site.server.url)
        client.start()
        try:
            data = json.dumps({"epoch": 1, "sold_out": True}).encode()
            client.ensure_path(f"{ROOT}/{sale_id}")
            client.set(f"{ROOT}/{sale_id}", data)
            time.sleep(0.5)  # All have read it.
            site.sells_again(sale_id, time.monotonic(), within=[6.5] * 3)
            client.ensure_path(f"{ROOT}/999999")
            site.queue("reconcile_sales", queue="sweeps")
            wait_until(lambda: client.exists(f"{ROOT}/999999") is None, 20, 0.1)
            assert client.exists(f"{ROOT}/{sale_id}") is not None
        finally:
            client.stop()
            client.close()


def test_no_queue_is_left_of_a_killed_process(open_site: OpenSite, rabbitmq: RabbitMQ) -> None:
    def queues() -> list[str]:
        names = rabbitmq.ctl("list_queues", "name").split()
        return [name for name in names if "sold-out" in name]

    with open_site("rabbitmq") as site:
        assert len(queues()) == 3
        site.stack.kill("web3")
        wait_until(lambda: len(queues()) == 2, 60, 0.5)


def cpu(pid: int) -> float:
    """Seconds of processor time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory(pid: int) -> int:
    """KiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4


def test_many_marks_that_flip_cost_little(site: Site) -> None:
    wait_until(partial(site.listener, 2))
    pid = site.pid(2)
    before = cpu(pid)
    time.sleep(5)
    idle = (cpu(pid) - before) / 5
    flip(site, 3, start=1)  # All sales are known by now.
    size, before = memory(pid), cpu(pid)
    flip(site, 10, start=10**9)
    busy, grown = (cpu(pid) - before) / 10, memory(pid) - size

    sys.stdout.write(
        f"{site.kind}: idle {idle:.1%}, at 100 flips/s {busy:.1%} of a core, {grown} KiB more\n"
    )
    assert idle < 0.02
    assert grown < 4096


def flip(site: Site, seconds: float, *, start: int) -> None:
    """A hundred news a second about a thousand sales, from a process of their own."""
    site.shell(
        "import time",
        "from inventory import channel",
        "from inventory.news import News",
        f"began, number = time.monotonic(), 0 if {start} > 1 else -1000",
        f"while time.monotonic() - began < {seconds}:",
        f"    news = News(10_000 + number % 1000, {start} + number + 1000, number % 2 == 0)",
        "    channel.publish(news)",
        "    number += 1",
        "    time.sleep(max(0, began + number / 100 - time.monotonic()))",
    )
