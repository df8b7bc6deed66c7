"""One deadline for very many futures, without a timer for each.

All wait equally long, so they come due in the order in which they came: a queue and one timer do.
"""

import asyncio
from collections import deque
from typing import Any


class Deadlines:
    """Ends futures that wait longer than `seconds` with TimeoutError, up to `tick` seconds late."""

    def __init__(self, seconds: float, *, tick: float = 0.1) -> None:
        self._seconds = seconds
        self._tick = tick
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, future: "asyncio.Future[Any]") -> None:
        loop = future.get_loop()
        if loop is not self._loop:
            # Whatever an earlier loop left behind can never finish.
            self._loop = loop
            self._waiting.clear()
        if not self._waiting:
            loop.call_later(self._tick, self._look, loop)
        self._waiting.append((loop.time() + self._seconds, future))

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        now, waiting = loop.time(), self._waiting
        while waiting and (waiting[0][0] <= now or waiting[0][1].done()):
            _, future = waiting.popleft()
            if not future.done():
                future.set_exception(TimeoutError(f"no answer within {self._seconds:g} seconds"))
        if waiting:
            loop.call_later(self._tick, self._look, loop)
