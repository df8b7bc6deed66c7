"""Sold out everywhere, and back in stock everywhere, over each transport."""

import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psutil
import pytest

from tests.e2e.sockets import next_frame
from tests.marks.site import STRANGER, TTL, UNITS, Answer, Site
from tests.support.waiting import HOST, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(90)]

WAYS = ("expire", "cancel", "failed", "top_up")


def test_all_processes_refuse_from_memory_within_a_second(site: Site) -> None:
    sale_id = site.sale()
    site.sell_out(sale_id)
    sold_out_at = time.monotonic()
    time.sleep(0.6)  # What is asked for is a time, so a condition won't do.

    before = site.gate_calls()
    codes = [site.buy(sale_id, web).code for web in (1, 2)]
    calls = site.gate_calls() - before

    assert time.monotonic() - sold_out_at < 1.5
    assert codes == ["sold_out", "sold_out"]
    assert calls == 0


def refuse(port: int, requests: list[bytes]) -> int:
    """Send them over one connection; how many were refused as sold out."""
    refused = 0
    with socket.create_connection((HOST, port), timeout=10) as connection:
        for request in requests:
            connection.sendall(request)
            answer = connection.recv(65536)
            while b'"code"' not in answer:
                answer += connection.recv(65536)
            refused += answer.startswith(b"HTTP/1.1 409") and b"sold_out" in answer
    return refused


def test_ten_thousand_refusals_cost_hardly_a_call(site: Site) -> None:
    sale_id = site.sale()
    site.sell_out(sale_id)
    requests = [site.request(sale_id, 1 + number) for number in range(10_000)]
    site.wait_orders(sale_id)  # Nobody else calls the gate from here on.
    wait_until(lambda: site.belief(1, sale_id) == (site.epoch(sale_id), True))
    before, began = site.gate_calls(), time.monotonic()

    with ThreadPoolExecutor(4) as pool:
        parts = [requests[part::4] for part in range(4)]
        refused = sum(pool.map(refuse, [site.stack.ports[1]] * 4, parts))
    seconds = time.monotonic() - began
    calls = site.gate_calls() - before

    sys.stdout.write(f"{site.kind}: {calls} gate calls in {seconds:.1f} s\n")
    assert refused == 10_000
    assert calls <= 1 + seconds / TTL


def give_back(site: Site, way: str) -> tuple[int, float]:
    """Sell a sale out, make all refuse, let all units return; the sale and when that was."""
    sale_id = site.sale()
    if way == "failed":
        site.stack.pause("orders1")
        site.sell_out(sale_id, [next(STRANGER) for _ in range(UNITS)])
    else:
        site.sell_out(sale_id)
        site.wait_orders(sale_id)
    assert site.refused(sale_id) == ["sold_out"] * 3
    pool = ThreadPoolExecutor(1)
    pool.submit(_return(site, way), sale_id)
    pool.shutdown(wait=False)  # A command's process ends long after the units are back.
    return sale_id, site.wait_stock(sale_id)


def _return(site: Site, way: str) -> Callable[[int], None]:
    if way == "failed":
        return lambda sale_id: site.stack.resume("orders1")
    result: Callable[[int], None] = getattr(site, way)
    return result


@pytest.mark.parametrize("way", WAYS)
def test_back_in_stock_reaches_each_process_within_a_second(site: Site, way: str) -> None:
    sale_id, since = give_back(site, way)

    times = site.sells_again(sale_id, since, within=[1.0] * 3)

    sys.stdout.write(f"{site.kind} {way}: {[round(t, 2) for t in times]}\n")


def test_pause_open_and_close_reach_each_process_within_a_second(site: Site) -> None:
    sale_id = site.sale()
    site.sell_out(sale_id)
    site.wait_orders(sale_id)
    assert site.refused(sale_id) == ["sold_out"] * 3

    times = []
    for call, code in (("pause", "paused"), ("resume", "sold_out"), ("close", "closed")):
        site.clerk.do(f"assert stock.{call}_sale({sale_id})")
        times += site.answers(sale_id, code, within=1.0)

    sys.stdout.write(f"{site.kind}: {[round(t, 2) for t in times]}\n")


def test_viewers_of_each_process_are_told_within_a_second(site: Site) -> None:
    sale_id = site.sale()
    with ExitStack() as stack:
        sockets = [stack.enter_context(site.viewer(sale_id, web)) for web in range(3)]

        def told(since: float) -> set[str]:
            kinds = {str(next_frame(socket, 5)["type"]) for socket in sockets}
            assert time.monotonic() - since < 1.0
            return kinds

        assert {next_frame(socket, 5)["data"]["state"] for socket in sockets} == {"open"}
        site.sell_out(sale_id)
        assert told(time.monotonic()) == {"sale.sold_out"}
        site.wait_orders(sale_id)
        site.cancel(sale_id)
        assert told(time.monotonic()) == {"sale.back_in_stock"}
        for call, kind in (("pause", "paused"), ("resume", "opened"), ("close", "closed")):
            site.clerk.do(f"assert stock.{call}_sale({sale_id})")
            assert told(time.monotonic()) == {f"sale.{kind}"}


@pytest.mark.parametrize("shared_site", ["rabbitmq", "zookeeper"], indirect=True)
def test_a_process_says_what_it_believes_and_what_it_hears(site: Site) -> None:
    sale_id = site.sale()
    site.sell_out(sale_id)
    epoch = site.epoch(sale_id)
    wait_until(lambda: {site.belief(web, sale_id) for web in range(3)} == {(epoch, True)})

    told = site.stack.manage("soldout", "show", "--json")["processes"]
    metrics = [site.get(web, "/metrics").decode() for web in range(3)]

    assert {int(name.rpartition(":")[2]) for name in told} == {site.pid(web) for web in range(3)}
    channel = "zookeeper" if site.kind == "zookeeper" else "broadcast"
    heard = {(process["channel"], process["listener"]) for process in told.values()}
    assert heard == {(channel, "ok")}
    assert all(site.ready(web)["sold_out"]["age"] < 2 for web in range(3))
    assert all("seckill_sold_out_listener_up 1.0" in text for text in metrics)
    assert all("seckill_sold_out_listener_age_seconds " in text for text in metrics)


def test_sold_out_that_is_written_down_after_the_clear_does_not_stick(site: Site) -> None:
    assert late_mark(site).status == 202


def test_late_mark_sticks_without_the_epoch_check(site: Site) -> None:
    site.switches.set("unguarded")

    assert late_mark(site).code == "sold_out"


def late_mark(site: Site) -> Answer:
    """web2 stands still between the gate's "sold out" and its mark; meanwhile units return."""
    sale_id = site.sale()
    site.sell_out(sale_id)
    site.wait_orders(sale_id)
    sold_out = site.epoch(sale_id)
    wait_until(lambda: site.belief(1, sale_id) == (sold_out, True))
    # So that it asks the gate, as if the sale had been paused for a moment.
    site.clerk.do(f"channel.publish(News({sale_id}, 0, False))")
    wait_until(lambda: site.belief(1, sale_id) == (sold_out, False))
    site.switches.unset("hold")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(site.buy, sale_id, 1)
        wait_until(lambda: site.switches.is_set("hold"))
        site.expire(sale_id)
        site.wait_stock(sale_id)
        # The news of it come to the process that stands still.
        wait_until(lambda: site.belief(1, sale_id) == (sold_out + 1, False))
        site.switches.unset("hold")
        assert asked.result(10).code == "sold_out"
    site.switches.set("hold")
    return site.buy(sale_id, 1)


@pytest.mark.parametrize("shared_site", ["zookeeper"], indirect=True)
def test_each_process_has_one_connection_to_zookeeper(site: Site) -> None:
    sale_id = site.sale()
    site.sell_out(sale_id)  # web1 has told others now, too.
    wait_until(lambda: site.belief(2, sale_id) == (site.epoch(sale_id), True))

    ports = {site.server.port, site.proxy.port}
    numbers = [
        sum(bool(c.raddr) and c.raddr.port in ports for c in process.net_connections("tcp"))
        for process in (psutil.Process(site.pid(web)) for web in range(3))
    ]

    assert numbers == [1, 1, 1]
