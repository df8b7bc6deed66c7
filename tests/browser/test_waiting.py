"""What a buyer is told while time passes: how long the queue takes, how long there is to pay."""

import json
import re
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Page, Route, expect

from scripts.screenshots import fresh_id
from tests.browser.conftest import Enter, Shop

pytestmark = pytest.mark.timeout(180)

MINUTE = 60
TWO_MINUTES = "Less than 2 minutes left to pay"
HALF_A_MINUTE = "Less than 30 seconds left to pay"
NOTE_TOASTS = """addEventListener("DOMContentLoaded", () => {
    window.told = [];
    const place = document.querySelector("[data-toasts]");
    new MutationObserver((changes) => changes.forEach(({ addedNodes }) =>
        addedNodes.forEach((toast) => window.told.push(toast.firstChild.textContent))))
        .observe(place, { childList: true });
});"""


class ShopClock:
    """Moves what the shop says the time is; the page hears of it when it asks again."""

    def __init__(self, page: Page) -> None:
        self._page, self._ahead = page, timedelta()
        page.route("**/api/v1/time", self._answer)

    def _answer(self, route: Route) -> None:
        told = route.fetch()
        now = datetime.fromisoformat(told.json()["now"]) + self._ahead
        route.fulfill(response=told, json={"now": now.isoformat()})

    def advance(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)
        self._page.evaluate("dispatchEvent(new Event('online'))")


def test_order_page_warns_at_two_minutes_and_at_thirty_seconds(shop: Shop, enter: Enter) -> None:
    visitor, sale_id, name = enter(), shop.sale(), shop.buyer()
    order = shop.make("order", sale_id=sale_id, buyer=name, status="UNPAID")
    visitor.sign_in(name)
    page, clock = visitor.page, ShopClock(visitor.page)
    page.add_init_script(NOTE_TOASTS)
    page.goto(f"/orders/{order}/")
    countdown, toasts = page.locator(".countdown.deadline"), page.locator("[data-toasts]")
    expect(countdown.locator(".digits")).to_have_text(re.compile("14:"))
    assert page.evaluate("window.told") == []
    expect(countdown).not_to_have_class(re.compile("urgent"))

    clock.advance(12 * MINUTE)
    expect(countdown.locator(".digits")).to_have_text(re.compile("2:"))
    assert page.evaluate("window.told") == []
    clock.advance(MINUTE)

    expect(toasts).to_contain_text(TWO_MINUTES)
    expect(toasts).to_have_attribute("role", "status")
    expect(countdown).to_have_class(re.compile("urgent"))
    clock.advance(1.5 * MINUTE)
    expect(toasts).to_contain_text(HALF_A_MINUTE)
    assert page.evaluate("window.told") == [TWO_MINUTES, HALF_A_MINUTE]
    expect(page.get_by_role("button", name="Pay now")).to_be_enabled()


def test_order_page_opened_late_warns_truly_and_once(shop: Shop, enter: Enter) -> None:
    visitor, sale_id, name = enter(), shop.sale(), shop.buyer()
    order = shop.make("order", sale_id=sale_id, buyer=name, status="UNPAID", age=13.2 * MINUTE)
    visitor.page.add_init_script(NOTE_TOASTS)
    page = visitor.sign_in(name, to=f"/orders/{order}/")
    expect(page.locator("[data-toasts]")).to_contain_text(TWO_MINUTES)

    # The server puts the order in anew, countdown and all, when anything about it changed.
    page.evaluate(
        "document.querySelector('.countdown').replaceWith("
        "document.querySelector('.countdown').cloneNode(true))"
    )
    page.wait_for_timeout(1000)

    assert page.evaluate("window.told") == [TWO_MINUTES]


@pytest.mark.long
def test_queue_page_tells_how_long_it_may_take(shop: Shop, enter: Enter) -> None:
    visitor, sale_id = enter(), shop.sale()
    visitor.sign_in(shop.buyer())
    page = visitor.page
    ahead: list[int | None] = [9000]

    def place(route: Route) -> None:
        route.fulfill(body=json.dumps({"ahead": ahead[0], "waiting": 9001}))

    page.route("**/place/", place)
    page.goto(f"/purchases/{sale_id}/{fresh_id()}/")
    number, eta = page.locator("[data-ahead]"), page.locator("[data-eta]")

    expect(number).to_have_text("9000")
    expect(page.locator("[data-asof]")).to_contain_text("as of")
    expect(eta).to_be_empty()  # One look tells no speed.
    ahead[0] = 8900
    expect(eta).to_have_text(re.compile(r"· about \d+–\d+ min to go"))
    ahead[0] = 90
    expect(eta).to_have_text(re.compile(r"· about \d+–\d+ s to go"))
    low, high = map(int, re.findall(r"\d+", eta.inner_text()))
    assert low <= high
    ahead[0] = 0
    expect(eta).to_have_text("You are next.")
    ahead[0] = None
    expect(page.locator("#ahead")).to_be_hidden()
