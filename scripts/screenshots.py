#!/usr/bin/env python
"""Takes pictures of every page into docs/screenshots: light and dark, desktop and phone, en and zh.

Starts a shop of its own on the embedded services, fills it, drives Chromium, stops everything.
"""

import argparse
import base64
import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, BrowserContext, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.smoke import Client, buy, log_in  # noqa: E402

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars"),
]
QUALITY = 72  # of WebP
READY_WITHIN = 120.0
SIZES = {"desktop": (1180, 820), "phone": (360, 740)}
LANGUAGES = {"en": "en-US", "zh": "zh-CN"}
# Purchases that a picture needs and that take luck to get: made by hand.
REFUSED = """
from datetime import timedelta
from django.contrib.auth.models import User
from django.utils import timezone
from inventory.models import FlashSale
from orders.models import Order, OrderEvent, Rejection, Status
import uuid_utils.compat
buyer, now = User.objects.get(username="demo"), timezone.now()
sale = FlashSale.objects.select_related("product").get(product__name="Signed first edition")
order = Order.objects.create(
    id=uuid_utils.compat.uuid7(), sale=sale, user=buyer, product_name=sale.product.name, quantity=1,
    unit_price_cents=sale.price_cents, amount_cents=sale.price_cents, currency=sale.currency,
    status=Status.REJECTED, code=Rejection.SOLD_OUT, created_at=now, pay_before=now,
)
print(order.pk)
"""


class Shop(NamedTuple):
    url: str
    environment: Mapping[str, str]

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout


class Shot(NamedTuple):
    """`signed_in`: as the demo buyer."""

    name: str
    path: str
    signed_in: bool = False


@contextlib.contextmanager
def running() -> Iterator[Shop]:
    """A shop with the demo's sales, in a folder that goes with it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        own = {"VAR_DIR": folder, "PORT": str(port), "DEBUG": "on", "WORKERS": "1"}
        named = {"DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "SECRET_KEY"}
        environment = {k: v for k, v in os.environ.items() if k not in named} | own
        log = Path(folder, "up.log")
        with log.open("wb") as output:
            up = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
            )
        try:
            shop = Shop(f"http://127.0.0.1:{port}", environment)
            wait_ready(shop, up, log)
            yield shop
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)


def wait_ready(shop: Shop, up: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while b"ready http" not in log.read_bytes():
        if up.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the shop did not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.2)
    urllib.request.urlopen(f"{shop.url}/", timeout=10).close()  # nosec B310


def fill(shop: Shop) -> list[Shot]:
    """Sales in each state, orders in several; returns what there is to see."""
    later = ("--price", "89.00", "--list-price", "189.00", "--stock", "500")
    shop.manage("create_sale", "--name", "Espresso machine", *later, "--starts-in", "100000")
    shop.manage("create_sale", "--name", "Linen bedding set", *later, "--duration", "3000")
    shop.manage("create_buyers", "--count", "3")
    public = Client(shop.url)
    sales = {each["product"]: each["id"] for each in public.json("GET", "/api/v1/sales")["sales"]}
    for number in range(1, 4):
        other = signed_in(shop, f"buyer{number}")
        buy(other, sales["Signed first edition"])
    buyer = signed_in(shop, "demo")
    paid, _ = buy(buyer, sales["Linen bedding set"])
    unpaid, _ = buy(buyer, sales["Walnut desk lamp"])
    refused = shop.manage("shell", "-v", "0", "-c", REFUSED).strip().splitlines()[-1]
    await_orders(buyer, paid, unpaid)
    cashier = pay(buyer, unpaid)
    settle(shop, pay(buyer, paid))
    book = sales["Signed first edition"]
    return [
        Shot("sales", "/"),
        Shot("sale-open", f"/sales/{sales['Linen bedding set']}/"),
        Shot("sale-scheduled", f"/sales/{sales['Mechanical keyboard']}/", signed_in=True),
        Shot("sale-sold-out", f"/sales/{book}/", signed_in=True),
        Shot("queue", f"/purchases/{book}/{{fresh}}/", signed_in=True),
        Shot("refused", f"/purchases/{book}/{refused}/", signed_in=True),
        Shot("order-unpaid", f"/orders/{unpaid}/", signed_in=True),
        Shot("order-paid", f"/orders/{paid}/", signed_in=True),
        Shot("orders", "/orders/", signed_in=True),
        Shot("cashier", cashier, signed_in=True),
        Shot("sign-in", "/login/"),
        Shot("register", "/register/"),
        Shot("error", "/logout/"),  # DEBUG is on, so what isn't there is explained by Django
        Shot("states", "/_states/", signed_in=True),
    ]


def signed_in(shop: Shop, name: str) -> Client:
    client = Client(shop.url)
    log_in(client, name, name)
    return client


def await_orders(client: Client, *orders: str) -> None:
    for order in orders:
        while not client.json("GET", f"/api/v1/orders/{order}", expect=(200, 404)).get("id"):
            time.sleep(0.2)


def pay(client: Client, order: str) -> str:
    path = f"/api/v1/orders/{order}/pay"
    return str(client.json("POST", path, {"provider": "sandbox"})["payment_url"])


def settle(shop: Shop, cashier: str) -> None:
    """The buyer presses "pay" at the test cashier; then its messages take their time."""
    client = signed_in(shop, "demo")
    client.request("GET", cashier)
    form = f"result=pay&csrfmiddlewaretoken={client.cookie('csrftoken')}".encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    client.request("POST", cashier, body=form, headers=headers)


def fresh_id() -> str:
    """A purchase of this moment: a UUIDv7."""
    bits = int(time.time() * 1000) << 80 | 7 << 76 | 2 << 62 | uuid.uuid4().int & (1 << 62) - 1
    return str(uuid.UUID(int=bits))


def picture(context: BrowserContext, address: str, target: Path) -> None:
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(250)
    size = page.viewport_size
    assert size is not None
    session = context.new_cdp_session(page)
    how: dict[str, Any] = {"format": "webp", "quality": QUALITY, "captureBeyondViewport": False}
    shot = session.send("Page.captureScreenshot", how)
    target.write_bytes(base64.b64decode(shot["data"]))
    page.close()


def contexts(browser: Browser, shop: Shop) -> Iterator[tuple[str, BrowserContext, BrowserContext]]:
    """For each variant its name, a stranger's browser and the demo buyer's."""
    for theme, size, language in itertools.product(("light", "dark"), SIZES, LANGUAGES):
        width, height = SIZES[size]
        options: dict[str, Any] = {
            "color_scheme": theme,
            "locale": LANGUAGES[language],
            "viewport": {"width": width, "height": height},
            "timezone_id": "Asia/Shanghai" if language == "zh" else "Europe/London",
        }
        stranger, buyer = browser.new_context(**options), browser.new_context(**options)
        page = buyer.new_page()
        page.goto(f"{shop.url}/login/")
        page.fill("[name=username]", "demo")
        page.fill("[name=password]", "demo")
        page.click("main form button:not([type=button])")
        page.wait_for_url(f"{shop.url}/")
        page.close()
        yield f"{theme}-{size}-{language}", stranger, buyer
        stranger.close()
        buyer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs/screenshots")
    parser.add_argument("--only", default="", help="pages and variants whose name contains this")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise SystemExit("Chromium not found: make services")
    with running() as shop, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        shots = fill(shop)
        for variant, stranger, buyer in contexts(browser, shop):
            for shot in shots:
                name = f"{shot.name}-{variant}.webp"
                if options.only in name:
                    address = shop.url + shot.path.replace("{fresh}", fresh_id())
                    picture(buyer if shot.signed_in else stranger, address, options.out / name)
            print(variant, flush=True)
        browser.close()
    total = sum(path.stat().st_size for path in options.out.glob("*.webp"))
    print(f"{len(list(options.out.glob('*.webp')))} pictures, {total / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
