"""Sold-out marks: they may only refuse, never for long, and never by old news."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pytest_django import Settings

from inventory.soldout import Mark, Marks, Turn

SALE = 1


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def marks(clock: Clock, settings: Settings) -> Marks:
    settings.SOLD_OUT_TTL = 2
    return Marks(clock=clock)


def mark(marks: Marks, epoch: int, sold_out: bool = True, seen_at: float = 1000.0) -> bool:
    return marks.observe(SALE, epoch=epoch, sold_out=sold_out, seen_at=seen_at)


def test_refuses_nobody_while_nothing_is_known(marks: Marks) -> None:
    assert not marks.refuses(SALE)


def test_refuses_while_the_mark_is_fresh(marks: Marks, clock: Clock) -> None:
    mark(marks, 1)
    answers = []
    for clock.now in (1000.0, 1001.0, 1001.999, 1002.0):
        answers.append(marks.refuses(SALE))

    assert answers == [True, True, True, False]
    assert not marks.refuses(2)


def test_one_asks_after_the_end_of_the_mark_and_the_others_wait(marks: Marks, clock: Clock) -> None:
    mark(marks, 1)
    clock.now = 1002.0

    assert [marks.turn(SALE) for _ in range(3)] == [Turn.ASK, Turn.WAIT, Turn.WAIT]
    mark(marks, 1, seen_at=1002.0)
    assert [marks.turn(SALE) for _ in range(2)] == [Turn.REFUSED, Turn.REFUSED]


def test_who_waits_is_let_through_when_a_unit_is_back(marks: Marks, clock: Clock) -> None:
    mark(marks, 1)
    clock.now = 1002.0
    marks.turn(SALE)

    mark(marks, 2, sold_out=False, seen_at=1002.0)

    assert [marks.turn(SALE) for _ in range(2)] == [Turn.ASK, Turn.ASK]


def test_nobody_waits_long_for_who_asks_the_gate(marks: Marks, clock: Clock) -> None:
    mark(marks, 1)
    clock.now = 1010.0
    answers = [marks.turn(SALE)]
    for clock.now in (1010.0, 1010.24, 1010.25, 1010.3):
        answers.append(marks.turn(SALE))

    assert answers == [Turn.ASK, Turn.WAIT, Turn.WAIT, Turn.ASK, Turn.ASK]


def test_all_ask_about_what_is_not_known_to_be_sold_out(marks: Marks) -> None:
    mark(marks, 1, sold_out=False)

    assert [marks.turn(sale_id) for sale_id in (SALE, SALE, 2, 2)] == [Turn.ASK] * 4


def test_one_of_many_threads_asks_the_gate(marks: Marks, clock: Clock) -> None:
    mark(marks, 1)
    clock.now = 1002.0
    barrier = threading.Barrier(8)

    def ask(_: int) -> Turn:
        barrier.wait(10)
        return marks.turn(SALE)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))

    assert Counter(answers) == {Turn.ASK: 1, Turn.WAIT: 7}


def test_the_answer_of_the_one_who_asked_counts_from_when_it_asked(
    marks: Marks, clock: Clock
) -> None:
    mark(marks, 1)
    clock.now = 1002.1
    mark(marks, 1, seen_at=1002.0)

    clock.now = 1003.9
    assert marks.refuses(SALE)
    clock.now = 1004.0
    assert not marks.refuses(SALE)


def test_asking_the_gate_takes_turns_of_a_whole_ttl(marks: Marks, clock: Clock) -> None:
    """However many come: one call at the start, and one for each TTL since."""
    calls = 0
    for step in range(1000):
        clock.now = 1000 + step / 100
        if not marks.refuses(SALE) and marks.turn(SALE) is Turn.ASK:
            calls += 1
            mark(marks, 1, seen_at=clock.now)

    assert calls == 1 + 9.99 // 2


@pytest.mark.parametrize("ttl", [0.1, 0.5, 30])
def test_no_mark_refuses_longer_than_its_time(
    marks: Marks, clock: Clock, settings: Settings, ttl: float
) -> None:
    settings.SOLD_OUT_TTL = ttl
    mark(marks, 1)
    refused = []
    for step in range(200):
        clock.now = 1000 + 2 * ttl * step / 200
        if marks.refuses(SALE):
            refused.append(clock.now - 1000)

    assert refused
    assert max(refused) < ttl


def test_a_sale_with_stock_is_never_refused(marks: Marks) -> None:
    mark(marks, 1, sold_out=False)

    assert not marks.refuses(SALE)


def test_news_of_an_older_epoch_is_ignored(marks: Marks) -> None:
    assert mark(marks, 5, sold_out=False)

    assert not mark(marks, 4)

    assert not marks.refuses(SALE)
    assert marks.believed() == {SALE: False}


def test_a_sold_out_that_arrives_late_would_stick_without_the_rule(marks: Marks) -> None:
    """The control of the test above: the same news, written down as it comes."""
    mark(marks, 5, sold_out=False)

    marks._marks[SALE] = Mark(4, True, 1000.0, 1002.0)

    assert marks.refuses(SALE)


def test_what_was_asked_before_the_last_news_of_an_epoch_is_ignored(
    marks: Marks, clock: Clock
) -> None:
    mark(marks, 5)
    clock.now = 1001.0
    marks.drop(SALE)

    assert not mark(marks, 5, seen_at=1000.9)
    assert mark(marks, 5, seen_at=1001.1)


def test_news_of_the_same_or_a_newer_epoch_counts(marks: Marks) -> None:
    mark(marks, 5)
    assert mark(marks, 6, sold_out=False)
    assert not marks.refuses(SALE)

    assert mark(marks, 7)
    assert marks.refuses(SALE)


def test_forget_drops_all_marks_and_their_epochs(marks: Marks) -> None:
    mark(marks, 5, sold_out=False)

    marks.forget()

    assert marks.believed() == {}
    assert mark(marks, 4)
    assert marks.refuses(SALE)


def test_a_gate_that_was_rolled_back_is_heard_after_the_end_of_the_mark(
    marks: Marks, clock: Clock
) -> None:
    mark(marks, 9)
    assert not mark(marks, 3, sold_out=False)

    clock.now = 1002.0

    assert not marks.refuses(SALE)
    assert marks.turn(SALE) is Turn.ASK
