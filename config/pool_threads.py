"""Threads that live on, behind a bounded queue, for work that an event loop hands out."""

import asyncio
import logging
import os
import threading
import weakref
from enum import Enum
from queue import SimpleQueue
from typing import Any

logger = logging.getLogger("django.request")


class State(Enum):
    QUEUED, RUNNING, ENDED, DROPPED = range(4)


class Job:
    """One piece of work and, in its event loop, the future that its outcome settles.

    Make it in the loop that waits for it. `work` runs in a thread and calls `settle`.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Any] = self.loop.create_future()
        self.state = State.QUEUED
        self.overdue = False

    def work(self) -> None:
        raise NotImplementedError

    def settle(self, value: Any, future: asyncio.Future[Any] | None = None) -> None:
        """From the thread: hand over a value, or an exception; whoever comes first wins."""
        try:
            self.loop.call_soon_threadsafe(settle, future or self.outcome, value)
        except RuntimeError:
            pass  # The loop is closed: nobody waits any more.


def settle(future: asyncio.Future[Any], value: Any) -> None:
    """In the loop: the first value or exception wins, later ones are ignored."""
    if future.done():
        return
    if isinstance(value, StopIteration):  # No future takes one.
        value = RuntimeError("a pool thread raised StopIteration")
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)


class Threads:
    """At most `size` threads, started when first needed, also after a fork."""

    def __init__(self, *, size: int, queue_size: int) -> None:
        self.size, self.queue_size = size, queue_size
        self._reset()
        # A fork copies no thread, but it copies a lock that one of them may hold.
        after_fork = weakref.WeakMethod(self._reset)
        os.register_at_fork(after_in_child=lambda: (reset := after_fork()) and reset())

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._stuck = 0
        self._closed = False

    @property
    def stuck(self) -> int:
        """Threads at work on something whose deadline has passed."""
        return self._stuck

    def submit(self, job: Job) -> bool:
        """Queue the job; False if the queue is full, all threads are stuck, or it is closed."""
        with self._lock:
            # Dropped jobs count until a thread has skipped them, so memory stays bounded.
            waiting = self._queue.qsize()
            if self._closed or waiting >= self.queue_size or self._stuck >= self.size:
                return False
            self._queue.put(job)
            idle = len(self._threads) - self._busy
            if waiting >= idle and len(self._threads) < self.size:
                self._start_thread()
            return True

    def _start_thread(self) -> None:
        # A daemon: a view that hangs must not keep the process from ending.
        name = f"django-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, args=(self._queue,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def drop(self, job: Job, *, overdue: bool = False) -> bool:
        """Nobody waits for the job any more; True if it never started and now never will."""
        with self._lock:
            if job.state is State.QUEUED:
                job.state = State.DROPPED
                return True
            if overdue and job.state is State.RUNNING and not job.overdue:
                job.overdue = True
                self._stuck += 1
            return False

    def _run(self, queue: SimpleQueue[Job | None]) -> None:
        while (job := queue.get()) is not None:
            if self._begin(job):
                try:
                    job.work()
                except BaseException as error:  # Even SystemExit may not cost the pool a thread.
                    logger.exception("Unhandled error in a pool thread")
                    job.settle(RuntimeError(f"{type(error).__name__} in a pool thread"))
                self._end(job)
            del job  # An idle thread keeps no request alive.

    def _begin(self, job: Job) -> bool:
        with self._lock:
            if job.state is State.DROPPED:
                return False
            job.state = State.RUNNING
            self._busy += 1
            return True

    def _end(self, job: Job) -> None:
        with self._lock:
            job.state = State.ENDED
            self._busy -= 1
            self._stuck -= job.overdue

    def close(self, *, timeout: float) -> None:
        """Take no more work and let what is queued end, for at most `timeout` seconds."""
        with self._lock:
            self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout / len(self._threads))
