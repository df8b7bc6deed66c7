"""Who is signed in, from a Cookie header alone; for code outside of Django's request chain."""

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, parse_cookie

from seckill.session_store import is_key


def session_user(cookie: bytes) -> int | None:
    """The id of the signed-in user whose account is active; None for anybody else. Blocks.

    From the database, which has every session, so a cache that is away or hangs doesn't matter.
    """
    key = parse_cookie(cookie.decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    if not is_key(key):
        return None
    request = HttpRequest()
    request.session = SessionStore(key)
    user = get_user(request)
    return user.pk if user.is_authenticated and user.is_active else None
