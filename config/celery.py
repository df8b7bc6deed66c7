"""The Celery application: `celery -A config worker`, `celery -A config beat`.

Three queues. `orders` makes buyers wait, so nothing else may stand in it; `timers` holds messages
that wait for their eta; `sweeps` repairs what got lost.
"""

import os

from celery import Celery
from kombu import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("seckill")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [Queue(name, durable=True) for name in ("orders", "timers", "sweeps")]
app.conf.task_routes = {
    "orders.create_orders": {"queue": "orders"},
    "orders.expire_orders": {"queue": "timers"},
    "*": {"queue": "sweeps"},
}
app.autodiscover_tasks()
