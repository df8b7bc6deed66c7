"""A buyer's own orders: one, or a page of them after a cursor."""

import base64
import binascii
import re
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from django.db.models import Q, QuerySet

from orders.models import Order, Status

USUAL = 20
MOST = 100

_NUMBER = re.compile(r"[0-9a-f]{4,32}")


class Page(NamedTuple):
    """`next` is the cursor of the following page, None on the last one."""

    orders: list[Order]
    next: str | None


def own_orders(user_id: int) -> QuerySet[Order]:
    """A rejected purchase is no order."""
    return Order.objects.filter(user_id=user_id).exclude(status=Status.REJECTED)


def own_order(order_id: uuid.UUID, *, user_id: int) -> Order | None:
    return own_orders(user_id).filter(pk=order_id).first()


class Wanted(NamedTuple):
    """Which orders to show: of one status, and with a text in the product or the order number."""

    status: Status | None = None
    text: str = ""

    def where(self) -> Q:
        found = Q() if self.status is None else Q(status=self.status)
        return found & _text(self.text) if self.text else found


ALL = Wanted()


def orders(*, user_id: int, cursor: str = "", limit: int = USUAL, wanted: Wanted = ALL) -> Page:
    """Newest first. Raises ValueError for a cursor that isn't ours, or a limit outside 1–100."""
    if not 1 <= limit <= MOST:
        raise ValueError(f"limit is not in 1–{MOST}")
    rows = own_orders(user_id).filter(wanted.where(), _after(cursor) if cursor else Q())
    found = list(rows.order_by("-created_at", "-id")[: limit + 1])
    more = found[limit - 1] if len(found) > limit else None
    return Page(found[:limit], _cursor(more) if more else None)


def _text(text: str) -> Q:
    """Part of a product's name, or how an order number begins."""
    digits = text.replace("-", "").lower()
    if not _NUMBER.fullmatch(digits):
        return Q(product_name__icontains=text)
    first, last = (uuid.UUID(digits.ljust(32, fill)) for fill in "0f")
    return Q(product_name__icontains=text) | Q(pk__range=(first, last))


def _cursor(last: Order) -> str:
    plain = f"{last.created_at.isoformat()}|{last.pk}"
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def _after(cursor: str) -> Q:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        at_text, _, id_text = base64.urlsafe_b64decode(padded).decode().partition("|")
        at, order_id = datetime.fromisoformat(at_text), uuid.UUID(id_text)
        if at.tzinfo is None:
            raise ValueError("a time without a zone")
        at = at.astimezone(UTC)  # Not every time of another zone is one in UTC.
    except (binascii.Error, ValueError, OverflowError):
        raise ValueError("not a cursor of this list") from None
    return Q(created_at__lt=at) | Q(created_at=at, pk__lt=order_id)
