"""Many threads that start at the same moment, each with a database connection of its own."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def race(*calls: Callable[[], T]) -> list[T]:
    """The answers, in the order of the calls. Raises what the first failing call raised."""
    return race_many([calls])[0]


def race_many(rounds: Sequence[Sequence[Callable[[], T]]]) -> list[list[T]]:
    """One race after the other by the same threads, so that connections are made once.

    All rounds need the same number of calls.
    """
    width = len(rounds[0])
    barrier = threading.Barrier(width, timeout=60)

    def runner(lane: int) -> list[T]:
        try:
            answers = []
            for calls in rounds:
                barrier.wait()
                answers.append(calls[lane]())
            return answers
        except BaseException:
            barrier.abort()
            raise
        finally:
            connections.close_all()

    with ThreadPoolExecutor(width) as pool:
        lanes = list(pool.map(runner, range(width)))
    return [list(answers) for answers in zip(*lanes, strict=True)]
