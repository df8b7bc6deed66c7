"""When a sale's window opens or ends: whoever watches it is told, without staff or beat.

Each process looks by itself, at the moments that the window names and from time to time in between,
for a window may be moved. What it tells is what a fresh look says, by the rule of GET /sales.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Protocol

from django.utils import timezone

from inventory.models import SaleState
from orders import notifications
from orders.notifications import Frame
from seckill.catalog import Offer

EVERY = 10.0  # seconds between two looks, at most
AGAIN = 1.0  # seconds until the next one if nobody could tell
MARGIN = timedelta(milliseconds=5)
# At the start the process has better things to do than to tell thousands what their clocks show.
CHUNK, PAUSE = 50, 0.02  # viewers told at once, seconds between

Look = Callable[[int], Awaitable[Offer | None]]


class Viewer(Protocol):
    async def frame(self, event: Mapping[str, Any]) -> None: ...


class Phase(Enum):
    BEFORE = auto()
    RUNNING = auto()
    OVER = auto()


_PHASES = {SaleState.SCHEDULED: Phase.BEFORE, SaleState.CLOSED: Phase.OVER}
_TOLD = {"sale.opened": Phase.RUNNING, "sale.closed": Phase.OVER}


def _phase(offer: Offer) -> Phase:
    return _PHASES.get(offer.state, Phase.RUNNING)


class _Watched:
    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.phase = _phase(offer)
        self.viewers: set[Viewer] = set()
        self.latest = ""  # the kind of the last frame about it
        self.task: asyncio.Task[None] | None = None

    def wait(self, now: datetime) -> float:
        """Seconds until the next look."""
        sale = self.offer.sale
        moments = [at + MARGIN for at in (sale.starts_at, sale.ends_at) if at + MARGIN > now]
        return min([EVERY, *((at - now).total_seconds() for at in moments)])


class Windows:
    """The sales that sockets of one process watch; `away`: what `look` raises if it can't tell."""

    def __init__(self, look: Look, *, away: tuple[type[Exception], ...]) -> None:
        self._look = look
        self._away = away
        self._sales: dict[int, _Watched] = {}

    def watch(self, viewer: Viewer, offer: Offer) -> None:
        """`offer`: what the viewer was told last."""
        sale_id = offer.sale.pk
        watched = self._sales.get(sale_id)
        if watched is None or watched.task is None or watched.task.done():
            watched = self._sales[sale_id] = _Watched(offer)
            watched.task = asyncio.create_task(self._attend(sale_id, watched))
        watched.viewers.add(viewer)

    def leave(self, viewer: Viewer, sale_id: int) -> None:
        """Does nothing if it didn't watch."""
        watched = self._sales.get(sale_id)
        if watched is None or viewer not in watched.viewers:
            return
        watched.viewers.discard(viewer)
        if not watched.viewers:
            del self._sales[sale_id]
            if watched.task is not None:
                watched.task.cancel()

    def heard(self, sale_id: int, kind: str) -> None:
        """A frame about it reached its viewers; staff may have opened or closed it."""
        watched = self._sales.get(sale_id)
        if watched is not None:
            watched.latest = kind
            watched.phase = _TOLD.get(kind, watched.phase)

    async def _attend(self, sale_id: int, watched: _Watched) -> None:
        wait = watched.wait(timezone.now())
        while True:
            await asyncio.sleep(wait)
            wait = AGAIN
            with contextlib.suppress(*self._away):
                offer = await self._look(sale_id)
                if offer is not None:
                    watched.offer = offer
                    await self._tell(watched)
                wait = watched.wait(timezone.now())

    async def _tell(self, watched: _Watched) -> None:
        before, watched.phase = watched.phase, _phase(watched.offer)
        if watched.phase is before:
            return
        sent = _frame(watched.offer)
        if sent is None:
            return
        watched.latest = sent["type"]
        for number, viewer in enumerate(list(watched.viewers), 1):
            await viewer.frame({"frame": sent})
            if number % CHUNK == 0:
                await asyncio.sleep(PAUSE)
                if watched.latest != sent["type"]:
                    return  # Something newer was told meanwhile, such as "sold out".


def _frame(offer: Offer) -> Frame | None:
    """The same in all processes. One that is paused or sold out has not become open to anybody."""
    sale = offer.sale
    if offer.state is SaleState.OPEN:
        return notifications.sale_changed(sale.pk, "sale.opened", event=_ms(sale.starts_at))
    if offer.state is SaleState.CLOSED:
        return notifications.sale_changed(sale.pk, "sale.closed", event=_ms(sale.ends_at))
    return None


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
