"""The worker that test_parting starts: ours, with or without the guard that is tested."""

import os

from celery.signals import worker_process_init

from config import celery_app, parting

app = celery_app

if os.environ.get("WORKER_TEST_GUARD") == "off":
    worker_process_init.disconnect(parting.part_soon)
