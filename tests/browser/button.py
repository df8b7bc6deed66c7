"""The buy button as visitors meet it, and where it leads."""

import re

from playwright.sync_api import Page, expect

ORDER = re.compile(r"/orders/[0-9a-f-]{36}/$")
QUEUE = re.compile(r"/purchases/\d+/[0-9a-f-]{36}/$")
SLOW = 20_000  # ms, for what takes a worker


def press_buy(page: Page) -> None:
    page.locator("#buy").get_by_role("button", name="Buy now").click()


def expect_face(page: Page, name: str, *, timeout: float = 10_000) -> None:
    text = {
        "ready": "Buy now",
        "bought": "You got it: view the order",
        "queueing": "You are in the queue",
        "maybe_back": "Sold out for now",
        "paused": "Paused",
        "not_started": "Not open yet",
        "login_required": "Sign in to buy",
        "offline": "You are offline",
    }[name]
    expect(page.locator("#buy [data-control]")).to_have_text(text, timeout=timeout)
