"""Waiting for outcomes: one question to the gate per tick and sale, however many wait."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from inventory.gate import GateError, Trace

log = logging.getLogger(__name__)

TICK = 0.1  # seconds
BATCH = 1000

Ask = Callable[[int, Sequence[str]], Awaitable[list[Trace]]]


class Watch:
    """Tells waiters when the gate knows the outcome of their purchase. One per event loop."""

    def __init__(self, ask: Ask, *, tick: float = TICK) -> None:
        self._ask = ask
        self._tick = tick
        self._waiting: dict[int, dict[str, set[asyncio.Future[None]]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def wait(self, sale_id: int, purchase_id: str, timeout: float) -> None:
        """Return when there is news of the purchase, or after `timeout` seconds."""
        future = asyncio.get_running_loop().create_future()
        waiters = self._waiting.setdefault(sale_id, {}).setdefault(purchase_id, set())
        waiters.add(future)
        if sale_id not in self._tasks:
            self._tasks[sale_id] = asyncio.create_task(self._work(sale_id))
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            waiters.discard(future)
            if not waiters:
                self._waiting.get(sale_id, {}).pop(purchase_id, None)

    async def _work(self, sale_id: int) -> None:
        try:
            while waiting := self._waiting.get(sale_id):
                await asyncio.sleep(self._tick)
                ids = list(waiting)
                for start in range(0, len(ids), BATCH):
                    await self._look(sale_id, ids[start : start + BATCH])
        finally:
            del self._tasks[sale_id]
            self._waiting.pop(sale_id, None)

    async def _look(self, sale_id: int, ids: list[str]) -> None:
        try:
            traces = await self._ask(sale_id, ids)
        except GateError as error:
            log.warning("can't ask the gate of sale %s: %s", sale_id, error)
            return
        for purchase_id, trace in zip(ids, traces, strict=True):
            if trace.state != "queued":
                for future in self._waiting.get(sale_id, {}).get(purchase_id, ()):
                    if not future.done():
                        future.set_result(None)
