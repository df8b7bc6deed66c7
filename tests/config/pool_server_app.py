"""The application that test_pool_servers starts under real servers; no test is in here."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

MARK = Path(os.environ.get("POOL_TEST_MARK") or tempfile.gettempdir())

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1"],
        SECRET_KEY="only for a test",
        ROOT_URLCONF=__name__,
        USE_TZ=True,
    )
    django.setup()

from config.pool import PooledDjango  # noqa: E402 - Django must be configured first


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse("plain")


def echo(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"length": len(request.body)})


def endless(request: HttpRequest) -> StreamingHttpResponse:
    def chunks() -> Iterator[bytes]:
        try:
            while True:
                yield bytes(65536)
        finally:
            MARK.write_text("closed")

    return StreamingHttpResponse(chunks())


def broken(request: HttpRequest) -> StreamingHttpResponse:
    def chunks() -> Iterator[bytes]:
        yield b"first"
        raise ZeroDivisionError("on purpose")

    return StreamingHttpResponse(chunks())


urlpatterns = [
    path("plain", plain),
    path("echo", echo),
    path("endless", endless),
    path("broken", broken),
]
# One thread: whatever holds it without need stops the whole server, and the tests see it.
application = PooledDjango(threads=1)
