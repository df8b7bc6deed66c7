"""When the last sweep ended, for whoever watches. By the clock of Redis alone, so none differs."""

import logging
from datetime import timedelta

from inventory import keys
from inventory.gate import GateError
from inventory.redis_clients import sync_client

log = logging.getLogger(__name__)

KEPT = timedelta(days=7)


def note() -> None:
    """A sweep has ended just now."""
    try:
        sync_client().set(keys.swept(), 1, px=KEPT)
    except GateError as error:
        log.warning("a sweep was not noted: %s", error)


def age() -> float | None:
    """Seconds since the last one; None if there was none, or none for long."""
    left = int(sync_client().pttl(keys.swept()))
    return None if left < 0 else (KEPT - timedelta(milliseconds=left)).total_seconds()
