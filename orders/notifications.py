"""Frames to buyers and viewers, and the way from any process to their websockets.

A frame is a hint: losing one costs nothing, because a socket starts with a snapshot and polling is
the truth. So `push` never raises, takes one round trip, and counts what it had to drop. It writes
what `channels_redis.pubsub` 4.3 would write, through a plain client: the layer itself opens
connections per event loop, which a Celery task would leak.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypedDict

from channels.layers import get_channel_layer
from channels_redis.pubsub import RedisPubSubChannelLayer, RedisPubSubLoopLayer
from django.utils import timezone
from prometheus_client import Counter

from inventory.redis_clients import sync_client
from orders.models import Order, Rejection, Status
from orders.presentation import order_json, rfc3339, status_name

log = logging.getLogger(__name__)

FAILURE_PAGE = "/"
SUCCESS_CODE = "order_created"
MESSAGES = {
    SUCCESS_CODE: "Your order is made. Pay before the deadline.",
    Rejection.SOLD_OUT: "Sold out: the last unit went to somebody else.",
    Rejection.DUPLICATE: "You have an order in this sale already.",
    Rejection.REBUY: "This sale allows no second try.",
    Rejection.CLOSED: "The sale is over.",
    Rejection.FAILED: "The order could not be created. You were not charged.",
}

frames_published = Counter("seckill_frames_published", "Frames handed to the channel layer")
frames_dropped = Counter("seckill_frames_dropped", "Frames lost because Redis was away")

SaleFrameType = Literal[
    "sale.sold_out", "sale.back_in_stock", "sale.paused", "sale.opened", "sale.closed"
]


class Frame(TypedDict):
    """`id` is the same whenever the same event is told again, so that a client can skip it."""

    type: str
    id: str
    ts: str
    data: Mapping[str, Any]


class PurchaseData(TypedDict):
    purchase_id: str
    sale_id: int
    code: str
    message: str
    order_id: str | None
    redirect: str


def buyer_group(user_id: int) -> str:
    return f"buyer.{user_id}"


def sale_group(sale_id: int) -> str:
    return f"sale.{sale_id}"


def order_page(order_id: uuid.UUID | str) -> str:
    return f"/orders/{order_id}/"


def frame(kind: str, *, event: str, at: datetime, data: Mapping[str, Any]) -> Frame:
    return {"type": kind, "id": f"{kind}:{event}", "ts": rfc3339(at), "data": data}


def purchase_succeeded(order: Order) -> Frame:
    data: PurchaseData = {
        "purchase_id": str(order.pk),
        "sale_id": order.sale_id,
        "code": SUCCESS_CODE,
        "message": MESSAGES[SUCCESS_CODE],
        "order_id": str(order.pk),
        "redirect": order_page(order.pk),
    }
    return frame("purchase.succeeded", event=str(order.pk), at=order.created_at, data=data)


def purchase_failed(
    purchase_id: uuid.UUID | str, *, sale_id: int, code: str, at: datetime | None = None
) -> Frame:
    data: PurchaseData = {
        "purchase_id": str(purchase_id),
        "sale_id": sale_id,
        "code": code,
        "message": MESSAGES.get(code, MESSAGES[Rejection.FAILED]),
        "order_id": None,
        "redirect": FAILURE_PAGE,
    }
    return frame("purchase.failed", event=str(purchase_id), at=at or timezone.now(), data=data)


def order_changed(order: Order) -> Frame:
    """`order.paid`, `.expired`, `.canceled` or `.refunded`, by the order's status."""
    at = (order.paid_at if order.status == Status.PAID else order.closed_at) or timezone.now()
    data = {
        "order_id": str(order.pk),
        "redirect": order_page(order.pk),
        "order": order_json(order),
    }
    return frame(f"order.{status_name(order)}", event=str(order.pk), at=at, data=data)


def sale_changed(sale_id: int, kind: SaleFrameType, *, event: object = None) -> Frame:
    """`event` names the change (e.g. the gate's epoch), so that telling it twice counts once."""
    name = uuid.uuid4().hex if event is None else event
    return frame(kind, event=f"{sale_id}:{name}", at=timezone.now(), data={"sale_id": sale_id})


def order_frame(order: Order) -> Frame:
    """What a buyer is told about an order, or a rejected purchase, in its present state."""
    if order.status == Status.UNPAID:
        return purchase_succeeded(order)
    if order.status == Status.REJECTED:
        return purchase_failed(
            order.pk, sale_id=order.sale_id, code=order.code, at=order.created_at
        )
    return order_changed(order)


def push_orders(orders: Sequence[Order]) -> None:
    """Tell each buyer about an order's present state. Never raises."""
    push([(buyer_group(o.user_id), order_frame(o)) for o in orders if o.user_id is not None])


def push_refund(order_id: uuid.UUID) -> None:
    """Tell a buyer that money is on its way back, or has arrived. Never raises.

    The order may be in any state: money also goes back that came late, or twice.
    """
    order = Order.objects.get(pk=order_id)
    data = {
        "order_id": str(order.pk),
        "redirect": order_page(order.pk),
        "order": order_json(order),
    }
    event = f"{order.pk}:{order.refund}"
    told = frame("order.refunded", event=event, at=timezone.now(), data=data)
    if order.user_id is not None:
        push([(buyer_group(order.user_id), told)])


def push(frames: Sequence[tuple[str, Frame]]) -> None:
    """Send frames to groups, as (group, frame). Never raises."""
    publish([(group, {"type": "frame", "frame": sent}) for group, sent in frames])


def revalidate(user_id: int) -> None:
    """Make every socket of a buyer look again whether its session still holds. Never raises."""
    publish([(buyer_group(user_id), {"type": "revalidate"})])


def publish(messages: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    if not messages:
        return
    try:
        _publish(messages)
    except Exception as error:  # noqa: BLE001 - whoever tells the news must not fail because of it.
        frames_dropped.inc(len(messages))
        log.warning("%d frames dropped: %s", len(messages), error)
    else:
        frames_published.inc(len(messages))


def _publish(messages: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    layer, naming = _layer()
    pipe = sync_client().pipeline(transaction=False)
    for group, message in messages:
        pipe.publish(naming._get_group_channel_name(group), layer.serialize(message))
    pipe.execute()


@cache
def _layer() -> tuple[RedisPubSubChannelLayer, RedisPubSubLoopLayer]:
    """The configured layer, and an instance that never connects and only knows the names."""
    layer = get_channel_layer()
    if not isinstance(layer, RedisPubSubChannelLayer):
        raise TypeError(f"frames need the pub/sub channel layer, not {type(layer).__name__}")
    return layer, RedisPubSubLoopLayer(*layer._args, **layer._kwargs, channel_layer=layer)
