"""The group-commit queue against all that may happen to it, in any order."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from seckill.batching import Batcher

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from("abc")),
        st.tuples(st.just("cancel"), st.integers(0, 40)),
        st.tuples(st.just("answer"), st.integers(0, 40)),
        st.tuples(st.just("fail"), st.integers(0, 40)),
    ),
    max_size=60,
)


class Hands:
    """A backend whose calls end by hand: with results, or with an error that names the batch."""

    def __init__(self) -> None:
        self.open: list[asyncio.Future[bool]] = []
        self.batch_of: dict[int, int] = {}
        self.failed: set[int] = set()
        self.under_way: set[str] = set()

    async def __call__(self, key: str, items: list[int]) -> list[int]:
        assert key not in self.under_way
        self.under_way.add(key)
        number = len(self.batch_of)
        self.batch_of.update(dict.fromkeys(items, number))
        verdict = asyncio.get_running_loop().create_future()
        self.open.append(verdict)
        try:
            if not await verdict:
                self.failed.add(number)
                raise LookupError(number)
        finally:
            self.under_way.remove(key)
        return [-item for item in items]


@given(STEPS, st.integers(1, 4), st.integers(1, 3))
def test_batcher_gives_each_waiter_its_own_result_or_its_batchs_error(steps, max_batch, parallel):
    async def scenario():
        hands = Hands()
        batcher = Batcher(hands, max_batch=max_batch, parallel=parallel)
        futures: list[asyncio.Future[int]] = []
        for step, choice in steps:
            if step == "submit":
                futures.append(batcher.submit(choice, len(futures)))
            elif step == "cancel" and futures:
                futures[choice % len(futures)].cancel()
            elif hands.open and step in ("answer", "fail"):
                hands.open.pop(choice % len(hands.open)).set_result(step == "answer")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        while batcher._workers:
            while hands.open:
                hands.open.pop().set_result(True)
            await asyncio.sleep(0)

        assert batcher.waiting == 0
        for item, future in enumerate(futures):
            assert future.done()
            if future.cancelled():
                continue
            number = hands.batch_of[item]
            if number in hands.failed:
                assert future.exception().args == (number,)
            else:
                assert future.result() == -item

    asyncio.run(asyncio.wait_for(scenario(), 10))
