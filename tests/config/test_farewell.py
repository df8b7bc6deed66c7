"""What happens at the first signal, before the server has heard of it."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from config import farewell as module
from config.farewell import SIGNALS, Farewell

SOON = 2.0  # seconds


class Words:
    """Last words that take until they are let go."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.may_end = asyncio.Event()
        self.server_heard = asyncio.Event()

    async def speak(self) -> None:
        self.order.append("begin")
        await self.may_end.wait()
        self.order.append("end")

    def server(self, *args: Any) -> None:
        self.order.append("server")
        self.server_heard.set()


@pytest.fixture
def _signals() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def under_granian(words: Words, number: int) -> Farewell:
    """It gives its handlers to the loop, after it has loaded the application."""
    farewell = Farewell(words.speak)
    farewell.precede()
    asyncio.get_event_loop().add_signal_handler(number, words.server, number)
    farewell.listen()
    return farewell


def under_daphne(words: Words, number: int) -> Farewell:
    """It handles signals without the loop, and the application learns of nothing."""

    def handler(number: int, frame: FrameType | None) -> None:
        words.server()

    signal.signal(number, handler)
    farewell = Farewell(words.speak)
    farewell.precede()
    farewell.listen()
    return farewell


@pytest.fixture(params=[under_granian, under_daphne])
async def begin(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _signals: None
) -> Any:
    if request.param is under_granian:
        monkeypatch.setitem(sys.modules, "granian", sys)
    else:
        monkeypatch.delitem(sys.modules, "granian", raising=False)
    loop = asyncio.get_running_loop()
    yield request.param
    loop.__dict__.pop("add_signal_handler", None)
    for number in SIGNALS:
        loop.remove_signal_handler(number)


Begin = Callable[[Words, int], Farewell]


@pytest.mark.parametrize("number", SIGNALS)
async def test_server_hears_when_all_is_said(begin: Begin, number: int) -> None:
    words = Words()
    farewell = begin(words, number)

    os.kill(os.getpid(), number)
    async with asyncio.timeout(SOON):
        while not words.order:
            await asyncio.sleep(0)
    assert words.order == ["begin"]
    assert farewell.begun
    words.may_end.set()
    await asyncio.wait_for(words.server_heard.wait(), SOON)

    assert words.order == ["begin", "end", "server"]


async def test_second_signal_reaches_the_server_at_once(begin: Begin) -> None:
    words = Words()
    begin(words, signal.SIGTERM)

    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(SOON):
        while not words.order:
            await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(words.server_heard.wait(), SOON)

    assert words.order == ["begin", "server"]
    words.may_end.set()


async def test_server_hears_though_the_words_never_end(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    words = Words()
    begin(words, signal.SIGTERM)

    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(words.server_heard.wait(), SOON)

    assert words.order == ["begin", "server"]


@pytest.mark.usefixtures("_signals")
async def test_signal_that_nobody_handles_still_ends_the_process() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    Farewell(Words().speak).listen()

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_begin_speaks_once() -> None:
    words = Words()
    words.may_end.set()
    farewell = Farewell(words.speak)

    await farewell.begin()
    await farewell.begin()

    assert words.order == ["begin", "end"]
