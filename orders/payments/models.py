"""Payments, refunds, and the book of every message that a provider sent."""

import uuid

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Payment(models.Model):
    """One try to pay an order. Amount and currency are the order's, copied by the server."""

    class State(models.IntegerChoices):
        CREATED = 0, _("created")
        SUCCEEDED = 1, _("succeeded")  # The money is taken; nothing undoes that, see Use.
        FAILED = 2, _("failed")  # Also: closed by us, because the order is over.

    class Use(models.TextChoices):
        """What became of the money that was taken."""

        NONE = "", _("not decided yet")
        ORDER = "order", _("pays its order")
        REFUND = "refund", _("goes back")

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
    use = models.CharField(
        _("use"), max_length=10, choices=Use.choices, default=Use.NONE, blank=True
    )
    # Empty until the provider has said where the buyer pays.
    url = models.TextField(_("where to pay"), blank=True)
    session = models.CharField(_("provider's session"), max_length=255, blank=True)
    reference = models.CharField(_("provider's reference"), max_length=255, blank=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    # When to ask the provider what became of it; empty until there is something to ask about.
    ask_at = models.DateTimeField(null=True, editable=False)
    asked = models.PositiveIntegerField(_("times asked"), default=0, editable=False)

    class Meta:
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        ordering = ("-created_at",)
        constraints = [
            # Two tabs share one payment, so that a buyer can't pay twice by accident.
            models.UniqueConstraint(
                fields=["order"], condition=Q(status=0), name="one_active_payment_per_order"
            ),
            models.UniqueConstraint(
                fields=["order"], condition=Q(use="order"), name="one_payment_pays_an_order"
            ),
            models.CheckConstraint(condition=Q(status__lte=2), name="payment_status"),
            models.CheckConstraint(condition=Q(amount_cents__gt=0), name="payment_amount"),
            models.CheckConstraint(
                condition=Q(status=0, ended_at__isnull=True)
                | Q(status__gt=0, ended_at__isnull=False),
                name="payment_ended",
            ),
            models.CheckConstraint(
                condition=Q(use="") | Q(status=1, use__in=["order", "refund"]),
                name="payment_use",
            ),
        ]
        indexes = [
            # Read by asking.ask_due.
            models.Index(
                fields=["ask_at"], name="payment_to_ask", condition=Q(ask_at__isnull=False)
            ),
            # Read by captures.settle_due: money taken, of which nothing has become yet.
            models.Index(fields=["ended_at"], name="payment_unused", condition=Q(status=1, use="")),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class Refund(models.Model):
    """A payment's money on its way back: once, whole. Its id is the key that makes repeats safe."""

    class State(models.IntegerChoices):
        STARTED = 0, _("started")
        DONE = 1, _("done")

    class Cause(models.TextChoices):
        LATE = "late", _("the money came late, and the unit was gone")
        SECOND = "second", _("the order was paid already")
        STAFF = "staff", _("by staff")
        PROVIDER = "provider", _("at the provider")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    payment = models.OneToOneField(
        Payment, models.PROTECT, related_name="refund", verbose_name=_("payment")
    )
    amount_cents = models.PositiveBigIntegerField(_("amount in cents"))
    currency = models.CharField(_("currency"), max_length=3)
    cause = models.CharField(_("cause"), max_length=10, choices=Cause.choices)
    status = models.PositiveSmallIntegerField(
        _("status"), choices=State.choices, default=State.STARTED
    )
    reference = models.CharField(_("provider's reference"), max_length=255, blank=True)
    started_at = models.DateTimeField(_("started at"))
    done_at = models.DateTimeField(_("done at"), null=True, blank=True)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    try_at = models.DateTimeField(_("next attempt at"))
    error = models.CharField(_("last error"), max_length=200, blank=True)

    class Meta:
        verbose_name = _("refund")
        verbose_name_plural = _("refunds")
        ordering = ("-started_at",)
        constraints = [
            models.CheckConstraint(condition=Q(amount_cents__gt=0), name="refund_amount"),
            models.CheckConstraint(
                condition=Q(status=0, done_at__isnull=True) | Q(status=1, done_at__isnull=False),
                name="refund_done",
            ),
        ]
        indexes = [
            # Read by refunds.send_due.
            models.Index(fields=["try_at"], name="refund_to_send", condition=Q(status=0)),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class WebhookEvent(models.Model):
    """One message of a provider, or its answer when asked.

    Written in the transaction of what it changed.
    """

    class Outcome(models.TextChoices):
        APPLIED = "applied", _("applied")
        IGNORED = "ignored", _("ignored")
        PARKED = "parked", _("needs a person")
        HANDLED = "handled", _("handled by staff")

    provider = models.CharField(_("provider"), max_length=20)
    # A message that reuses another one's id is kept under "id#digest".
    event_id = models.CharField(_("event"), max_length=140)
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
    # As the message has them; empty if they can't be read as money.
    amount_cents = models.BigIntegerField(_("amount in cents"), null=True)
    currency = models.CharField(_("currency"), max_length=10, blank=True)
    reference = models.CharField(_("provider's reference"), max_length=255, blank=True)
    digest = models.CharField(max_length=64, blank=True, editable=False)
    outcome = models.CharField(_("outcome"), max_length=10, choices=Outcome.choices)
    cause = models.CharField(_("cause"), max_length=50, blank=True)
    note = models.CharField(_("what staff did"), max_length=400, blank=True)
    received_at = models.DateTimeField(_("received at"), auto_now_add=True)

    class Meta:
        verbose_name = _("webhook event")
        verbose_name_plural = _("webhook events")
        ordering = ("-received_at", "-id")
        permissions = [("handle_webhookevent", "Can handle parked webhook events")]
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


class SandboxCharge(models.Model):
    """The sandbox gateway's own book: what a real gateway would know of a payment."""

    payment = models.OneToOneField(
        Payment, models.CASCADE, primary_key=True, related_name="sandbox", editable=False
    )
    # In the future: the money is on its way, and can't be stopped.
    captured_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    refund_id = models.CharField(max_length=100, blank=True)
    refunded_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return str(self.pk)


class SandboxNotice(models.Model):
    """A webhook that the sandbox gateway has to deliver, until it is answered with 200."""

    charge = models.ForeignKey(SandboxCharge, models.CASCADE, related_name="notices")
    event_id = models.CharField(max_length=100)
    kind = models.CharField(max_length=100)
    url = models.CharField(max_length=500)
    due_at = models.DateTimeField()
    attempts = models.PositiveSmallIntegerField(default=0)
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            # Read by sandbox_notices.send_due.
            models.Index(
                fields=["due_at"], name="sandbox_notice_due", condition=Q(delivered_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.event_id}"
