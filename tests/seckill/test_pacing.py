"""How soon clients may ask again."""

from seckill.pacing import COMFORT, LATEST, SOONEST, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_pace_is_brisk_while_few_ask() -> None:
    pace = Pace(clock=Clock())

    assert {pace.asked() for _ in range(COMFORT)} == {SOONEST}


def test_pace_slows_down_when_many_ask() -> None:
    pace = Pace(clock=Clock())

    intervals = [pace.asked() for _ in range(3 * COMFORT)]

    assert intervals == sorted(intervals)
    assert intervals[-1] == 3 * SOONEST


def test_pace_has_a_limit() -> None:
    pace = Pace(clock=Clock())

    assert [pace.asked() for _ in range(20 * COMFORT)][-1] == LATEST


def test_pace_remembers_the_last_second_and_no_more() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    for _ in range(2 * COMFORT):
        pace.asked()

    clock.now += 1
    just_after = pace.asked()
    clock.now += 2
    later = pace.asked()

    assert (just_after, later) == (2 * SOONEST, SOONEST)
