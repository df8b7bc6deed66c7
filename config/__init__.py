"""What is deployed, and the wiring at start."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
