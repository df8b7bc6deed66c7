"""How orders look from outside: JSON, money and times; used by the API, the lane and the frames."""

import re
from datetime import UTC, datetime
from typing import TypedDict

from orders.models import Order, RefundState, Status

_MONEY = re.compile(r"([0-9]{1,15})\.([0-9]{2})")


class OrderJSON(TypedDict):
    id: str
    sale_id: int
    product: str
    quantity: int
    unit_price: str
    amount: str
    currency: str
    status: str
    created_at: str
    pay_before: str
    paid_at: str | None
    refund: str | None


def money(cents: int) -> str:
    """Minor units as a decimal string: 1234 → `12.34`."""
    sign, cents = ("-", -cents) if cents < 0 else ("", cents)
    return f"{sign}{cents // 100}.{cents % 100:02d}"


def parse_money(text: str) -> int | None:
    """`12.34` → 1234; None if it isn't an amount with two decimals."""
    match = _MONEY.fullmatch(text)
    return int(match[1]) * 100 + int(match[2]) if match else None


def rfc3339(at: datetime) -> str:
    """UTC with milliseconds: `2026-12-01T08:00:00.000Z`."""
    text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


_REFUNDS: dict[int, str | None] = {
    RefundState.NONE: None,
    RefundState.STARTED: "started",
    RefundState.DONE: "done",
}


def status_name(order: Order) -> str:
    return Status(order.status).name.lower()


def order_json(order: Order) -> OrderJSON:
    return {
        "id": str(order.pk),
        "sale_id": order.sale_id,
        "product": order.product_name,
        "quantity": order.quantity,
        "unit_price": money(order.unit_price_cents),
        "amount": money(order.amount_cents),
        "currency": order.currency,
        "status": status_name(order),
        "created_at": rfc3339(order.created_at),
        "pay_before": rfc3339(order.pay_before),
        "paid_at": rfc3339(order.paid_at) if order.paid_at else None,
        "refund": _REFUNDS[order.refund],
    }
