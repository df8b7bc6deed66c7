"""Products, sales and the book of stock for staff. Counters are shown, never typed."""

from typing import Any, cast

from django.contrib import admin
from django.db.models import Model
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from inventory import services
from inventory.models import FlashSale, Product, StockAdjustment


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """For what only services may write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("name", "created_at")
    search_fields = ("name",)


@admin.register(FlashSale)
class FlashSaleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("__str__", "state", "starts_at", "ends_at", "quantity", "allocated", "paused")
    list_filter = ("paused", "starts_at")
    list_select_related = ("product",)
    search_fields = ("product__name",)
    autocomplete_fields = ("product",)
    date_hierarchy = "starts_at"
    fields = (
        "product",
        ("price_cents", "list_price_cents", "currency"),
        ("quantity", "allocated", "left"),
        ("per_buyer", "rebuy"),
        ("starts_at", "ends_at"),
        "paused",
    )

    def get_readonly_fields(
        self, request: HttpRequest, obj: FlashSale | None = None
    ) -> tuple[str, ...]:
        """Units are given once; later they change only by a booked adjustment."""
        counters = ("allocated", "left", "currency")
        return counters if obj is None else (*counters, "product", "quantity")

    def save_model(
        self, request: HttpRequest, obj: FlashSale, form: "ModelForm[Any]", change: bool
    ) -> None:
        """Write only what was edited: the counters move while the form is open."""
        if not change:
            super().save_model(request, obj, form, change)
        elif form.changed_data:
            edited = {name: form.cleaned_data[name] for name in form.changed_data}
            services.change_sale(obj.pk, **edited)

    @admin.display(description=_("left"))
    def left(self, sale: FlashSale) -> int | None:
        """Unknown while a form without a proper quantity is shown again."""
        quantity = cast("int | None", sale.quantity)
        return None if quantity is None else quantity - sale.allocated

    @admin.display(description=_("state"))
    def state(self, sale: FlashSale) -> str:
        return sale.state().value


@admin.register(StockAdjustment)
class StockAdjustmentAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "sale", "delta", "quantity_after", "reason", "actor")
    list_select_related = ("sale__product", "actor")
    list_filter = ("created_at",)
