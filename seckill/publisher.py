"""Publishing from the web: one thread, so that a broker that hangs holds up nobody's answer.

A purchase is safe before it gets here (the gate's journal has it), so a message may be lost: then
the sweep queues the purchase again. What fails is tried anew, over a fresh connection, until the
sweep would do it anyway.
"""

import atexit
import logging
import threading
import time
from typing import Any, Protocol

from celery import current_app
from django.conf import settings
from prometheus_client import Counter

from orders.tasks import create_orders

log = logging.getLogger(__name__)

LINGER = 0.02  # seconds between two messages, unless a full one waits
PAUSE = 0.5  # seconds without a try after the broker failed
MAX_WAITING = 100_000  # purchases; beyond that the journal alone remembers them

published = Counter("seckill_purchases_published", "Purchases handed to the broker")
unpublished = Counter("seckill_purchases_unpublished", "Purchases left to the recovery sweep")

Entry = list[Any]  # [purchase id, user id, quantity]


class Send(Protocol):
    def __call__(self, sale_id: int, entries: list[Entry]) -> None: ...
    def close(self) -> None: ...


class Sender:
    """Sends over one connection of its own, and a new one after any failure."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._producer: Any = None

    def __call__(self, sale_id: int, entries: list[Entry]) -> None:
        try:
            create_orders.apply_async(  # type: ignore[call-arg]  # celery-types lacks argsrepr
                (sale_id, entries),
                producer=self._open(),
                retry=False,
                ignore_result=True,
                # Celery would write all the entries out for its events, at the price of the rest.
                argsrepr=f"({sale_id}, {len(entries)} purchases)",
            )
        except BaseException:
            self.close()
            raise

    def _open(self) -> Any:
        if self._producer is None:
            options = {**settings.CELERY_BROKER_TRANSPORT_OPTIONS}
            options["socket_timeout"] = settings.BROKER_TIMEOUT  # This one never waits for news.
            self._connection = current_app.connection_for_write(transport_options=options)
            self._producer = current_app.amqp.Producer(self._connection)
        return self._producer

    def close(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.collect(socket_timeout=0.1)


class Publisher:
    """Takes purchases without ever blocking; its thread sends them, several to a message."""

    def __init__(self, send: Send | None = None) -> None:
        self._send: Send = send or Sender()
        self._condition = threading.Condition()
        self._waiting: dict[int, list[tuple[float, Entry]]] = {}
        self._count = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, sale_id: int, entries: list[Entry]) -> None:
        """Queue what the journal has already; not after `close`, nor if too many wait."""
        now = time.monotonic()
        with self._condition:
            if self._closed or self._count + len(entries) > MAX_WAITING:
                unpublished.inc(len(entries))
                return
            self._waiting.setdefault(sale_id, []).extend((now, entry) for entry in entries)
            self._count += len(entries)
            if self._thread is None:
                self._start()
            self._condition.notify()

    def _start(self) -> None:
        # Started by the first purchase, which is after any fork.
        self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self, timeout: float = 3.0) -> None:
        """Send what waits, for at most `timeout` seconds, and end the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _work(self) -> None:
        try:
            self._send_all()
        finally:
            self._send.close()

    def _linger(self, until: float) -> None:
        """Alone a purchase goes at once; what follows closely goes together in the next message."""
        while self._count < settings.ORDER_BATCH and not self._closed:
            left = until - time.monotonic()
            if left <= 0:
                return
            self._condition.wait(left)

    def _send_all(self) -> None:
        sent_at = 0.0
        while True:
            with self._condition:
                while not self._count and not self._closed:
                    self._condition.wait()
                if not self._count:
                    return
                self._linger(sent_at + LINGER)
                sale_id, taken = self._take()
            sent_at = time.monotonic()
            if not self._deliver(sale_id, taken):
                if self._closed:
                    return
                time.sleep(PAUSE)

    def _take(self) -> tuple[int, list[tuple[float, Entry]]]:
        """The longest waiting sale's next batch; sales take turns."""
        sale_id = next(iter(self._waiting))
        waiting = self._waiting.pop(sale_id)
        if len(waiting) > settings.ORDER_BATCH:
            self._waiting[sale_id] = waiting[settings.ORDER_BATCH :]
        taken = waiting[: settings.ORDER_BATCH]
        self._count -= len(taken)
        return sale_id, taken

    def _deliver(self, sale_id: int, taken: list[tuple[float, Entry]]) -> bool:
        try:
            self._send(sale_id, [entry for _, entry in taken])
        except Exception as error:  # noqa: BLE001 - brokers fail in many ways, all mean "not now"
            log.warning("broker is away, %s purchases wait: %s", len(taken), error)
            self._put_back(sale_id, taken)
            return False
        published.inc(len(taken))
        return True

    def _put_back(self, sale_id: int, taken: list[tuple[float, Entry]]) -> None:
        """Keep for another try what the recovery sweep wouldn't take over before."""
        oldest = time.monotonic() - settings.ADMIT_RETRY_AFTER
        kept = [pair for pair in taken if pair[0] > oldest]
        unpublished.inc(len(taken) - len(kept))
        with self._condition:
            if kept:
                self._waiting[sale_id] = kept + self._waiting.get(sale_id, [])
                self._count += len(kept)


publisher = Publisher()
