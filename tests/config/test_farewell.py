"""What happens at the first signal, before the server has said anything."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from config.farewell import SIGNALS, Farewell

SOON = 2.0  # seconds


@pytest.fixture
def _signals() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("number", SIGNALS)
async def test_signal_reaches_the_server_and_us(number: int) -> None:
    order: list[str] = []
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def server() -> None:
        order.append("server")
        heard.set()

    loop.add_signal_handler(number, server)
    farewell = Farewell(lambda: order.append("lane"))

    farewell.listen()
    os.kill(os.getpid(), number)
    await asyncio.wait_for(heard.wait(), SOON)
    await asyncio.sleep(0)

    assert sorted(order) == ["lane", "server"]
    assert farewell.begun
    loop.remove_signal_handler(number)


@pytest.mark.usefixtures("_signals")
async def test_signal_that_nobody_handles_still_ends_the_process() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    Farewell(lambda: None).listen()

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_begin_calls_back_once() -> None:
    calls: list[int] = []
    farewell = Farewell(lambda: calls.append(1))

    farewell.begin()
    farewell.begin()

    assert calls == [1]
