"""The gate: Redis admits or refuses, and remembers in the same step what it admitted.

Each function is one script of `inventory/lua/`, which is one atomic step; each may be repeated. The
database decides later, so the gate may be wrong about stock without harm; see docs/design.md.
"""

import os
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import redis.exceptions
from django.conf import settings

from inventory import keys
from inventory.redis_clients import async_client, sync_client

LUA = Path(__file__).parent / "lua"

# What a call to the gate raises when Redis is away, refuses writes or is overloaded.
GateError = redis.exceptions.RedisError


class Admission(Enum):
    """What became of one try to buy; the values are the first letters of the script's answers."""

    RESERVED = "R"  # admitted now
    QUEUED = "Q"  # the buyer has a live purchase without an order yet
    ORDERED = "O"  # the buyer has a live order
    ENDED = "E"  # this very purchase has ended: in an order that is over, or in a rejection
    NOT_PRIMED = "U"
    PAUSED = "P"
    NOT_OPEN = "N"
    CLOSED = "C"
    QUANTITY = "M"
    SOLD_OUT = "S"
    REBUY = "B"
    THROTTLED = "T"

    # Members are singletons; Enum's own hash is a slow one, and these are counted by the thousand.
    __hash__ = object.__hash__


class Entry(NamedTuple):
    """One try to buy. `purchase_id` is the text of a UUID."""

    user_id: int
    purchase_id: str
    quantity: int = 1


class Verdict(NamedTuple):
    """`detail`: the live purchase (QUEUED, ORDERED), its result (ENDED), ms to wait (THROTTLED)."""

    admission: Admission
    detail: str = ""


class Level(NamedTuple):
    """The stock after a call, None = not primed. `crossed`: this call made it reach or leave 0."""

    epoch: int
    stock: int | None
    crossed: bool

    @property
    def sold_out(self) -> bool:
        return self.stock == 0


class Reservation(NamedTuple):
    level: Level
    starts_at_ms: int
    now_ms: int
    verdicts: list[Verdict]


class Settlement(NamedTuple):
    """What became of an admitted purchase. `code`: the cause of a rejection, empty for an order.

    `units_back`: units that return to the gate. `live_purchase_id`: the order that a duplicate met.
    """

    purchase_id: str
    user_id: int
    code: str = ""
    units_back: int = 0
    live_purchase_id: str = ""


class Held(NamedTuple):
    """The units that a purchase may still hold; `final`: also if it was paid after its end."""

    purchase_id: str
    user_id: int
    quantity: int
    final: bool = False


class Due(NamedTuple):
    purchase_id: str
    user_id: int
    quantity: int
    attempt: int
    age_ms: int


class Trace(NamedTuple):
    """`state`: queued, ordered, rejected or unknown. `user_id` is known while it is queued."""

    state: str
    code: str = ""
    user_id: int | None = None


class SaleSettings(NamedTuple):
    starts_ms: int
    ends_ms: int
    per_buyer: int
    paused: bool
    rebuy: bool
    revision: int

    def args(self) -> list[int]:
        return [int(value) for value in self]


class Snapshot(NamedTuple):
    """`claims`: journal entries, purchase → (user, units). `stock` None = not primed."""

    stock: int | None
    version: str
    epoch: int
    claims: dict[str, tuple[int, int]]


_PLAIN = {a.value.encode(): Verdict(a) for a in Admission}
_UNKNOWN = Trace("unknown")
_BY_LETTER = {a.value: a for a in Admission}


@cache
def _source(name: str) -> str:
    return (LUA / f"{name}.lua").read_text()


def _run(name: str, sale_id: int, args: Iterable[Any], *more_keys: str) -> Any:
    script = sync_client().register_script(_source(name))
    return script(keys=[*keys.sale(sale_id), *more_keys], args=list(args))


def _level(reply: Sequence[Any]) -> Level:
    return Level(int(reply[0]), None if reply[1] < 0 else int(reply[1]), bool(reply[2]))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


# --- reserve ------------------------------------------------------------------------------------


def _reserve_args(entries: Sequence[Entry], limited: bool) -> list[Any]:
    limit, window = settings.PURCHASE_RATE
    flat: list[str | int] = []
    for user_id, purchase_id, quantity in entries:
        flat += (str(user_id), purchase_id, quantity)
    # One packed argument: both sides handle it much faster than three for each entry.
    packed = msgspec.msgpack.encode(flat)
    return [os.urandom(8).hex(), limit if limited else 0, int(window * 1000), packed]


def _reservation(reply: Sequence[Any]) -> Reservation:
    return Reservation(
        _level(reply),
        int(reply[3]),
        int(reply[4]),
        [_PLAIN.get(a) or _verdict(_text(a)) for a in reply[5:]],
    )


def _verdict(answer: str) -> Verdict:
    return Verdict(_BY_LETTER[answer[0]], answer[1:])


def reserve(sale_id: int, entries: Sequence[Entry], *, limited: bool = True) -> Reservation:
    """Admit or refuse a batch, in order. `limited`: count it against the buyers' rate."""
    return _reservation(_run("reserve", sale_id, _reserve_args(entries, limited)))


async def reserve_async(sale_id: int, entries: Sequence[Entry]) -> Reservation:
    """The same from an event loop."""
    client = async_client()
    script = client.register_script(_source("reserve"))
    call = script(keys=keys.sale(sale_id), args=_reserve_args(entries, True), client=client)
    return _reservation(await cast(Awaitable[Any], call))


# --- after the database decided -----------------------------------------------------------------


def settle(sale_id: int, settlements: Sequence[Settlement]) -> Level:
    args: list[Any] = []
    for s in settlements:
        args += [
            s.purchase_id,
            s.user_id,
            s.code or "o",
            s.units_back,
            s.live_purchase_id,
        ]
    return _level(_run("settle", sale_id, args))


def release(sale_id: int, held: Sequence[Held]) -> Level:
    """Give units back. Level.stock is None if the gate isn't primed: then try again later."""
    args: list[Any] = []
    for entry in held:
        args += (*entry[:3], int(entry.final))
    return _level(_run("release", sale_id, args))


def retake(sale_id: int, held: Held) -> tuple[Level, bool]:
    """Hold units for an order that has ended; False if they aren't there, or it isn't primed."""
    reply = _run("retake", sale_id, held[:3])
    return _level(reply), bool(reply[3])


def adjust(sale_id: int, adjustment_id: str, units: int) -> tuple[Level, int]:
    """Add units, or take out at most `-units`; returns the level and the units really moved."""
    reply = _run("adjust", sale_id, [adjustment_id, units])
    return _level(reply), int(reply[3])


# --- loading and repair -------------------------------------------------------------------------


def prime(
    sale_id: int,
    *,
    stock: int,
    sale: SaleSettings,
    buyers: Mapping[int, str],
    adjustments: Iterable[str],
) -> bool:
    """Load the gate if it isn't loaded; True if this call did.

    `buyers`: user → "purchase|o", or "purchase|x" (no second try). Raises GateError if Redis forgot
    them before the gate was loaded.
    """
    client = sync_client()
    staging = keys.staging(sale_id, os.urandom(8).hex())
    items: list[tuple[int, str]] = list(buyers.items())
    for start in range(0, len(items), 5000):
        pipe = client.pipeline(transaction=False)
        pipe.hset(staging, mapping=cast(Any, dict(items[start : start + 5000])))
        pipe.expire(staging, 120)
        pipe.execute()
    args = [stock, *sale.args(), len(buyers), *adjustments]
    answer = int(_run("prime", sale_id, args, staging))
    if answer < 0:
        raise GateError(f"the buyers of sale {sale_id} got lost while its gate was loaded")
    return bool(answer)


def configure(sale_id: int, sale: SaleSettings) -> bool:
    """Tell a loaded gate the sale's settings; an older revision never wins."""
    return int(_run("configure", sale_id, sale.args())) == 1


def due(
    sale_id: int, *, retry_after: float, give_up_after: float = 300, limit: int = 1000
) -> list[Due]:
    """Journal entries that got no order for `retry_after` seconds and don't just wait their turn.

    Each is handed out once a try; in any case from the age of `give_up_after` seconds on.
    """
    times = [int(retry_after * 1000), int(give_up_after * 1000)]
    reply = _run("due", sale_id, [*times, limit])
    rows = [reply[i : i + 5] for i in range(0, len(reply), 5)]
    return [Due(_text(p), int(u), int(q), int(attempt), int(age)) for p, u, q, attempt, age in rows]


def snapshot(sale_id: int) -> Snapshot:
    reply = _run("snapshot", sale_id, [])
    claims: dict[str, tuple[int, int]] = {}
    for i in range(3, len(reply), 2):
        user, quantity = _text(reply[i + 1]).split("|")[:2]
        claims[_text(reply[i])] = (int(user), int(quantity))
    stock = None if reply[0] < 0 else int(reply[0])
    return Snapshot(stock, _text(reply[1]), int(reply[2]), claims)


def reconcile(sale_id: int, *, version: str, stock: int) -> tuple[Level, bool]:
    """Correct the stock if `version` is still the present one; True if it was."""
    reply = _run("reconcile", sale_id, [version, stock])
    return _level(reply), bool(reply[3])


def buyers(sale_id: int) -> Iterable[tuple[int, str, str]]:
    """All buyers' entries as (user, purchase, state), read in steps."""
    for user, value in sync_client().hscan_iter(keys.of_sale(sale_id, "buyers"), count=1000):
        purchase, _, state = _text(value).rpartition("|")
        yield int(user), purchase, state


def traces(sale_id: int, purchase_ids: Sequence[str]) -> list[Trace]:
    """What the gate knows about purchases, in one round trip."""
    pipe = sync_client().pipeline(transaction=False)
    _ask_traces(pipe, sale_id, purchase_ids)
    return _traces(*pipe.execute())


async def traces_async(sale_id: int, purchase_ids: Sequence[str]) -> list[Trace]:
    """The same from an event loop."""
    pipe = async_client().pipeline(transaction=False)
    _ask_traces(pipe, sale_id, purchase_ids)
    return _traces(*await pipe.execute())


def _ask_traces(pipe: Any, sale_id: int, purchase_ids: Sequence[str]) -> None:
    pipe.hmget(keys.of_sale(sale_id, "results"), list(purchase_ids))
    pipe.hmget(keys.of_sale(sale_id, "claims"), list(purchase_ids))


def _traces(results: Sequence[Any], claims: Sequence[Any]) -> list[Trace]:
    return [_trace(r, c) for r, c in zip(results, claims, strict=True)]


def _trace(result: bytes | None, claim: bytes | None) -> Trace:
    if result is not None:
        state, _, code = _text(result).partition("|")
        return Trace("ordered" if state == "o" else "rejected", code)
    if claim is not None:
        return Trace("queued", "", int(_text(claim).split("|")[0]))
    return _UNKNOWN


def stocks(sale_ids: Sequence[int]) -> dict[int, int | None]:
    """Gate stock of several sales in one round trip; None = not primed."""
    pipe = sync_client().pipeline(transaction=False)
    for sale_id in sale_ids:
        pipe.get(keys.of_sale(sale_id, "stock"))
        pipe.exists(keys.of_sale(sale_id, "info"))
    replies = pipe.execute()
    return {
        sale_id: int(stock) if stock is not None and info else None
        for sale_id, stock, info in zip(sale_ids, replies[::2], replies[1::2], strict=True)
    }


def journal_sizes(sale_ids: Sequence[int]) -> dict[int, int]:
    """How many admitted purchases of each sale still wait for the database."""
    pipe = sync_client().pipeline(transaction=False)
    for sale_id in sale_ids:
        pipe.zcard(keys.of_sale(sale_id, "pending"))
    return dict(zip(sale_ids, pipe.execute(), strict=True))


def forget(sale_id: int) -> None:
    """Remove everything that Redis knows of a sale (before a reset, or long after its end)."""
    sync_client().delete(*keys.sale(sale_id))
