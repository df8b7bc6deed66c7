"""The group-commit queue: who travels with whom, who is held up by whom, who learns what."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from seckill.batching import Aborted, Batcher, Closed, Full, Miscounted


class Backend:
    """A call that notes what it got and, while `gate` is clear, waits for it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way: dict[str, int] = defaultdict(int)
        self.peak: dict[str, int] = defaultdict(int)

    async def __call__(self, key: str, items: list[int]) -> Sequence[int]:
        self.calls.append((key, items))
        for name in (key, "all"):
            self.under_way[name] += 1
            self.peak[name] = max(self.peak[name], self.under_way[name])
        try:
            await self.gate.wait()
        finally:
            for name in (key, "all"):
                self.under_way[name] -= 1
        return [item * 10 for item in items]


async def until(condition) -> None:
    """Let the loop run until `condition()`; the time limit of the test ends a vain wait."""
    while not condition():
        await asyncio.sleep(0)


def run(scenario) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(bounded())


def test_batcher_sends_a_lone_item_at_once():
    async def scenario():
        backend = Backend()
        batcher = Batcher(backend)
        before = asyncio.get_running_loop().time()

        assert await batcher.submit("a", 1) == 10

        assert backend.calls == [("a", [1])]
        assert asyncio.get_running_loop().time() - before < 0.5

    run(scenario)


def test_batcher_collects_what_arrives_during_a_call():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend)
        first = batcher.submit("a", 0)
        await until(lambda: backend.calls)
        rest = [batcher.submit("a", n) for n in range(1, 6)]
        assert backend.calls == [("a", [0])]

        backend.gate.set()

        assert await asyncio.gather(first, *rest) == [0, 10, 20, 30, 40, 50]
        assert backend.calls == [("a", [0]), ("a", [1, 2, 3, 4, 5])]
        assert batcher.waiting == 0

    run(scenario)


def test_batcher_keeps_a_batch_within_its_size():
    async def scenario():
        backend = Backend()
        batcher = Batcher(backend, max_batch=4)

        results = await asyncio.gather(*(batcher.submit("a", n) for n in range(10)))

        assert results == [n * 10 for n in range(10)]
        assert [len(items) for _, items in backend.calls] == [4, 4, 2]

    run(scenario)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_batcher_limits_the_calls_of_one_key(concurrency):
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend, max_batch=1, concurrency=concurrency)
        futures = [batcher.submit("a", n) for n in range(8)]
        await until(lambda: backend.under_way["a"] == concurrency)

        backend.gate.set()
        await asyncio.gather(*futures)

        assert backend.peak["a"] == concurrency

    run(scenario)


def test_batcher_refuses_at_once_when_full():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend, max_waiting=3)
        under_way = batcher.submit("a", 0)
        await until(lambda: backend.calls)
        waiting = [batcher.submit("a", n) for n in (1, 2, 3)]

        with pytest.raises(Full):
            batcher.submit("b", 4)

        backend.gate.set()
        assert await asyncio.gather(under_way, *waiting) == [0, 10, 20, 30]
        assert await batcher.submit("b", 5) == 50
        assert [key for key, items in backend.calls if 4 in items] == []

    run(scenario)


def test_batcher_gives_the_places_of_those_who_left_to_others():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend, max_waiting=2)
        first = batcher.submit("a", 0)
        await until(lambda: backend.calls)
        for future in [batcher.submit("a", n) for n in (1, 2)]:
            future.cancel()

        late = batcher.submit("a", 3)

        backend.gate.set()
        assert await asyncio.gather(first, late) == [0, 30]
        assert backend.calls == [("a", [0]), ("a", [3])]

    run(scenario)


def test_batcher_lets_keys_take_turns_when_calls_are_scarce():
    async def scenario():
        backend = Backend()
        batcher = Batcher(backend, max_batch=1, parallel=1)
        crowd = [batcher.submit("crowd", n) for n in range(50)]
        lone = [batcher.submit(key, 1) for key in ("b", "c")]

        await asyncio.gather(*crowd, *lone)

        assert [key for key, _ in backend.calls[:4]] == ["crowd", "b", "c", "crowd"]
        assert backend.peak["all"] == 1

    run(scenario)


def test_batcher_calls_different_keys_side_by_side():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend, parallel=2)
        futures = [batcher.submit(key, 1) for key in ("a", "b", "c")]
        await until(lambda: backend.under_way["all"] == 2)

        backend.gate.set()
        await asyncio.gather(*futures)

        assert backend.peak["all"] == 2

    run(scenario)


def test_batcher_gives_an_error_to_its_own_batch_only():
    async def call(key: str, items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        if 13 in items:
            raise LookupError(key)
        return items

    async def scenario():
        batcher = Batcher(call, max_batch=2)

        results = await asyncio.gather(
            *(batcher.submit("a", n) for n in (1, 2, 13, 3, 4, 5)), return_exceptions=True
        )

        assert [results[i] for i in (0, 1, 4, 5)] == [1, 2, 4, 5]
        assert [type(results[i]) for i in (2, 3)] == [LookupError, LookupError]

    run(scenario)


@pytest.mark.parametrize("answer", [[], [1], [1, 2, 3]])
def test_batcher_refuses_a_wrong_number_of_results(answer):
    async def call(key: str, items: list[int]) -> list[int]:
        return answer if key == "bad" else items

    async def scenario():
        batcher = Batcher(call)

        bad = [batcher.submit("bad", n) for n in (1, 2)]
        good = batcher.submit("good", 7)

        errors = await asyncio.gather(*bad, return_exceptions=True)
        assert [type(error) for error in errors] == [Miscounted, Miscounted]
        assert await good == 7

    run(scenario)


def test_batcher_survives_a_call_that_answers_nonsense():
    async def call(key: str, items: list[int]) -> Any:
        return None if key == "bad" else items

    async def scenario():
        batcher = Batcher(call)

        with pytest.raises(TypeError):
            await batcher.submit("bad", 1)

        assert await batcher.submit("good", 2) == 2

    run(scenario)


def test_batcher_drops_a_cancelled_item_that_was_not_sent():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend)
        first = batcher.submit("a", 0)
        await until(lambda: backend.calls)
        given_up, kept = batcher.submit("a", 1), batcher.submit("a", 2)

        given_up.cancel()
        backend.gate.set()

        assert await asyncio.gather(first, kept) == [0, 20]
        assert backend.calls == [("a", [0]), ("a", [2])]

    run(scenario)


def test_batcher_finishes_a_call_whose_waiter_left():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend)

        async def wait_for(item: int) -> int:
            return await batcher.submit("a", item)

        leaver, stayer = asyncio.create_task(wait_for(1)), asyncio.create_task(wait_for(2))
        await until(lambda: backend.calls)
        leaver.cancel()
        backend.gate.set()

        assert await stayer == 20
        assert leaver.cancelled()
        assert backend.calls == [("a", [1, 2])]

    run(scenario)


def test_batcher_tells_waiters_that_a_call_was_cancelled_from_within():
    async def call(key: str, items: list[int]) -> list[int]:
        if key == "bad":
            raise asyncio.CancelledError
        return items

    async def scenario():
        batcher = Batcher(call, parallel=1)
        bad, good = batcher.submit("bad", 1), batcher.submit("good", 2)

        with pytest.raises(Aborted):
            await bad

        assert await good == 2

    run(scenario)


def test_batcher_close_drains_and_refuses():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend, max_batch=1)
        futures = [batcher.submit("a", n) for n in range(3)]
        closing = asyncio.create_task(batcher.close())
        await until(lambda: batcher._closed)

        with pytest.raises(Closed):
            batcher.submit("a", 9)
        backend.gate.set()
        await closing

        assert [future.result() for future in futures] == [0, 10, 20]
        assert sorted(backend.calls) == [("a", [0]), ("a", [1]), ("a", [2])]

    run(scenario)


def test_batcher_close_leaves_nobody_waiting_when_time_runs_out():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend, max_batch=1)
        under_way, waiting = batcher.submit("a", 1), batcher.submit("a", 2)
        await until(lambda: backend.calls)

        await batcher.close(timeout=0.01)

        errors = await asyncio.gather(under_way, waiting, return_exceptions=True)
        assert [type(error) for error in errors] == [Aborted, Closed]
        assert batcher.waiting == 0

    run(scenario)


def test_batcher_frees_its_waiters_when_its_workers_are_cancelled():
    async def scenario():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend, max_batch=1, parallel=1)
        futures = [batcher.submit(key, n) for n in (1, 2) for key in ("a", "b")]
        await until(lambda: backend.calls)

        for worker in batcher._workers:
            worker.cancel()
        errors = await asyncio.gather(*futures, return_exceptions=True)

        assert [type(error) for error in errors] == [Aborted] * 4
        backend.gate.set()
        assert await batcher.submit("a", 5) == 50

    run(scenario)


def test_batcher_moves_to_the_next_loop():
    backend_of_dead_loop: list[Batcher[str, int, int]] = []

    async def first():
        backend = Backend()
        backend.gate.clear()
        batcher = Batcher(backend, max_waiting=1)
        backend_of_dead_loop.append(batcher)
        future = batcher.submit("a", 1)
        await until(lambda: backend.calls)
        future.cancel()

    async def second():
        batcher = backend_of_dead_loop[0]
        batcher._call = Backend()
        assert await batcher.submit("a", 2) == 20

    run(first)
    run(second)


def test_batcher_forgets_idle_keys():
    async def scenario():
        batcher = Batcher(Backend())

        await asyncio.gather(*(batcher.submit(f"key{n}", n) for n in range(100)))
        await batcher.drain()

        assert batcher._lanes == {}

    run(scenario)


def test_batcher_refuses_senseless_limits():
    with pytest.raises(ValueError, match="at least 1"):
        Batcher(Backend(), max_batch=0)
