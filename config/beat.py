"""Beat's schedule, by a clock that nobody puts back.

Celery takes intervals by the time of day, and keeps the last time in a file. Once that clock is put
back, or was fast when the file was written, nothing is swept until it has caught up.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.beat import Scheduler

_started = datetime.now(UTC)
_started_at = time.monotonic()


def steady_now() -> datetime:
    """The time of day at the start of this process, and what has gone by since."""
    return _started + timedelta(seconds=time.monotonic() - _started_at)


class SteadyScheduler(Scheduler):  # type: ignore[misc, unused-ignore]
    """Begins anew with each start: an interval is seconds, and there is nothing to remember."""

    def setup_schedule(self) -> None:
        super().setup_schedule()
        for entry in self.schedule.values():
            plan: Any = entry.schedule  # celery-types misspell the name of its clock.
            plan.nowfun = steady_now
            entry.last_run_at = steady_now()
