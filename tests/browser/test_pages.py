"""Every page, as anybody may have it: language, colours, size, keyboard, and without waiting."""

import gzip
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Page, expect

from scripts.screenshots import fresh_id
from tests.browser.conftest import Enter, Shop
from tests.browser.looks import PHONE, VARIANTS, Look
from tests.browser.visitors import Visitor
from tests.support.params import more

pytestmark = pytest.mark.timeout(180)

BUDGET = 60_000  # bytes of a page with its style and scripts, compressed
PUBLIC = ("/", "/sales/{sale}/", "/sales/{soon}/", "/sales/{gone}/", "/login/", "/register/")
PERSONAL = (
    *("/orders/", "/orders/?status=paid", "/orders/{unpaid}/", "/orders/{expired}/"),
    *("/purchases/{sale}/{refused}/", "/purchases/{sale}/{fresh}/", "/cashier/{cashier}/"),
)
ERRORS = ("/nothing/", "/problems/sold_out/")


@pytest.fixture(scope="module")
def names(shop: Shop) -> dict[str, Any]:
    """What stands for the braces in the addresses above, and who may see it."""
    name = shop.buyer()
    sale = shop.sale(stock=200, per_buyer=3)
    make = {"sale_id": sale, "buyer": name}
    return {
        "name": name,
        "sale": sale,
        "soon": shop.sale(starts_in=500, rebuy=False),
        "gone": shop.sale(stock=1, starts_in=-7000, duration=6900),
        "unpaid": shop.make("order", **make, status="UNPAID"),
        "expired": shop.make("order", **make, status="EXPIRED"),
        "refused": shop.make("order", **make, status="REJECTED"),
    }


def addresses(visitor: Visitor, names: dict[str, Any]) -> Iterator[str]:
    """All pages; the visitor is signed in from the first personal one on."""
    for path in (*PUBLIC, *ERRORS):
        yield path.format(**names)
    visitor.sign_in(names["name"])
    headers = {"X-CSRFToken": cookie(visitor.page, "csrftoken"), "Referer": visitor.base_url + "/"}
    pay = visitor.page.context.request.post(
        f"/api/v1/orders/{names['unpaid']}/pay", data={"provider": "sandbox"}, headers=headers
    )
    filled = names | {"cashier": pay.json()["payment_url"].split("/")[2], "fresh": fresh_id()}
    for path in PERSONAL:
        yield path.format(**filled)


def cookie(page: Page, name: str) -> str:
    return next(c["value"] for c in page.context.cookies() if c["name"] == name)


@pytest.mark.parametrize("look", [*more(*VARIANTS[:-1]), VARIANTS[-1]], ids=str)
def test_pages_are_accessible_translated_and_fit(
    enter: Enter, names: dict[str, Any], look: Look
) -> None:
    visitor = enter(**look.options)

    found = [
        f"{address}: {fault}"
        for address in addresses(visitor, names)
        for fault in look.faults(visitor.go(address))
    ]

    assert found == []


def weight(base_url: str, path: str) -> int:
    """Bytes of a page with its style sheet and all its modules, as a server would compress them."""
    html = fetch(base_url + path)
    links = re.findall(r'(?:src|href)="(/static/[^"]+\.(?:js|css))"', html)
    seen: dict[str, int] = {}
    while links:
        link = links.pop()
        if link not in seen:
            text = fetch(base_url + link)
            seen[link] = len(gzip.compress(text.encode()))
            links += [urljoin(link, name) for name in re.findall(r'from "(\./[^"]+)"', text)]
    return len(gzip.compress(html.encode())) + sum(seen.values())


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def test_pages_are_light(shop: Shop, names: dict[str, Any]) -> None:
    weights = {path: weight(shop.stack.base_url, path.format(**names)) for path in PUBLIC}

    assert {path: size for path, size in weights.items() if size > BUDGET} == {}


@pytest.mark.parametrize("path", ["/", "/sales/{sale}/"])
def test_page_shows_its_content_within_a_second(
    enter: Enter, names: dict[str, Any], path: str
) -> None:
    page = enter().page
    painted = []
    for _ in range(3):
        page.goto(path.format(**names))
        painted.append(
            page.evaluate(
                """() => new Promise((done) => new PerformanceObserver((list) =>
                    done(list.getEntries().at(-1).startTime))
                    .observe({ type: "largest-contentful-paint", buffered: true }))"""
            )
        )

    assert min(painted) < 1000


@pytest.mark.parametrize("path", ["/", "/sales/{sale}/"])
def test_page_comes_from_the_micro_cache(shop: Shop, names: dict[str, Any], path: str) -> None:
    url = shop.stack.base_url + path.format(**names)
    with urllib.request.urlopen(url, timeout=10) as first:
        cookie, etag = first.headers["Set-Cookie"].split(";")[0], first.headers["ETag"]
    again = urllib.request.Request(url, headers={"Cookie": cookie})
    with urllib.request.urlopen(again, timeout=10) as second:
        assert second.headers["Age"] in ("0", "1")
        etag = second.headers["ETag"]
    again.add_header("If-None-Match", etag)

    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(again, timeout=10)

    assert refusal.value.code == 304
    refusal.value.close()


# --- keyboard, theme, language --------------------------------------------------------------------


def test_keyboard_reaches_everything_in_order(shop: Shop, enter: Enter) -> None:
    page = enter(viewport=PHONE).go(f"/sales/{shop.sale()}/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()

    page.keyboard.press("Tab")

    focused = page.evaluate("document.activeElement.closest('#buy') !== null")
    assert focused
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_tabs_work_by_arrow_keys(shop: Shop, enter: Enter, names: dict[str, Any]) -> None:
    page = enter().go("/")
    tabs = page.get_by_role("tab")
    expect(tabs.first).to_have_attribute("aria-selected", "true")
    tabs.first.focus()

    page.keyboard.press("ArrowRight")

    expect(tabs.nth(1)).to_be_focused()
    expect(page.get_by_role("tabpanel")).to_have_count(1)
    expect(page.get_by_role("tabpanel")).to_have_attribute("id", "next")


def test_theme_is_kept(enter: Enter) -> None:
    page = enter(color_scheme="light").go("/")
    for name in ("light", "dark"):
        page.locator("[data-theme-switch]").click()
        expect(page.locator("html")).to_have_attribute("data-theme", name)

    page.reload()

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 19, 18)"


def test_language_switch_keeps_the_page(enter: Enter, names: dict[str, Any]) -> None:
    visitor = enter()
    address = f"/sales/{names['sale']}/?from=list"
    visitor.go(address).get_by_role("button", name="中文").click()

    expect(visitor.page.locator("html")).to_have_attribute("lang", "zh-hans")
    expect(visitor.page).to_have_url(visitor.base_url + address)


def test_still_motion_for_who_wants_it(shop: Shop, enter: Enter, names: dict[str, Any]) -> None:
    visitor = enter(reduced_motion="reduce")
    page = visitor.sign_in(names["name"])
    page.goto(f"/purchases/{names['sale']}/{fresh_id()}/")

    moving = page.evaluate(
        "document.getAnimations().filter((a) => a.playState === 'running').length"
    )

    assert moving == 0


def test_password_can_be_shown(enter: Enter) -> None:
    page = enter().go("/login/")
    field = page.locator("[name=password]")

    page.get_by_role("button", name="Show").click()
    expect(field).to_have_attribute("type", "text")
    page.get_by_role("button", name="Hide").click()

    expect(field).to_have_attribute("type", "password")
