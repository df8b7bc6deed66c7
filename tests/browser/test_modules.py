"""What the modules compute, in the browser that runs them."""

import altcha
import pytest
from playwright.sync_api import Page

from seckill import captcha
from tests.browser.conftest import Enter

FOLDER = "/static/seckill"


@pytest.fixture
def page(enter: Enter) -> Page:
    return enter().go("/")


def test_proof_of_work_is_what_the_server_takes(page: Page) -> None:
    challenge = captcha.challenge()

    answer, took = page.evaluate(
        """async (challenge) => {
            const { solve } = await import("/static/seckill/pow.js");
            const began = performance.now();
            return [solve(challenge), performance.now() - began];
        }""",
        challenge,
    )

    secret = captcha._secret("only-for-tests-" + "0123456789abcdef" * 4)
    assert altcha.verify_solution(answer, secret).verified
    assert took < 3000


def test_sha256_is_sha256(page: Page) -> None:
    wrong = page.evaluate(
        """async () => {
            const { sha256 } = await import("/static/seckill/pow.js");
            const hex = (bytes) => Array.from(new Uint8Array(bytes), (b) => b.toString(16)).join();
            const wrong = [];
            for (let size = 0; size <= 55; size += 1) {
                const input = crypto.getRandomValues(new Uint8Array(size));
                const right = await crypto.subtle.digest("SHA-256", input);
                if (hex(sha256(input)) !== hex(right)) wrong.push(size);
            }
            return wrong;
        }"""
    )

    assert wrong == []


def test_reconnects_of_a_crowd_are_spread(page: Page) -> None:
    waits = page.evaluate(
        """async () => {
            const { backoff } = await import("/static/seckill/live.js");
            return Array.from({ length: 1000 }, () => backoff(5));
        }"""
    )

    assert max(waits) - min(waits) > 5000
    assert 0 <= min(waits) <= max(waits) <= 8000
    thirds = [sum(low <= wait < low + 2000 for wait in waits) for low in range(0, 8000, 2000)]
    assert min(thirds) > 150


def test_countdown_digits(page: Page) -> None:
    shown = page.evaluate(
        """async () => {
            const { digits } = await import("/static/seckill/clock.js");
            return [1, 1000, 61_000, 3_600_000, 90_061_000].map(digits);
        }"""
    )

    assert shown == ["0:01", "0:01", "1:01", "1:00:00", "1:01:01:01"]
