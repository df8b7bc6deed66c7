"""What became of a buyer's purchases lately, and which of it he hasn't looked at yet."""

import logging
import time
from collections.abc import Sequence
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from inventory import keys
from inventory.gate import GateError
from inventory.redis_clients import RedisNotConfigured, sync_client
from orders.models import Order, Status

log = logging.getLogger(__name__)

RECENT = timedelta(days=1)
MOST = 50
REMEMBERED = 2 * 86_400  # seconds, longer than anything is recent


def recent(user_id: int) -> list[Order]:
    """Orders and refused purchases that were made or ended within a day, the newest first."""
    since = timezone.now() - RECENT
    lately = Q(created_at__gt=since) | Q(closed_at__gt=since)
    return list(Order.objects.filter(lately, user_id=user_id).order_by("-created_at")[:MOST])


def refused(user_id: int) -> list[Order]:
    """The purchases of a day that became no order."""
    since = timezone.now() - RECENT
    own = Order.objects.filter(user_id=user_id, created_at__gt=since, status=Status.REJECTED)
    return list(own.order_by("-created_at")[:MOST])


def unseen(user_id: int) -> int:
    """How many recent results the buyer hasn't opened. 0 if nobody remembers."""
    marks = [_mark(order) for order in recent(user_id)]
    if not marks:
        return 0
    try:
        return sum(score is None for score in sync_client().zmscore(keys.seen(user_id), marks))
    except (GateError, RedisNotConfigured) as error:
        log.warning("can't tell unseen results: %s", error)
        return 0


def note_seen(user_id: int, orders: Sequence[Order]) -> None:
    """Their owner looks at them now, in the state that they are in. Never raises."""
    if not orders:
        return
    now = time.time()
    try:
        pipe = sync_client().pipeline(transaction=False)
        pipe.zadd(keys.seen(user_id), {_mark(order): now for order in orders})
        pipe.zremrangebyscore(keys.seen(user_id), 0, now - REMEMBERED)
        pipe.expire(keys.seen(user_id), REMEMBERED)
        pipe.execute()
    except (GateError, RedisNotConfigured) as error:
        log.warning("results seen are not remembered: %s", error)


def _mark(order: Order) -> str:
    return f"{order.pk}:{order.status}"
