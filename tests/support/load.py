"""A load client for HTTP/1.1: many buyers over a few connections that stay open.

Every answer is kept, by ticket. What a client can't know is no refusal: an answer that never came,
or a 5xx, may stand for a purchase that was admitted.
"""

import asyncio
import json
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, Self

from tests.support.waiting import HOST

CONNECTIONS = 64
PATIENCE = 15.0  # seconds for one answer
PAUSE = 0.05  # seconds that a connection waits after an answer that makes it ask again
_LENGTH = re.compile(rb"content-length: *(\d+)")

Kind = Literal["ok", "refused", "unknown"]


class Ticket(NamedTuple):
    """What a buyer holds: a token, and the id that its purchase will have."""

    sale_id: int
    user_id: int
    purchase_id: str
    token: str


class Answer(NamedTuple):
    """`status` 0: none came. `seconds`: how long it took."""

    status: int
    body: bytes
    seconds: float

    @property
    def kind(self) -> Kind:
        if self.status in (200, 202):
            return "ok"
        return "refused" if 400 <= self.status < 500 else "unknown"

    @property
    def data(self) -> Mapping[str, Any]:
        result: Mapping[str, Any] = json.loads(self.body or b"{}")
        return result

    @property
    def code(self) -> str:
        """Of a problem; empty for all else."""
        return str(self.data.get("code") or "") if self.status >= 400 else ""


Build = Callable[[Ticket], bytes]
Again = Callable[[Answer], bool]


def buying(ticket: Ticket) -> bytes:
    return (
        f"POST /api/v1/sales/{ticket.sale_id}/purchases HTTP/1.1\r\nHost: {HOST}\r\n"
        f"Authorization: Bearer {ticket.token}\r\nContent-Length: 0\r\n\r\n"
    ).encode()


def asking(ticket: Ticket) -> bytes:
    return (
        f"GET /api/v1/sales/{ticket.sale_id}/purchases/{ticket.purchase_id} HTTP/1.1\r\n"
        f"Host: {HOST}\r\nAuthorization: Bearer {ticket.token}\r\n\r\n"
    ).encode()


def never(_answer: Answer) -> bool:
    return False


def unknown(answer: Answer) -> bool:
    return answer.kind == "unknown"


def unfinished(answer: Answer) -> bool:
    """Of `asking`: not terminal yet, or nobody could tell. A 404 is "still looking"."""
    return answer.status != 200 or answer.data["status"] == "queued"


class Wire(asyncio.Protocol):
    """One connection, one request at a time. An answer must say how long it is."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiter: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiter

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        length = _LENGTH.search(self._buffer[:end].lower()) if end >= 0 else None
        if length is None:
            return
        total = end + 4 + int(length[1])
        if len(self._buffer) < total or self._waiter is None or self._waiter.done():
            return
        answer = int(self._buffer[9:12]), bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        self._waiter.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error or ConnectionResetError())

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Load:
    """Asks for each ticket once, and again while `again` says so, for at most `lasting` seconds."""

    def __init__(
        self,
        ports: Sequence[int],
        *,
        build: Build = buying,
        again: Again = never,
        connections: int = CONNECTIONS,
        lasting: float = 120.0,
    ) -> None:
        self.answers: dict[Ticket, list[Answer]] = defaultdict(list)
        self.kinds: Counter[Kind] = Counter()
        self.seconds = 0.0
        self._ports, self._build, self._again = ports, build, again
        self._connections, self._lasting = connections, lasting
        self._waiting: deque[Ticket] = deque()
        self._end = 0.0
        self._done: Future[Self] | None = None

    def run(self, tickets: Iterable[Ticket]) -> Self:
        self._waiting.extend(tickets)
        started = time.monotonic()
        self._end = started + self._lasting
        asyncio.run(self._all())
        self.seconds = time.monotonic() - started
        return self

    def start(self, tickets: Iterable[Ticket]) -> Self:
        """The same in a thread; `finish` waits for it."""
        executor = ThreadPoolExecutor(1, "load")
        self._done = executor.submit(self.run, tickets)
        executor.shutdown(wait=False)
        return self

    @property
    def is_over(self) -> bool:
        return self._done is not None and self._done.done()

    def stop(self) -> Self:
        """Ask nothing more; returns when the last answers are there."""
        self._end = 0.0
        return self.finish()

    def finish(self) -> Self:
        assert self._done is not None
        return self._done.result(timeout=self._lasting + PATIENCE + 10)

    # --- what came of it ----------------------------------------------------------------------
    def last(self, ticket: Ticket) -> Answer:
        return self.answers[ticket][-1]

    def accepted(self) -> dict[str, Ticket]:
        """The purchases that buyers were promised an answer for, as the answers name them."""
        return {
            answer.data["purchase_id"]: ticket
            for ticket, answers in self.answers.items()
            for answer in answers
            if answer.kind == "ok"
        }

    def codes(self) -> Counter[str]:
        """How often each refusal was given; "" counts what was no problem document."""
        return Counter(a.code for answers in self.answers.values() for a in answers)

    def describe(self) -> str:
        times = sorted(a.seconds for answers in self.answers.values() for a in answers)
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(self.kinds.items()))
        middle, late = times[len(times) // 2], times[int(len(times) * 0.99)]
        return (
            f"{len(times)} requests in {self.seconds:.1f} s = {len(times) / self.seconds:.0f}/s: "
            f"{kinds}; p50 {middle * 1000:.0f} ms, p99 {late * 1000:.0f} ms, "
            f"longest {times[-1] * 1000:.0f} ms"
        )

    # --- in the event loop --------------------------------------------------------------------
    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(min(self._connections, len(self._waiting))):
                group.create_task(self._one(self._ports[number % len(self._ports)]))

    async def _one(self, port: int) -> None:
        wire: Wire | None = None
        while self._waiting:
            ticket = self._waiting.popleft()
            if wire is None or not wire.is_open:
                wire = await self._dial(port)
            answer = await self._ask(wire, ticket)
            self.answers[ticket].append(answer)
            self.kinds[answer.kind] += 1
            if self._again(answer) and time.monotonic() < self._end:
                self._waiting.append(ticket)
                await asyncio.sleep(PAUSE)
            elif answer.kind == "unknown":
                await asyncio.sleep(PAUSE)
        if wire:
            wire.close()

    async def _dial(self, port: int) -> Wire | None:
        try:
            _, wire = await asyncio.get_running_loop().create_connection(Wire, HOST, port)
        except OSError:
            return None
        return wire

    async def _ask(self, wire: Wire | None, ticket: Ticket) -> Answer:
        started = time.monotonic()
        status, body = 0, b""
        if wire is not None:
            try:
                async with asyncio.timeout(PATIENCE):
                    status, body = await wire.ask(self._build(ticket))
            except (OSError, TimeoutError):
                wire.close()
        return Answer(status, body, time.monotonic() - started)


def outcomes(
    ports: Sequence[int], tickets: Iterable[Ticket], *, within: float = 60.0
) -> dict[str, Mapping[str, Any]]:
    """Ask for each purchase until it is terminal; purchase → its last answer's body."""
    load = Load(ports, build=asking, again=unfinished, connections=16, lasting=within)
    load.run(tickets)
    return {ticket.purchase_id: load.last(ticket).data for ticket in load.answers}
