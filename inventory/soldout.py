"""Sold-out marks: what this process believes of each sale, to refuse without asking Redis.

A mark may only refuse, never admit, and only for SOLD_OUT_TTL; then one asks the gate while all
others of this process wait for its answer. A mark of an older epoch never replaces a newer one, so
a "sold out" that arrives late can't stick after stock came back.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from django.conf import settings

# Seconds that others wait for who asks the gate. If there is no answer by then, something is wrong
# with the gate, and each asks for itself: to refuse would be a guess.
PATIENCE = 0.25


class Turn(Enum):
    """What somebody has to do whom no mark refused."""

    ASK = auto()  # go to the gate
    WAIT = auto()  # somebody else has gone: look again in a moment
    REFUSED = auto()  # its answer is here: sold out


@dataclass(slots=True)
class Mark:
    """`until`: refuses before that moment. `asked_at`: when somebody went to ask after it."""

    epoch: int
    sold_out: bool
    seen_at: float
    until: float
    asked_at: float = math.inf


class Marks:
    """The marks of one process. All methods may be called from any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._marks: dict[int, Mark] = {}
        self._lock = threading.Lock()
        self._clock = clock

    def refuses(self, sale_id: int) -> bool:
        """May a buyer be told "sold out" without asking the gate?"""
        mark = self._marks.get(sale_id)
        return mark is not None and self._clock() < mark.until

    def turn(self, sale_id: int) -> Turn:
        """To be asked right before the gate is; ASK is for one only, if a mark has run out."""
        mark = self._marks.get(sale_id)
        if mark is None or not mark.sold_out:
            return Turn.ASK
        with self._lock:
            now = self._clock()
            if now < mark.until:
                return Turn.REFUSED
            if mark.asked_at <= now < mark.asked_at + PATIENCE:
                return Turn.WAIT
            mark.asked_at = min(mark.asked_at, now)
            return Turn.ASK

    def observe(self, sale_id: int, *, epoch: int, sold_out: bool, seen_at: float) -> bool:
        """Note what the gate or an event said; False if something newer is known already.

        `seen_at`: the clock *before* the gate was asked: a slow answer isn't trusted longer.
        """
        until = seen_at + settings.SOLD_OUT_TTL if sold_out else -math.inf
        with self._lock:
            mark = self._marks.get(sale_id)
            if mark is not None and (epoch, seen_at) < (mark.epoch, mark.seen_at):
                return False
            self._marks[sale_id] = Mark(epoch, sold_out, seen_at, until)
            return True

    def drop(self, sale_id: int) -> None:
        """Ask the gate about this sale; what was known before stays refuted."""
        with self._lock:
            mark = self._marks.get(sale_id)
            if mark is not None:
                self._marks[sale_id] = Mark(mark.epoch, False, self._clock(), -math.inf)

    def forget(self) -> None:
        """Drop all marks: nothing is known, so the gate is asked."""
        with self._lock:
            self._marks.clear()

    def believed(self) -> dict[int, bool]:
        return {sale_id: mark.sold_out for sale_id, mark in list(self._marks.items())}

    def told(self) -> list[dict[str, object]]:
        """For people: each mark, and whether it refuses at this moment."""
        now = self._clock()
        return [
            {
                "sale": sale_id,
                "epoch": mark.epoch,
                "sold_out": mark.sold_out,
                "age": round(now - mark.seen_at, 3),
                "refuses": now < mark.until,
            }
            for sale_id, mark in sorted(self._marks.copy().items())
        ]


marks = Marks()
