"""One shop of three web processes for all tests, and Chromium to visit it."""

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.visitors import Visitor
from tests.support import binaries, environment
from tests.support.plugin import skip_if_missing, skip_or_fail
from tests.support.postgres import Postgres
from tests.support.redis_server import RedisServer
from tests.support.stack import Plan, Stack

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
]
SETTINGS = {
    "CAPTCHA": "altcha",
    "PURCHASE_RATE": "1000/1s",
    "SWEEP_INTERVAL": "1",
    "SOLD_OUT_TTL": "0.5",
    "DEBUG": "off",
}

Enter = Callable[..., Visitor]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They share a shop and a browser: all in one worker."""
    for item in items:
        if "/tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("shops"))


class Shop:
    """A running shop, and rows made in it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._numbers = itertools.count(1)
        self._maker = subprocess.Popen(
            [sys.executable, "-m", "tests.browser.maker"],
            cwd=environment.ROOT,
            env=stack.environment | {"DJANGO_SETTINGS_MODULE": "config.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        with self._maker:
            self._maker.stdin.close()

    def make(self, kind: str, **wanted: Any) -> Any:
        self._maker.stdin.write(json.dumps({"kind": kind, **wanted}) + "\n")
        self._maker.stdin.flush()
        line = self._maker.stdout.readline()
        assert line, f"no {kind} was made"
        return json.loads(line)

    def sale(self, stock: int = 10, **wanted: Any) -> int:
        name = wanted.pop("name", f"Kettle {next(self._numbers)}")
        return int(self.make("sale", name=name, stock=stock, **wanted))

    def buyer(self) -> str:
        name = f"shopper{next(self._numbers)}"
        self.make("buyer", name=name)
        return name

    def orders_of(self, visitor: Visitor) -> list[dict[str, Any]]:
        """What the API says, to whoever is signed in there."""
        answer = visitor.page.context.request.get("/api/v1/orders")
        return list(answer.json()["orders"])


@pytest.fixture(scope="package")
def shop(_own_postgres: Postgres, _migrated: str) -> Iterator[Shop]:
    url = _own_postgres.create_database("browsers", template=_migrated)
    with RedisServer() as redis:
        settings = SETTINGS | {"DATABASE_URL": url, "REDIS_URL": redis.url}
        with Stack(settings, plan=Plan(web=3, concurrency=1)) as stack:
            running = Shop(stack)
            yield running
            running.close()
    _own_postgres.drop_database("browsers")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Of a module only: while it is open, its thread has an event loop, which others can't bear."""
    with launched() as browser:
        yield browser


@contextlib.contextmanager
def launched(**options: Any) -> Iterator[Browser]:
    with skip_if_missing():
        program = binaries.find("chromium", "chromium-browser", "google-chrome")
    if program is None:
        skip_or_fail("Chromium not found: make services")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, **options)
        yield browser
        browser.close()


@pytest.fixture
def stalled(shop: Shop) -> Iterator[None]:
    """No order is made until the test launches the worker again."""
    shop.stack.kill("orders1")
    yield
    if not shop.stack.members["orders1"].is_running:
        shop.stack.launch("orders1")


@pytest.fixture
def enter(shop: Shop, chromium: Browser) -> Iterator[Enter]:
    """`enter(web=1, locale=…)`: somebody new with a browser; at the end each is checked.

    `url`: of another shop.
    """
    entered: list[Visitor] = []

    def make(*, web: int = 0, url: str = "", **options: Any) -> Visitor:
        visitor = Visitor.enter(chromium, url or shop.stack.base_urls[web], **options)
        entered.append(visitor)
        return visitor

    yield make
    for visitor in entered:
        visitor.leave()
    for visitor in entered:
        visitor.check()
