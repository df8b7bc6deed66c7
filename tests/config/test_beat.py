"""What is sent periodically, by which clock, and how beat ends."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from celery.beat import Scheduler

from config import beat, celery_app
from config.beat import SteadyScheduler
from tests.support.environment import ROOT


class Clock:
    now = beat._started_at

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(beat, "time", clock)
    return clock


def due(scheduler: SteadyScheduler) -> set[str]:
    return {name for name, entry in scheduler.schedule.items() if entry.is_due()[0]}


def test_intervals_go_on_though_the_time_of_day_is_put_back(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SteadyScheduler(app=celery_app, lazy=True)
    scheduler.setup_schedule()
    assert due(scheduler) == set()
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    monkeypatch.setattr(celery_app, "now", lambda: hour_ago)

    clock.now += 10_000

    assert due(scheduler) == set(celery_app.conf.beat_schedule)


def test_beat_uses_it() -> None:
    assert celery_app.conf.beat_scheduler == "config.beat:SteadyScheduler"


def beat_that_is_interrupted(**variables: str) -> "subprocess.Popen[str]":
    scheduler = "tests.config.beat_app:InterruptedScheduler"
    arguments = ["-m", "celery", "-q", "-A", "config", "beat", "--pidfile=", "-S", scheduler]
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "SWEEP_INTERVAL": "0.1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_beat_that_is_stopped_while_it_sends_ends_after_that() -> None:
    process = beat_that_is_interrupted()
    try:
        output, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert output.count("sent all of it") == 1
    assert output.endswith("closed\n")


def test_beat_as_celery_stops_it_waits_for_itself() -> None:
    process = beat_that_is_interrupted(BEAT_TEST_GUARD="off")
    assert process.stdout is not None
    try:
        assert any("sending" in line for line in process.stdout)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=3)
    finally:
        process.kill()
        output, _ = process.communicate()
    assert "closed" not in output


def test_second_signal_does_not_wait_for_the_end_of_the_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = SteadyScheduler(app=celery_app, lazy=True)
    may_end = []

    def tick(_: Scheduler) -> float:
        may_end.append(scheduler.may_end_now())
        return 5

    monkeypatch.setattr(Scheduler, "tick", tick)

    assert scheduler.tick() == 0

    assert may_end == [False]
    assert scheduler.may_end_now()
