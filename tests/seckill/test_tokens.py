"""Purchase tokens: what goes in comes out, and nothing else is let in."""

import base64
import hashlib
import hmac
import math
import string
import time
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from seckill import tokens

ALPHABET = string.ascii_letters + string.digits + "-_"
PURCHASE = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
NOW = 1_800_000_000

ids = st.integers(0, 2**63 - 1)
times = st.floats(0, tokens.LATEST - 1)


def issue(**changes) -> str:
    fields: dict[str, Any] = {
        "sale_id": 7,
        "user_id": 42,
        "purchase_id": PURCHASE,
        "expires_at": NOW + 60,
    }
    return tokens.issue(**fields | changes)


@given(ids, ids, st.uuids(), times, times)
def test_token_comes_back_as_it_was_issued(sale_id, user_id, purchase_id, start, end):
    text = tokens.issue(
        sale_id=sale_id,
        user_id=user_id,
        purchase_id=purchase_id,
        valid_from=start,
        expires_at=end,
    )

    expected = (sale_id, user_id, purchase_id.bytes, math.floor(start), math.ceil(end))
    assert tokens.read(text) == expected
    assert tokens.read(text.encode()) == expected
    assert len(text) == tokens.LENGTH
    assert set(text) <= set(ALPHABET)


def test_token_is_signed_by_hmac_sha256_of_the_derived_key():
    with override_settings(SECRET_KEY="some secret"):
        raw = base64.urlsafe_b64decode(issue())

    key = hmac.digest(b"some secret", b"seckill.tokens.v1", "sha256")

    assert raw[-16:] == hmac.new(key, raw[:-16], hashlib.sha256).digest()[:16]


def test_token_of_a_sale_without_end_is_clamped_to_the_last_second():
    assert tokens.read(issue(expires_at=253_402_300_799)).expires_at == tokens.LATEST
    assert tokens.read(issue(valid_from=-5)).valid_from == 0


@pytest.mark.parametrize(
    ("now", "accepted"), [(NOW + 59.999, True), (NOW + 60, False), (NOW + 1e9, False)]
)
def test_verify_refuses_from_the_second_of_expiry_on(now, accepted):
    token = tokens.verify(issue(), now=now)

    assert (token is not None) is accepted
    assert tokens.read(issue()).expired(now) is not accepted


def test_verify_uses_the_present_by_default(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: NOW + 59)
    assert tokens.verify(issue()) == (7, 42, PURCHASE.bytes, 0, NOW + 60)

    monkeypatch.setattr(time, "time", lambda: NOW + 60)
    assert tokens.verify(issue()) is None


@given(st.integers(0, tokens.LENGTH - 1), st.sampled_from(ALPHABET + "+/=. \n\0é"))
def test_verify_refuses_a_token_with_any_other_character(position, character):
    text = issue()
    changed = text[:position] + character + text[position + 1 :]

    assert tokens.read(changed) == (tokens.read(text) if changed == text else None)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200)))
def test_read_refuses_garbage_without_an_error(garbage):
    assert tokens.read(garbage) is None


@given(
    st.one_of(
        st.binary(min_size=76, max_size=76),
        st.text(min_size=76, max_size=76),
        st.text(alphabet=ALPHABET, min_size=76, max_size=76),
    )
)
def test_read_refuses_garbage_of_the_right_length(garbage):
    assert tokens.read(garbage) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text + "=",
        lambda text: text + "====",
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text[:-1],
        lambda text: text[:-1] + "=",
        lambda text: text[:-4] + "====",
        lambda text: text.replace("-", "+").replace("_", "/"),
        lambda text: "%2D".join(text.split("-")),
        lambda text: text.lower(),
        lambda text: "".join(chr(ord(c) + 0xFEE0) for c in text),
    ],
)
def test_read_knows_one_text_per_token(spoil):
    # This purchase id gives a text with both "-" and "_", so that each way to spoil it changes it.
    text = issue(purchase_id=UUID("fbefbeff-ffff-ffff-bfff-fbefbeffffff"))
    assert "-" in text
    assert "_" in text
    assert tokens.read(text) is not None

    assert tokens.read(spoil(text)) is None


def test_read_refuses_another_version_even_if_signed():
    raw = base64.urlsafe_b64decode(issue())
    payload = b"\x02" + raw[1:-16]
    forged = base64.urlsafe_b64encode(payload + tokens._keys()[0].sign(payload))

    assert len(forged) == tokens.LENGTH
    assert tokens.read(forged) is None


def test_tokens_follow_the_rotation_of_the_secret():
    with override_settings(SECRET_KEY="old", SECRET_KEY_FALLBACKS=[]):
        old = issue()
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["older", "old"]):
        new = issue()
        assert tokens.read(old) == tokens.read(new) == (7, 42, PURCHASE.bytes, 0, NOW + 60)
        assert old != new
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[]):
        assert tokens.read(old) is None
        assert tokens.read(new) is not None


def test_token_of_another_secret_is_refused():
    text = issue()

    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[]):
        assert tokens.read(text) is None
    assert tokens.read(text) is not None
