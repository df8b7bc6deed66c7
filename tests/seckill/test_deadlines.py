"""Futures that wait too long end with TimeoutError; the others are left alone."""

import asyncio

import pytest

from seckill.deadlines import Deadlines


async def test_deadlines_end_what_waits_too_long_and_nothing_else():
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(0.1, tick=0.02)
    answered, canceled, late = (loop.create_future() for _ in range(3))
    for future in (answered, canceled, late):
        deadlines.watch(future)
    answered.set_result("yes")
    canceled.cancel()

    begun = loop.time()
    with pytest.raises(TimeoutError):
        await late

    assert 0.09 <= loop.time() - begun < 2
    assert answered.result() == "yes"
    assert canceled.cancelled()
    assert not deadlines._waiting


async def test_deadlines_go_on_with_what_comes_later():
    deadlines = Deadlines(0.05, tick=0.01)
    first = asyncio.get_running_loop().create_future()
    deadlines.watch(first)
    with pytest.raises(TimeoutError):
        await first

    second = asyncio.get_running_loop().create_future()
    deadlines.watch(second)

    with pytest.raises(TimeoutError):
        await second


def test_deadlines_follow_to_a_new_event_loop():
    deadlines = Deadlines(0.05, tick=0.01)

    async def wait() -> None:
        future = asyncio.get_running_loop().create_future()
        deadlines.watch(future)
        with pytest.raises(TimeoutError):
            await future

    async def leave_one_behind() -> None:
        deadlines.watch(asyncio.get_running_loop().create_future())

    asyncio.run(leave_one_behind())
    asyncio.run(wait())
