"""News about a sale goes to this process's own marks at once, and to all other processes."""

import time
from typing import Any

from django.dispatch import receiver

from inventory import channel
from inventory.gate import Level
from inventory.news import News
from inventory.signals import sale_changed, stock_crossed
from inventory.soldout import marks


@receiver(stock_crossed)
def tell_level(sale_id: int, level: Level, **_kwargs: Any) -> None:
    if not level.sold_out:
        marks.observe(sale_id, epoch=level.epoch, sold_out=False, seen_at=time.monotonic())
    channel.publish(News(sale_id, level.epoch, level.sold_out))


@receiver(sale_changed)
def tell_change(sale_id: int, **_kwargs: Any) -> None:
    marks.drop(sale_id)
    channel.publish(News(sale_id, 0, False))
