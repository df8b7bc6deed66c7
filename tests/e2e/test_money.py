"""The sandbox's cashier with all its buttons over real HTTP, and a gateway that hangs."""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlencode

import pytest

from scripts.smoke import Client, await_order, buy, log_in
from tests.e2e.conftest import OpenShop
from tests.e2e.shop import Shop
from tests.support.stack import Plan
from tests.support.waiting import HOST, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Buyer:
    """A buyer with a session of his own, and one order."""

    def __init__(self, shop: Shop, name: str) -> None:
        self.shop = shop
        self.client = Client(shop.stack.base_url)
        log_in(self.client, name, name)
        self.order_id = ""

    def order(self, sale_id: int) -> "Buyer":
        self.order_id = await_order(self.client, sale_id, buy(self.client, sale_id), 30)
        return self

    def form(self, path: str, **fields: str) -> None:
        """Send a form of our pages, with the token that stands in it."""
        _, page = self.client.request("GET", "/orders/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None
        body = urlencode(fields | {"csrfmiddlewaretoken": token[1]}).encode()
        self.client.request("POST", path, body=body, headers=FORM)

    def pay(self, result: str) -> None:
        """Go to the cashier, and press one of its buttons."""
        path = f"/api/v1/orders/{self.order_id}/pay"
        url = self.client.json("POST", path, {"provider": "sandbox"})["payment_url"]
        self.form(url, result=result)

    def state(self) -> tuple[str, str | None]:
        order = self.client.json("GET", f"/api/v1/orders/{self.order_id}")
        return order["status"], order["refund"]

    def wait(self, status: str, refund: str | None = None) -> None:
        try:
            wait_until(lambda: self.state() == (status, refund), 40, 0.2)
        except AssertionError as error:
            error.add_note(f"{self.order_id} is {self.state()}")
            raise

    def wait_event(self, kind: str) -> None:
        wait_until(lambda: kind in self.events(), 40, 0.2)

    def events(self) -> list[str]:
        statement = "SELECT kind FROM orders_orderevent WHERE order_id = %s ORDER BY at, id"
        return [kind for (kind,) in self.shop.rows(statement, self.order_id)]


def buyers(shop: Shop, count: int) -> list[Buyer]:
    shop._make_buyers(count)
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(partial(Buyer, shop), [f"buyer{n}" for n in range(1, count + 1)]))


@pytest.fixture(scope="module")
def shop(open_shop: OpenShop) -> Iterator[Shop]:
    settings = {"PAYMENT_WINDOW": "6", "SWEEP_INTERVAL": "1", "PAYMENT_QUERY_AFTER": "2"}
    with open_shop(Plan(), CAPTCHA="off", **settings) as shop:
        yield shop


ENDINGS = {
    "pay": ("paid", ["created", "paid"]),
    "twice": ("paid", ["created", "paid"]),
    "slow": ("paid", ["created", "paid"]),  # we asked before the message came
    "never": ("paid", ["created", "paid"]),
    "fail": ("expired", ["created", "expired"]),
    "late": ("paid", ["created", "expired", "paid"]),
}


@pytest.mark.long
def test_every_button_of_the_cashier_ends_as_it_should(shop: Shop) -> None:
    sale_id = shop.create_sale(len(ENDINGS))
    pressed = dict(zip(ENDINGS, buyers(shop, len(ENDINGS)), strict=True))
    for result, buyer in pressed.items():
        buyer.order(sale_id).pay(result)

    for result, buyer in pressed.items():
        status, events = ENDINGS[result]
        if result == "late":
            buyer.wait_event("expired")
        buyer.wait(status)
        assert buyer.events() == events, result
    shop.rest(sale_id)


def test_late_money_for_a_unit_that_was_sold_goes_back(shop: Shop) -> None:
    sale_id = shop.create_sale(1)
    first, second = buyers(shop, 2)
    first.order(sale_id).pay("late")
    first.wait("expired")
    second.order(sale_id).pay("pay")

    second.wait("paid")
    first.wait("expired", "done")

    assert first.events() == ["created", "expired", "refund_started", "refund_done"]
    _, page = first.client.request("GET", f"/orders/{first.order_id}/")
    assert "Your money was returned." in page
    shop.rest(sale_id)


@pytest.mark.long
def test_an_order_whose_payment_was_begun_expires_in_time(shop: Shop) -> None:
    """Retrying every second doesn't move the deadline; the gateway is asked, and told to close."""
    sale_id = shop.create_sale(1)
    (buyer,) = buyers(shop, 1)
    buyer.order(sale_id)
    path = f"/api/v1/orders/{buyer.order_id}/pay"
    while buyer.state() == ("unpaid", None):
        body = {"provider": "sandbox"}
        buyer.client.json("POST", path, body, expect=(200, 409))
        time.sleep(0.5)

    statement = "SELECT extract(epoch FROM closed_at - pay_before) FROM orders_order WHERE id = %s"
    ((late,),) = shop.rows(statement, buyer.order_id)
    assert buyer.events() == ["created", "expired"]
    assert 0 <= late <= 2 * 1.0 + 0.5
    closed = "SELECT closed_at IS NOT NULL FROM orders_sandboxcharge"
    assert (True,) in shop.rows(closed)


# --- a gateway that hangs -------------------------------------------------------------------------


@pytest.fixture
def silence() -> Iterator[int]:
    """A port where connections are taken and nothing is ever answered."""
    with socket.create_server((HOST, 0), backlog=100) as listener:
        yield listener.getsockname()[1]


@pytest.mark.long
def test_a_gateway_that_hangs_holds_up_nobody_else(open_shop: OpenShop, silence: int) -> None:
    settings = {
        "PAYMENT_PROVIDERS": "sandbox,stripe",
        "SITE_URL": "http://shop.example",
        "STRIPE_SECRET_KEY": "sk_test_of_the_tests",
        "STRIPE_WEBHOOK_SECRET": "whsec_of_the_tests",
        "HTTPS_PROXY": f"http://{HOST}:{silence}",  # Stripe's client goes there, and waits.
    }
    with open_shop(Plan(), CAPTCHA="off", **settings) as shop:
        sale_id = shop.create_sale(20)
        *paying, other = buyers(shop, 9)
        for buyer in paying:
            buyer.order(sale_id)
        answers: list[tuple[float, int, str]] = []

        def pay(buyer: Buyer) -> None:
            began = time.monotonic()
            path, data = f"/api/v1/orders/{buyer.order_id}/pay", b'{"provider": "stripe"}'
            headers = {"Content-Type": "application/json"}
            status, text = buyer.client.request(
                "POST", path, body=data, headers=headers, expect=(503,)
            )
            answers.append((time.monotonic() - began, status, json.loads(text)["code"]))

        threads = [threading.Thread(target=pay, args=(buyer,)) for buyer in paying]
        for thread in threads:
            thread.start()
        times, locks = look_around(shop, other, sale_id, threads)
        for thread in threads:
            thread.join()

    assert [code for _, _, code in answers] == ["payment_unavailable"] * 8
    assert max(took for took, _, _ in answers) < 3
    assert len(times) >= 4
    assert max(times) < 1
    assert locks == 0


def look_around(
    shop: Shop, buyer: Buyer, sale_id: int, threads: list[threading.Thread]
) -> tuple[list[float], int]:
    """What another buyer waits for meanwhile, and the most transactions that anybody left open."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND state LIKE 'idle in transaction%%' AND now() - state_change > interval '0.5 second'"
    )
    times: list[float] = []
    locks = 0
    buyer.order(sale_id)
    while any(thread.is_alive() for thread in threads) or len(times) < 4:
        for path in ("/orders/", f"/api/v1/orders/{buyer.order_id}", "/"):
            began = time.monotonic()
            buyer.client.request("GET", path)
            times.append(time.monotonic() - began)
        locks = max(locks, *[count for (count,) in shop.rows(waiting)], 0)
    return times, locks
