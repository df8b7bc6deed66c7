"""Stock in the database, and a sale's settings. The gate follows; it is told after the commit."""

from datetime import datetime
from functools import partial
from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from inventory import gate
from inventory.commits import after_commit
from inventory.models import FlashSale, Product, StockAdjustment
from inventory.signals import announce, gate_missing, sale_changed

MOST_UNITS = 2_147_483_647  # what the column holds


def create_sale(
    *,
    name: str,
    price_cents: int,
    quantity: int,
    starts_at: datetime,
    ends_at: datetime,
    **rest: Any,
) -> FlashSale:
    """Make a sale, and its product if none has that name.

    `rest`: list_price_cents, per_buyer, rebuy. Raises ValidationError, with a message per field.
    """
    with transaction.atomic():
        product = Product.objects.filter(name=name).first() or Product(name=name)
        product.full_clean()
        product.save()
        sale = FlashSale(
            product=product,
            price_cents=price_cents,
            quantity=quantity,
            starts_at=starts_at,
            ends_at=ends_at,
            **rest,
        )
        sale.full_clean()
        sale.save()
    return sale


def sale_settings(sale: FlashSale) -> gate.SaleSettings:
    return gate.SaleSettings(
        starts_ms=_ms(sale.starts_at),
        ends_ms=_ms(sale.ends_at),
        per_buyer=sale.per_buyer,
        paused=sale.paused,
        rebuy=sale.rebuy,
        revision=sale.revision,
    )


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def pause_sale(sale_id: int) -> bool:
    return _change(sale_id, "paused", paused=True)


def resume_sale(sale_id: int) -> bool:
    return _change(sale_id, "opened", paused=False)


def close_sale(sale_id: int) -> bool:
    """End a running sale now; its orders live on. False if it hasn't begun or is over."""
    now = timezone.now()
    if not FlashSale.objects.filter(pk=sale_id, starts_at__lt=now, ends_at__gt=now).exists():
        return False
    return _change(sale_id, "closed", ends_at=now)


def change_window(sale_id: int, *, starts_at: datetime, ends_at: datetime) -> bool:
    """Raises ValidationError if the end isn't after the start."""
    if ends_at <= starts_at:
        raise ValidationError({"ends_at": _("The end must be after the start.")}, code="window")
    return _change(sale_id, "changed", starts_at=starts_at, ends_at=ends_at)


def change_sale(sale_id: int, **columns: Any) -> bool:
    """Change settings such as price, limit or `paused`; never the counters."""
    kind = {True: "paused", False: "opened"}.get(columns.get("paused", ""), "changed")
    return _change(sale_id, kind, **columns)


def _change(sale_id: int, kind: str, **columns: Any) -> bool:
    with transaction.atomic():
        changed = FlashSale.objects.filter(pk=sale_id).update(revision=F("revision") + 1, **columns)
        if changed:
            after_commit(_tell_gate, sale_id, kind)
    return bool(changed)


def _tell_gate(sale_id: int, kind: str) -> None:
    """Lost if Redis is away; reconcile_sales says it again."""
    configure_gate(sale_id)
    sale_changed.send_robust(sender=None, sale_id=sale_id, kind=kind)


def configure_gate(sale_id: int) -> bool:
    """Tell the gate the settings as they are now."""
    return gate.configure(sale_id, sale_settings(FlashSale.objects.get(pk=sale_id)))


# --- units ----------------------------------------------------------------------------------------


def allocate(sale_id: int, units: int) -> bool:
    """Tie units to orders, if so many are left. The caller's transaction touches the sale last."""
    fitting = FlashSale.objects.filter(pk=sale_id, allocated__lte=F("quantity") - units)
    return bool(fitting.update(allocated=F("allocated") + units))


def lock_available(sale_id: int) -> int:
    """Units left, with the sale's row locked until the transaction ends."""
    rows = FlashSale.objects.select_for_update(no_key=True)
    return rows.only("quantity", "allocated").get(pk=sale_id).available


def release(sale_id: int, units: int) -> None:
    """Undo allocate(). The CHECK constraint refuses to give back more than was taken."""
    FlashSale.objects.filter(pk=sale_id).update(allocated=F("allocated") - units)


def adjust_stock(
    sale_id: int, *, delta: int, reason: str, actor: AbstractBaseUser | None = None
) -> int:
    """Add units to a sale or take unsold ones out; returns the units really added or taken.

    More goes to the database first, so that the gate never admits what isn't there. Less comes out
    of the gate first, so that no admitted buyer loses a unit; what the database refuses goes back.
    Raises ValidationError (an unknown sale and a gate that can't be loaded too), gate.GateError.
    """
    if not delta:
        return 0
    adjustment = StockAdjustment(
        sale_id=sale_id, delta=delta, reason=reason, actor=cast(Any, actor)
    )
    _check(adjustment)
    return _top_up(adjustment) if delta > 0 else _withdraw(adjustment)


def _check(adjustment: StockAdjustment) -> None:
    sale = FlashSale.objects.filter(pk=adjustment.sale_id).first()
    if sale is None:
        raise ValidationError(_("There is no such sale."), code="unknown_sale")
    if abs(adjustment.delta) + sale.quantity > MOST_UNITS:
        raise ValidationError({"delta": _("Too many units.")}, code="too_many")
    adjustment.clean_fields(exclude=["sale", "actor", "quantity_after"])


def _top_up(adjustment: StockAdjustment) -> int:
    with transaction.atomic():
        _book(adjustment)
        after_commit(apply_adjustment, adjustment)
    return adjustment.delta


def _book(adjustment: StockAdjustment) -> bool:
    """Change the quantity and write it down; False if orders hold the units by now."""
    sale_id, delta = adjustment.sale_id, adjustment.delta
    fitting = FlashSale.objects.filter(pk=sale_id, quantity__gte=F("allocated") - delta)
    if not fitting.update(quantity=F("quantity") + delta):
        return False
    adjustment.quantity_after = FlashSale.objects.values_list("quantity", flat=True).get(pk=sale_id)
    adjustment.save(force_insert=True)
    return True


def apply_adjustment(adjustment: StockAdjustment) -> bool:
    """Tell the gate of a booked adjustment; False if it isn't primed yet (a sweep comes back)."""
    level, _moved = gate.adjust(adjustment.sale_id, str(adjustment.pk), adjustment.delta)
    if level.stock is None:
        return False
    StockAdjustment.objects.filter(pk=adjustment.pk).update(gate_applied_at=Now())
    announce(adjustment.sale_id, level=level)
    return True


def _withdraw(adjustment: StockAdjustment) -> int:
    """A crash between gate and database leaves the gate short of units until it is reconciled."""
    sale_id = adjustment.sale_id
    level, moved = _take_out(adjustment)
    announce(sale_id, level=level)
    if not moved:
        return 0
    adjustment.delta = moved
    with transaction.atomic():
        booked = _book(adjustment)
        if booked:
            # Known to the gate, unless that was loaded anew just now from a higher quantity.
            after_commit(apply_adjustment, adjustment)
    if not booked:
        level, _moved = gate.adjust(sale_id, f"{adjustment.pk}:undo", -moved)
        announce(sale_id, level=level)
        return 0
    return moved


def _take_out(adjustment: StockAdjustment) -> tuple[gate.Level, int]:
    """Loads the gate first if it isn't loaded; raises ValidationError if that is in vain."""
    call = partial(gate.adjust, adjustment.sale_id, str(adjustment.pk), adjustment.delta)
    level, moved = call()
    if level.stock is None:
        gate_missing.send(sender=None, sale_id=adjustment.sale_id)
        level, moved = call()
    if level.stock is None:
        message = _("The stock of this sale is being loaded. Try again in a few seconds.")
        raise ValidationError(message, code="not_primed")
    return level, moved
