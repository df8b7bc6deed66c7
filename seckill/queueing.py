"""Where a purchase stands in the queue of its sale; read only, and only a hint."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from inventory import keys
from inventory.redis_clients import sync_client


class Place(NamedTuple):
    """`ahead`: how many wait longer. `waiting`: all who wait, this purchase included."""

    ahead: int
    waiting: int


class Live(NamedTuple):
    """The purchase of a buyer in a sale. `state`: queued, ordered, or over (no second try)."""

    purchase_id: str
    state: str


_STATES = {"q": "queued", "o": "ordered", "x": "over"}


def place(sale_id: int, purchase_id: str, *, user_id: int) -> Place | None:
    """None if it doesn't wait (any more), or is another's. Raises GateError if Redis is away."""
    pipe = sync_client().pipeline(transaction=False)
    pipe.zrank(keys.of_sale(sale_id, "pending"), purchase_id)
    pipe.zcard(keys.of_sale(sale_id, "pending"))
    pipe.hget(keys.of_sale(sale_id, "claims"), purchase_id)
    rank, size, claim = pipe.execute()
    if rank is None or claim is None or _text(claim).partition("|")[0] != str(user_id):
        return None
    return Place(int(rank), int(size))


def live(sale_id: int, user_id: int) -> Live | None:
    """What the gate knows about a buyer. Raises GateError if Redis is away."""
    value = sync_client().hget(keys.of_sale(sale_id, "buyers"), str(user_id))
    if value is None:
        return None
    purchase_id, _, letter = _text(value).rpartition("|")
    return Live(purchase_id, _STATES[letter]) if letter in _STATES else None


def queued(user_id: int, sale_ids: Sequence[int]) -> dict[int, str]:
    """Sale → the buyer's purchase that waits there. Raises GateError if Redis is away."""
    if not sale_ids:
        return {}
    pipe = sync_client().pipeline(transaction=False)
    for sale_id in sale_ids:
        pipe.hget(keys.of_sale(sale_id, "buyers"), str(user_id))
    found: dict[int, str] = {}
    for sale_id, value in zip(sale_ids, pipe.execute(), strict=True):
        purchase_id, _, letter = _text(value or b"").rpartition("|")
        if letter == "q":
            found[sale_id] = purchase_id
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
