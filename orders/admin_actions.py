"""What staff may do with orders, from the list: each asks for a reason first."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

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
from orders.models import Order

MOST = 500  # orders at once: each is a transaction of its own, and the page waits for them

Service = Callable[..., bool]


class ReasonForm(forms.Form):
    reason = forms.CharField(label=_("Reason"), max_length=200, strip=True)


class OrderActions(admin.ModelAdmin):  # type: ignore[type-arg]
    actions = ("cancel_orders", "refund_orders", "refund_and_restock_orders")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return _may(request, "orders.cancel_order")

    def has_refund_permission(self, request: HttpRequest) -> bool:
        return _may(request, "orders.refund_order")

    @admin.action(description=_("Cancel unpaid orders"), permissions=["cancel"])
    def cancel_orders(self, request: HttpRequest, queryset: QuerySet[Order]) -> HttpResponse | None:
        effect = _("Unpaid orders are canceled, and their units go back on sale.")
        return self._with_reason(request, queryset, services.cancel_order, effect=effect)

    @admin.action(description=_("Refund paid orders"), permissions=["refund"])
    def refund_orders(self, request: HttpRequest, queryset: QuerySet[Order]) -> HttpResponse | None:
        effect = _("The money of paid orders goes back. Their units stay sold.")
        refund = partial(services.refund_order, restock=False)
        return self._with_reason(request, queryset, refund, effect=effect)

    @admin.action(
        description=_("Refund paid orders, and sell their units again"), permissions=["refund"]
    )
    def refund_and_restock_orders(
        self, request: HttpRequest, queryset: QuerySet[Order]
    ) -> HttpResponse | None:
        effect = _("The money of paid orders goes back, and their units go back on sale.")
        refund = partial(services.refund_order, restock=True)
        return self._with_reason(request, queryset, refund, effect=effect)

    def _with_reason(
        self, request: HttpRequest, queryset: QuerySet[Order], service: Service, *, effect: Any
    ) -> HttpResponse | None:
        """A page that names the effect and asks for a reason; then the service, for each order."""
        ids = list(queryset.values_list("pk", flat=True)[: MOST + 1])
        if len(ids) > MOST:
            text = _("At most %(most)d orders at once.") % {"most": MOST}
            self.message_user(request, text, messages.ERROR)
            return None
        form = ReasonForm(request.POST if "reason" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, ids, form, effect=effect)
        self._run(request, ids, partial(service, reason=form.cleaned_data["reason"]))
        return None

    def _run(self, request: HttpRequest, ids: list[UUID], service: Service) -> None:
        actor = request.user.get_username()
        done = sum(service(pk, actor=actor) for pk in ids)
        text = ngettext("%(count)d order changed.", "%(count)d orders changed.", done)
        self.message_user(request, text % {"count": done}, messages.SUCCESS)
        if left := len(ids) - done:
            text = ngettext(
                "%(count)d order was in another state.",
                "%(count)d orders were in another state.",
                left,
            )
            self.message_user(request, text % {"count": left}, messages.WARNING)

    def _ask(
        self, request: HttpRequest, ids: list[UUID], form: ReasonForm, *, effect: Any
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("Are you sure?"),
            "opts": self.opts,
            "effect": effect,
            "orders": Order.objects.filter(pk__in=ids).select_related("user"),
            "form": form,
            "action": request.POST.get("action", ""),
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/orders/order/reason.html", context)


def _may(request: HttpRequest, permission: str) -> bool:
    return not isinstance(request.user, AnonymousUser) and request.user.has_perm(permission)
