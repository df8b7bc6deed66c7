"""What pages fetch besides themselves: who looks at them, a place in the queue, pictures, files."""

import uuid
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_safe

from inventory.gate import GateError
from inventory.models import FlashSale, SaleState
from inventory.redis_clients import RedisNotConfigured
from orders.models import LIVE, Order, Status
from seckill import calendars, pictures, queueing, results
from seckill.faces import FACES

FOR_EVER = "public, max-age=31536000, immutable"


@never_cache
@require_GET
def me(request: HttpRequest) -> JsonResponse:
    """The personal bits of pages that are the same for everybody; `?sale=7`: what I have there."""
    if not request.user.is_authenticated:
        return JsonResponse({"name": None, "unseen": 0, "purchase": None})
    user_id = int(request.user.pk)
    sale = request.GET.get("sale", "")
    wanted = int(sale) if sale.isdecimal() and len(sale) < 19 else None
    answer = {
        "name": request.user.get_username(),
        "unseen": results.unseen(user_id),
        "purchase": None if wanted is None else _purchase(wanted, user_id),
    }
    return JsonResponse(answer)


def _purchase(sale_id: int, user_id: int) -> dict[str, Any] | None:
    live = _live(sale_id, user_id)
    if live is None:
        return None
    name = "order" if live.state == "ordered" else "purchase"
    args = [live.purchase_id] if name == "order" else [sale_id, live.purchase_id]
    return {"id": live.purchase_id, "state": live.state, "url": reverse(name, args=args)}


def _live(sale_id: int, user_id: int) -> queueing.Live | None:
    """From the gate; from the database while the gate is away or not loaded."""
    try:
        if live := queueing.live(sale_id, user_id):
            return live
    except (GateError, RedisNotConfigured):
        pass  # The database knows of orders, and a queued purchase is found again at the gate.
    live_orders = Order.objects.filter(sale_id=sale_id, user_id=user_id, status__in=LIVE)
    order_id = live_orders.values_list("pk", flat=True).first()
    return queueing.Live(str(order_id), "ordered") if order_id else None


@never_cache
@require_GET
def place(request: HttpRequest, sale_id: int, purchase_id: uuid.UUID) -> JsonResponse:
    """How many wait longer than the buyer's own purchase."""
    if not request.user.is_authenticated:
        raise Http404
    found = queueing.place(sale_id, str(purchase_id), user_id=int(request.user.pk))
    return JsonResponse({"ahead": None, "waiting": None} if found is None else found._asdict())


@require_safe
def picture(request: HttpRequest, seed: str) -> HttpResponse:
    headers = {"Cache-Control": FOR_EVER}
    return HttpResponse(pictures.draw(seed), content_type="image/svg+xml", headers=headers)


@require_safe
def reminder(request: HttpRequest, sale_id: int) -> HttpResponse:
    """A calendar file for the start of a sale."""
    sale = FlashSale.objects.select_related("product").filter(pk=sale_id).first()
    if sale is None:
        raise Http404
    url = request.build_absolute_uri(reverse("sale", args=[sale_id]))
    body = calendars.reminder(sale, url=url, now=timezone.now())
    name = f'attachment; filename="sale-{sale_id}.ics"'
    headers = {"Cache-Control": "public, max-age=60", "Content-Disposition": name}
    return HttpResponse(body, content_type="text/calendar; charset=utf-8", headers=headers)


@never_cache
@require_safe
def states(request: HttpRequest) -> HttpResponse:
    """Every state of every component, for who works on them. Only with DEBUG."""
    if not settings.DEBUG:
        raise Http404
    context = {
        "faces": FACES,
        "statuses": [Order(status=status) for status in Status if status != Status.REJECTED],
        "sale_states": [state.value for state in SaleState],
    }
    return render(request, "seckill/states.html", context)
