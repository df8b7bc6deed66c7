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
from django.db import close_old_connections  # noqa: E402
from django.utils import timezone  # noqa: E402

from inventory.models import FlashSale  # noqa: E402
from inventory.services import create_sale  # noqa: E402
from orders.models import Order, OrderEvent, Rejection, Status  # noqa: E402
from orders.priming import prime  # noqa: E402


def sale(
    *, name: str, stock: int, starts_in: float = -60, duration: float = 7200, **rest: Any
) -> int:
    starts_at = timezone.now() + timedelta(seconds=starts_in)
    made = create_sale(
        name=name,
        price_cents=990,
        list_price_cents=1990,
        quantity=stock,
        starts_at=starts_at,
        ends_at=starts_at + timedelta(seconds=duration),
        **rest,
    )
    prime(made.pk)
    return made.pk


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


KINDS: dict[str, Callable[..., Any]] = {"sale": sale, "buyer": buyer, "order": order}


def main() -> None:
    for line in sys.stdin:
        close_old_connections()  # A test of another module may have restarted the database.
        wanted = json.loads(line)
        result = KINDS[wanted.pop("kind")](**wanted)
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
