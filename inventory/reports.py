"""What each web process believes, for `manage.py soldout show`: told to Redis, with an end."""

import logging
import os
import platform
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import redis.exceptions

from inventory import keys
from inventory.redis_clients import RedisNotConfigured, sync_client

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds
LIFETIME_MS = 5000


def name() -> str:
    return f"{platform.node()}:{os.getpid()}"


class Reporter:
    """A thread of its own, because a Redis that hangs would hold up whoever else did it."""

    def __init__(self, report: Callable[[], dict[str, object]]) -> None:
        self._report = report
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def ensure(self) -> None:
        if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._work, name="sold-out-reports", daemon=True)
        self._thread.start()

    def close(self, timeout: float = 2.0) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _work(self) -> None:
        while not self._stopping.wait(EVERY):
            report = self._report()
            try:
                _write(report)
            except (redis.exceptions.RedisError, RedisNotConfigured) as error:
                log.debug("no report about sold-out marks: %r", error)


def _write(report: dict[str, object]) -> None:
    client = sync_client()
    client.set(keys.report(name()), msgspec.json.encode(report), px=LIFETIME_MS)
    now = client.time()[0]
    pipe = client.pipeline(transaction=False)
    pipe.zadd(keys.reports(), {name(): now})
    pipe.zremrangebyscore(keys.reports(), "-inf", now - 60)
    pipe.execute()


def read() -> dict[str, Any]:
    """Process → its last report, for those that live."""
    client = sync_client()
    names = [raw.decode() if isinstance(raw, bytes) else raw for raw in _names(client)]
    values = client.mget([keys.report(each) for each in names]) if names else []
    pairs = zip(names, values, strict=True)
    return {each: msgspec.json.decode(value) for each, value in pairs if value is not None}


def _names(client: Any) -> list[Any]:
    return list(client.zrange(keys.reports(), 0, -1))
