"""The pages. Each turns a request into one call of a service and shows its answer.

List and detail are the same for everybody, so that the lane may keep them for a second: they read
neither session nor user, and write a marker where each visitor's CSRF token belongs.
"""

import time
import uuid
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST, require_safe

from inventory.gate import Admission, GateError
from inventory.models import FlashSale, SaleState
from orders import services as orders
from orders.models import Order, Status
from orders.payments import providers
from orders.payments import services as payments
from seckill import catalog, mine, problems, queueing, results, services
from seckill.errors import request_id
from seckill.faces import face_of
from seckill.forms import BuyForm, OrderFilter
from seckill.microcache import CSRF_MARKER
from seckill.stepper import steps
from seckill.templatetags.shop import units_unpaid

PUBLIC = "public, max-age=1"
MOST_CHOICES = 50  # numbers of units that a list offers; a form may ask for more
BY_BUYER = "by the buyer"  # the reason of a cancellation
STILL_LOOKING = 30  # seconds in which a purchase that nobody knows yet may still turn up

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]

# How an admission that is none is called outside.
REFUSALS = {
    Admission.NOT_PRIMED: "unavailable",
    Admission.PAUSED: "paused",
    Admission.NOT_OPEN: "not_open",
    Admission.CLOSED: "closed",
    Admission.QUANTITY: "quantity_invalid",
    Admission.SOLD_OUT: "sold_out",
    Admission.REBUY: "rebuy_not_allowed",
    Admission.THROTTLED: "rate_limited",
}


def public(view: View[P]) -> View[P]:
    @require_safe
    @wraps(view)
    def inner(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        response = view(request, *args, **kwargs)
        response["Cache-Control"] = PUBLIC
        return response

    return inner


def personal(view: View[P]) -> View[P]:
    return never_cache(login_required(view))


def _show(request: HttpRequest, template: str, **context: Any) -> HttpResponse:
    return render(request, f"seckill/{template}.html", context)


def _show_to_all(request: HttpRequest, template: str, **context: Any) -> HttpResponse:
    return _show(request, template, csrf_token=CSRF_MARKER, **context)


@public
def sale_list(request: HttpRequest) -> HttpResponse:
    sessions = catalog.sessions(catalog.offers(), timezone.now())
    return _show_to_all(request, "sale_list", sessions=sessions)


@public
def sale_detail(request: HttpRequest, sale_id: int) -> HttpResponse:
    shown = catalog.offer(sale_id)
    if shown is None:
        raise Http404
    gone = catalog.sold_out(sale_id) if shown.state is SaleState.SOLD_OUT else None
    return _show_to_all(
        request,
        "sale_detail",
        offer=shown,
        sale=shown.sale,
        state=face_of(shown.state, unpaid=gone.unpaid if gone else 0),
        gone=gone,
        unpaid_text=units_unpaid(gone.unpaid if gone else 0),
        quantities=range(1, min(shown.sale.per_buyer, MOST_CHOICES) + 1),
        window=max(1, round(settings.PAYMENT_WINDOW / 60)),
        captcha=settings.CAPTCHA,
        # Only where it counts: a page that tells the time is another one each time it is made.
        clock=timezone.now() if shown.state is SaleState.SCHEDULED else None,
    )


@public
def problem_page(request: HttpRequest, code: str) -> HttpResponse:
    if code not in problems.CODES:
        raise Http404
    return _show_to_all(request, "problem", code=code, kind=problems.CODES[code])


@never_cache
def buy(request: HttpRequest, sale_id: int) -> HttpResponse:
    """The form's way to buy: the same gate and the same message as the lane's, for one buyer."""
    if request.method != "POST" or not request.user.is_authenticated:
        here = f"/sales/{sale_id}/"
        return redirect(here if request.user.is_authenticated else f"/login/?next={here}")
    units = BuyForm(request.POST).units()
    if units is None:
        return refused(request, "quantity_invalid", sale_id=sale_id)
    try:
        tried = services.purchase(sale_id=sale_id, user_id=request.user.pk, quantity=units)
    except FlashSale.DoesNotExist:
        raise Http404 from None
    return _after_trying(request, sale_id, tried)


def _after_trying(request: HttpRequest, sale_id: int, tried: services.Purchase) -> HttpResponse:
    code = REFUSALS.get(tried.admission)
    if code:
        return refused(request, code, sale_id=sale_id, retry_after=tried.retry_after)
    if tried.admission is Admission.ORDERED:
        return redirect("order", order_id=tried.purchase_id)
    return redirect("purchase", sale_id=sale_id, purchase_id=tried.purchase_id)


def refused(
    request: HttpRequest,
    code: str,
    *,
    sale_id: int | None = None,
    retry_after: float | None = None,
) -> HttpResponse:
    """A page that says in plain words why not, and what to do now."""
    built = problems.problem(code, retry_after=retry_after)
    context = {
        "kind": problems.CODES[code],
        "sale_id": sale_id,
        "wait": built.headers.get("Retry-After"),
        "request_id": request_id(request),
    }
    response = render(request, "seckill/refused.html", context, status=built.status)
    for name in built.headers.keys() - {"Content-Type"}:
        response[name] = built.headers[name]
    return response


@personal
@require_GET
def purchase(request: HttpRequest, sale_id: int, purchase_id: uuid.UUID) -> HttpResponse:
    """The queue page: waits, and ends at the order or at the reason why there is none."""
    found = services.outcome(sale_id=sale_id, purchase_id=purchase_id, user_id=_user_id(request))
    if found is None and not _may_turn_up(purchase_id):
        raise Http404
    if found is None or found.status == "queued":
        place = _place(sale_id, purchase_id, _user_id(request))
        return _show(request, "purchase", sale_id=sale_id, purchase_id=purchase_id, place=place)
    if found.order is not None:
        return redirect("order", order_id=found.order.pk)
    return _purchase_failed(request, sale_id, purchase_id, found.code)


def _place(sale_id: int, purchase_id: uuid.UUID, user_id: int) -> queueing.Place | None:
    try:
        return queueing.place(sale_id, str(purchase_id), user_id=user_id)
    except GateError:
        return None  # The page works without.


def _purchase_failed(
    request: HttpRequest, sale_id: int, purchase_id: uuid.UUID, code: str
) -> HttpResponse:
    refusal = Order.objects.filter(pk=purchase_id, user_id=_user_id(request)).first()
    if refusal is not None:
        results.note_seen(_user_id(request), [refusal])
    kind = problems.CODES.get(code or "", problems.CODES["failed"])
    returned = refusal is not None and refusal.gate_return > 0
    return _show(request, "purchase_failed", kind=kind, sale_id=sale_id, returned=returned)


def _may_turn_up(purchase_id: uuid.UUID) -> bool:
    """Whether an unknown purchase id was made a moment ago (a UUIDv7 begins with its time)."""
    age = time.time() - (purchase_id.int >> 80) / 1000
    return purchase_id.version == 7 and -STILL_LOOKING < age < STILL_LOOKING


def _user_id(request: HttpRequest) -> int:
    assert request.user.pk is not None
    return int(request.user.pk)


@personal
@require_GET
def order_list(request: HttpRequest) -> HttpResponse:
    filters = OrderFilter(request.GET).values()
    status = Status[filters["status"].upper()] if filters["status"] else None
    cursor = request.GET.get("cursor", "")
    wanted = mine.Wanted(status, filters["q"])
    try:
        page = mine.orders(user_id=_user_id(request), cursor=cursor, wanted=wanted)
    except ValueError:
        raise Http404 from None
    plain = not cursor and wanted == mine.ALL
    return _show(
        request,
        "order_list",
        page=page,
        filters=filters,
        choices=_choices(filters),
        next_query=_query(filters, cursor=page.next or ""),
        refused=results.refused(_user_id(request)) if plain else [],
    )


def _query(filters: Mapping[str, str], **changes: str) -> str:
    return urlencode({name: value for name, value in {**filters, **changes}.items() if value})


def _choices(filters: Mapping[str, str]) -> list[dict[str, Any]]:
    """The filter's links: all, and each status."""
    labels = {"": _("All")} | {name: Status[name.upper()].label for name in OrderFilter.STATUSES}
    return [
        {
            "label": capfirst(label),
            "query": _query(filters, status=name),
            "current": filters["status"] == name,
        }
        for name, label in labels.items()
    ]


def _own_order(request: HttpRequest, order_id: uuid.UUID) -> Order:
    found = mine.own_order(order_id, user_id=_user_id(request))
    if found is None:
        raise Http404
    return found


@personal
@require_GET
def order(request: HttpRequest, order_id: uuid.UUID) -> HttpResponse:
    own = _own_order(request, order_id)
    now = timezone.now()
    results.note_seen(own.user_id or 0, [own])
    return _show(
        request,
        "order",
        order=own,
        steps=steps(own.status),
        events=own.events.all(),
        now=now,
        unpaid=own.status == Status.UNPAID,
        payable=own.status == Status.UNPAID and own.pay_before > now,
        providers=settings.PAYMENT_PROVIDERS,
    )


@personal
@require_POST
def pay(request: HttpRequest, order_id: uuid.UUID) -> HttpResponse:
    provider = request.POST.get("provider", "")
    try:
        _, url = payments.start_payment(order_id, user_id=_user_id(request), provider=provider)
    except Order.DoesNotExist:
        raise Http404 from None
    except payments.OrderNotPayable:
        return refused(request, "order_not_payable")
    except providers.UnknownProvider:
        return refused(request, "invalid")
    except providers.GatewayError:
        return refused(request, "payment_unavailable")
    return redirect(url)


@personal
@require_POST
def cancel(request: HttpRequest, order_id: uuid.UUID) -> HttpResponse:
    own = _own_order(request, order_id)
    if not orders.cancel_order(own.pk, actor=request.user.get_username(), reason=BY_BUYER):
        return refused(request, "order_not_cancelable")
    return redirect("order", order_id=order_id)
