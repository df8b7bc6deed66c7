"""Load-test accounts: made in bulk, found in bulk."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.utils import timezone

CHUNK = 500
# A full hash costs 160 ms, so 20,000 would cost an hour, and would guard a password that equals the
# username. Django accepts this one, and replaces it by a full one at the first login.
ITERATIONS = 1
_hasher = PBKDF2PasswordHasher()


def missing_buyers(prefix: str, count: int) -> list[str]:
    """Usernames among prefix1 … prefixN that have no account."""
    found = {name for name, _ in _find(prefix, count)}
    return [name for name in _names(prefix, count) if name not in found]


def create_buyers(prefix: str, count: int) -> int:
    """Make the accounts that are missing; returns how many. Two at a time do no harm."""
    names, now = missing_buyers(prefix, count), timezone.now()
    for chunk in _chunks(names):
        users = [_new_user(name, now) for name in chunk]
        User.objects.bulk_create(users, ignore_conflicts=True)
    return len(names)


def buyer_ids(prefix: str, count: int) -> list[int | None]:
    """The user ids of prefix1 … prefixN, in that order; None where there is no account."""
    found = dict(_find(prefix, count))
    return [found.get(name) for name in _names(prefix, count)]


def _new_user(name: str, now: datetime) -> User:
    password = _hasher.encode(name, _hasher.salt(), iterations=ITERATIONS)
    return User(username=name, password=password, date_joined=now)


def _find(prefix: str, count: int) -> Iterator[tuple[str, int]]:
    for chunk in _chunks(_names(prefix, count)):
        yield from User.objects.filter(username__in=chunk).values_list("username", "pk")


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(1, count + 1)]


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + CHUNK] for start in range(0, len(names), CHUNK))
