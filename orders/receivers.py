"""What happens here when stock or a sale changes: viewers are told, a missing gate is loaded."""

from typing import Any

from django.dispatch import receiver

from inventory.gate import Level
from inventory.signals import gate_missing, sale_changed, stock_crossed
from orders import notifications, priming

_KINDS: dict[str, notifications.SaleFrameType] = {
    "paused": "sale.paused",
    "opened": "sale.opened",
    "closed": "sale.closed",
}


@receiver(stock_crossed)
def tell_stock(sale_id: int, level: Level, **_kwargs: Any) -> None:
    kind: notifications.SaleFrameType = "sale.sold_out" if level.sold_out else "sale.back_in_stock"
    frame = notifications.sale_changed(sale_id, kind, event=level.epoch)
    notifications.push([(notifications.sale_group(sale_id), frame)])


@receiver(gate_missing)
def load_gate(sale_id: int, **_kwargs: Any) -> None:
    priming.prime(sale_id)


@receiver(sale_changed)
def tell_change(sale_id: int, kind: str, **_kwargs: Any) -> None:
    if kind in _KINDS:
        frame = notifications.sale_changed(sale_id, _KINDS[kind])
        notifications.push([(notifications.sale_group(sale_id), frame)])
