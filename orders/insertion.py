"""One INSERT for many orders, which tells which of them were new.

Django's bulk_create can either skip conflicts or return the rows; this needs both.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection

from inventory.models import FlashSale
from orders.models import Order, Status


def new_order(
    sale: FlashSale, now: datetime, *, purchase_id: UUID, user_id: int, quantity: int
) -> Order:
    """An unsaved order with the sale's price of this moment. `user_id` 0 = nobody."""
    return Order(
        id=purchase_id,
        sale_id=sale.pk,
        user_id=user_id or None,
        product_name=sale.product.name,
        quantity=quantity,
        unit_price_cents=sale.price_cents,
        amount_cents=sale.price_cents * quantity,
        currency=sale.currency,
        status=Status.UNPAID,
        created_at=now,
        pay_before=now + timedelta(seconds=settings.PAYMENT_WINDOW),
    )


def insert_new(orders: Sequence[Order]) -> list[Order]:
    """Insert those that meet neither their own id nor a live order of their buyer; returns them."""
    if not orders:
        return []
    fields = Order._meta.concrete_fields
    row = f"({', '.join(['%s'] * len(fields))})"
    columns = ", ".join(connection.ops.quote_name(field.column or "") for field in fields)
    sql = (
        # Names of the model and placeholders only; every value is a parameter.
        f"INSERT INTO {connection.ops.quote_name(Order._meta.db_table)} ({columns})"  # nosec B608
        f" VALUES {', '.join([row] * len(orders))} ON CONFLICT DO NOTHING RETURNING id"
    )
    values = [
        field.get_db_prep_save(getattr(order, field.attname), connection)
        for order in orders
        for field in fields
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        new = {row[0] if isinstance(row[0], UUID) else UUID(row[0]) for row in cursor.fetchall()}
    return [order for order in orders if order.pk in new]
