"""The thread that hears news and keeps the marks; whatever happens to it, it comes back."""

import logging
import random
import threading
import time
from collections.abc import Callable

from django.conf import settings
from prometheus_client import Counter

from inventory.news import DEAF_AFTER, Deaf, News, Transport
from inventory.soldout import Marks

log = logging.getLogger(__name__)

# Seconds between two tries to connect: the first, the longest, and the life after which a
# connection counts as a good one.
FIRST_PAUSE, LONGEST_PAUSE, GOOD_LIFE = 0.2, 3.0, 10.0

_heard = Counter("seckill_sold_out_news", "News about marks that this process heard")
_losses = Counter("seckill_sold_out_losses", "How often the listener lost its connection")


class Listener:
    """Drops all marks at every (re)connect and loss: what was missed meanwhile can't be known."""

    def __init__(
        self, transport: Transport, marks: Marks, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stopping = threading.Event()
        self._transport = transport
        self._marks = marks
        self._clock = clock
        self._connected = False
        self._last_word = clock()
        self._thread: threading.Thread | None = None

    # --- life -----------------------------------------------------------------------------------

    def ensure(self) -> None:
        """Start the thread if it doesn't run; also if something has killed it."""
        if self.stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        if self._thread is not None:
            log.error("the sold-out listener had died, it starts anew")
            self._lose()
        self._thread = threading.Thread(target=self._work, name="sold-out-listener", daemon=True)
        self._thread.start()

    def close(self, timeout: float = 2.0) -> None:
        self.stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while not self.stopping.is_set():
            began = self._clock()
            try:
                self._transport.listen(self)
            except Exception as error:  # noqa: BLE001 - transports fail in many ways, all mean "again"
                log.warning("sold-out listener: %s: %s", type(error).__name__, error)
            self._lose()
            if self._clock() - began > GOOD_LIFE:
                pause = FIRST_PAUSE
            self.stopping.wait(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _lose(self) -> None:
        if self._connected:
            _losses.inc()
        self._connected = False
        self._marks.forget()

    # --- what the transport tells -----------------------------------------------------------------

    def connected(self) -> None:
        self._marks.forget()
        self.beat()
        self._connected = True

    def beat(self) -> None:
        self._last_word = self._clock()

    def hear(self, news: News) -> None:
        _heard.inc()
        self.beat()
        if news.epoch:
            # Counted from when it was learnt: news that waited long refuses nobody for longer.
            learnt_at = self._last_word - news.age
            self._marks.observe(
                news.sale_id, epoch=news.epoch, sold_out=news.sold_out, seen_at=learnt_at
            )
        else:
            self._marks.drop(news.sale_id)

    def check(self) -> None:
        """Raises Deaf if nothing was heard for too long."""
        if self.is_late:
            raise Deaf(f"nothing heard for {self.age:.1f} s")

    # --- what others may know ---------------------------------------------------------------------

    @property
    def age(self) -> float:
        """Seconds since anything was heard, or since the start."""
        return self._clock() - self._last_word

    @property
    def is_late(self) -> bool:
        return self.age > max(DEAF_AFTER, settings.SOLD_OUT_TTL)

    @property
    def state(self) -> str:
        """`ok`, `late` or `away`."""
        if not self._connected:
            return "away"
        return "late" if self.is_late else "ok"
