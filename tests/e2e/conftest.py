"""The product with all its processes: two of each, PostgreSQL, Redis with AOF, RabbitMQ."""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.shop import FAULTPOINTS, SETTINGS, Shop
from tests.support.postgres import Postgres
from tests.support.processes import this_run
from tests.support.proxy import FaultProxy
from tests.support.rabbitmq import RabbitMQ
from tests.support.redis_server import RedisServer
from tests.support.stack import Plan, Stack

OpenShop = Callable[..., AbstractContextManager[Shop]]

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They share servers, and the machine is not big enough for two: all in one worker."""
    for item in items:
        if "/tests/e2e/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("shops"))


def faultpoints(folder: Path) -> dict[str, str]:
    """Every process may be killed at every point, as soon as a test removes the point's file."""
    for point in FAULTPOINTS:
        (folder / point).touch()
    armed = ",".join(f"{point}={folder / point}" for point in FAULTPOINTS)
    return {"SECKILL_TESTING": "1", "FAULTPOINTS": armed}


@contextmanager
def running(
    plan: Plan,
    rabbitmq: RabbitMQ,
    database_url: str,
    *,
    append_only: bool = True,
    through_proxies: bool = False,
    **settings: str,
) -> Iterator[Shop]:
    vhost = f"shop{next(_numbers)}"
    with RedisServer(append_only=append_only) as redis, ExitStack() as proxies:
        back_ends = {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis.url,
            "CELERY_BROKER_URL": rabbitmq.create_vhost(vhost),
        }
        ways = {}
        if through_proxies:
            for name, url in back_ends.items():
                ways[name] = proxies.enter_context(FaultProxy(urlsplit(url).port or 0))
                back_ends[name] = ways[name].url(url)
        points = this_run().folder("faults")
        settings = SETTINGS | back_ends | faultpoints(points) | settings
        with Stack(settings, plan=plan) as stack:
            yield Shop(stack, redis, rabbitmq, vhost, points, ways)
            # pytest shows this only if a test failed.
            sys.stdout.write(stack.logs())
            stack.discard()
    rabbitmq.ctl("delete_vhost", vhost)


@pytest.fixture(scope="package")
def open_shop(_own_postgres: Postgres, _migrated: str, _rabbitmq: RabbitMQ) -> OpenShop:
    """Opens a shop with settings of one's own, as a context manager."""

    @contextmanager
    def opened(plan: Plan | None = None, **settings: Any) -> Iterator[Shop]:
        name = f"shop{next(_numbers)}"
        url = _own_postgres.create_database(name, template=_migrated)
        with running(plan or Plan(web=2, workers=2), _rabbitmq.start(), url, **settings) as shop:
            yield shop
        _own_postgres.drop_database(name)

    return opened


@pytest.fixture(scope="package")
def shared_shop(open_shop: OpenShop) -> Iterator[Shop]:
    with open_shop() as shop:
        yield shop


@pytest.fixture
def shop(shared_shop: Shop, postgres: Postgres, rabbitmq: RabbitMQ) -> Shop:
    """The shop that most tests share, with all that an earlier test has killed running again."""
    return revived(shared_shop)


def revived(shop: Shop) -> Shop:
    for name, member in shop.stack.members.items():
        if member.is_running:
            shop.stack.resume(name)
        else:
            shop.stack.launch(name)
    shop.stack.wait_ready()
    return shop
