"""Which language a bare request asks for, by the rules of Django's LocaleMiddleware."""

from functools import lru_cache

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.http import HttpRequest, parse_cookie
from django.utils import translation

LONGEST = 500  # bytes of a header that count; Django looks at no more


def choose(accept: bytes, cookie: bytes) -> str:
    """By the language cookie, else by Accept-Language; both headers as they came."""
    if not cookie:
        return _choose(accept[:LONGEST], "")
    name: str = settings.LANGUAGE_COOKIE_NAME
    wanted = ""
    if name.encode() in cookie:
        wanted = parse_cookie(cookie.decode("latin-1")).get(name, "")
    return _choose(accept[:LONGEST], wanted[:20])


@lru_cache(maxsize=1024)
def _choose(accept: bytes, wanted: str) -> str:
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accept.decode("latin-1")
    request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = wanted
    return translation.get_language_from_request(request)


@receiver(setting_changed)
def _forget(*, setting: str, **_: object) -> None:
    if setting.startswith("LANGUAGE"):
        _choose.cache_clear()
