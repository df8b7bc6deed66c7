"""What is sent periodically, and by which clock."""

from datetime import UTC, datetime, timedelta

import pytest

from config import beat, celery_app
from config.beat import SteadyScheduler


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
