"""Loading a sale's gate from the database, when it isn't loaded (new, flushed, failed over)."""

import os
from collections.abc import Iterator
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet

from inventory import gate, keys
from inventory.models import FlashSale
from inventory.redis_clients import sync_client
from inventory.services import configure_gate, sale_settings
from orders.models import ENDED, LIVE, Order, Status

LOCK_MS = 5000


def prime(sale_id: int) -> bool:
    """Load the gate if, and only if, it isn't loaded. True if this call did.

    Raises FlashSale.DoesNotExist, and gate.GateError if Redis is away.
    """
    client = sync_client()
    lock, token = keys.lock(f"prime:{sale_id}"), os.urandom(8)
    # The script loads once in any case; the lock only spares the database the same query 100 times.
    if not client.set(lock, token, nx=True, px=LOCK_MS):
        return False
    try:
        loaded = _load(sale_id)
    finally:
        if client.get(lock) == token:
            client.delete(lock)
    if loaded:
        configure_gate(sale_id)  # The settings may have changed since the snapshot.
    return loaded


def _load(sale_id: int) -> bool:
    with transaction.atomic():
        one_snapshot()
        sale = FlashSale.objects.get(pk=sale_id)
        buyers = _buyers(sale)
        adjustments = [str(pk) for pk in sale.adjustments.values_list("pk", flat=True)]
    return gate.prime(
        sale_id,
        stock=sale.available,
        sale=sale_settings(sale),
        buyers=buyers,
        adjustments=adjustments,
    )


def one_snapshot() -> None:
    """Make all queries of this transaction see the same state."""
    if connection.vendor == "postgresql" and len(connection.savepoint_ids) == 0:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def _buyers(sale: FlashSale) -> dict[int, str]:
    """user → "purchase|o" for live orders; "purchase|x" for those who may not try again."""
    entries: dict[int, str] = {}
    if not sale.rebuy:
        over = Order.objects.filter(sale=sale, status__in=[*ENDED, Status.REFUNDED])
        entries = {user: f"{pk}|x" for user, pk in _pairs(over)}
    live = Order.objects.filter(sale=sale, status__in=LIVE)
    return entries | {user: f"{pk}|o" for user, pk in _pairs(live)}


def _pairs(orders: QuerySet[Order]) -> Iterator[tuple[Any, ...]]:
    return orders.values_list("user_id", "pk").iterator(chunk_size=5000)
