"""Group commit: what arrives while a call is under way waits together and goes in the next call.

Errors that a waiter may see, besides whatever the call itself raised for its batch:

    BatchError
    ├── Full        raised by submit: too many items wait already
    ├── Closed      raised by submit after close(), or the item was still waiting when time ran out
    ├── Miscounted  the call answered with more or fewer results than it got items
    └── Aborted     the call was cancelled from within or by the end of the loop
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

# A backend that hangs makes waiters give up; their places are freed at most this often, because
# looking for them costs a walk over everything that waits.
PURGE_EVERY = 0.05


class BatchError(Exception):
    """An item got no result for a reason that lies in the queue, not in the call."""


class Full(BatchError):
    """Too many items wait already; nothing was taken in."""


class Closed(BatchError):
    """The queue is shutting down."""


class Miscounted(BatchError):
    """The call broke its promise of one result for each item."""


class Aborted(BatchError):
    """The call was cancelled; whether it had its effect is unknown."""


class _Lane(Generic[K, I, R]):
    """The items of one key. `queued`: it stands in line for a call."""

    __slots__ = ("calls", "key", "queued", "waiting")

    def __init__(self, key: K) -> None:
        self.key = key
        self.waiting: list[tuple[I, asyncio.Future[R]]] = []
        self.calls = 0
        self.queued = False

    def take(self, most: int) -> list[tuple[I, asyncio.Future[R]]]:
        taken = self.waiting
        if len(taken) <= most:
            self.waiting = []
        else:
            taken, self.waiting = taken[:most], taken[most:]
        return taken


class Batcher(Generic[K, I, R]):
    """Collect items by key and hand them, at most `max_batch` at once, to `call(key, items)`.

    `call` answers with one result for each item, in the same order. Alone an item waits for
    nobody; there is no timer. At most `concurrency` calls of one key and `parallel` calls in all
    are under way; keys that wait for a call take turns, so a long queue of one key holds up no
    other. An exception of `call` reaches the items of its own batch only.

    Belongs to the event loop that runs at the first submit; when that loop has ended, a new one
    may take it over. Not for use from several threads.
    """

    def __init__(
        self,
        call: Callable[[K, list[I]], Awaitable[Sequence[R]]],
        *,
        max_batch: int = 500,
        max_waiting: int = 20_000,
        concurrency: int = 1,
        parallel: int = 16,
    ) -> None:
        if min(max_batch, max_waiting, concurrency, parallel) < 1:
            raise ValueError("every limit of a Batcher is at least 1")
        self._call = call
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._concurrency = concurrency
        self._parallel = parallel
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forget()

    def _forget(self) -> None:
        self._lanes: dict[K, _Lane[K, I, R]] = {}
        self._ready: deque[_Lane[K, I, R]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._purge_at = 0.0

    @property
    def waiting(self) -> int:
        """Items that no call has taken yet, with those given up but not yet noticed."""
        return self._waiting

    def submit(self, key: K, item: I) -> asyncio.Future[R]:
        """Put one item in the queue of its key; the future brings its result.

        Cancelling the future drops the item if no call has taken it, else only its result.
        Raises Full or Closed at once.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._adopt(loop)
        if self._closed:
            raise Closed
        if self._waiting >= self._max_waiting:
            self._make_room(loop)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        future: asyncio.Future[R] = loop.create_future()
        lane.waiting.append((item, future))
        self._waiting += 1
        if not lane.queued and lane.calls < self._concurrency:
            self._enqueue(lane)
        return future

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and self._loop.is_running():
            raise RuntimeError("this Batcher belongs to another event loop, which still runs")
        # Whatever the old loop left behind can never finish.
        self._forget()
        self._loop = loop

    def _make_room(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop the items whose waiters have gone; raises Full if that frees no place."""
        if loop.time() >= self._purge_at:
            self._purge_at = loop.time() + PURGE_EVERY
            for lane in self._lanes.values():
                lane.waiting = [pair for pair in lane.waiting if not pair[1].done()]
            self._waiting = sum(len(lane.waiting) for lane in self._lanes.values())
        if self._waiting >= self._max_waiting:
            raise Full

    def _enqueue(self, lane: _Lane[K, I, R]) -> None:
        lane.queued = True
        self._ready.append(lane)
        if len(self._workers) < self._parallel:
            # The task starts after the handlers that are ready now, so what they submit goes along.
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._retire)

    def _retire(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if self._ready and not self._workers:
            # It was cancelled, which is what happens when the loop ends: nobody will serve these.
            for lane in self._ready:
                _fail(lane.waiting, Aborted())
            self._forget()

    async def _work(self) -> None:
        """Serve a batch of the lane that has waited longest, again and again, until none waits."""
        while self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            lane.calls += 1
            try:
                await self._serve(lane)
            finally:
                lane.calls -= 1
                self._settle(lane)

    def _settle(self, lane: _Lane[K, I, R]) -> None:
        if lane.queued:
            return
        if lane.waiting:
            self._enqueue_again(lane)
        elif not lane.calls:
            self._lanes.pop(lane.key, None)

    def _enqueue_again(self, lane: _Lane[K, I, R]) -> None:
        # The worker that calls this takes the next lane itself, so no further one is started.
        lane.queued = True
        self._ready.append(lane)

    async def _serve(self, lane: _Lane[K, I, R]) -> None:
        taken = lane.take(self._max_batch)
        self._waiting -= len(taken)
        if lane.waiting and lane.calls < self._concurrency:
            self._enqueue(lane)
        batch = [pair for pair in taken if not pair[1].done()]
        if not batch:
            return
        try:
            _deliver(batch, await self._call(lane.key, [item for item, _ in batch]))
        except asyncio.CancelledError:
            _fail(batch, Aborted())
            if _cancelled_from_outside():
                raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is its waiters' to handle
            _fail(batch, error)
        except BaseException:
            _fail(batch, Aborted())
            raise

    async def drain(self) -> None:
        """Return when nothing waits and no call is under way."""
        while self._workers and self._loop is asyncio.get_running_loop():
            await asyncio.wait(self._workers)

    async def close(self, *, timeout: float | None = None) -> None:
        """Refuse new items, then give those in the queue `timeout` seconds to get their results.

        What still waits after that gets Closed, what is under way gets Aborted.
        """
        self._closed = True
        try:
            async with asyncio.timeout(timeout):
                await self.drain()
        except TimeoutError:
            for lane in self._lanes.values():
                _fail(lane.take(len(lane.waiting)), Closed())
            self._waiting = 0
            for worker in self._workers:
                worker.cancel()
            await self.drain()


def _cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _fail(batch: list[tuple[I, asyncio.Future[R]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def _deliver(batch: list[tuple[I, asyncio.Future[R]]], results: Sequence[R]) -> None:
    if len(results) != len(batch):
        _fail(batch, Miscounted(f"{len(batch)} items, {len(results)} results"))
        return
    for (_, future), result in zip(batch, results, strict=True):
        if not future.done():
            future.set_result(result)
