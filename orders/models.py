"""The life of an order. Its id is the purchase id that the buyer was given at admission."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from inventory.models import FlashSale
from orders.payments.models import Payment, Refund, WebhookEvent

__all__ = [
    "ENDED",
    "LIVE",
    "Order",
    "OrderEvent",
    "Payment",
    "Refund",
    "RefundState",
    "Rejection",
    "Status",
    "WebhookEvent",
]


class Status(models.IntegerChoices):
    UNPAID = 0, _("unpaid")
    PAID = 1, _("paid")
    CANCELED = 2, _("canceled")
    EXPIRED = 3, _("expired")
    REFUNDED = 4, _("refunded")
    REJECTED = 5, _("rejected")


LIVE = (Status.UNPAID, Status.PAID)  # A buyer has at most one of these in a sale.
ENDED = (Status.CANCELED, Status.EXPIRED)


class Rejection(models.TextChoices):
    """Why a purchase did not become an order."""

    SOLD_OUT = "sold_out", _("Sold out: the last unit went to somebody else.")
    DUPLICATE = "duplicate", _("You have an order in this sale already.")
    REBUY = "rebuy_not_allowed", _("This sale allows no second try.")
    CLOSED = "closed", _("The sale is over.")
    FAILED = "failed", _("The order could not be created. You were not charged.")


class RefundState(models.IntegerChoices):
    """What the buyer is told of money on its way back; also of one payment too many."""

    NONE = 0, _("none")
    STARTED = 1, _("refund started")
    DONE = 2, _("refunded")


class Order(models.Model):
    """A purchase that became an order, or (REJECTED) one that never will.

    Price, product name and currency are copies, so that later edits don't change them.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    sale = models.ForeignKey(
        FlashSale,
        models.PROTECT,
        related_name="orders",
        db_index=False,
        verbose_name=_("flash sale"),
    )
    # Empty only in a rejected purchase whose buyer's account is gone.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        related_name="orders",
        db_index=False,
        null=True,
        verbose_name=_("buyer"),
    )
    product_name = models.CharField(_("product"), max_length=200)
    quantity = models.PositiveSmallIntegerField(_("quantity"))
    unit_price_cents = models.PositiveBigIntegerField(_("unit price in cents"))
    amount_cents = models.PositiveBigIntegerField(_("amount in cents"))
    currency = models.CharField(_("currency"), max_length=3)
    status = models.PositiveSmallIntegerField(_("status"), choices=Status.choices)
    code = models.CharField(
        _("cause of rejection"), max_length=20, blank=True, choices=Rejection.choices
    )
    # Units that the gate gets back when a rejection is settled; the rest were units too many.
    gate_return = models.PositiveSmallIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(_("created at"))
    pay_before = models.DateTimeField(_("pay before"))
    closed_at = models.DateTimeField(_("closed at"), null=True, blank=True)
    paid_at = models.DateTimeField(_("paid at"), null=True, blank=True)
    refund = models.PositiveSmallIntegerField(
        _("refund"), choices=RefundState.choices, default=RefundState.NONE, editable=False
    )
    restocked = models.BooleanField(_("units given back"), default=False, editable=False)
    # Outbox: the units are back in the database, but perhaps not yet in the gate.
    gate_released_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        ordering = ("-created_at", "-id")
        permissions = [
            ("cancel_order", "Can cancel unpaid orders"),
            ("refund_order", "Can refund paid orders"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["sale", "user"],
                condition=Q(status__in=[0, 1]),
                name="one_live_order_per_buyer_and_sale",
            ),
            models.CheckConstraint(condition=Q(quantity__gte=1), name="order_quantity"),
            models.CheckConstraint(condition=Q(status__lte=5), name="order_status"),
            models.CheckConstraint(
                condition=Q(status=5) | Q(user__isnull=False), name="order_has_buyer"
            ),
            models.CheckConstraint(
                condition=(Q(status=5) & ~Q(code="")) | (~Q(status=5) & Q(code="")),
                name="order_code_iff_rejected",
            ),
            models.CheckConstraint(
                condition=Q(restocked=False) | Q(status__in=[2, 3, 4]),
                name="order_restocked",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=[1, 4]) | Q(paid_at__isnull=False),
                name="order_paid_at",
            ),
            models.CheckConstraint(condition=Q(refund__lte=2), name="order_refund"),
        ]
        indexes = [
            # Read by services.expire_orders: what is unpaid, in the order of its deadline.
            models.Index(fields=["pay_before"], name="order_unpaid_due", condition=Q(status=0)),
            # Read by repair.sweep_releases: units that the gate doesn't have back yet.
            models.Index(
                fields=["sale"],
                name="order_release_outbox",
                condition=Q(restocked=True, gate_released_at__isnull=True),
            ),
            models.Index(fields=["user", "-created_at"], name="order_by_buyer"),
            models.Index(fields=["sale", "status"], name="order_by_sale"),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class OrderEvent(models.Model):
    """One step in an order's life; written in the transaction of the step, never changed."""

    class Kind(models.TextChoices):
        CREATED = "created", _("created")
        PAID = "paid", _("paid")
        CANCELED = "canceled", _("canceled")
        EXPIRED = "expired", _("expired")
        REFUNDED = "refunded", _("refunded")
        REFUND_STARTED = "refund_started", _("refund started")
        REFUND_DONE = "refund_done", _("money returned")
        REJECTED = "rejected", _("rejected")
        NOTE = "note", _("note")

    order = models.ForeignKey(Order, models.PROTECT, related_name="events", verbose_name=_("order"))
    kind = models.CharField(_("event"), max_length=20, choices=Kind.choices)
    actor = models.CharField(_("actor"), max_length=150, blank=True)
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    at = models.DateTimeField(_("at"))

    class Meta:
        verbose_name = _("order event")
        verbose_name_plural = _("order events")
        ordering = ("at", "id")

    def __str__(self) -> str:
        return f"{self.order_id} {self.kind}"
