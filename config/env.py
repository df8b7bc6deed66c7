"""Typed, strict readers for environment variables. All wrong values are told at once, a line each.

A reader never raises: it remembers what is wrong and returns the default, so that one start
shows all mistakes. `finish()` ends the process with exit code 2 if there were any.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import environ

EXIT_CODE = 2

T = TypeVar("T")
N = TypeVar("N", int, float)

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_RATE = re.compile(r"(\d+)/(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

problems: list[str] = []


def _read(name: str, default: T, parse: Callable[[str], T]) -> T:
    raw = os.environ.get(name, "").strip()
    if not raw:
        return default
    try:
        return parse(raw)
    except ValueError as error:
        problems.append(f"{name}: {error}")
        return default


def is_set(name: str) -> bool:
    return bool(os.environ.get(name, "").strip())


def text(name: str, default: str = "") -> str:
    return _read(name, default, str)


def required(name: str, why: str) -> str:
    value = text(name)
    if not value:
        problems.append(f"{name}: not set ({why})")
    return value


def folder(name: str) -> str:
    """A directory that exists and may be written to; "" if the variable isn't set."""

    def parse(raw: str) -> str:
        if not os.path.isdir(raw):
            raise ValueError(f"{raw!r} is no directory")
        if not os.access(raw, os.W_OK | os.X_OK):
            raise ValueError(f"{raw!r} can't be written to")
        return raw

    return _read(name, "", parse)


def flag(name: str, default: bool) -> bool:
    """1/true/yes/on or 0/false/no/off; anything else is an error, never "on"."""

    def parse(raw: str) -> bool:
        lowered = raw.lower()
        if lowered not in _TRUE | _FALSE:
            raise ValueError(f"{raw!r} is neither true nor false")
        return lowered in _TRUE

    return _read(name, default, parse)


def integer(name: str, default: int, *, low: int = 0, high: int = 2**31 - 1) -> int:
    def parse(raw: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,12}", raw):
            raise ValueError(f"{raw!r} is not a whole number")
        return _between(int(raw), low, high)

    return _read(name, default, parse)


def seconds(name: str, default: float, *, low: float = 0.05, high: float = 7 * 86400) -> float:
    """A time in seconds; fractions are allowed."""

    def parse(raw: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", raw):
            raise ValueError(f"{raw!r} is not a number of seconds")
        return _between(float(raw), low, high)

    return _read(name, default, parse)


def _between(value: N, low: float, high: float) -> N:
    if not low <= value <= high:
        raise ValueError(f"{value:g} is outside {low:g}–{high:g}")
    return value


def words(name: str, default: Iterable[str] = ()) -> list[str]:
    return _read(
        name,
        list(default),
        lambda raw: [w.strip() for w in raw.split(",") if w.strip()],
    )


def choice(name: str, default: str, allowed: Iterable[str]) -> str:
    allowed = tuple(allowed)

    def parse(raw: str) -> str:
        if raw not in allowed:
            raise ValueError(f"{raw!r} is not one of {', '.join(allowed)}")
        return raw

    return _read(name, default, parse)


def rate(name: str, default: str) -> tuple[int, float]:
    """`10/10s` → (10, 10.0): so many, per so many seconds."""

    def parse(raw: str) -> tuple[int, float]:
        match = _RATE.fullmatch(raw)
        if not match or int(match[1]) < 1 or float(match[2]) <= 0:
            raise ValueError(f"{raw!r} is not a rate such as 10/10s")
        return int(match[1]), float(match[2]) * _UNITS[match[3]]

    return _read(name, parse(default), parse)


def _split(raw: str) -> SplitResult:
    """Raises ValueError in words of ours: the library repeats a part, maybe the password."""
    try:
        parts = urlsplit(raw)
        _ = parts.port
    except ValueError:
        raise ValueError("is no address, or its port is no number") from None
    return parts


def url(name: str, default: str, schemes: Iterable[str]) -> str:
    schemes = tuple(schemes)

    def parse(raw: str) -> str:
        parts = _split(raw)
        if parts.scheme not in schemes:
            raise ValueError(f"must start with {' or '.join(s + '://' for s in schemes)}")
        if not (parts.hostname or parts.path.strip("/")):
            raise ValueError("names no host")
        return raw

    return _read(name, default, parse)


def database(name: str, default: str) -> dict[str, Any]:
    raw = url(name, default, ("postgres", "postgresql", "sqlite", "sqlite3"))
    try:
        return dict(environ.Env.db_url_config(raw))
    except ValueError:
        problems.append(f"{name}: is no address of a database")
        return {}


def finish() -> None:
    """End the process if anything was wrong; the values themselves are never printed."""
    if problems:
        for problem in problems:
            sys.stderr.write(f"configuration error: {problem}\n")
        sys.stderr.flush()
        raise SystemExit(EXIT_CODE)
