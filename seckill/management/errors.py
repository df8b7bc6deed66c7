"""Errors that operators meet, told as: what happened, why, and what to do next."""

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import InterfaceError, OperationalError, ProgrammingError
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

DATABASE_ERRORS = (InterfaceError, OperationalError, ProgrammingError)
EXPECTED = (*DATABASE_ERRORS, RedisError, BrokerError, ImproperlyConfigured)

_UNMIGRATED = ("no such table", "does not exist", "no such column", "no column named")


def explain(error: BaseException) -> str:
    if isinstance(error, DATABASE_ERRORS):
        return _database(error)
    if isinstance(error, BrokerError):
        return _lines("The broker can't be reached", error, "Check CELERY_BROKER_URL")
    if isinstance(error, ImproperlyConfigured):
        return str(error)
    hint = "Check REDIS_URL" if settings.REDIS_URL else "Start `make run`, or set REDIS_URL"
    return _lines("Redis can't be used", error, hint)


def _database(error: BaseException) -> str:
    if _is_unmigrated(error):
        return _lines("The database lacks a table", error, "Run `manage.py migrate` first")
    return _lines("The database can't be used", error, "Check DATABASE_URL")


def _is_unmigrated(error: BaseException) -> bool:
    text = str(error).lower()
    return any(words in text for words in _UNMIGRATED) and "database" not in text


def _lines(what: str, error: BaseException, hint: str) -> str:
    cause = " ".join(str(error).split()) or type(error).__name__
    return f"{what}: {cause}\n{hint}; `manage.py doctor` looks at every dependency."
