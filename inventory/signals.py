"""What other parts may want to know about stock, without this app knowing them."""

from django.dispatch import Signal

from inventory.gate import Level

# A sale's gate stock reached 0 or left 0. Arguments: sale_id (int), level (gate.Level).
stock_crossed = Signal()
# The gate of a sale is needed and isn't loaded. Arguments: sale_id (int).
gate_missing = Signal()
# A sale was opened, paused or closed by staff. Arguments: sale_id (int), kind (str, e.g. "paused").
sale_changed = Signal()


def announce(sale_id: int, *, level: Level) -> None:
    """Tell about a level if it crossed zero; a receiver that fails harms nobody."""
    if level.crossed:
        stock_crossed.send_robust(sender=None, sale_id=sale_id, level=level)
