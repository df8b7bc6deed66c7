"""Waiting for outcomes: one question to the gate per tick and sale, however many wait."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from inventory.gate import GateError, Trace
from inventory.redis_clients import RedisNotConfigured

log = logging.getLogger(__name__)

TICK = 0.1  # seconds
BATCH = 1000

Ask = Callable[[int, Sequence[str]], Awaitable[Sequence[Trace]]]


class Watch:
    """Tells waiters when the gate knows the outcome of their purchase. One per event loop."""

    def __init__(self, ask: Ask, *, tick: float = TICK) -> None:
        self._ask = ask
        self._tick = tick
        self._waiting: dict[int, dict[str, set[asyncio.Future[None]]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.closed = False

    async def wait(
        self,
        sale_id: int,
        purchase_id: str,
        timeout: float,
        *,
        unless: "asyncio.Future[Any] | None" = None,
    ) -> None:
        """Return when there is news, `unless` is done, or `timeout` seconds have passed."""
        if self.closed:
            return
        future = asyncio.get_running_loop().create_future()
        waiters = self._waiting.setdefault(sale_id, {}).setdefault(purchase_id, set())
        waiters.add(future)
        if sale_id not in self._tasks:
            self._tasks[sale_id] = asyncio.create_task(self._work(sale_id))
        ends = [future] if unless is None else [future, unless]
        try:
            await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiters.discard(future)
            if not waiters:
                self._forget(sale_id, purchase_id)

    def close(self) -> None:
        """Send everybody home, now and later."""
        self.closed = True
        for task in self._tasks.values():
            task.cancel()
        for waiting in self._waiting.values():
            for waiters in waiting.values():
                _wake(waiters)

    def _forget(self, sale_id: int, purchase_id: str) -> None:
        del self._waiting[sale_id][purchase_id]
        if not self._waiting[sale_id]:
            del self._waiting[sale_id]

    async def _work(self, sale_id: int) -> None:
        try:
            while sale_id in self._waiting:
                await asyncio.sleep(self._tick)
                ids = list(self._waiting.get(sale_id, ()))
                for start in range(0, len(ids), BATCH):
                    await self._look(sale_id, ids[start : start + BATCH])
        finally:
            del self._tasks[sale_id]

    async def _look(self, sale_id: int, ids: list[str]) -> None:
        try:
            traces = await self._ask(sale_id, ids)
        except (GateError, RedisNotConfigured, TimeoutError) as error:
            log.warning("can't ask the gate of sale %s: %r", sale_id, error)
            return
        for purchase_id, trace in zip(ids, traces, strict=True):
            if trace.state != "queued":
                _wake(self._waiting.get(sale_id, {}).get(purchase_id, ()))


def _wake(waiters: "set[asyncio.Future[None]] | tuple[()]") -> None:
    for future in waiters:
        if not future.done():
            future.set_result(None)
