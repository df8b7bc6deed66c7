"""The worker's application, with one flaw: it dies of the purchases of certain users.

Their ids stand in the file that POISON names, one a line.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import django

django.setup()

from config.celery import app  # noqa: E402
from orders import creation  # noqa: E402

__all__ = ["app"]

_create = creation._create


def create(sale_id: int, purchases: list[creation.Purchase]) -> Any:
    if _poisonous() & {purchase.user_id for purchase in purchases}:
        os.kill(os.getpid(), signal.SIGKILL)
    return _create(sale_id, purchases)


def _poisonous() -> set[int]:
    lines: Sequence[str] = Path(os.environ["POISON"]).read_text().split()
    return {int(line) for line in lines}


creation._create = create
