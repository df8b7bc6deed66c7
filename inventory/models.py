"""What is sold: products, flash sales and the book of stock adjustments."""

import uuid
from datetime import datetime
from enum import StrEnum

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Product(models.Model):
    name = models.CharField(_("name"), max_length=200, unique=True)
    description = models.TextField(_("description"), blank=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        verbose_name = _("product")
        verbose_name_plural = _("products")
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class SaleState(StrEnum):
    """What a shopper may do; `sold_out` needs the gate's stock as well as the sale's columns."""

    SCHEDULED = "scheduled"
    OPEN = "open"
    PAUSED = "paused"
    SOLD_OUT = "sold_out"
    CLOSED = "closed"


class FlashSale(models.Model):
    """One product, one price, one window and a number of units.

    `allocated` counts the units of live orders; only conditional UPDATEs in services change it.
    """

    product = models.ForeignKey(
        Product, models.PROTECT, related_name="sales", verbose_name=_("product")
    )
    price_cents = models.PositiveBigIntegerField(_("price in cents"))
    list_price_cents = models.PositiveBigIntegerField(
        _("list price in cents"), null=True, blank=True
    )
    currency = models.CharField(_("currency"), max_length=3, default=settings.CURRENCY)
    quantity = models.PositiveIntegerField(_("quantity"))
    allocated = models.PositiveIntegerField(_("allocated"), default=0, editable=False)
    per_buyer = models.PositiveSmallIntegerField(_("units per buyer"), default=1)
    rebuy = models.BooleanField(
        _("second try"),
        default=True,
        help_text=_("May a buyer whose order expired or was canceled buy again?"),
    )
    starts_at = models.DateTimeField(_("starts at"))
    ends_at = models.DateTimeField(_("ends at"))
    paused = models.BooleanField(_("paused"), default=False)
    # Grows with every change of the settings above, so that an old one can't overwrite a newer one.
    revision = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        verbose_name = _("flash sale")
        verbose_name_plural = _("flash sales")
        ordering = ("starts_at", "id")
        constraints = [
            # The last line of defence: even a bug in every other layer cannot oversell.
            models.CheckConstraint(
                condition=Q(allocated__gte=0, allocated__lte=F("quantity")),
                name="sale_not_oversold",
            ),
            models.CheckConstraint(condition=Q(ends_at__gt=F("starts_at")), name="sale_window"),
            models.CheckConstraint(condition=Q(per_buyer__gte=1), name="sale_per_buyer"),
            models.CheckConstraint(condition=Q(price_cents__gt=0), name="sale_price"),
            models.CheckConstraint(
                condition=Q(list_price_cents__isnull=True)
                | Q(list_price_cents__gte=F("price_cents")),
                name="sale_list_price",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.product} #{self.pk}"

    @property
    def available(self) -> int:
        return self.quantity - self.allocated

    def state(self, now: datetime | None = None) -> SaleState:
        """The state by the columns alone, as of `now`; the gate decides for real."""
        now = now or timezone.now()
        if now >= self.ends_at:
            return SaleState.CLOSED
        if self.paused:
            return SaleState.PAUSED
        if now < self.starts_at:
            return SaleState.SCHEDULED
        return SaleState.OPEN if self.available > 0 else SaleState.SOLD_OUT


class StockAdjustment(models.Model):
    """One change of a sale's quantity: who, why, how many, and whether the gate knows it yet."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    sale = models.ForeignKey(
        FlashSale,
        models.PROTECT,
        related_name="adjustments",
        verbose_name=_("flash sale"),
    )
    delta = models.IntegerField(_("change"))
    quantity_after = models.PositiveIntegerField(_("quantity after"))
    reason = models.CharField(_("reason"), max_length=200)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        verbose_name=_("actor"),
    )
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    gate_applied_at = models.DateTimeField(_("applied to the gate at"), null=True, editable=False)

    class Meta:
        verbose_name = _("stock adjustment")
        verbose_name_plural = _("stock adjustments")
        ordering = ("-created_at",)
        constraints = [models.CheckConstraint(condition=~Q(delta=0), name="adjustment_not_zero")]
        indexes = [
            # Read by orders.repair.sweep_releases: adjustments that the gate doesn't know yet.
            models.Index(
                fields=["sale"],
                name="adjustment_outbox",
                condition=Q(gate_applied_at__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return f"{self.sale} {self.delta:+d}"
