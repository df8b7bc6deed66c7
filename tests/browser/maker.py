"""Makes rows in the product's database for a test: JSON lines in, JSON lines out.

A process of its own, because a test with a browser may not use Django's database itself, and one
that lasts, because a management command for each row would take seconds.
"""

import json
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.db import close_old_connections, transaction  # noqa: E402
from django.test import RequestFactory  # noqa: E402
from django.utils import timezone, translation  # noqa: E402

from inventory.models import FlashSale  # noqa: E402
from inventory.services import allocate, change_sale, close_sale, create_sale  # noqa: E402
from orders.models import Order, OrderEvent, Rejection, Status  # noqa: E402
from orders.priming import prime  # noqa: E402
from seckill.errors import error_page  # noqa: E402


def sale(
    *,
    name: str,
    stock: int,
    starts_in: float = -60,
    duration: float = 7200,
    taken: int = 0,
    primed: bool = True,
    **rest: Any,
) -> int:
    """`taken`: so many units are gone. `primed`: the gate is loaded at once."""
    starts_at = timezone.now() + timedelta(seconds=starts_in)
    with transaction.atomic():  # Or a sweep might load the gate with what is taken next.
        made = create_sale(
            name=name,
            price_cents=990,
            list_price_cents=1990,
            quantity=stock,
            starts_at=starts_at,
            ends_at=starts_at + timedelta(seconds=duration),
            **rest,
        )
        if taken:
            allocate(made.pk, taken)
    if primed:
        prime(made.pk)
    return made.pk


def change(
    *, sale_id: int, close: bool = False, starts_in: float | None = None, **columns: Any
) -> bool:
    if close:
        return close_sale(sale_id)
    if starts_in is not None:
        columns["starts_at"] = timezone.now() + timedelta(seconds=starts_in)
    return change_sale(sale_id, **columns)


def buyer(*, name: str) -> int:
    return User.objects.create_user(name, password=name).pk


def order(*, sale_id: int, buyer: str, status: str, paid: bool = False, age: float = 0) -> str:
    """A row as the pipeline would have left it, without units."""
    now = timezone.now()
    owner, own = User.objects.get(username=buyer), FlashSale.objects.get(pk=sale_id)
    rejected, ended = status == "REJECTED", status in ("CANCELED", "EXPIRED", "REFUNDED")
    made = Order.objects.create(
        id=uuid.uuid4(),
        sale=own,
        user=owner,
        product_name=own.product.name,
        quantity=1,
        unit_price_cents=own.price_cents,
        amount_cents=own.price_cents,
        currency=own.currency,
        status=Status[status],
        code=Rejection.SOLD_OUT if rejected else "",
        created_at=now - timedelta(seconds=age),
        pay_before=now + timedelta(minutes=15) - timedelta(seconds=age),
        paid_at=now if status in ("PAID", "REFUNDED") else None,
        closed_at=now if ended else None,
    )
    OrderEvent.objects.create(order=made, kind=OrderEvent.Kind.CREATED, at=now)
    return str(made.pk)


def error(*, code: str, language: str) -> dict[str, Any]:
    """The page for an error, as a route of Playwright may answer with it."""
    with translation.override(language):
        page = error_page(RequestFactory().get("/"), code)
    headers = {name: value for name, value in page.items() if name != "Content-Length"}
    return {"status": page.status_code, "headers": headers, "body": page.text}


KINDS: dict[str, Callable[..., Any]] = {
    "sale": sale,
    "change": change,
    "buyer": buyer,
    "order": order,
    "error": error,
}


def main() -> None:
    for line in sys.stdin:
        close_old_connections()  # A test of another module may have restarted the database.
        wanted = json.loads(line)
        result = KINDS[wanted.pop("kind")](**wanted)
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
