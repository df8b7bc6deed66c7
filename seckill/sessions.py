"""Who is signed in, from a Cookie header alone; for code outside of Django's request chain."""

from django.contrib.auth import get_user
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse, parse_cookie


def session_user(cookie: bytes) -> int | None:
    """The id of the signed-in user whose account is active; None for anybody else. Blocks."""
    request = HttpRequest()
    request.COOKIES = parse_cookie(cookie.decode("latin-1"))
    SessionMiddleware(_nothing).process_request(request)
    user = get_user(request)
    return user.pk if user.is_authenticated and user.is_active else None


def _nothing(_request: HttpRequest) -> HttpResponse:
    return HttpResponse()
