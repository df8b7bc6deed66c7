"""What a visitor meets when it doesn't work, and the gallery of all states: plain for everybody."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from config import pool_pages
from tests.browser.conftest import SETTINGS, Enter, Shop
from tests.browser.looks import VARIANTS, Look
from tests.browser.visitors import Visitor
from tests.support.params import more
from tests.support.stack import Plan, Stack

pytestmark = pytest.mark.timeout(240)

ALONE = Plan(web=1, workers=0, timers=False, beat=False, migrate=False)
ERRORS = (
    *("bad_request", "forbidden", "csrf_failed", "not_found"),
    *("rate_limited", "internal", "unavailable"),
)
ROUTE = "**/anywhere/"
TRIES = 6


@pytest.fixture(scope="module")
def workshop(shop: Shop) -> Iterator[str]:
    """The same shop by a process with DEBUG that lets nobody try often; returns its address."""
    back_ends = {name: shop.stack.environment[name] for name in ("DATABASE_URL", "REDIS_URL")}
    settings = SETTINGS | back_ends | {"DEBUG": "on", "PURCHASE_RATE": f"{TRIES}/600s"}
    with Stack(settings, plan=ALONE) as stack:
        yield stack.base_url


@pytest.fixture(params=[*more(*VARIANTS[:-1]), VARIANTS[-1]], ids=str)
def look(request: pytest.FixtureRequest) -> Look:
    chosen: Look = request.param
    return chosen


@pytest.fixture
def visitor(workshop: str, enter: Enter, look: Look) -> Visitor:
    return enter(url=workshop, **look.options)


def submit(page: Page) -> None:
    """The plain form, as it is sent where no script is."""
    with page.expect_navigation():
        page.locator("#buy form").evaluate("form => form.submit()")


# --- each way to a refusal: leaves the visitor at it ----------------------------------------------


def sold_out(shop: Shop, page: Page, buyer: str) -> None:
    page.goto(f"/sales/{shop.sale(stock=1, taken=1)}/")
    submit(page)


def not_open(shop: Shop, page: Page, buyer: str) -> None:
    page.goto(f"/sales/{shop.sale(starts_in=500)}/")
    submit(page)


def paused(shop: Shop, page: Page, buyer: str) -> None:
    sale_id = shop.sale()
    shop.make("change", sale_id=sale_id, paused=True)
    page.goto(f"/sales/{sale_id}/")
    submit(page)


def closed(shop: Shop, page: Page, buyer: str) -> None:
    sale_id = shop.sale()
    page.goto(f"/sales/{sale_id}/")
    shop.make("change", sale_id=sale_id, close=True)
    submit(page)


def no_second_try(shop: Shop, page: Page, buyer: str) -> None:
    sale_id = shop.sale(rebuy=False, primed=False)
    shop.make("order", sale_id=sale_id, buyer=buyer, status="EXPIRED")
    page.goto(f"/sales/{sale_id}/")
    submit(page)


def quantity(shop: Shop, page: Page, buyer: str) -> None:
    page.goto(f"/sales/{shop.sale(per_buyer=3)}/")
    page.locator("[name=quantity] option").last.evaluate("option => { option.value = 99; }")
    page.select_option("[name=quantity]", "99")
    submit(page)


def too_fast(shop: Shop, page: Page, buyer: str) -> None:
    sale_id = shop.sale()
    for _ in range(TRIES + 1):
        page.goto(f"/sales/{sale_id}/")
        submit(page)
        if page.get_by_role("alert").count():
            break


def not_trusted(shop: Shop, page: Page, buyer: str) -> None:
    page.goto(f"/sales/{shop.sale()}/")
    page.locator("#buy [name=csrfmiddlewaretoken]").evaluate("input => input.remove()")
    submit(page)


Way = Callable[[Shop, Page, str], None]
WAYS: list[tuple[Way, str]] = [
    (sold_out, "Sold out"),
    (not_open, "Not open yet"),
    (paused, "Sale paused"),
    (closed, "Sale over"),
    (no_second_try, "No second try"),
    (quantity, "Quantity not allowed"),
    (too_fast, "Too many tries"),
    (not_trusted, "Request not trusted"),
]


def test_refusals_are_accessible_translated_and_fit(
    shop: Shop, visitor: Visitor, look: Look
) -> None:
    name, page, found = shop.buyer(), visitor.page, []
    page.route("**/*.js", lambda route: route.abort())
    visitor.sign_in(name)

    for way, title in WAYS:
        way(shop, page, name)
        expect(page.get_by_role("alert")).to_be_visible()
        if look.language == "en":
            expect(page.get_by_role("heading", level=1)).to_have_text(title)
        found += [f"{way.__name__}: {fault}" for fault in look.faults(page)]

    assert found == []


def test_gallery_of_states_is_accessible_translated_and_fits(visitor: Visitor, look: Look) -> None:
    page = visitor.go("/_states/")

    expect(page.locator(".states section")).to_have_count(15)
    assert list(look.faults(page)) == []


# --- errors ---------------------------------------------------------------------------------------


def answer(page: Page, told: dict[str, Any]) -> None:
    """Let the shop answer so, at an address that it doesn't have."""
    page.route(ROUTE, lambda route: route.fulfill(**told))
    page.goto("/anywhere/")


def test_error_pages_are_accessible_translated_and_fit(
    shop: Shop, enter: Enter, look: Look
) -> None:
    page, found = enter(**look.options).page, []

    for code in ERRORS:
        answer(page, shop.make("error", code=code, language=look.language))
        expect(page.get_by_role("alert")).to_be_visible()
        found += [f"{code}: {fault}" for fault in look.faults(page)]

    assert found == []


def test_page_of_a_busy_process_is_accessible_and_leads_on(enter: Enter, look: Look) -> None:
    page = enter(**look.options).page
    body = pool_pages.page(pool_pages.BUSY, again=True)
    answer(page, {"status": 503, "content_type": "text/html; charset=utf-8", "body": body})
    page.unroute(ROUTE)
    # Axe takes a page that paints nothing for white.
    page.evaluate("document.documentElement.style.background = 'Canvas'")

    assert list(look._replace(locale="en-US").faults(page)) == []
    page.get_by_role("link", name="Try again").click()

    expect(page.locator("#error")).to_contain_text("404")


def test_error_that_passes_comes_back_by_itself(shop: Shop, enter: Enter) -> None:
    page = enter().page
    answer(page, shop.make("error", code="unavailable", language="en"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Not available just now")
    page.wait_for_timeout(4000)
    expect(page.get_by_role("heading", level=1)).to_have_text("Not available just now")

    page.unroute(ROUTE)

    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
