"""Whether a worker still does what it is there for.

After trouble with its broker a worker may be connected, answer pings, and take no message any more.
So each sends itself a task through the broker, the pulse, over and over. One that no task reaches,
although the broker takes messages, ends with an error; whoever supervises it starts it again.
"""

import logging
import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery import Celery, signals
from celery.worker import state
from django.conf import settings
from kombu import Queue

log = logging.getLogger(__name__)

TASK = "config.pulse"
FAILED = 1  # exit code of a worker that found itself deaf
GRACE = 15.0  # seconds that it has for an orderly end
KEPT = 3600  # seconds until the broker forgets the queue of a worker that never came back


class Ear:
    """When a task last began or ended in this worker; its processes share the memory."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    def note(self, *_: Any, **__: Any) -> None:
        struct.pack_into("d", self._memory, 0, time.monotonic())

    @property
    def heard_at(self) -> float:
        return float(struct.unpack_from("d", self._memory)[0])


@dataclass
class Pulse:
    """`limit`, `longest`: seconds without a task that an idle and a busy worker may have."""

    limit: float
    longest: float
    ear: Ear
    send: Callable[[], None]
    is_busy: Callable[[], bool]
    _waiting_since: float | None = None  # the first pulse that nothing has followed
    _looked_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._looked_at = time.monotonic()

    @property
    def pause(self) -> float:
        return self.limit / 4

    def is_deaf(self) -> bool:
        """Look once, and send the next pulse."""
        now = time.monotonic()
        slept, self._looked_at = now - self._looked_at, now
        if slept > self.limit or self._has_heard():
            # Who stood still itself has not listened for so long.
            self._waiting_since = None
        waited = now - (self._waiting_since or now)
        if waited > (self.longest if self.is_busy() else self.limit):
            return True
        self._beat(now)
        return False

    def _has_heard(self) -> bool:
        return self._waiting_since is not None and self.ear.heard_at >= self._waiting_since

    def _beat(self, now: float) -> None:
        try:
            self.send()
        except Exception as error:  # noqa: BLE001 - brokers fail in many ways, all mean "not now"
            # While the broker is away there is nothing to be heard.
            self._waiting_since = None
            log.debug("no pulse: %s", error)
        else:
            self._waiting_since = self._waiting_since or now


class _Sender:
    """Sends pulses over a connection of its own, and a new one after any failure."""

    def __init__(self, app: Celery, queue: Queue) -> None:
        self._app, self._queue = app, queue
        self._connection: Any = None
        self._producer: Any = None

    def __call__(self) -> None:
        try:
            self._app.tasks[TASK].apply_async(
                queue=self._queue,
                producer=self._open(),
                retry=False,
                expires=settings.WORKER_DEAF_AFTER,
            )
        except BaseException:
            connection, self._connection, self._producer = self._connection, None, None
            if connection is not None:
                connection.collect(socket_timeout=0.1)
            raise

    def _open(self) -> Any:
        if self._producer is None:
            options = {**settings.CELERY_BROKER_TRANSPORT_OPTIONS}
            options["socket_timeout"] = settings.BROKER_TIMEOUT
            self._connection = self._app.connection_for_write(transport_options=options)
            self._producer = self._app.amqp.Producer(self._connection)
        return self._producer


def queue_of(hostname: str) -> str:
    """The name of the queue that this worker alone takes from."""
    return f"pulse.{hostname}"


def install(app: Celery) -> None:
    """Let every worker of this application have a pulse."""
    ear = Ear()
    app.task(name=TASK, ignore_result=True)(_pulse)

    def prepare(sender: str, **_: Any) -> None:
        app.amqp.queues.select_add(_queue(sender))

    def begin(sender: Any, **_: Any) -> None:
        sender_of = _Sender(app, _queue(sender.hostname))
        longest = settings.CELERY_TASK_TIME_LIMIT + settings.WORKER_DEAF_AFTER
        pulse = Pulse(settings.WORKER_DEAF_AFTER, longest, ear, sender_of, _is_busy)
        threading.Thread(target=_watch, args=(pulse,), name="pulse", daemon=True).start()

    signals.celeryd_after_setup.connect(prepare, weak=False)
    signals.worker_ready.connect(begin, weak=False)
    signals.task_prerun.connect(ear.note, weak=False)
    signals.task_postrun.connect(ear.note, weak=False)


def _pulse() -> None:
    """That it runs is all."""


def _queue(hostname: str) -> Queue:
    return Queue(queue_of(hostname), durable=True, expires=KEPT)


def _is_busy() -> bool:
    return bool(state.active_requests)


def _watch(pulse: Pulse) -> None:
    while not pulse.is_deaf():
        time.sleep(pulse.pause)
    log.critical("the broker takes messages, but no task comes: this worker ends")
    state.should_stop = FAILED  # type: ignore[assignment]  # celery-types know it unset only
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
