"""Waiting for outcomes together."""

import asyncio
from collections.abc import Sequence

import pytest

from inventory.gate import GateError, Trace
from seckill.watch import Watch

QUEUED, ORDERED = Trace("queued", "", 1), Trace("ordered")
SOON = 2.0  # seconds, far more than a tick


class Gate:
    """Knows the outcome of some purchases; remembers what it was asked."""

    def __init__(self) -> None:
        self.ended: set[str] = set()
        self.error: Exception | None = None
        self.questions: list[tuple[int, list[str]]] = []
        self.asked = asyncio.Event()

    async def __call__(self, sale_id: int, ids: Sequence[str]) -> list[Trace]:
        self.questions.append((sale_id, list(ids)))
        self.asked.set()
        if self.error:
            raise self.error
        return [ORDERED if purchase in self.ended else QUEUED for purchase in ids]

    async def next_question(self) -> None:
        self.asked.clear()
        await asyncio.wait_for(self.asked.wait(), SOON)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def watch(gate: Gate) -> Watch:
    return Watch(gate, tick=0.01)


async def nobody_waits(watch: Watch) -> None:
    async with asyncio.timeout(SOON):
        while watch._tasks or watch._waiting:
            await asyncio.sleep(0.01)


async def test_wait_ends_with_news(gate: Gate, watch: Watch) -> None:
    waiting = asyncio.create_task(watch.wait(1, "a", 60))
    await gate.next_question()
    assert not waiting.done()

    gate.ended.add("a")

    await asyncio.wait_for(waiting, SOON)
    await nobody_waits(watch)


async def test_wait_ends_with_its_time(gate: Gate, watch: Watch) -> None:
    await asyncio.wait_for(watch.wait(1, "a", 0.05), SOON)

    assert gate.questions
    await nobody_waits(watch)


async def test_wait_ends_with_what_it_was_told(gate: Gate, watch: Watch) -> None:
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(watch.wait(1, "a", 60, unless=gone))
    await gate.next_question()

    gone.set_result(None)

    await asyncio.wait_for(waiting, SOON)
    await nobody_waits(watch)


async def test_all_who_wait_go_in_one_question(gate: Gate, watch: Watch) -> None:
    names = [f"p{number}" for number in range(2500)]
    waiting = [asyncio.create_task(watch.wait(1, name, 60)) for name in names for _ in range(2)]
    while sum(len(ids) for _, ids in gate.questions) < len(names):
        await gate.next_question()

    first_round = gate.questions[:3]
    gate.ended.update(names)

    await asyncio.wait_for(asyncio.gather(*waiting), SOON)
    assert [len(ids) for _, ids in first_round] == [1000, 1000, 500]
    await nobody_waits(watch)


async def test_news_wake_only_those_whom_they_concern(gate: Gate, watch: Watch) -> None:
    mine, other, elsewhere = (
        asyncio.create_task(watch.wait(sale, name, 60))
        for sale, name in ((1, "a"), (1, "b"), (2, "c"))
    )
    gate.ended.add("a")

    await asyncio.wait_for(mine, SOON)
    await gate.next_question()

    assert not other.done()
    assert not elsewhere.done()
    gate.ended.update("bc")
    await asyncio.wait_for(asyncio.gather(other, elsewhere), SOON)


@pytest.mark.parametrize("error", [GateError("away"), TimeoutError()])
async def test_wait_outlasts_a_gate_that_is_away(
    gate: Gate, watch: Watch, error: Exception
) -> None:
    gate.error = error
    waiting = asyncio.create_task(watch.wait(1, "a", 60))
    await gate.next_question()
    await gate.next_question()

    gate.error = None
    gate.ended.add("a")

    await asyncio.wait_for(waiting, SOON)


async def test_waiter_that_is_cancelled_leaves_nothing(gate: Gate, watch: Watch) -> None:
    stays = asyncio.create_task(watch.wait(1, "a", 60))
    goes = asyncio.create_task(watch.wait(1, "a", 60))
    await gate.next_question()

    goes.cancel()
    await asyncio.wait([goes])
    gate.ended.add("a")

    await asyncio.wait_for(stays, SOON)
    await nobody_waits(watch)


async def test_close_sends_everybody_home(gate: Gate, watch: Watch) -> None:
    waiting = asyncio.create_task(watch.wait(1, "a", 60))
    await gate.next_question()

    watch.close()

    await asyncio.wait_for(waiting, SOON)
    await asyncio.wait_for(watch.wait(1, "a", 60), SOON)
    await nobody_waits(watch)
