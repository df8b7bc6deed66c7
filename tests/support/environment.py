"""The environment of the tests: private back ends, no settings of the developer's own.

Addresses are chosen here, before Django reads its settings; the servers behind them are started
when a test first needs them. Each xdist worker has servers of its own: they start in a second (not
RabbitMQ, which is started only where it is used), so nothing must be coordinated, and a test may
kill, pause and empty what no other worker sees.
"""

import functools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.binaries import Missing
from tests.support.postgres import Postgres
from tests.support.processes import this_run
from tests.support.redis_server import RedisServer

ROOT = Path(__file__).resolve().parent.parent.parent
BACK_ENDS = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "ZOOKEEPER_HOSTS")
# Workers inherit the environment that the first process has already changed.
ORIGINAL = "SECKILL_TESTS_ORIGINAL"
SECRETS = {
    "SECRET_KEY": "only-for-tests-" + "0123456789abcdef" * 4,
    "PAYMENT_WEBHOOK_SECRET": "only-for-tests-fedcba9876543210",
}


@dataclass(frozen=True)
class BackEnds:
    """What this process's settings point at. None: named in the environment, or not available."""

    redis: RedisServer | None
    postgres: Postgres | None
    postgres_missing: str = ""


@functools.cache
def original() -> Mapping[str, str]:
    """The back ends that the developer named in the environment."""
    if ORIGINAL not in os.environ:
        named = {name: os.environ[name] for name in BACK_ENDS if os.environ.get(name, "").strip()}
        os.environ[ORIGINAL] = json.dumps(named)
    result: dict[str, str] = json.loads(os.environ[ORIGINAL])
    return result


@functools.cache
def knobs() -> frozenset[str]:
    """Every variable that the product reads."""
    example = (ROOT / ".env.example").read_text()
    return frozenset(re.findall(r"^#? ?([A-Z][A-Z0-9_]+)=", example, re.MULTILINE))


@functools.cache
def back_ends() -> BackEnds:
    redis = None if "REDIS_URL" in original() else RedisServer()
    if "DATABASE_URL" in original():
        return BackEnds(redis, None)
    try:
        return BackEnds(redis, Postgres())
    except Missing as missing:
        return BackEnds(redis, None, str(missing))


def neutral() -> dict[str, str]:
    """This process's environment without anything that the product reads."""
    return {name: value for name, value in os.environ.items() if name not in knobs()}


def prepare() -> None:
    """Set what `config.settings` reads in this process."""
    original()
    for name in knobs() & os.environ.keys():
        del os.environ[name]
    os.environ.update(SECRETS)
    os.environ.update(
        VAR_DIR=str(this_run().folder("var")),
        DATABASE_URL=database_url(),
        REDIS_URL=redis_url(),
        REDIS_PREFIX=redis_prefix(),
    )


def database_url() -> str:
    if "DATABASE_URL" in original():
        return original()["DATABASE_URL"]
    if postgres := back_ends().postgres:
        return postgres.url
    return f"sqlite:///{this_run().directory}/tests.sqlite3"


def redis_url() -> str:
    redis = back_ends().redis
    return redis.url if redis else original()["REDIS_URL"]


def redis_prefix() -> str:
    """Keeps the workers apart, and what else lies in a Redis that isn't ours."""
    return f"tests:{os.environ.get('PYTEST_XDIST_WORKER', 'main')}:"
