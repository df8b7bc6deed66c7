"""The end of a web process, from the first signal on.

A server tells its application of the end only when all requests have their answers. Who merely
waits for an outcome must therefore get one before, or the process is killed for it. (Websockets
are closed by the servers themselves.)
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Farewell:
    """Calls back, once, when the process is told to end."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self.begun = False

    def listen(self) -> None:
        """Hear the signals too, besides the server, if it handles them."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            previous = signal.getsignal(number)
            if callable(previous):
                signal.signal(number, partial(self._heard, loop, previous))

    def _heard(
        self,
        loop: asyncio.AbstractEventLoop,
        previous: Callable[[int, FrameType | None], Any],
        number: int,
        frame: FrameType | None,
    ) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self.begin)
        previous(number, frame)

    def begin(self) -> None:
        if not self.begun:
            self.begun = True
            self._callback()
