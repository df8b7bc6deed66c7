"""News about marks over the Celery broker: a fanout exchange that every web process listens to.

RabbitMQ: each connection has a queue of its own with a fresh random name. It isn't exclusive, since
a broker that hasn't noticed a cut yet would refuse it to the same process; it goes with its
consumer, and expires if there never was one. Redis: the exchange is a pub/sub channel, and the name
of the queue is known to the process alone.
"""

import logging
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from celery import current_app
from django.conf import settings
from kombu import Consumer, Exchange, Producer, Queue

from inventory.news import Ear, News

log = logging.getLogger(__name__)

TICK = 0.5  # seconds after which the listener looks up from waiting
FIRST_LOOK = 0.05  # seconds; the first wait is what subscribes with Redis
HEARTBEAT = 4  # seconds between two heartbeats of AMQP's own
EXPIRES = 30.0  # seconds that a queue without a consumer lives
MOST_WAITING = 10_000  # messages that RabbitMQ keeps for a process that is stopped
MOST_TOGETHER = 500  # news in one message


class Broadcast:
    needs_beats = True

    def __init__(self) -> None:
        self._connection: Any = None
        self._producer: Any = None

    # --- listening --------------------------------------------------------------------------------

    def listen(self, ear: Ear) -> None:
        connection = _connect()
        try:
            _consumer(connection, ear).consume()
            _drain(connection, FIRST_LOOK)
            ear.connected()
            while not ear.stopping.is_set():
                _drain(connection, TICK)
                if connection.supports_heartbeats:
                    connection.heartbeat_check()
                ear.check()
        finally:
            connection.collect(socket_timeout=0.1)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, news: Sequence[News]) -> None:
        try:
            producer = self._open()
            for start in range(0, max(1, len(news)), MOST_TOGETHER):
                events = [_event(item) for item in news[start : start + MOST_TOGETHER]]
                producer.publish({"events": events}, retry=False, delivery_mode=1)
        except BaseException:
            self.close()
            raise

    def _open(self) -> Any:
        if self._producer is None:
            self._connection = _connect()
            self._producer = Producer(self._connection, exchange=_exchange(), serializer="json")
        return self._producer

    def tidy(self, keep: Collection[int]) -> int:
        """Nothing is kept here that could be left over."""
        return 0

    def close(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.collect(socket_timeout=0.1)


def _connect() -> Any:
    options = {
        **settings.CELERY_BROKER_TRANSPORT_OPTIONS,
        "socket_timeout": settings.BROKER_TIMEOUT,
    }
    connection = current_app.connection_for_write(heartbeat=HEARTBEAT, transport_options=options)
    try:
        connection.connect()
    except BaseException:
        connection.collect(socket_timeout=0.1)
        raise
    return connection


def _exchange() -> Exchange:
    return Exchange(f"{settings.REDIS_PREFIX}sold-out", type="fanout", durable=True)


def _consumer(connection: Any, ear: Ear) -> Any:
    on_redis = connection.transport.driver_type == "redis"
    # Redis remembers the name among the exchange's bindings, so there it is always the same.
    suffix = "" if on_redis else f".{uuid.uuid4().hex}"
    queue = Queue(
        f"{settings.REDIS_PREFIX}sold-out{suffix}",
        _exchange(),
        durable=False,
        auto_delete=not on_redis,
        expires=None if on_redis else EXPIRES,
        max_length=None if on_redis else MOST_WAITING,
    )

    def take(body: Any, _message: Any) -> None:
        ear.beat()
        for news in _read(body):
            ear.hear(news)

    return Consumer(
        connection.default_channel, [queue], callbacks=[take], no_ack=True, accept=["json"]
    )


def _event(news: News) -> dict[str, object]:
    return {
        "sale": news.sale_id,
        "epoch": news.epoch,
        "sold_out": news.sold_out,
        "age": round(news.age, 3),
    }


def _read(body: Any) -> list[News]:
    """What makes no sense comes from another version of this program, and is left out."""
    try:
        return [
            News(int(e["sale"]), int(e["epoch"]), bool(e["sold_out"]), float(e.get("age", 0)))
            for e in body["events"]
        ]
    except (AttributeError, LookupError, TypeError, ValueError):
        log.warning("sold-out news that can't be read: %.200r", body)
        return []


def _drain(connection: Any, timeout: float) -> None:
    try:
        connection.drain_events(timeout=timeout)
    except TimeoutError:
        pass  # Nothing came.
