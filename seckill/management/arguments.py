"""Strict readers for what is typed after a command; a wrong value ends it with exit code 2."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable

MOST_CENTS = 10**14
LONGEST = 10 * 365 * 86400.0  # seconds
_MONEY = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,2}))?")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_WHOLE = re.compile(r"[0-9]{1,10}")


def money(text: str) -> int:
    """`9.90` → 990 cents. At most two decimals, because nothing is ever rounded."""
    match = _MONEY.fullmatch(text)
    if not match:
        raise ArgumentTypeError(f"{text!r} is not an amount such as 9.90 (two decimals at most)")
    cents = int(match[1]) * 100 + int((match[2] or "").ljust(2, "0"))
    if not 0 < cents <= MOST_CENTS:
        raise ArgumentTypeError(f"{text!r} is not between 0.01 and {MOST_CENTS // 100}")
    return cents


def whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse


def seconds(low: float) -> Callable[[str], float]:
    """A time in seconds, fractions allowed."""

    def parse(text: str) -> float:
        if not _SECONDS.fullmatch(text) or not low <= float(text) <= LONGEST:
            raise ArgumentTypeError(f"{text!r} is not a number of seconds ({low:g} or more)")
        return float(text)

    return parse


def name(text: str) -> str:
    stripped = " ".join(text.split())
    if not stripped or len(stripped) > 200 or not stripped.isprintable():
        raise ArgumentTypeError("a name has 1 to 200 characters")
    return stripped


def prefix(text: str) -> str:
    if not re.fullmatch(r"[\w.@+-]{1,100}", text):
        raise ArgumentTypeError(f"{text!r} has characters that no username may have")
    return text


sale_id = whole(1, 2**31 - 1)
units = whole(1, 2**31 - 1)
buyers = whole(1, 1_000_000)
per_buyer = whole(1, 32_767)
