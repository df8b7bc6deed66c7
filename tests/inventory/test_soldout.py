"""Sold-out marks: they may only refuse, never for long, and never by old news."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pytest_django import Settings

from inventory.soldout import Mark, Marks

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
    for clock.now in (1000.0, 1001.0, 1001.7):
        answers.append(marks.refuses(SALE))

    assert answers == [True, True, True]
    assert not marks.refuses(2)


def test_refuses_all_but_one_shortly_before_the_end_of_the_mark(marks: Marks, clock: Clock) -> None:
    mark(marks, 1)
    clock.now = 1001.8

    assert [marks.refuses(SALE) for _ in range(5)] == [False, True, True, True, True]


def test_refuses_nobody_after_the_end_of_the_mark(marks: Marks, clock: Clock) -> None:
    mark(marks, 1)
    clock.now = 1001.8
    marks.refuses(SALE)
    clock.now = 1002.0

    assert [marks.refuses(SALE) for _ in range(3)] == [False, False, False]


def test_one_of_many_threads_asks_the_gate(marks: Marks, clock: Clock) -> None:
    mark(marks, 1)
    clock.now = 1001.9
    barrier = threading.Barrier(8)

    def ask(_: int) -> bool:
        barrier.wait(10)
        return marks.refuses(SALE)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))

    assert answers.count(False) == 1


def test_the_answer_of_the_one_who_asked_counts_from_when_it_asked(
    marks: Marks, clock: Clock
) -> None:
    mark(marks, 1)
    clock.now = 1001.9
    marks.refuses(SALE)
    mark(marks, 1, seen_at=1001.9)

    clock.now = 1003.8
    assert [marks.refuses(SALE) for _ in range(2)] == [False, True]
    clock.now = 1003.9
    assert not marks.refuses(SALE)


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

    marks._marks[SALE] = Mark(4, True, 1000.0)

    assert marks.refuses(SALE)


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

    assert [marks.refuses(SALE) for _ in range(3)] == [False, False, False]
