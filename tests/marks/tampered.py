"""The web process with switches: files in the folder `TAMPER` that a test makes.

unguarded   while it is there: an older epoch wins too, to show what the rule is for
raise       the next news makes the listener's callback raise; the file goes with it
kill        the next news ends the listener's thread; the file goes with it
"""

import os
from pathlib import Path

from inventory import reports
from inventory.listening import Listener
from inventory.news import News
from inventory.soldout import Marks

FOLDER = Path(os.environ["TAMPER"])
# So that a test learns sooner what this process believes.
reports.EVERY = 0.1

_observe, _hear = Marks.observe, Listener.hear


def _taken(name: str) -> bool:
    try:
        (FOLDER / name).unlink()
    except FileNotFoundError:
        return False
    return True


def observe(self: Marks, sale_id: int, *, epoch: int, sold_out: bool, seen_at: float) -> bool:
    if (FOLDER / "unguarded").exists():
        self._marks.pop(sale_id, None)
    return _observe(self, sale_id, epoch=epoch, sold_out=sold_out, seen_at=seen_at)


def hear(self: Listener, news: News) -> None:
    if _taken("raise"):
        raise ValueError("a bug in the callback")
    if _taken("kill"):
        raise SystemExit
    _hear(self, news)


Marks.observe = observe  # type: ignore[method-assign]
Listener.hear = hear  # type: ignore[method-assign]

from config.asgi import application  # noqa: E402

__all__ = ["application"]
