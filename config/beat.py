"""Beat's schedule, by a clock that nobody puts back, and its end between two messages.

Celery takes intervals by the time of day, and keeps the last time in a file. Once that clock is put
back, or was fast when the file was written, nothing is swept until it has caught up.

Celery closes the broker's connection inside of the signal's handler. If the signal came while a
message was being written, the handler waits for ever for the lock that its own thread holds.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import platforms
from celery.beat import Scheduler, Service
from celery.signals import beat_init

_started = datetime.now(UTC)
_started_at = time.monotonic()


def steady_now() -> datetime:
    """The time of day at the start of this process, and what has gone by since."""
    return _started + timedelta(seconds=time.monotonic() - _started_at)


class SteadyScheduler(Scheduler):  # type: ignore[misc, unused-ignore]
    """Begins anew with each start: an interval is seconds, and there is nothing to remember."""

    _is_ticking = False
    _is_stopping = False

    def tick(self, *arguments: Any, **options: Any) -> float:
        """Send what is due. Returns the seconds until it must be called again; 0 before the end."""
        self._is_ticking = True
        try:
            pause: float = super().tick(*arguments, **options)
        finally:
            self._is_ticking = False
        return 0 if self._is_stopping else pause

    def may_end_now(self) -> bool:
        """Ask for the end. False means that this tick goes on, and that it is the last.

        Whoever asks again does not wait any more.
        """
        asked_before, self._is_stopping = self._is_stopping, True
        return asked_before or not self._is_ticking

    def setup_schedule(self) -> None:
        super().setup_schedule()
        for entry in self.schedule.values():
            plan: Any = entry.schedule  # celery-types misspell the name of its clock.
            plan.nowfun = steady_now
            entry.last_run_at = steady_now()


def end_between_ticks(sender: Service, **_: Any) -> None:
    """Let SIGTERM and SIGINT end beat, but not in the middle of a message."""

    def end(*_: Any) -> None:
        sender.stop()
        scheduler: Any = sender.scheduler
        if not isinstance(scheduler, SteadyScheduler) or scheduler.may_end_now():
            raise SystemExit

    platforms.signals.update(SIGTERM=end, SIGINT=end)


beat_init.connect(end_between_ticks)
