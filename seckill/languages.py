"""Which language an ASGI request asks for, by Django's rules: cookie, then Accept-Language."""

from collections.abc import Iterable
from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest, parse_cookie
from django.utils import translation

LONGEST = 300  # bytes of a header that count; more is no browser's


def language_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    accept = cookie = b""
    for name, value in headers:
        if name == b"accept-language":
            accept = value
        elif name == b"cookie":
            cookie = value
    return choose(accept, cookie)


def choose(accept: bytes, cookie: bytes) -> str:
    wanted = b""
    if settings.LANGUAGE_COOKIE_NAME.encode() in cookie:
        wanted = parse_cookie(cookie.decode("latin-1")).get(
            settings.LANGUAGE_COOKIE_NAME, ""
        ).encode("latin-1", "ignore")
    return _choose(accept[:LONGEST], wanted[:20])


@lru_cache(maxsize=2048)
def _choose(accept: bytes, cookie: bytes) -> str:
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accept.decode("latin-1")
    if cookie:
        request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = cookie.decode("latin-1")
    return translation.get_language_from_request(request)
