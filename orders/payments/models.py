"""Payments, and the book of every message that a provider sent."""

import uuid

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Payment(models.Model):
    """One try to pay an order. Amount and currency are the order's, copied by the server."""

    class State(models.IntegerChoices):
        CREATED = 0, _("created")
        SUCCEEDED = 1, _("succeeded")
        FAILED = 2, _("failed")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    order = models.ForeignKey(
        "orders.Order", models.PROTECT, related_name="payments", verbose_name=_("order")
    )
    provider = models.CharField(_("provider"), max_length=20)
    amount_cents = models.PositiveBigIntegerField(_("amount in cents"))
    currency = models.CharField(_("currency"), max_length=3)
    status = models.PositiveSmallIntegerField(
        _("status"), choices=State.choices, default=State.CREATED
    )
    reference = models.CharField(_("provider's reference"), max_length=100, blank=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    class Meta:
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        ordering = ("-created_at",)
        constraints = [
            # Two tabs share one payment, so that a buyer can't pay twice by accident.
            models.UniqueConstraint(
                fields=["order"],
                condition=Q(status=0),
                name="one_active_payment_per_order",
            ),
            models.CheckConstraint(condition=Q(status__lte=2), name="payment_status"),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class WebhookEvent(models.Model):
    """One signed message of a provider. Written in the transaction of what it changed."""

    class Outcome(models.TextChoices):
        APPLIED = "applied", _("applied")
        IGNORED = "ignored", _("ignored")
        PARKED = "parked", _("needs a person")

    provider = models.CharField(_("provider"), max_length=20)
    event_id = models.CharField(_("event"), max_length=100)
    kind = models.CharField(_("type"), max_length=100)
    payment = models.ForeignKey(
        Payment,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="events",
        verbose_name=_("payment"),
    )
    body = models.TextField(_("message"))
    outcome = models.CharField(_("outcome"), max_length=10, choices=Outcome.choices)
    cause = models.CharField(_("cause"), max_length=50, blank=True)
    received_at = models.DateTimeField(_("received at"), auto_now_add=True)

    class Meta:
        verbose_name = _("webhook event")
        verbose_name_plural = _("webhook events")
        ordering = ("-received_at", "-id")
        constraints = [
            models.UniqueConstraint(fields=["provider", "event_id"], name="webhook_event_once"),
        ]
        indexes = [
            # Read by staff: what needs a person.
            models.Index(
                fields=["received_at"],
                name="webhook_parked",
                condition=Q(outcome="parked"),
            )
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.event_id}"
