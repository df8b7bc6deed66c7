"""Effects outside the database, after the transaction that caused them."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from django.db import transaction

P = ParamSpec("P")


def after_commit(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call it once the transaction is committed. If it fails that is logged, and harms nobody.

    A partial won't do: Django looks for the name of a call that failed, and a partial has none, so
    that the failure would reach the caller, whose transaction is committed.
    """

    @wraps(call)
    def effect() -> None:
        call(*args, **kwargs)

    transaction.on_commit(effect, robust=True)
