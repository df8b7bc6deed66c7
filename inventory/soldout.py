"""Sold-out marks: what this process believes of each sale, to refuse without asking Redis.

A mark may only refuse, never admit, and only for SOLD_OUT_TTL; shortly before that one request asks
the gate while the others are still refused. A mark of an older epoch never replaces a newer one, so
a "sold out" that arrives late can't stick after stock came back.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

# So long before the end of a mark one request asks the gate while the others are still refused: in
# seconds, and as a part of SOLD_OUT_TTL at most.
PROBE_BEFORE, PROBE_SHARE = 0.25, 0.25


@dataclass(slots=True)
class Mark:
    epoch: int
    sold_out: bool
    seen_at: float
    probed: bool = False


class Marks:
    """The marks of one process. All methods may be called from any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._marks: dict[int, Mark] = {}
        self._lock = threading.Lock()
        self._clock = clock

    def refuses(self, sale_id: int) -> bool:
        """May a buyer be told "sold out" without asking the gate?"""
        mark = self._marks.get(sale_id)
        if mark is None or not mark.sold_out:
            return False
        ttl = settings.SOLD_OUT_TTL
        age = self._clock() - mark.seen_at
        if age < ttl - min(PROBE_BEFORE, PROBE_SHARE * ttl):
            return True
        if age >= ttl:
            return False
        return not self._probes(mark)

    def _probes(self, mark: Mark) -> bool:
        """True for the one request that asks the gate."""
        with self._lock:
            first, mark.probed = not mark.probed, True
        return first

    def observe(self, sale_id: int, *, epoch: int, sold_out: bool, seen_at: float) -> bool:
        """Note what the gate or an event said; False if something newer is known already.

        `seen_at`: the clock *before* the gate was asked: a slow answer isn't trusted longer.
        """
        with self._lock:
            mark = self._marks.get(sale_id)
            if mark is not None and epoch < mark.epoch:
                return False
            self._marks[sale_id] = Mark(epoch, sold_out, seen_at)
            return True

    def drop(self, sale_id: int) -> None:
        """Ask the gate about this sale; what is older than the mark stays refuted."""
        with self._lock:
            mark = self._marks.get(sale_id)
            if mark is not None:
                self._marks[sale_id] = Mark(mark.epoch, False, self._clock())

    def forget(self) -> None:
        """Drop all marks: nothing is known, so the gate is asked."""
        with self._lock:
            self._marks.clear()

    def believed(self) -> dict[int, bool]:
        return {sale_id: mark.sold_out for sale_id, mark in list(self._marks.items())}

    def told(self) -> list[dict[str, object]]:
        """For people: each mark, and whether it refuses at this moment."""
        now, ttl = self._clock(), settings.SOLD_OUT_TTL
        return [
            {
                "sale": sale_id,
                "epoch": mark.epoch,
                "sold_out": mark.sold_out,
                "age": round(now - mark.seen_at, 3),
                "refuses": mark.sold_out and now - mark.seen_at < ttl,
            }
            for sale_id, mark in sorted(self._marks.copy().items())
        ]


marks = Marks()
