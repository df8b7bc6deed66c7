"""The one personal thing on a public page: the visitor's CSRF token, put in on the way out.

A view writes CSRF_MARKER where the token belongs and never asks Django for a token, so its page is
the same for everybody and may be shared. Tokens and cookies are exactly those that Django's
CsrfViewMiddleware makes and accepts (32 characters of secret; a token is a random mask and the
secret shifted by it), but made in 2 µs where `get_token` takes 54: every page view needs one.
"""

import hashlib
import os
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.http import HttpResponse
from django.http.cookie import parse_cookie
from django.middleware.csrf import CSRF_ALLOWED_CHARS, CSRF_SECRET_LENGTH

CSRF_MARKER = "@@csrf-token-goes-here@@"

_BASE = len(CSRF_ALLOWED_CHARS)
_CHARS = CSRF_ALLOWED_CHARS.encode()
# As tables for bytes.translate: a character's place in the alphabet, and back, also for the sum of
# two places. Random bytes become characters after those that would favour some are left out.
_PLACE = bytes(max(_CHARS.find(byte), 0) for byte in range(256))
_CHAR = bytes(_CHARS[byte % _BASE] for byte in range(256))
_UNEVEN = bytes(range(256 - 256 % _BASE, 256))
_SECRET = re.compile(f"[{re.escape(CSRF_ALLOWED_CHARS)}]{{{CSRF_SECRET_LENGTH}}}")
_PLACEHOLDER = "0" * CSRF_SECRET_LENGTH


class Visitor(NamedTuple):
    """What one visitor gets. `tag` stands for the secret in an ETag; `set_cookie`: if it is new."""

    token: bytes
    tag: bytes
    set_cookie: bytes | None


def visitor(headers: Mapping[bytes, bytes]) -> Visitor:
    """The token for the secret in the visitor's cookie, or for a new one if he has none."""
    secret = cookie(headers, settings.CSRF_COOKIE_NAME)
    set_cookie = None
    # Django also takes 64 characters here, from before version 4; such a cookie is just renewed.
    if secret is None or not _SECRET.fullmatch(secret):
        secret = _random_text().decode()
        set_cookie = _set_cookie(int(time.time())).replace(_PLACEHOLDER.encode(), secret.encode())
    raw = secret.encode()
    tag = hashlib.blake2b(raw, digest_size=8, person=b"csrf etag").hexdigest().encode()
    return Visitor(_masked(raw), tag, set_cookie)


def cookie(headers: Mapping[bytes, bytes], name: str) -> str | None:
    """The value of one cookie, read as Django reads it."""
    text = headers.get(b"cookie", b"")
    if name.encode() not in text:
        return None
    return parse_cookie(text.decode("latin-1")).get(name)


def _random_text() -> bytes:
    text = b""
    while len(text) < CSRF_SECRET_LENGTH:
        text += os.urandom(2 * CSRF_SECRET_LENGTH).translate(_CHAR, _UNEVEN)
    return text[:CSRF_SECRET_LENGTH]


def _masked(secret: bytes) -> bytes:
    # A new mask each time, so that a compressed page tells nothing about the secret (BREACH).
    mask = _random_text()
    # Each place is below 62, so adding them all as one number carries nothing from one to the next.
    places = int.from_bytes(secret.translate(_PLACE), "big")
    places += int.from_bytes(mask.translate(_PLACE), "big")
    return mask + places.to_bytes(CSRF_SECRET_LENGTH, "big").translate(_CHAR)


@lru_cache(maxsize=2)
def _set_cookie(_second: int) -> bytes:
    """Django's cookie with a placeholder; its expiry date changes with the second."""
    response = HttpResponse()
    response.set_cookie(
        settings.CSRF_COOKIE_NAME,
        _PLACEHOLDER,
        max_age=settings.CSRF_COOKIE_AGE,
        domain=settings.CSRF_COOKIE_DOMAIN,
        path=settings.CSRF_COOKIE_PATH,
        secure=settings.CSRF_COOKIE_SECURE,
        httponly=settings.CSRF_COOKIE_HTTPONLY,
        samesite=cast("Any", settings.CSRF_COOKIE_SAMESITE),
    )
    return response.cookies[settings.CSRF_COOKIE_NAME].OutputString().encode("latin-1")


@receiver(setting_changed)
def _forget_cookie(*, setting: str, **_: object) -> None:
    if setting.startswith("CSRF_COOKIE"):
        _set_cookie.cache_clear()
