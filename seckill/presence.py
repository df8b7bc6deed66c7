"""How many sockets a buyer has open, over all processes, and who must look at a session again."""

import time
from collections.abc import Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_out
from django.db.models.signals import post_save

from inventory import keys
from inventory.redis_clients import async_client
from orders import notifications

MOST = 5  # sockets of one buyer
FORGOTTEN_AFTER = 86_400  # seconds after the last one was opened


async def enter(user_id: int, channel: str) -> Sequence[str]:
    """Note a new socket; returns the channels of those that are too many, the oldest first."""
    key = keys.sockets(user_id)
    pipe = async_client().pipeline(transaction=True)
    pipe.zadd(key, {channel: time.time()})
    pipe.zrange(key, 0, -MOST - 1)
    pipe.zremrangebyrank(key, 0, -MOST - 1)
    pipe.expire(key, FORGOTTEN_AFTER)
    surplus = (await pipe.execute())[1]
    return [name.decode() if isinstance(name, bytes) else name for name in surplus]


async def leave(user_id: int, channel: str) -> None:
    await async_client().zrem(keys.sockets(user_id), channel)


def connect_signals() -> None:
    user_logged_out.connect(_logged_out, dispatch_uid="seckill.presence.logged_out")
    post_save.connect(
        _saved, sender=get_user_model(), dispatch_uid="seckill.presence.account_saved"
    )


def _logged_out(user: Any, **kwargs: Any) -> None:
    if user is not None:
        notifications.revalidate(user.pk)


def _saved(instance: Any, created: bool, **kwargs: Any) -> None:
    """A closed account loses its sockets at once; all else waits for the periodic look."""
    if not created and not instance.is_active:
        notifications.revalidate(instance.pk)
