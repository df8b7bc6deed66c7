"""Calls of a provider, with a deadline: a gateway that hangs keeps neither buyers nor locks.

Each call runs in a thread of its own, which can't be stopped; so only a few per process and
provider may be under way. While those hang, further calls fail at once instead of joining them.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Generic, TypeVar

from django.conf import settings
from django.db import transaction

from orders.payments.providers import GatewayBusy, Provider

T = TypeVar("T")


class Call(Generic[T]):
    """A call under way."""

    def __init__(self, provider: Provider, work: Callable[[], T]) -> None:
        self._until = time.monotonic() + settings.PAYMENT_TIMEOUT
        self._provider = provider.name
        self._future: Future[T] = Future()
        slots = _slots(provider.name)
        if not slots.acquire(blocking=False):
            self._future.set_exception(GatewayBusy(f"{provider.name} is busy"))
            return
        args = (self._future, work, slots)
        threading.Thread(target=_run, args=args, name=f"pay-{provider.name}", daemon=True).start()

    def result(self) -> T:
        try:
            return self._future.result(max(0.0, self._until - time.monotonic()))
        except TimeoutError:
            raise GatewayBusy(f"{self._provider} doesn't answer") from None


def call(provider: Provider, work: Callable[[], T]) -> T:
    """What `work` returns or raises; GatewayBusy after PAYMENT_TIMEOUT seconds."""
    # Raises RuntimeError inside a transaction: others would wait for its locks, and so for the
    # provider.
    with transaction.atomic(durable=True):
        pass
    return Call(provider, work).result() if provider.remote else work()


@cache
def _slots(_provider: str) -> threading.BoundedSemaphore:
    """At least half of a web process's threads stay free for other buyers."""
    return threading.BoundedSemaphore(slots())


def slots() -> int:
    return max(2, settings.WEB_THREADS // 2)


def _run(future: "Future[T]", work: Callable[[], T], held: threading.BoundedSemaphore) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever waits for the result gets it.
        future.set_exception(error)
    finally:
        held.release()
