"""The cashier page of the sandbox gateway. It plays the part of another site: the gateway's own.

Its buttons only write into the sandbox's book; the shop learns of it as from any gateway, by a
signed webhook over HTTP, or by asking.
"""

import logging
import uuid
from urllib.parse import urljoin

import segno
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from kombu.exceptions import OperationalError as BrokerError

from orders import tasks
from orders.models import Payment
from orders.payments import sandbox

log = logging.getLogger(__name__)

WEBHOOK = "/api/v1/payments/sandbox/webhook"


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def cashier(request: HttpRequest, payment_id: uuid.UUID) -> HttpResponse:
    payment = _own_payment(request, payment_id)
    if request.method != "POST":
        context = {"payment": payment, "order": payment.order, "qr": _qr(request)}
        return render(request, "seckill/cashier.html", context)
    try:
        action = sandbox.Action(request.POST.get("result", ""))
    except ValueError:
        return redirect("cashier", payment_id=payment_id)
    if sandbox.act(payment, action, webhook_url=urljoin(_site(request), WEBHOOK)):
        _deliver()
    return redirect("order", order_id=payment.order_id)


def _own_payment(request: HttpRequest, payment_id: uuid.UUID) -> Payment:
    mine = Payment.objects.filter(provider=sandbox.NAME, order__user=request.user.pk)
    payment = mine.select_related("order").filter(pk=payment_id).first()
    if payment is None or sandbox.NAME not in settings.PAYMENT_PROVIDERS:
        raise Http404
    return payment


def _site(request: HttpRequest) -> str:
    return settings.SITE_URL or request.build_absolute_uri("/")


def _deliver() -> None:
    """At once, if the broker is there; else the next sweep does it."""
    try:
        tasks.send_sandbox_notices.delay()
    except BrokerError as error:
        log.warning("the sandbox's notice waits for the sweep: %s", error)


def _qr(request: HttpRequest) -> str:
    """This page's address for a phone, as a data URI of an SVG."""
    address = urljoin(_site(request), request.path)
    return segno.make(address, micro=False).svg_data_uri(scale=4, border=2)
