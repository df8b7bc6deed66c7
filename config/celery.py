"""The Celery application: `celery -A config worker`, `celery -A config beat`.

Four queues. `orders` makes buyers wait, so nothing else may stand in it; `timers` holds messages
that wait for their eta; `payments` talks to gateways, which may hang; `sweeps` repairs losses. Each
worker has one more to itself, by which it finds out whether any task reaches it (pulse.py).
"""

import os

from celery import Celery
from kombu import Queue

from config import parting, pulse

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

QUEUES = ("orders", "timers", "payments", "sweeps")

app = Celery("seckill")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [Queue(name, durable=True) for name in QUEUES]
app.conf.task_routes = {
    "orders.create_orders": {"queue": "orders"},
    "orders.expire_orders": {"queue": "timers"},
    "orders.ask_gateways": {"queue": "payments"},
    "orders.send_refunds": {"queue": "payments"},
    "orders.send_sandbox_notices": {"queue": "payments"},
    "*": {"queue": "sweeps"},
}
app.autodiscover_tasks()
pulse.install(app)
parting.install()
