"""The shop's clock decides, whatever the device's own says."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Enter, Shop
from tests.support.params import more

MINUTES = 60_000
WRONG_CLOCK = """
const shift = %d, Real = Date;
globalThis.Date = class extends Real {
  constructor(...args) { if (args.length) super(...args); else super(Real.now() + shift); }
  static now() { return Real.now() + shift; }
};
"""


def seconds_left(page: Page) -> float:
    text = page.locator(".countdown.big .digits").inner_text()
    parts = [int(part) for part in text.split(":")]
    return sum(part * 60**place for place, part in enumerate(reversed(parts)))


@pytest.mark.parametrize("minutes", [10, *more(-10)])
def test_countdown_ignores_a_wrong_device_clock(shop: Shop, enter: Enter, minutes: int) -> None:
    sale_id = shop.sale(starts_in=300)
    right, wrong = enter().page, enter().page
    wrong.add_init_script(WRONG_CLOCK % (minutes * MINUTES))

    for page in (right, wrong):
        page.goto(f"/sales/{sale_id}/")
        expect(page.locator(".countdown.big .digits")).not_to_be_empty()

    # Between two looks at the right one, however long they take.
    before, shown, after = (seconds_left(page) for page in (right, wrong, right))
    assert after - 1 <= shown <= before + 1


def test_button_opens_at_the_start_without_a_reload(shop: Shop, enter: Enter) -> None:
    visitor, name = enter(), shop.buyer()
    visitor.sign_in(name)
    visitor.page.add_init_script(WRONG_CLOCK % (10 * MINUTES))
    sale_id = shop.sale(starts_in=6)
    page = visitor.go(f"/sales/{sale_id}/")
    control = page.locator("#buy [data-control]")
    expect(control).to_have_text("Not open yet")
    page.evaluate("window.sameDocument = true")

    expect(control).to_have_text("Buy now", timeout=15_000)

    opened = page.evaluate("fetch('/api/v1/time').then(r => r.json()).then(t => Date.parse(t.now))")
    starts = page.evaluate("Date.parse(document.getElementById('buy').dataset.starts)")
    assert opened >= starts
    assert page.evaluate("window.sameDocument") is True
    control.get_by_role("button").click()
    expect(page.locator("#order h1")).to_have_text("You got it", timeout=20_000)


def test_offset_errs_late_and_takes_the_shortest_trip(enter: Enter) -> None:
    page = enter().go("/")

    found = page.evaluate(
        """async () => {
            const { offset } = await import(document.querySelector('script[src*="shop"]').src
                .replace(/shop[^/]*$/, "clock.js"));
            let now = 0;
            const trips = [300, 40, 200];
            const ask = async () => { const made = now + 5000; now += trips.shift(); return made; };
            return offset(ask, () => now);
        }"""
    )

    assert found == 5000 - 40


@pytest.mark.long
def test_announcer_tells_of_few_moments(shop: Shop, enter: Enter) -> None:
    sale_id = shop.sale(starts_in=14)
    page = enter().page
    page.add_init_script(
        """addEventListener("DOMContentLoaded", () => {
            window.told = [];
            const place = document.querySelector("[data-announcer]");
            new MutationObserver(() => window.told.push(place.textContent))
                .observe(place, { childList: true });
        });"""
    )
    page.goto(f"/sales/{sale_id}/")

    expect(page.locator("[data-announcer]")).to_have_text("Buy now", timeout=30_000)

    assert page.evaluate("window.told") == ["10 seconds left", "Buy now"]
