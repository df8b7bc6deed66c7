"""Fixtures for all tests. What stands behind them: tests/support/."""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import pytest
import redis
from django.conf import settings
from django.db import connections

from inventory import channel
from tests.support import environment
from tests.support.plugin import skip_if_missing
from tests.support.postgres import Databases, Postgres
from tests.support.processes import this_run
from tests.support.rabbitmq import RabbitMQ
from tests.support.redis_server import RedisServer
from tests.support.service import Service
from tests.support.stack import Plan, Stack
from tests.support.zookeeper import ZooKeeper

AnyService = TypeVar("AnyService", bound=Service)

_numbers = itertools.count(1)


# --- Redis --------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The Redis that this process's settings name; each test finds it empty."""
    server = environment.back_ends().redis
    if server:
        server.start()
    yield environment.redis_url()
    if server:
        server.stop()


@pytest.fixture(scope="session")
def _redis(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True, socket_timeout=5) as client:
        yield client


@pytest.fixture
def redis_client(_redis: redis.Redis) -> redis.Redis:
    """A client of this worker's Redis, for looking and meddling."""
    return _redis


@pytest.fixture(autouse=True)
def _empty_redis(_redis: redis.Redis) -> Iterator[None]:
    yield
    if environment.back_ends().redis:
        _redis.flushdb()
    elif names := list(_redis.scan_iter(f"{environment.redis_prefix()}*", count=1000)):
        _redis.unlink(*names)


# --- the database of Django's tests -------------------------------------------------------------
@pytest.fixture(scope="session")
def _postgres() -> Iterator[Postgres | None]:
    """This worker's PostgreSQL, for Django's tests and for the stacks; it ends after both."""
    server = environment.back_ends().postgres
    if server:
        server.start()
    yield server
    if server:
        server.stop()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    _postgres: Postgres | None, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Called by pytest-django before it makes the test database."""
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        # A file: the database in memory that Django would take has no WAL and other locks.
        test_settings = connections["default"].settings_dict["TEST"]
        test_settings["NAME"] = str(this_run().directory / "test.sqlite3")


@pytest.fixture(autouse=True)
def _no_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test does in this process isn't told to others, and nothing listens."""
    monkeypatch.setattr(channel, "publish", lambda news: None)
    monkeypatch.setattr(channel, "start", lambda: None)


# --- back ends for the product as real processes ------------------------------------------------
@pytest.fixture(scope="session")
def _own_postgres(_postgres: Postgres | None) -> Iterator[Postgres]:
    with skip_if_missing():
        server = _postgres or Postgres()
    yield server.start()
    if server is not _postgres:
        server.stop()


@pytest.fixture
def postgres(_own_postgres: Postgres) -> Iterator[Postgres]:
    """This worker's own PostgreSQL; it runs when a test begins, whatever the last one did to it."""
    yield from _revived(_own_postgres)


@pytest.fixture(scope="session")
def _migrated(_own_postgres: Postgres) -> str:
    """The name of a database with all tables, to be copied."""
    name = "migrated"
    stack = Stack({"DATABASE_URL": _own_postgres.create_database(name)})
    stack.manage("migrate", "--no-input", "-v", "0")
    return name


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database for one test, migrated if that is cheap: PostgreSQL, or else an SQLite file."""
    name = f"stack{next(_numbers)}"
    named = environment.original().get("DATABASE_URL", "")
    if named.startswith("postgres"):
        server, template = Databases(named), "template1"
    elif environment.back_ends().postgres:
        server, template = request.getfixturevalue("postgres"), request.getfixturevalue("_migrated")
    else:
        yield f"sqlite:///{this_run().directory / name}.sqlite3"
        return
    yield server.create_database(name, template=template)
    server.drop_database(name)


@pytest.fixture(scope="session")
def _rabbitmq() -> Iterator[RabbitMQ]:
    with skip_if_missing():
        server = RabbitMQ()
    yield server
    server.stop()


@pytest.fixture
def rabbitmq(_rabbitmq: RabbitMQ) -> Iterator[RabbitMQ]:
    """This worker's own RabbitMQ; it runs when a test begins, whatever the last one did to it."""
    yield from _revived(_rabbitmq)


@pytest.fixture
def broker_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A RabbitMQ without any queue, for one test."""
    if named := environment.original().get("CELERY_BROKER_URL"):
        yield named
        return
    server: RabbitMQ = request.getfixturevalue("rabbitmq")
    vhost = f"test{next(_numbers)}"
    yield server.create_vhost(vhost)
    if server.is_running:
        server.resume()
        server.ctl("delete_vhost", vhost)


@pytest.fixture(scope="session")
def _zookeeper() -> Iterator[ZooKeeper]:
    with skip_if_missing():
        server = ZooKeeper()
    yield server
    server.stop()


@pytest.fixture
def zookeeper(_zookeeper: ZooKeeper) -> Iterator[ZooKeeper]:
    """This worker's own ZooKeeper; it runs when a test begins."""
    yield from _revived(_zookeeper)


@pytest.fixture
def zookeeper_hosts(request: pytest.FixtureRequest) -> str:
    if named := environment.original().get("ZOOKEEPER_HOSTS"):
        return named
    server: ZooKeeper = request.getfixturevalue("zookeeper")
    return server.url


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis for one test to kill, pause and fill; it keeps its data over a kill."""
    with RedisServer(append_only=True) as server:
        yield server


def _revived(server: AnyService) -> Iterator[AnyService]:
    yield server.start()
    if server.is_running:
        server.resume()
    server.start()  # Other fixtures clean up in it.


class MakeStack(Protocol):
    def __call__(self, settings: Mapping[str, str], *, plan: Plan | None = None) -> Stack: ...


@pytest.fixture
def make_stack() -> Iterator[MakeStack]:
    """Starts the product with these settings; stops it after the test."""
    stacks: list[Stack] = []

    def make(settings: Mapping[str, str], *, plan: Plan | None = None) -> Stack:
        stack = Stack(settings, plan=plan)
        stacks.append(stack)
        return stack.start()

    yield make
    for stack in stacks:
        # pytest shows this only if the test failed.
        sys.stdout.write(stack.logs())
        stack.stop()


# --- races --------------------------------------------------------------------------------------
class RunDuring(Protocol):
    def __call__(self, target: Any, name: str, callback: Callable[[], object]) -> None: ...


@pytest.fixture
def run_during(monkeypatch: pytest.MonkeyPatch) -> RunDuring:
    """Run a callback just before the first call of target.name, as a rival would."""

    def patch(target: Any, name: str, callback: Callable[[], object]) -> None:
        original, pending = getattr(target, name), [callback]

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if pending:
                pending.pop()()
            return original(*args, **kwargs)

        monkeypatch.setattr(target, name, wrapper)

    return patch
