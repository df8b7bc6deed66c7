"""Places where a test run may make a process die. In any other run they do nothing at all.

`FAULTPOINTS="after_reserve@3=/tmp/marker,in_create=/tmp/other"` together with `SECKILL_TESTING=1`:
the process that reaches `after_reserve` for the third time is killed with SIGKILL, unless the
marker file exists already; it is made first, so the process that takes its place lives.
`after_reserve!hold=…` doesn't kill: the thread waits there until the marker is removed.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

_FORM = re.compile(r"([a-z_]+)(!hold)?(?:@(\d+))?=(.+)")


class _Point(NamedTuple):
    at: int
    marker: str
    holds: bool


def _armed() -> dict[str, _Point]:
    if os.environ.get("SECKILL_TESTING") != "1":
        return {}
    points = filter(None, os.environ.get("FAULTPOINTS", "").split(","))
    matches = [_FORM.fullmatch(point) for point in points]
    return {m[1]: _Point(int(m[3] or 1), m[4], bool(m[2])) for m in matches if m}


_points = _armed()
_hits: dict[str, int] = {}


def _hit(name: str) -> None:
    if name not in _points:
        return
    at, marker, holds = _points[name]
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] < at:
        return
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if not holds:
        os.kill(os.getpid(), signal.SIGKILL)
    while os.path.exists(marker):
        time.sleep(0.01)


def _pass(name: str) -> None:
    """The product's form."""


faultpoint: Callable[[str], None] = _hit if _points else _pass
