"""This process's part in the talk about sold-out marks: `publish`, and in web processes `start`.

Nothing connects before the first of these calls. Whatever happens to the transport, a process that
hears nothing still has its own gate's answers, which it trusts for SOLD_OUT_TTL.
"""

import os
import random
import threading
from collections.abc import Collection

from django.conf import settings
from django.utils.module_loading import import_string

from inventory import reports
from inventory.listening import Listener
from inventory.news import News, Transport
from inventory.publishing import Publisher
from inventory.soldout import Marks, marks

MOST_BETWEEN_BEATS = 1.0  # seconds
CHECK_EVERY = 1.0  # seconds between two looks at the threads


# By name: who doesn't use ZooKeeper need not load its client.
TRANSPORTS = {
    "broadcast": "inventory.broadcast.Broadcast",
    "zookeeper": "inventory.zookeeper.ZooKeeper",
}


def make_transport() -> Transport:
    transport: Transport = import_string(TRANSPORTS[settings.SOLD_OUT_CHANNEL])()
    return transport


class Channel:
    """One publisher, and once it is started one listener, over one transport."""

    def __init__(self, transport: Transport, own_marks: Marks = marks) -> None:
        self._transport = transport
        self.listener: Listener | None = None
        self._marks = own_marks
        self._publisher = Publisher(transport, pulse=self._pulse, tick=self._watch)
        self._reporter = reports.Reporter(self._report)
        self._lock = threading.Lock()

    def publish(self, news: News) -> None:
        self._publisher.put(news)

    def start(self) -> None:
        """Listen, from now on; returns at once, and may be called again."""
        with self._lock:
            if self.listener is None:
                self.listener = Listener(self._transport, self._marks)
        self._watch()
        self._publisher.ensure()
        self._reporter.ensure()

    def close(self) -> None:
        """Send what waits, and end all threads; takes a few seconds at most."""
        if self.listener is not None:
            self.listener.stopping.set()
        self._reporter.close()
        self._publisher.close()
        if self.listener is not None:
            self.listener.close()

    def tidy(self, keep: Collection[int]) -> int:
        return self._transport.tidy(keep)

    def _pulse(self) -> float | None:
        """Who hears others needn't beat; so of many processes few do."""
        listener = self.listener
        if listener is None:
            return None
        if not self._transport.needs_beats:
            return CHECK_EVERY
        every = min(MOST_BETWEEN_BEATS, settings.SOLD_OUT_TTL / 2)
        left = every * random.uniform(0.7, 1.0) - listener.age
        return max(left, 0.0)

    def _watch(self) -> None:
        if self.listener is not None:
            self.listener.ensure()

    def _report(self) -> dict[str, object]:
        """Called every second or two, so it also looks after the other two threads."""
        self._watch()
        self._publisher.ensure()
        return {**(state() or {}), "marks": self._marks.told()}


_lock = threading.Lock()
_channel: Channel | None = None


def channel() -> Channel:
    """This process's own."""
    global _channel
    with _lock:
        if _channel is None:
            _channel = Channel(make_transport())
        return _channel


def publish(news: News) -> None:
    channel().publish(news)


def tidy(keep: Collection[int]) -> int:
    """Remove what the transport keeps of all other sales; raises whatever its transport does."""
    return channel().tidy(keep)


def start() -> None:
    channel().start()


def close() -> None:
    if _channel is not None:
        _channel.close()


def state() -> dict[str, object] | None:
    """The listener's state and age; None if this process has none."""
    listener = _channel.listener if _channel is not None else None
    if listener is None:
        return None
    return {
        "channel": settings.SOLD_OUT_CHANNEL,
        "listener": listener.state,
        "age": round(listener.age, 3),
    }


def _after_fork() -> None:
    """Threads and connections stay with the parent."""
    global _channel, _lock
    _channel, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
