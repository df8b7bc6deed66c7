"""The in-process rate limit, held against an exact model with fractions."""

from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seckill.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bucket:
    """The model: a bucket of `limit` drops which fills by limit / window drops a second."""

    def __init__(self, limit: int, window: int) -> None:
        self.limit, self.rate = limit, Fraction(limit, window)
        self.drops: dict[str, Fraction] = defaultdict(lambda: Fraction(limit))
        self.seen: dict[str, Fraction] = defaultdict(Fraction)

    def hit(self, key: str, now: Fraction) -> Fraction:
        drops = min(self.drops[key] + (now - self.seen[key]) * self.rate, Fraction(self.limit))
        self.seen[key] = now
        self.drops[key] = drops - 1 if drops >= 1 else drops
        return Fraction(0) if drops >= 1 else (1 - drops) / self.rate


EIGHTHS = st.integers(0, 80).map(lambda n: n / 8)
HITS = st.lists(st.tuples(st.sampled_from("abc"), EIGHTHS), max_size=80)


@given(st.integers(1, 10), st.integers(1, 10), HITS)
def test_throttle_agrees_with_the_model(limit, window, hits):
    clock = Clock()
    throttle, bucket = Throttle(limit, window, clock=clock), Bucket(limit, window)

    for key, pause in hits:
        clock.now += pause
        expected = bucket.hit(key, Fraction(clock.now))

        wait = throttle.hit(key)

        assert (wait == 0) is (expected == 0)
        assert wait == pytest.approx(float(expected), abs=1e-5)


@given(st.integers(1, 7), st.floats(0.1, 60), st.floats(0, 1e7))
def test_throttle_lets_in_who_waits_as_told(limit, window, start):
    clock = Clock()
    clock.now = start
    throttle = Throttle(limit, window, clock=clock)
    assert [throttle.hit("a") for _ in range(limit)] == [0.0] * limit

    for _ in range(3):
        wait = throttle.hit("a")
        assert 0 < wait <= window / limit + 1e-5
        clock.now += wait
        assert throttle.hit("a") == 0.0


def test_throttle_refusals_cost_nothing():
    clock = Clock()
    throttle = Throttle(2, 10, clock=clock)
    throttle.hit("a"), throttle.hit("a")

    waits = [throttle.hit("a") for _ in range(100)]

    assert waits == [pytest.approx(5, abs=1e-5)] * 100
    clock.now += 5
    assert throttle.hit("a") == 0.0


def test_throttle_keeps_keys_apart():
    throttle = Throttle(1, 10, clock=Clock())

    assert throttle.hit("a") == 0.0
    assert throttle.hit("b") == 0.0
    assert throttle.hit("a") > 0


def test_throttle_memory_is_bounded_under_a_flood():
    throttle = Throttle(1, 10, max_keys=100, clock=Clock())

    for number in range(1000):
        assert throttle.hit(number) == 0.0
        assert len(throttle) <= 100


def test_throttle_forgets_keys_that_have_their_quota_again():
    clock = Clock()
    throttle = Throttle(1, 10, clock=clock)
    for number in range(50):
        throttle.hit(number)

    clock.now += 10
    throttle.hit("a")
    clock.now += 10
    throttle.hit("a")

    assert throttle._young.keys() | throttle._old.keys() == {"a"}


def test_throttle_remembers_a_key_that_hits_through_a_flood():
    throttle = Throttle(1, 10, max_keys=100, clock=Clock())
    assert throttle.hit("greedy") == 0.0

    for number in range(1000):
        throttle.hit(number)
        assert number % 40 or throttle.hit("greedy") > 0

    assert throttle.hit("greedy") > 0


def test_throttle_flood_needs_half_of_max_keys_to_reset_an_idle_key():
    throttle = Throttle(1, 10, max_keys=100, clock=Clock())
    throttle.hit("idle")

    for number in range(50):
        throttle.hit(number)
    assert throttle._full_at("idle") > 0

    for number in range(50, 101):
        throttle.hit(number)
    assert throttle.hit("idle") == 0.0


def test_throttle_headers_say_what_is_left():
    clock = Clock()
    throttle = Throttle(5, 10, clock=clock)
    policy = '"buy";q=5;w=10'
    assert throttle.headers("buy", "a") == {
        "RateLimit-Policy": policy,
        "RateLimit": '"buy";r=5;t=0',
    }

    throttle.hit("a"), throttle.hit("a")
    clock.now += 0.5

    assert throttle.headers("buy", "a") == {
        "RateLimit-Policy": policy,
        "RateLimit": '"buy";r=3;t=4',
    }
    for _ in range(4):
        throttle.hit("a")
    assert throttle.headers("buy", "a")["RateLimit"] == '"buy";r=0;t=10'


@pytest.mark.parametrize(("limit", "window", "max_keys"), [(0, 1, 10), (1, 0, 10), (1, 1, 1)])
def test_throttle_refuses_senseless_limits(limit, window, max_keys):
    with pytest.raises(ValueError, match="Throttle needs"):
        Throttle(limit, window, max_keys=max_keys)
