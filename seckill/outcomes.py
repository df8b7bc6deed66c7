"""The lane's way to outcomes: the gate first, then the database, each asked for many at once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from inventory import gate
from inventory.gate import Trace
from inventory.redis_clients import RedisNotConfigured
from orders.models import Order
from seckill.asgi_types import Receive
from seckill.batching import Batcher, BatchError
from seckill.services import Outcome, outcome_of
from seckill.watch import Watch

log = logging.getLogger(__name__)

DEADLINE = 1.2  # seconds for one question to one back end

Run = Callable[..., Awaitable[Any]]


class Unavailable(Exception):
    """Raised when neither gate nor database could say anything."""


class Outcomes:
    """Looks purchases up for one process. `run` executes a blocking function in a thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._traces: Batcher[int, str, Trace] = Batcher(self._ask_gate)
        self._orders: Batcher[None, UUID, Order | None] = Batcher(self._ask_database)
        self._watch = Watch(self._ask_gate)

    async def get(
        self, sale_id: int, purchase_id: UUID, *, user_id: int, owned: bool
    ) -> Outcome | None:
        """The outcome, or None if it is unknown or another buyer's.

        `owned`: the caller's token names this very purchase. Raises Unavailable.
        """
        trace = await self._trace(sale_id, purchase_id)
        if trace is not None:
            if trace.state == "queued":
                return Outcome("queued") if trace.user_id == user_id else None
            if trace.state == "rejected" and owned:
                return Outcome("failed", trace.code)
        order = await self._order(purchase_id)
        if order is not None and order.user_id == user_id and order.sale_id == sale_id:
            return outcome_of(order)
        if trace is None:
            raise Unavailable
        return None

    @asynccontextmanager
    async def waiter(
        self, sale_id: int, purchase_id: UUID, receive: Receive
    ) -> AsyncIterator[Callable[[float], Awaitable[bool]]]:
        """Gives a function that waits for news of a queued purchase, at most so many seconds.

        Its result: may it be asked again? Not after the time, the client or the process has gone.
        """
        gone = asyncio.create_task(_leaves(receive))

        async def news(timeout: float) -> bool:
            if gone.done() or timeout <= 0:
                return False
            await self._watch.wait(sale_id, str(purchase_id), timeout, unless=gone)
            return not self._watch.closed

        try:
            yield news
        finally:
            gone.cancel()

    def close(self) -> None:
        """Nobody waits for news any more."""
        self._watch.close()

    async def _trace(self, sale_id: int, purchase_id: UUID) -> Trace | None:
        """None = the gate is away."""
        try:
            # With its wait for the question before it, so that time is left for the database.
            async with asyncio.timeout(DEADLINE):
                return await self._traces.submit(sale_id, str(purchase_id))
        except (gate.GateError, RedisNotConfigured, BatchError, TimeoutError) as error:
            log.warning("outcome of %s: the gate is away: %s", purchase_id, error)
            return None

    async def _order(self, purchase_id: UUID) -> Order | None:
        try:
            return await self._orders.submit(None, purchase_id)
        except (BatchError, TimeoutError) as error:
            raise Unavailable from error

    async def _ask_gate(self, sale_id: int, ids: Sequence[str]) -> Sequence[Trace]:
        async with asyncio.timeout(DEADLINE):
            return await gate.traces_async(sale_id, ids)

    async def _ask_database(self, _key: None, ids: list[UUID]) -> Sequence[Order | None]:
        found: dict[UUID, Order] = await self._run(_orders, ids, deadline=DEADLINE)
        return [found.get(purchase_id) for purchase_id in ids]


async def _leaves(receive: Receive) -> None:
    """Return when the client has gone."""
    for _ in range(3):
        if (await receive())["type"] == "http.disconnect":
            return
    # A server that repeats the empty body for ever doesn't tell of clients.
    await asyncio.get_running_loop().create_future()


def _orders(ids: list[UUID]) -> dict[UUID, Order]:
    return Order.objects.in_bulk(ids)
