"""The thread that sends news: nobody waits for it, and the newest news of each sale wins."""

import atexit
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from django.conf import settings

from inventory.news import News, Transport

log = logging.getLogger(__name__)

MAX_WAITING = 20_000  # sales; more than that can wait until their marks have run out
PAUSE = 0.5  # seconds without a try after a failure
BETWEEN_BEATS = 0.2  # seconds at least, also while nobody hears them
GATHER = 0.15  # seconds between two messages, so that a burst of news shares them


class Pulse(Protocol):
    """Says how many seconds are left until a heartbeat is due (0: now); None: never."""

    def __call__(self) -> float | None: ...


def never() -> float | None:
    return None


class Publisher:
    """`put` neither blocks nor raises. `tick` is called at every turn of the thread."""

    def __init__(
        self, transport: Transport, *, pulse: Pulse = never, tick: Callable[[], object] = never
    ) -> None:
        self._transport = transport
        self._pulse = pulse
        self._tick = tick
        self._condition = threading.Condition()
        self._waiting: dict[tuple[int, bool], tuple[News, float]] = {}  # and when it was learnt
        self._thread: threading.Thread | None = None
        self._closed = False
        self._sent_at = -BETWEEN_BEATS

    def put(self, news: News) -> None:
        with self._condition:
            if self._closed or not self._keep(news, time.monotonic() - news.age):
                return
            self._condition.notify()
        self.ensure()

    def _keep(self, news: News, at: float) -> bool:
        """False if newer news of that sale waits already, or too much in all."""
        # A change of another kind waits beside news of an epoch; neither makes up for the other.
        key = news.sale_id, news.epoch == 0
        known = self._waiting.get(key)
        if known is None and len(self._waiting) >= MAX_WAITING:
            return False
        if known is not None and known[0].epoch > news.epoch:
            return False
        self._waiting[key] = news, at
        return True

    def ensure(self) -> None:
        """Start the thread if it doesn't run: by the first news, which is after any fork."""
        with self._condition:
            if self._closed or (self._thread is not None and self._thread.is_alive()):
                return
            if self._thread is None:
                atexit.register(self.close)
            self._thread = threading.Thread(target=self._work, name="sold-out-news", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 2.0) -> None:
        """Send what waits, for at most `timeout` seconds, and end the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _work(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            self._transport.close()

    def _turn(self) -> bool:
        """False when all is over."""
        with self._condition:
            if not self._waiting and not self._closed:
                self._condition.wait(self._until_beat())
            waiting, closed = list(self._waiting.values()), self._closed
            self._waiting.clear()
        self._tick()
        sent = (not waiting and self._until_beat() != 0) or self._send(waiting)
        if not closed:
            self._rest(GATHER if sent else PAUSE)
        return not closed

    def _until_beat(self) -> float | None:
        left = self._pulse()
        if left is None:
            return None
        return max(left, self._sent_at + BETWEEN_BEATS - time.monotonic(), 0)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._condition:
            self._condition.wait_for(lambda: self._closed, until - time.monotonic())

    def _send(self, waiting: list[tuple[News, float]]) -> bool:
        self._sent_at = now = time.monotonic()
        news = [item._replace(age=now - at) for item, at in waiting]
        ttl = settings.SOLD_OUT_TTL
        try:
            # A "sold out" whose mark would be over by now is not worth a word.
            self._transport.send([item for item in news if item.age < ttl or not item.sold_out])
        except Exception as error:  # noqa: BLE001 - transports fail in many ways, all mean "not now"
            log.warning("%s sold-out news wait: %s: %s", len(news), type(error).__name__, error)
            with self._condition:
                for item, at in waiting:
                    self._keep(item, at)
            return False
        return True
