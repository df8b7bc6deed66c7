"""Leaving a page and coming back by the browser's own button: what is shown is true again.

Each test runs twice: with a browser that keeps whole pages, scripts and all, and with one that
shows them anew, from its copy if it has one.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from scripts.screenshots import fresh_id
from tests.browser.button import ORDER, QUEUE, SLOW, expect_face, press_buy
from tests.browser.conftest import Enter, Shop, launched
from tests.browser.visitors import Visitor

pytestmark = pytest.mark.timeout(240)

NOTE_RETURN = 'addEventListener("pageshow", (event) => { window.kept = event.persisted; });'
SERVER_NOW = "fetch('/api/v1/time').then((a) => a.json()).then((time) => Date.parse(time.now))"


@pytest.fixture(
    scope="module",
    params=[pytest.param(True, id="kept"), pytest.param(False, id="anew", marks=pytest.mark.long)],
)
def keeps(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def chromium(keeps: bool) -> Iterator[Browser]:
    """Playwright turns the back/forward cache off, unless told otherwise."""
    options = {"ignore_default_args": ["--disable-back-forward-cache"]} if keeps else {}
    with launched(**options) as browser:
        yield browser


def come(enter: Enter) -> Visitor:
    visitor = enter()
    visitor.page.add_init_script(NOTE_RETURN)
    return visitor


def back(page: Page, *, steps: int = 1) -> None:
    """A page that was kept is not loaded, so there is no "load" to wait for."""
    # Not by go_back: a moment after a kept page has come back, Chromium's driver has no history.
    with page.expect_navigation(wait_until="commit"):
        page.evaluate("steps => { setTimeout(() => history.go(-steps)) }", steps)


def expect_kept(page: Page, keeps: bool) -> None:
    page.wait_for_function("keeps => window.kept === keeps", arg=keeps)


def test_sale_page_comes_back_with_the_present_state(shop: Shop, enter: Enter, keeps: bool) -> None:
    visitor, sale_id = come(enter), shop.sale()
    page = visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    expect_face(page, "ready")
    page.goto("/orders/")
    shop.make("change", sale_id=sale_id, paused=True)
    before = visitor.sockets.count(f"/ws/v1/sales/{sale_id}")

    back(page)

    expect_face(page, "paused")
    expect_kept(page, keeps)
    page.evaluate("window.sameDocument = true")
    shop.make("change", sale_id=sale_id, paused=False)
    expect_face(page, "ready")  # Sooner than it would ask by itself: it was told.
    assert page.evaluate("window.sameDocument") is True
    assert visitor.sockets.count(f"/ws/v1/sales/{sale_id}") == before + 1


@pytest.mark.long
def test_sale_page_comes_back_with_the_right_countdown(
    shop: Shop, enter: Enter, keeps: bool
) -> None:
    page = come(enter).page
    page.goto(f"/sales/{shop.sale(starts_in=500)}/")
    digits = page.locator(".countdown.big .digits")
    expect(digits).not_to_be_empty()
    page.goto("/login/")
    page.wait_for_timeout(4000)

    back(page)

    expect_kept(page, keeps)
    page.wait_for_timeout(2000)  # for the answers about the time
    left = page.evaluate(
        f"""() => {SERVER_NOW}.then((now) => {{
            const shown = document.querySelector(".countdown.big .digits").textContent;
            const [minutes, seconds] = shown.split(":").map(Number);
            const starts = Date.parse(document.getElementById("buy").dataset.starts);
            return [60 * minutes + seconds, (starts - now) / 1000];
        }})"""
    )
    assert abs(left[0] - left[1]) < 2


@pytest.mark.long
def test_sale_page_that_was_left_before_the_start_comes_back_open(
    shop: Shop, enter: Enter, keeps: bool
) -> None:
    visitor, name = come(enter), shop.buyer()
    visitor.sign_in(name)
    sale_id = shop.sale(starts_in=600)
    page = visitor.go(f"/sales/{sale_id}/")
    expect_face(page, "not_started")
    page.goto("/orders/")
    shop.make("change", sale_id=sale_id, starts_in=-1)

    back(page)

    expect_face(page, "ready")
    expect_kept(page, keeps)
    press_buy(page)
    expect(page).to_have_url(ORDER, timeout=SLOW)


def test_sale_page_comes_back_after_the_purchase_without_its_button(
    shop: Shop, enter: Enter
) -> None:
    visitor, sale_id = come(enter), shop.sale()
    page = visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    expect_face(page, "ready")
    press_buy(page)
    expect(page).to_have_url(ORDER, timeout=SLOW)

    back(page)

    expect_face(page, "bought")
    assert len(shop.orders_of(visitor)) == 1


def test_sale_page_from_before_signing_in_can_be_bought_from(shop: Shop, enter: Enter) -> None:
    """Signing in changes the token against forgery, which that page still has."""
    visitor, sale_id = come(enter), shop.sale()
    visitor.go(f"/sales/{sale_id}/")
    expect_face(visitor.page, "login_required")
    page = visitor.sign_in(shop.buyer())

    back(page, steps=2)

    expect_face(page, "ready")
    press_buy(page)
    expect(page).to_have_url(ORDER, timeout=SLOW)


def test_sale_page_of_who_signed_out_asks_to_sign_in(shop: Shop, enter: Enter) -> None:
    visitor, sale_id, name = come(enter), shop.sale(), shop.buyer()
    page = visitor.sign_in(name, to=f"/sales/{sale_id}/")
    expect_face(page, "ready")
    page.goto("/")
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("[data-signed-in]")).to_be_hidden()

    back(page, steps=2)

    expect_face(page, "login_required")
    expect(page.get_by_text(name)).to_have_count(0)
    expect(page.locator("[data-signed-in]")).to_be_hidden()


@pytest.mark.long
def test_sale_page_of_another_buyer_buys_for_who_is_there_now(shop: Shop, enter: Enter) -> None:
    visitor, sale_id = come(enter), shop.sale()
    page = visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    expect_face(page, "ready")
    page.context.clear_cookies()
    visitor.sign_in(shop.buyer())

    back(page, steps=2)

    expect_face(page, "ready")
    press_buy(page)
    expect(page).to_have_url(ORDER, timeout=SLOW)
    assert len(shop.orders_of(visitor)) == 1


def test_queue_page_comes_back_to_the_order_that_was_made_meanwhile(
    shop: Shop, enter: Enter, stalled: None
) -> None:
    visitor, sale_id = come(enter), shop.sale()
    page = visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    press_buy(page)
    expect(page).to_have_url(QUEUE)
    expect(page.get_by_text("ahead of you")).to_be_visible()
    page.get_by_role("link", name="Leave, and keep my place").click()
    expect(page).to_have_url(visitor.base_url + "/")
    shop.stack.launch("orders1")
    expect(page.locator(".toast", has_text="Your order is made")).to_be_visible(timeout=SLOW)

    back(page)

    expect(page).to_have_url(ORDER)


@pytest.mark.long
def test_queue_page_comes_back_and_goes_on_waiting(shop: Shop, enter: Enter, stalled: None) -> None:
    visitor, sale_id = come(enter), shop.sale()
    page = visitor.sign_in(shop.buyer(), to=f"/sales/{sale_id}/")
    press_buy(page)
    expect(page).to_have_url(QUEUE)
    page.goto("/login/")
    expect(page).not_to_have_url(QUEUE)

    back(page)

    expect(page.get_by_text("ahead of you")).to_be_visible()
    shop.stack.launch("orders1")
    expect(page).to_have_url(ORDER, timeout=SLOW)


def test_queue_page_that_was_kept_asks_anew(shop: Shop, enter: Enter) -> None:
    """Chromium keeps no page that may not be stored; others do."""
    visitor, sale_id = enter(), shop.sale()
    visitor.sign_in(shop.buyer())
    page = visitor.go(f"/purchases/{sale_id}/{fresh_id()}/")
    page.evaluate("window.sameDocument = true")

    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")

    page.wait_for_function("!window.sameDocument")
    expect(page.get_by_role("heading", level=1)).to_have_text("Your place is kept")
