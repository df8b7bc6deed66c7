"""Orders, payments and refunds for staff: to be read. Services alone change them."""

import uuid
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from inventory.admin import ReadOnlyAdmin
from orders.admin_actions import OrderActions, ParkedActions
from orders.models import Order, OrderEvent, Payment, Refund, WebhookEvent
from orders.presentation import money


class ReadOnlyInline(admin.TabularInline):  # type: ignore[type-arg]
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class EventInline(ReadOnlyInline):
    model = OrderEvent
    fields = readonly_fields = ("at", "kind", "actor", "reason")


class PaymentInline(ReadOnlyInline):
    model = Payment
    fields = readonly_fields = (
        *("created_at", "provider", "amount_cents", "currency"),
        *("status", "use", "reference", "ended_at"),
    )
    show_change_link = True


@admin.register(Order)
class OrderAdmin(OrderActions, ReadOnlyAdmin):
    list_display = ("id", "product_name", "user", "quantity", "amount", "status", "created_at")
    list_filter = ("status", "refund", "created_at")
    list_select_related = ("user",)
    search_fields = ("user__username",)
    search_help_text = _("Order number, or the beginning of a user name")
    show_full_result_count = False  # Counting all orders takes longer than showing a page of them.
    inlines = (PaymentInline, EventInline)

    @admin.display(description=_("amount"))
    def amount(self, order: Order) -> str:
        return f"{money(order.amount_cents)} {order.currency}"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By number if it is one, so that a search never reads the whole table."""
        try:
            return queryset.filter(pk=uuid.UUID(search_term.strip())), False
        except ValueError:
            term = search_term.strip()
            return (queryset.filter(user__username__startswith=term) if term else queryset), False


@admin.register(Payment)
class PaymentAdmin(ReadOnlyAdmin):
    list_display = (
        *("id", "order", "provider", "amount_cents", "currency"),
        *("status", "use", "created_at"),
    )
    list_filter = ("status", "use", "provider")
    show_full_result_count = False


@admin.register(Refund)
class RefundAdmin(ReadOnlyAdmin):
    list_display = (
        *("started_at", "payment", "amount_cents", "currency", "cause"),
        *("status", "attempts", "try_at", "error", "done_at"),
    )
    list_filter = ("status", "cause")
    show_full_result_count = False


@admin.register(WebhookEvent)
class WebhookEventAdmin(ParkedActions, ReadOnlyAdmin):
    list_display = (
        *("received_at", "provider", "event_id", "kind", "amount_cents", "currency"),
        *("outcome", "cause", "note", "payment"),
    )
    list_filter = ("outcome", "provider")
    show_full_result_count = False
