"""The lane's way to the gate: who waits goes in one call, what is admitted in one message."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import prometheus_client

from inventory import gate
from inventory.faults import faultpoint
from inventory.gate import Admission, Entry, Reservation, Verdict
from inventory.signals import announce
from inventory.soldout import Turn, marks
from orders.priming import prime
from seckill.batching import Batcher
from seckill.deadlines import Deadlines
from seckill.publisher import publisher
from seckill.services import LOOK_AGAIN, note

log = logging.getLogger(__name__)

# Seconds. One batch, however often the client repeats its call; loading a gate within it.
DEADLINE = 2.4
PRIME_DEADLINE = 1.8
# While somebody else loads the gate: how long to wait for that, and how often to look.
PATIENCE, PAUSE = 1.0, 0.05

Run = Callable[..., Awaitable[Any]]

_counter = prometheus_client.Counter(
    "seckill_admissions", "Tries to buy, by what the gate said", ["admission"]
)
_counters = {a: _counter.labels(a.name.lower()) for a in Admission}


class Admissions:
    """Reserves for one process. `run` executes a blocking function in a thread."""

    def __init__(self, run: Run, *, deadline: float = 2.7) -> None:
        self._run = run
        self._deadlines = Deadlines(deadline)
        self._batcher: Batcher[int, Entry, Verdict] = Batcher(self._reserve)
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, sale_id: int, entry: Entry) -> "asyncio.Future[Verdict]":
        """The verdict to come; NOT_OPEN tells "<start> <now>" in ms. Raises batching.Full.

        The future ends with TimeoutError at the deadline, however many wait before it.
        """
        future = self._batcher.submit(sale_id, entry)
        self._deadlines.watch(future)
        return future

    async def close(self) -> None:
        await self._batcher.close(timeout=DEADLINE)

    async def _reserve(self, sale_id: int, entries: list[Entry]) -> Sequence[Verdict]:
        async with asyncio.timeout(DEADLINE):
            if await _is_refused_by_now(sale_id):
                return [Verdict(Admission.SOLD_OUT)] * len(entries)
            reservation = await self._ask(sale_id, entries)
            if not _is_primed(reservation):
                reservation = await self._ask_again(sale_id, entries)
        numbers = Counter(v.admission for v in reservation.verdicts)
        for admission, number in numbers.items():
            _counters[admission].inc(number)
        if Admission.RESERVED in numbers:
            return self._publish(sale_id, entries, reservation.verdicts)
        if Admission.NOT_OPEN in numbers:
            return _with_window(reservation)
        return reservation.verdicts

    async def _ask_again(self, sale_id: int, entries: list[Entry]) -> Reservation:
        """Load the gate first; if somebody else does that at the moment, wait a little."""
        until = time.monotonic() + PATIENCE
        while True:
            loaded = await self._run(prime, sale_id, deadline=PRIME_DEADLINE)
            reservation = await self._ask(sale_id, entries)
            if loaded or _is_primed(reservation) or time.monotonic() > until:
                return reservation
            await asyncio.sleep(PAUSE)

    async def _ask(self, sale_id: int, entries: list[Entry]) -> Reservation:
        asked_at = time.monotonic()
        reservation = await gate.reserve_async(sale_id, entries)
        faultpoint("after_reserve")
        note(sale_id, reservation, asked_at=asked_at)
        if reservation.level.crossed:
            self._announce(sale_id, reservation.level)
        return reservation

    def _publish(
        self, sale_id: int, entries: list[Entry], verdicts: list[Verdict]
    ) -> Sequence[Verdict]:
        """Queue what was admitted; the same purchase twice in a batch counts as asked again."""
        admitted: dict[str, list[Any]] = {}
        answers = list(verdicts)
        for i, (entry, verdict) in enumerate(zip(entries, verdicts, strict=True)):
            if verdict.admission is not Admission.RESERVED:
                continue
            if entry.purchase_id in admitted:
                answers[i] = Verdict(Admission.QUEUED, entry.purchase_id)
                continue  # It asks for what it likes; admitted was the first.
            admitted[entry.purchase_id] = [entry.purchase_id, entry.user_id, entry.quantity]
        faultpoint("before_publish")
        publisher.put(sale_id, list(admitted.values()))
        return answers

    def _announce(self, sale_id: int, level: gate.Level) -> None:
        async def tell() -> None:
            try:
                await self._run(_announce, sale_id, level)
            except TimeoutError:
                log.warning("sale %s: viewers weren't told of %s", sale_id, level)

        task = asyncio.get_running_loop().create_task(tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _is_refused_by_now(sale_id: int) -> bool:
    """Who waited for a call to the gate that said "sold out" needs none of their own."""
    while (turn := marks.turn(sale_id)) is Turn.WAIT:
        await asyncio.sleep(LOOK_AGAIN)
    return turn is Turn.REFUSED


def _is_primed(reservation: Reservation) -> bool:
    return all(v.admission is not Admission.NOT_PRIMED for v in reservation.verdicts)


def _with_window(reservation: Reservation) -> list[Verdict]:
    told = Verdict(Admission.NOT_OPEN, f"{reservation.starts_at_ms} {reservation.now_ms}")
    return [told if v.admission is Admission.NOT_OPEN else v for v in reservation.verdicts]


def _announce(sale_id: int, level: gate.Level) -> None:
    announce(sale_id, level=level)
