"""The end of a web process, from the first signal on.

A server tells its application of the end only when all requests have their answers, and drops the
websockets before that. So what the application has to say comes first: who merely waits for an
outcome gets the state as it is, and every websocket is told to connect again. Then the server hears
of the signal.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE = 12.0  # seconds; a supervisor has more


class Farewell:
    """Calls `last_words` once, when the process is told to end, and keeps the server waiting."""

    def __init__(self, last_words: Callable[[], Awaitable[None]]) -> None:
        self._last_words = last_words
        self._precedes = False
        self._saying: asyncio.Task[None] | None = None
        self.begun = False

    def precede(self) -> None:
        """Stand before a server that gives its handlers to the loop, as granian does.

        Such handlers can't be taken from a loop again, so this must come before them: granian makes
        its loop, loads the application, and then adds them.
        """
        if "granian" not in sys.modules:
            return
        loop = asyncio.get_event_loop()
        add = loop.add_signal_handler

        def add_after_us(number: int, callback: Callable[..., Any], *args: Any) -> None:
            if number in SIGNALS:
                self._precedes = True
                add(number, self._heard, partial(callback, *args))
            else:
                add(number, callback, *args)

        loop.add_signal_handler = add_after_us  # type: ignore[assignment]

    def listen(self) -> None:
        """Stand before a server that handles signals without the loop; for the others do nothing.

        From the loop's thread, as soon as the server handles them.
        """
        if self._precedes or threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            previous = signal.getsignal(number)
            if callable(previous):
                signal.signal(number, partial(self._interrupted, loop, previous))

    def _interrupted(
        self,
        loop: asyncio.AbstractEventLoop,
        previous: Callable[[int, FrameType | None], Any],
        number: int,
        frame: FrameType | None,
    ) -> None:
        if loop.is_closed():
            previous(number, frame)
        else:
            loop.call_soon_threadsafe(self._heard, partial(previous, number, None))

    def _heard(self, server: Callable[[], Any]) -> None:
        if self.begun:  # Somebody is in a hurry.
            server()
        else:
            self._saying = asyncio.get_running_loop().create_task(self._say_first(server))

    async def _say_first(self, server: Callable[[], Any]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self.begin()
        finally:
            server()

    async def begin(self) -> None:
        if not self.begun:
            self.begun = True
            await self._last_words()
