"""Sold out everywhere, and back in stock everywhere, over each transport."""

import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.marks.site import STRANGER, UNITS, Site
from tests.support.waiting import HOST

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(90)]

TTL = 2.0  # the default of SOLD_OUT_TTL
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
