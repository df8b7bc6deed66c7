"""How soon a client may ask again: the more ask, the later."""

import time
from collections.abc import Callable

SOONEST = 400  # ms
LATEST = 5000  # ms
COMFORT = 1000  # questions a second that one process answers without being felt


class Pace:
    """Counts questions by the second and stretches the interval when they are too many."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._count = 0
        self._last = 0

    def asked(self) -> int:
        """Note one question; returns the ms until the next."""
        second = int(self._clock())
        if second != self._second:
            self._last = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0
        self._count += 1
        busiest = max(self._last, self._count)
        return min(LATEST, max(SOONEST, SOONEST * busiest // COMFORT))
