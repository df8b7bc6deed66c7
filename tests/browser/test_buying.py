"""From a look at the sale to a paid order, and what comes between."""

import re

import pytest
from playwright.sync_api import WebSocketRoute, expect

from tests.browser.button import ORDER, QUEUE, SLOW, expect_face, press_buy
from tests.browser.conftest import Enter, Shop
from tests.browser.visitors import Visitor
from tests.support.params import more

pytestmark = pytest.mark.timeout(180)


def bought(shop: Shop, visitor: Visitor, sale_id: int) -> str:
    """Buy as a new buyer; returns the address of the order."""
    visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    press_buy(visitor.page)
    expect(visitor.page).to_have_url(ORDER, timeout=SLOW)
    return visitor.page.url


def test_purchase_from_click_to_paid(shop: Shop, enter: Enter) -> None:
    visitor = enter()
    bought(shop, visitor, shop.sale())

    page = visitor.page
    expect(page.get_by_role("heading", level=1)).to_have_text("You got it")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.get_by_role("button", name="Pay now").click()
    expect(page.get_by_text("TEST", exact=True)).to_be_visible()
    page.get_by_role("button", name="Pay", exact=True).click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Paid. Thank you", timeout=SLOW)
    assert "/ws/v1/me" in visitor.sockets


def test_purchase_without_scripts(shop: Shop, enter: Enter) -> None:
    page = enter(java_script_enabled=False).page
    sale_id, name = shop.sale(), shop.buyer()
    page.goto(f"/sales/{sale_id}/")
    page.get_by_role("button", name="Buy now").click()
    page.fill("[name=username]", name)
    page.fill("[name=password]", name)
    page.locator("main form").get_by_role("button").last.click()
    page.get_by_role("button", name="Buy now").click()

    expect(page).to_have_url(ORDER, timeout=SLOW)
    expect(page.get_by_text("Pay before")).to_be_visible()
    page.get_by_role("button", name="Pay now").click()
    page.get_by_role("button", name="Pay", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Paid. Thank you", timeout=SLOW)


def test_purchase_with_the_websocket_blocked(shop: Shop, enter: Enter) -> None:
    visitor = enter()

    def block(route: WebSocketRoute) -> None:
        route.close(code=1011)

    visitor.page.route_web_socket(re.compile("/ws/"), block)

    assert ORDER.search(bought(shop, visitor, shop.sale()))


@pytest.mark.parametrize("web", [1, *more(2)])
def test_purchase_by_any_web_process(shop: Shop, enter: Enter, web: int) -> None:
    assert ORDER.search(bought(shop, enter(web=web), shop.sale()))


def test_double_click_and_two_tabs_make_one_order(shop: Shop, enter: Enter) -> None:
    visitor, sale_id = enter(), shop.sale()
    first = visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    second = visitor.another_tab()
    second.goto(f"/sales/{sale_id}/")
    expect_face(first, "ready")
    expect_face(second, "ready")

    first.locator("#buy").get_by_role("button", name="Buy now").dblclick()
    second.locator("#buy").get_by_role("button", name="Buy now").dblclick(no_wait_after=True)

    for page in (first, second):
        expect(page).to_have_url(ORDER, timeout=SLOW)
    assert first.url == second.url
    assert len(shop.orders_of(visitor)) == 1


def test_back_to_the_sale_shows_what_one_has(shop: Shop, enter: Enter) -> None:
    visitor, sale_id = enter(), shop.sale()
    bought(shop, visitor, sale_id)

    visitor.page.goto(f"/sales/{sale_id}/")
    expect_face(visitor.page, "bought")
    visitor.page.goto("/")
    visitor.page.go_back()

    expect_face(visitor.page, "bought")
    visitor.page.locator("#buy a").click()
    expect(visitor.page).to_have_url(ORDER)


def test_queue_page_survives_reload_and_going_away(shop: Shop, enter: Enter, stalled: None) -> None:
    visitor, sale_id = enter(), shop.sale()
    page = visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    press_buy(page)
    expect(page).to_have_url(QUEUE)
    queue = page.url
    expect(page.get_by_text("ahead of you")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Your place is kept")

    page.goto(f"/sales/{sale_id}/")
    expect_face(page, "queueing")
    shop.stack.launch("orders1")

    toast = page.locator(".toast", has_text="Your order is made")
    expect(toast).to_be_visible(timeout=SLOW)
    page.goto(queue)
    expect(page).to_have_url(ORDER)


def test_badge_counts_results_until_they_were_looked_at(shop: Shop, enter: Enter) -> None:
    visitor, sale_id, name = enter(), shop.sale(), shop.buyer()
    order = shop.make("order", sale_id=sale_id, buyer=name, status="EXPIRED")
    page = visitor.sign_in(name, to="/")
    badge = page.locator("[data-unseen]")
    expect(badge).to_contain_text("1")

    page.goto(f"/orders/{order}/")
    page.goto("/")
    expect(page.locator("[data-name]").first).to_have_text(name)

    expect(badge).to_be_hidden()


def test_failure_says_why_and_leads_back_to_the_list(shop: Shop, enter: Enter) -> None:
    visitor, sale_id, name = enter(), shop.sale(), shop.buyer()
    refused = shop.make("order", sale_id=sale_id, buyer=name, status="REJECTED")
    page = visitor.sign_in(name, to=f"/purchases/{sale_id}/{refused}/")

    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.get_by_text("You were not charged")).to_be_visible()
    page.get_by_role("link", name="See other sales").click()

    expect(page).to_have_url(visitor.base_url + "/")


def test_stock_that_comes_back_is_seen_in_a_second_browser(shop: Shop, enter: Enter) -> None:
    owner, watcher = enter(web=0), enter(web=1)
    sale_id = shop.sale(stock=1)
    bought(shop, owner, sale_id)
    page = watcher.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    expect_face(page, "maybe_back")
    expect(page.locator("#buy-note")).to_contain_text("1 order not paid yet")
    page.evaluate("window.sameDocument = true")

    owner.page.get_by_text("Cancel the order").click()
    owner.page.get_by_role("button", name="Cancel, and give the units back").click()

    expect_face(page, "ready")
    expect(page.locator(".toast")).to_contain_text("Stock is back")
    press_buy(page)
    expect(page).to_have_url(ORDER, timeout=SLOW)
    assert [order["status"] for order in shop.orders_of(owner)] == ["canceled"]


def test_offline_says_so_and_goes_on_by_itself(shop: Shop, enter: Enter) -> None:
    visitor, sale_id = enter(), shop.sale()
    page = visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    expect_face(page, "ready")

    page.context.set_offline(True)
    expect_face(page, "offline")
    expect(page.locator("[data-offline]")).to_be_visible()
    page.context.set_offline(False)

    expect_face(page, "ready")
    press_buy(page)
    expect(page).to_have_url(ORDER, timeout=SLOW)


def test_order_of_which_time_is_up_claims_nothing(shop: Shop, enter: Enter) -> None:
    """It is the server that says "expired", not the countdown."""
    visitor, sale_id, name = enter(), shop.sale(), shop.buyer()
    order = shop.make("order", sale_id=sale_id, buyer=name, status="UNPAID", age=897)
    page = visitor.sign_in(name, to=f"/orders/{order}/")

    expect(page.locator("#order h1")).to_have_text("The time to pay is over", timeout=SLOW)
    assert page.get_by_role("button", name="Pay now").count() == 0
