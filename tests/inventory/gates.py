"""Short forms for tests of the gate: one sale, open now, with at most two units per buyer."""

import time
from typing import Any

import uuid_utils.compat

from inventory import gate
from inventory.gate import Admission, Entry, SaleSettings, Verdict

SALE = 7
NOW_MS = round(time.time() * 1000)
HOUR_MS = 3_600_000
RESERVED = Verdict(Admission.RESERVED)


def new_id() -> str:
    return str(uuid_utils.compat.uuid7())


def open_sale(**changes: Any) -> SaleSettings:
    sale = SaleSettings(NOW_MS - HOUR_MS, NOW_MS + HOUR_MS, 2, False, True, 1)
    return sale._replace(**changes)


def prime(
    stock: int = 5, *, buyers: dict[int, str] | None = None, adjustments: Any = (), **changes: Any
) -> bool:
    return gate.prime(
        SALE, stock=stock, sale=open_sale(**changes), buyers=buyers or {}, adjustments=adjustments
    )


def buy(user: int, quantity: int = 1, purchase: str = "") -> tuple[str, Verdict]:
    purchase = purchase or new_id()
    entry = Entry(user, purchase, quantity)
    return purchase, gate.reserve(SALE, [entry], limited=False).verdicts[0]


def stock() -> int | None:
    return gate.snapshot(SALE).stock


def journal() -> dict[str, tuple[int, int]]:
    return gate.snapshot(SALE).claims
