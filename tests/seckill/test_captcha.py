"""The proof of work: solvable, signed, once."""

import base64
import json
import time
from typing import Any

import altcha
import pytest
from pytest_django.fixtures import Settings

from seckill import captcha


def solve(challenge: dict[str, Any]) -> str:
    solution = altcha.solve_challenge(altcha.Challenge.from_dict(challenge))
    assert solution is not None
    return encode({"challenge": challenge, "solution": solution.to_dict()})


def encode(payload: Any) -> str:
    return base64.b64encode(json.dumps(payload).encode()).decode()


def test_verify_accepts_a_solved_challenge_once() -> None:
    answer = solve(captcha.challenge())

    assert [captcha.verify(answer) for _ in range(3)] == [True, False, False]


def test_verify_sees_through_another_encoding_of_a_used_answer() -> None:
    challenge = captcha.challenge()
    answer = solve(challenge)
    spaced = base64.b64encode(b" " + base64.b64decode(answer)).decode()

    assert (captcha.verify(answer), captcha.verify(spaced)) == (True, False)


def test_verify_a_wrong_answer_does_not_use_the_challenge_up() -> None:
    answer = solve(captcha.challenge())
    payload = json.loads(base64.b64decode(answer))
    payload["solution"]["counter"] += 1

    assert captcha.verify(encode(payload)) is False
    assert captcha.verify(answer) is True


def test_verify_refuses_a_challenge_that_was_made_easier() -> None:
    challenge = captcha.challenge()
    challenge["parameters"]["keyPrefix"] = ""

    assert captcha.verify(solve(challenge)) is False


def test_verify_refuses_a_challenge_of_somebody_else(settings: Settings) -> None:
    settings.SECRET_KEY = "another"
    foreign = solve(captcha.challenge())
    settings.SECRET_KEY = "ours"

    assert captcha.verify(foreign) is False


def test_verify_bears_a_change_of_the_key(settings: Settings) -> None:
    settings.SECRET_KEY = "old"
    answer = solve(captcha.challenge())
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", ["old"]

    assert captcha.verify(answer) is True


def test_verify_refuses_an_expired_challenge(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr("seckill.captcha.time.time", lambda: now - captcha.LIFETIME - 1)
        challenge = captcha.challenge()

    assert captcha.verify(solve(challenge)) is False


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "x",
        "é",
        "%%%%",
        encode(None),
        encode([]),
        encode({}),
        encode({"challenge": 1, "solution": 2}),
        encode({"challenge": "a", "solution": "b"}),
        encode({"challenge": {"parameters": {}, "signature": 5}, "solution": {}}),
        encode({"challenge": {"parameters": None, "signature": None}, "solution": None}),
        "A" * 100_000,
        base64.b64encode(b"[" * 3000).decode(),
    ],
)
def test_verify_refuses_what_is_no_answer(payload: str) -> None:
    assert captcha.verify(payload) is False
