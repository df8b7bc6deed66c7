"""The scheduler that test_beat starts with a real beat: SIGTERM comes while it sends a message."""

import logging
import os
import signal
import threading
from typing import Any

from celery.signals import beat_init

from config import beat

log = logging.getLogger(__name__)
# amqp guards writing with such a lock, and takes it again to close the connection.
lock = threading.Lock()

if os.environ.get("BEAT_TEST_GUARD") == "off":
    beat_init.disconnect(beat.end_between_ticks)


class InterruptedScheduler(beat.SteadyScheduler):
    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        with lock:
            log.warning("sending")
            os.kill(os.getpid(), signal.SIGTERM)
            log.warning("sent all of it")

    def close(self) -> None:
        with lock:
            super().close()
        log.warning("closed")
