"""Delivery of the sandbox gateway's webhooks over HTTP, again and again until one is answered."""

import http.client
import logging
from datetime import timedelta
from urllib.parse import urlsplit

from django.db.models import F
from django.utils import timezone

from orders.payments import sandbox
from orders.payments.models import SandboxNotice

log = logging.getLogger(__name__)

TIMEOUT = 5  # seconds for one delivery
# Seconds between attempts, as Alipay has them; after the last one it gives up, and must be asked.
RETRIES = (120, 600, 600, 3600, 7200, 21600, 54000)
# A first quick one: here everything runs on one machine, which may just be starting.
WAITS = (2, *RETRIES)


def send_due(*, limit: int = 100) -> int:
    """Deliver what is due; returns how many were answered with 200. Opens no transaction."""
    now = timezone.now()
    due = SandboxNotice.objects.filter(delivered_at=None, due_at__lte=now).order_by("due_at")
    answered = 0
    for notice in due.select_related("charge__payment")[:limit]:
        if _claim(notice) and _deliver(notice):
            SandboxNotice.objects.filter(pk=notice.pk).update(delivered_at=timezone.now())
            answered += 1
    return answered


def _claim(notice: SandboxNotice) -> bool:
    """Only one process sends it now; if it dies, the next attempt is due later anyway."""
    if notice.attempts >= len(WAITS):
        later = timezone.now() + timedelta(days=3650)
        log.error("notice %s was never answered", notice.pk)
    else:
        later = timezone.now() + timedelta(seconds=WAITS[notice.attempts])
    same = SandboxNotice.objects.filter(pk=notice.pk, attempts=notice.attempts)
    return bool(same.update(attempts=F("attempts") + 1, due_at=later))


def _deliver(notice: SandboxNotice) -> bool:
    body, headers = sandbox.message(notice.charge.payment, notice.kind, event_id=notice.event_id)
    try:
        status = _post(notice.url, body, headers | {"Content-Type": "application/json"})
    except (OSError, http.client.HTTPException) as error:
        log.warning("notice to %s not delivered: %s", notice.url, error)
        return False
    if status != http.client.OK:
        log.warning("notice to %s was answered with %d", notice.url, status)
    return status == http.client.OK


def _post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """Raises OSError, HTTPException."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT)
    try:
        connection.request("POST", parts.path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()
