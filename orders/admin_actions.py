"""What staff may do with orders and messages, from their lists: each asks for a reason first."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from orders import services
from orders.models import Order, WebhookEvent
from orders.payments import parked

MOST = 500  # rows at once: each is a transaction of its own, and the page waits for them

Service = Callable[..., bool]
Answer = HttpResponse | None


class ReasonForm(forms.Form):
    reason = forms.CharField(label=_("Reason"), max_length=200, strip=True)


class ReasonedActions(admin.ModelAdmin):  # type: ignore[type-arg]
    def with_reason(
        self, request: HttpRequest, queryset: QuerySet[Any], service: Service, *, effect: Any
    ) -> Answer:
        """A page that names the effect and asks for a reason; then the service, for each row."""
        ids = list(queryset.values_list("pk", flat=True)[: MOST + 1])
        if len(ids) > MOST:
            text = _("At most %(most)d at once.") % {"most": MOST}
            self.message_user(request, text, messages.ERROR)
            return None
        form = ReasonForm(request.POST if "reason" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, ids, form, effect=effect)
        self._run(request, ids, partial(service, reason=form.cleaned_data["reason"]))
        return None

    def _run(self, request: HttpRequest, ids: list[Any], service: Service) -> None:
        actor = request.user.get_username()
        done = sum(service(pk, actor=actor) for pk in ids)
        text = ngettext("%(count)d changed.", "%(count)d changed.", done)
        self.message_user(request, text % {"count": done}, messages.SUCCESS)
        if left := len(ids) - done:
            text = ngettext(
                "%(count)d was in another state.", "%(count)d were in another state.", left
            )
            self.message_user(request, text % {"count": left}, messages.WARNING)

    def _ask(
        self, request: HttpRequest, ids: list[Any], form: ReasonForm, *, effect: Any
    ) -> HttpResponse:
        rows = self.model._default_manager.filter(pk__in=ids)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Are you sure?"),
            "opts": self.opts,
            "effect": effect,
            "rows": [(row.pk, self.describe(row)) for row in rows],
            "form": form,
            "action": request.POST.get("action", ""),
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/orders/reason.html", context)

    def describe(self, row: Any) -> str:
        return str(row)


class OrderActions(ReasonedActions):
    actions = ("cancel_orders", "refund_orders", "refund_and_restock_orders")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return _may(request, "orders.cancel_order")

    def has_refund_permission(self, request: HttpRequest) -> bool:
        return _may(request, "orders.refund_order")

    def describe(self, row: Order) -> str:
        return f"{row.pk} · {row.user} · {row.product_name} · {row.get_status_display()}"

    @admin.action(description=_("Cancel unpaid orders"), permissions=["cancel"])
    def cancel_orders(self, request: HttpRequest, queryset: QuerySet[Order]) -> Answer:
        effect = _("Unpaid orders are canceled, and their units go back on sale.")
        return self.with_reason(request, queryset, services.cancel_order, effect=effect)

    @admin.action(description=_("Refund paid orders"), permissions=["refund"])
    def refund_orders(self, request: HttpRequest, queryset: QuerySet[Order]) -> Answer:
        effect = _("The money of paid orders goes back. Their units stay sold.")
        refund = partial(services.refund_order, restock=False)
        return self.with_reason(request, queryset, refund, effect=effect)

    @admin.action(
        description=_("Refund paid orders, and sell their units again"), permissions=["refund"]
    )
    def refund_and_restock_orders(self, request: HttpRequest, queryset: QuerySet[Order]) -> Answer:
        effect = _("The money of paid orders goes back, and their units go back on sale.")
        refund = partial(services.refund_order, restock=True)
        return self.with_reason(request, queryset, refund, effect=effect)


class ParkedActions(ReasonedActions):
    actions = ("mark_handled", "refund_money")

    def has_handle_permission(self, request: HttpRequest) -> bool:
        return _may(request, "orders.handle_webhookevent")

    @admin.action(description=_("Mark as handled"), permissions=["handle"])
    def mark_handled(self, request: HttpRequest, queryset: QuerySet[WebhookEvent]) -> Answer:
        effect = _("Parked messages count as handled. Nothing else happens.")
        return self.with_reason(request, queryset, parked.handle, effect=effect)

    @admin.action(description=_("Send the money back"), permissions=["handle"])
    def refund_money(self, request: HttpRequest, queryset: QuerySet[WebhookEvent]) -> Answer:
        effect = _("Money of another amount or currency than asked for goes back, as it was taken.")
        return self.with_reason(request, queryset, parked.refund, effect=effect)


def _may(request: HttpRequest, permission: str) -> bool:
    return not isinstance(request.user, AnonymousUser) and request.user.has_perm(permission)
