"""A worker's pulse, with a clock that a test moves."""

import pytest

from config import pulse as module
from config.pulse import Ear, Pulse

LIMIT, LONGEST = 30.0, 150.0


class Worker:
    """`takes`: what is sent runs at once. `is_there`: the broker is."""

    def __init__(self) -> None:
        self.ear = Ear()
        self.takes = self.is_there = True
        self.busy = False
        self.sent = 0
        self.pulse = Pulse(LIMIT, LONGEST, self.ear, self.send, lambda: self.busy)

    def send(self) -> None:
        if not self.is_there:
            raise OSError("the broker is away")
        self.sent += 1
        if self.takes:
            self.ear.note()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def worker(clock: Clock) -> Worker:
    return Worker()


def deaf_after(worker: Worker, clock: Clock, *, most: float) -> float | None:
    """Seconds until the worker finds itself deaf; None if it doesn't within `most`."""
    began = clock.now
    while clock.now - began <= most:
        if worker.pulse.is_deaf():
            return clock.now - began
        clock.now += 5
    return None


def test_pulse_goes_on_while_tasks_come(worker: Worker, clock: Clock) -> None:
    assert deaf_after(worker, clock, most=300) is None
    assert worker.sent == 61


def test_pulse_tells_a_deaf_worker_from_a_busy_one(worker: Worker, clock: Clock) -> None:
    worker.takes = False
    worker.busy = True
    assert deaf_after(worker, clock, most=100) is None
    worker.ear.note()  # Its task ends.
    clock.now += 1
    worker.busy = False

    assert deaf_after(worker, clock, most=100) == LIMIT + 5


def test_pulse_gives_a_busy_worker_the_time_of_its_longest_task(
    worker: Worker, clock: Clock
) -> None:
    worker.takes = False
    worker.busy = True

    assert deaf_after(worker, clock, most=300) == LONGEST + 5


def test_pulse_proves_nothing_while_the_broker_is_away(worker: Worker, clock: Clock) -> None:
    worker.takes = worker.is_there = False
    assert deaf_after(worker, clock, most=300) is None

    worker.is_there = True

    assert deaf_after(worker, clock, most=100) == LIMIT + 5


def test_pulse_of_a_worker_that_stood_still_starts_anew(worker: Worker, clock: Clock) -> None:
    worker.takes = False
    assert deaf_after(worker, clock, most=20) is None

    clock.now += 3600

    assert deaf_after(worker, clock, most=100) == LIMIT + 5
