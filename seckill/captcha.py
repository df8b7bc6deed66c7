"""A proof of work (ALTCHA) that makes many tries costly, and can be used once."""

import base64
import binascii
import hashlib
import json
import time
from typing import Any

import altcha
from django.conf import settings
from django.utils.crypto import salted_hmac

from inventory import keys
from inventory.redis_clients import sync_client

ALGORITHM = "SHA-256"
COST = 5  # hashes per try
PREFIX = "000"  # hexadecimal digits that must be zero: 4096 tries on average
LIFETIME = 600  # seconds
LONGEST = 4096  # characters of an answer


def challenge() -> dict[str, Any]:
    """A new challenge, as ALTCHA clients take it."""
    made = altcha.create_challenge(
        ALGORITHM,
        COST,
        key_prefix=PREFIX,
        expires_at=int(time.time()) + LIFETIME,
        hmac_secret=_secret(settings.SECRET_KEY),
    )
    result: dict[str, Any] = made.to_dict()
    return result


def verify(payload: str) -> bool:
    """True once for each solved challenge. A wrong answer doesn't use the challenge up."""
    if len(payload) > LONGEST or not _solved(payload):
        return False
    # The signature names the challenge; the answer may be encoded in several ways.
    name = json.loads(base64.b64decode(payload))["challenge"]["signature"]
    spent = keys.captcha(hashlib.sha256(name.encode()).hexdigest())
    return bool(sync_client().set(spent, 1, nx=True, ex=LIFETIME + 60))


def _solved(payload: str) -> bool:
    try:
        base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        return False
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return any(altcha.verify_solution(payload, _secret(key)).verified for key in secrets)


def _secret(key: str) -> bytes:
    return salted_hmac("seckill.captcha", b"altcha", secret=key, algorithm="sha256").digest()
