"""Signed purchase tokens: who may try to buy in which sale, under which purchase id, until when.

A token is 76 characters of URL-safe base64 over 57 bytes, big-endian: version (1), sale id (8),
user id (8), purchase id (16), valid_from (4) and expires_at (4) in unix seconds, and the first 16
bytes of an HMAC-SHA256 over the rest. 57 is a multiple of 3, so there is neither padding nor a
spare bit, and each token has exactly one text.
"""

import binascii
import hashlib
import hmac
import math
import struct
import time
from functools import cache, lru_cache
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver

VERSION = 1
SIGNATURE_SIZE = 16
LENGTH = 76
# Tokens whose signature needn't be checked again: in a rush each comes several times.
KNOWN = 10_000
# The last second that four bytes can name, in the year 2106.
LATEST = 2**32 - 1

_SALT = b"seckill.tokens.v1"
_PAYLOAD = struct.Struct(">BQQ16sII")
# From URL-safe base64 to the plain kind. What only the plain kind has becomes invalid.
_PLAIN = bytes.maketrans(b"-_+/=", b"+/!!!")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Token(NamedTuple):
    """What a token says. Times in unix seconds."""

    sale_id: int
    user_id: int
    purchase: bytes  # the 16 bytes of the purchase id
    valid_from: int
    expires_at: int

    @property
    def purchase_id(self) -> UUID:
        return UUID(bytes=self.purchase)

    @property
    def purchase_text(self) -> str:
        """`str(purchase_id)`, in a quarter of the time."""
        name = self.purchase.hex()
        return f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"

    def expired(self, now: float) -> bool:
        return now >= self.expires_at


class _Key:
    """HMAC-SHA256 with its key already hashed in: a third of the time of hmac.digest."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: str | bytes) -> None:
        raw = secret.encode() if isinstance(secret, str) else secret
        block = hmac.digest(raw, _SALT, "sha256").ljust(64, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def sign(self, payload: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(payload)
        outer.update(inner.digest())
        return outer.digest()[:SIGNATURE_SIZE]


@cache
def _keys() -> tuple[_Key, ...]:
    """The key that signs, then those that are still accepted."""
    return tuple(_Key(secret) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


@receiver(setting_changed)
def _forget_keys(*, setting: str, **_: object) -> None:
    if setting.startswith("SECRET_KEY"):
        _keys.cache_clear()
        read.cache_clear()


def issue(
    *, sale_id: int, user_id: int, purchase_id: UUID, expires_at: float, valid_from: float = 0
) -> str:
    """Sign a token. Fractions of a second are given to the buyer: it is valid a little longer.

    Times after 2106 count as 2106. Raises struct.error for an id that isn't in 0 ≤ id < 2**64.
    """
    payload = _PAYLOAD.pack(
        VERSION,
        sale_id,
        user_id,
        purchase_id.bytes,
        _seconds(math.floor(valid_from)),
        _seconds(math.ceil(expires_at)),
    )
    raw = payload + _keys()[0].sign(payload)
    return binascii.b2a_base64(raw, newline=False).translate(_URL_SAFE).decode("ascii")


def _seconds(time_: int) -> int:
    return min(max(time_, 0), LATEST)


@lru_cache(maxsize=KNOWN)
def read(text: str | bytes) -> Token | None:
    """What a token says if we signed it, expired or not; None for anything else, never an error."""
    if len(text) != LENGTH:
        return None
    try:
        plain = (text.encode("ascii") if isinstance(text, str) else text).translate(_PLAIN)
        raw = binascii.a2b_base64(plain, strict_mode=True)
    except (UnicodeEncodeError, binascii.Error):
        return None
    payload, signature = raw[:-SIGNATURE_SIZE], raw[-SIGNATURE_SIZE:]
    for key in _keys():
        if hmac.compare_digest(key.sign(payload), signature):
            return _unpack(payload)
    return None


def _unpack(payload: bytes) -> Token | None:
    version, *fields = _PAYLOAD.unpack(payload)
    return Token(*fields) if version == VERSION else None


def verify(text: str | bytes, *, now: float | None = None) -> Token | None:
    """What a token says if it is ours and has not expired at `now` (default: this moment).

    It says nothing about the start of the sale: the gate judges the window, by one clock.
    """
    token = read(text)
    if token is None or token.expired(time.time() if now is None else now):
        return None
    return token
