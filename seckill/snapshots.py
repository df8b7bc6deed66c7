"""How a buyer's purchases stand when a socket opens, or asks again."""

import logging
from datetime import datetime, timedelta
from typing import NamedTuple, TypedDict

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from inventory.gate import GateError
from inventory.models import FlashSale
from inventory.redis_clients import RedisNotConfigured
from orders import notifications
from orders.models import Order, Status
from orders.notifications import Frame
from seckill import queueing

log = logging.getLogger(__name__)

PAID_SHOWN = timedelta(days=1)
REJECTED_SHOWN = timedelta(minutes=15)
MOST = 50


class State(TypedDict):
    """`status`: queued, succeeded or failed, as GET …/purchases/{purchase} tells it."""

    purchase_id: str
    sale_id: int
    status: str
    order_id: str | None


class Snapshot(NamedTuple):
    """All states, and a frame for each purchase that is decided; both oldest first."""

    states: list[State]
    frames: list[Frame]


def snapshot(user_id: int) -> Snapshot:
    """What a buyer may be waiting for; what is queued comes last."""
    now = timezone.now()
    # The gate first: what the database decides meanwhile is found there, or told by a frame.
    queued = _queued(user_id, now)
    orders = _decided(user_id, now)
    known = {str(order.pk) for order in orders}
    states = [_state(order) for order in orders]
    states += [state for state in queued if state["purchase_id"] not in known]
    return Snapshot(states, [_frame(order) for order in orders])


def _decided(user_id: int, now: datetime) -> list[Order]:
    unpaid = Q(status=Status.UNPAID)
    paid = Q(status=Status.PAID, created_at__gt=now - PAID_SHOWN)
    refused = Q(status=Status.REJECTED, created_at__gt=now - REJECTED_SHOWN)
    orders = Order.objects.filter(unpaid | paid | refused, user_id=user_id)
    return list(reversed(orders.order_by("-created_at")[:MOST]))


def _queued(user_id: int, now: datetime) -> list[State]:
    """Admitted, but without an order yet; nothing if the gate is away."""
    since = now - timedelta(seconds=settings.ADMIT_GIVE_UP_AFTER)
    running = FlashSale.objects.filter(starts_at__lte=now, ends_at__gt=since)
    sale_ids = list(running.order_by("starts_at", "pk").values_list("pk", flat=True))
    try:
        found = queueing.queued(user_id, sale_ids)
    except (GateError, RedisNotConfigured) as error:
        log.warning("buyer %s isn't told of queued purchases: %s", user_id, error)
        return []
    return [
        {"purchase_id": purchase_id, "sale_id": sale_id, "status": "queued", "order_id": None}
        for sale_id, purchase_id in found.items()
    ]


def _state(order: Order) -> State:
    failed = order.status == Status.REJECTED
    return {
        "purchase_id": str(order.pk),
        "sale_id": order.sale_id,
        "status": "failed" if failed else "succeeded",
        "order_id": None if failed else str(order.pk),
    }


def _frame(order: Order) -> Frame:
    """How its purchase ended, whatever happened to the order since."""
    if order.status == Status.REJECTED:
        return notifications.order_frame(order)
    return notifications.purchase_succeeded(order)
