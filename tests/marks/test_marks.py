"""Sold out everywhere, and back in stock everywhere, over each transport."""

import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.marks.conftest import OpenSite
from tests.marks.site import STRANGER, UNITS, Answer, Site
from tests.support.waiting import HOST, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(90)]

TTL = 6.0  # SOLD_OUT_TTL of these processes
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
    time.sleep(0.5)
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


def test_a_deaf_process_sells_again_when_its_mark_has_run_out(site: Site) -> None:
    site.proxy.set("blackhole")
    sale_id = site.sale()
    site.sell_out(sale_id)
    site.wait_orders(sale_id)
    assert site.refused(sale_id) == ["sold_out"] * 3
    site.expire(sale_id)
    since = site.wait_stock(sale_id)

    times = site.sells_again(sale_id, since, within=[1.0, TTL, 1.0])

    sys.stdout.write(f"{site.kind} deaf: {[round(t, 2) for t in times]}\n")
    assert times[1] > 1.0  # It did hear nothing.
    assert site.ready(1)["degraded"]


def test_sold_out_that_is_written_down_after_the_clear_does_not_stick(site: Site) -> None:
    assert late_mark(site).status == 202


def late_mark(site: Site) -> Answer:
    """web2 stands still between the gate's "sold out" and its mark; meanwhile units return."""
    sale_id = site.sale()
    site.sell_out(sale_id)
    site.wait_orders(sale_id)
    site.stack.restart("web2")  # It knows nothing of this sale, so it asks the gate.
    site.wait_listening()
    site.shell(
        f"from inventory import channel, news; channel.publish(news.News({sale_id}, 0, False))"
    )
    site.hold.unlink()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(site.buy, sale_id, 1)
        wait_until(site.hold.exists)
        site.expire(sale_id)
        site.wait_stock(sale_id)
        # The news of it come to the process that stands still.
        wait_until(lambda: site.believes(1, sale_id) is False, 15, 0.1)
        site.hold.unlink()
        assert asked.result(10).code == "sold_out"
    site.hold.touch()
    return site.buy(sale_id, 1)


@pytest.mark.parametrize("kind", ["rabbitmq"])
def test_late_mark_sticks_without_the_epoch_check(open_site: OpenSite, kind: str) -> None:
    with open_site(kind, entry="tests.marks.unguarded:application") as site:
        assert late_mark(site).code == "sold_out"
