"""How long a worker's processes wait at the end for results that nobody reads.

At its warm shutdown a worker forgets tasks that it has handed to a process, but that the process
has not yet said to have begun; the broker delivers them again. The process runs such a task all the
same, and billiard lets it wait 30 s for its parent to take note of the result, which it never does.
Nothing is lost if that wait is short: what isn't acknowledged comes again, and finds itself done.
"""

from typing import Any

from billiard import pool
from celery.signals import worker_process_init

PATIENCE = 2.0  # seconds; a parent that reads at all has read within some ms


def part_soon(**_: Any) -> None:
    """In a process of a worker's pool: bound the wait for its parent."""
    tries = PATIENCE / pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_INTERVAL
    pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = round(tries)


def install() -> None:
    worker_process_init.connect(part_soon, weak=False)
