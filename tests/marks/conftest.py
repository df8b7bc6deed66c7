"""The same tests over RabbitMQ, over Redis as the broker, and over ZooKeeper."""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.marks.clerk import Clerk
from tests.marks.site import TTL, Site, Switches
from tests.support.params import more
from tests.support.postgres import Postgres
from tests.support.processes import this_run
from tests.support.proxy import FaultProxy
from tests.support.redis_server import RedisServer
from tests.support.service import Service
from tests.support.stack import Plan, Stack

KINDS = ("rabbitmq", "zookeeper", *more("redis"))
SETTINGS = {
    "CAPTCHA": "off",
    "PURCHASE_RATE": "1000/1s",
    "SECKILL_TESTING": "1",
    # Longer than it takes to sell out and give back, so that a mark which nobody clears is there.
    "SOLD_OUT_TTL": str(TTL),
}
OpenSite = Callable[[str], AbstractContextManager[Site]]

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/marks/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("shops"))


def transport(kind: str, server: Service, port: int) -> dict[str, str]:
    """The settings with which a process reaches the transport by this port."""
    address = f"127.0.0.1:{port}"
    if kind == "zookeeper":
        return {"SOLD_OUT_CHANNEL": "zookeeper", "ZOOKEEPER_HOSTS": address}
    return {"CELERY_BROKER_URL": server.url.replace(f"127.0.0.1:{server.port}", address)}


def tamper(stack: Stack, name: str, settings: dict[str, str]) -> None:
    """Give one process settings of its own, and the switches of tampered.py."""
    member = stack.members[name]
    entry = {"config.asgi:application": "tests.marks.tampered:application"}
    arguments = [entry.get(part, part) for part in member.arguments]
    member.arguments = ["/usr/bin/env", *(f"{k}={v}" for k, v in settings.items()), *arguments]


@pytest.fixture(scope="package")
def open_site(request: pytest.FixtureRequest, _own_postgres: Postgres, _migrated: str) -> OpenSite:
    @contextmanager
    def opened(kind: str) -> Iterator[Site]:
        name = f"marks{next(_numbers)}"
        url = _own_postgres.create_database(name, template=_migrated)
        server = RedisServer() if kind == "redis" else request.getfixturevalue(f"_{kind}")
        switches = Switches(this_run().folder("switches"))
        with RedisServer() as gate:
            server.start()
            proxy = FaultProxy(server.port).start()
            # The tasks of the ZooKeeper variant travel over the gate's Redis.
            back_ends = {"DATABASE_URL": url, "REDIS_URL": gate.url, "CELERY_BROKER_URL": gate.url}
            named = SETTINGS | back_ends | transport(kind, server, server.port)
            plan = Plan(web=3, workers=1, concurrency=1, timers=False, beat=False, migrate=False)
            stack = Stack(named, plan=plan)
            tamper(stack, "web2", transport(kind, server, proxy.port) | switches.environment())
            with Clerk(stack.environment) as clerk, stack:
                site = Site(stack, gate, server, proxy, kind, switches, clerk)
                site.wait_listening(30)
                yield site
                # pytest shows this only if a test failed.
                sys.stdout.write(stack.logs())
                stack.discard()
            proxy.stop()
        if kind == "redis":
            server.stop()
        _own_postgres.drop_database(name)

    return opened


@pytest.fixture(scope="package", params=KINDS)
def shared_site(request: pytest.FixtureRequest, open_site: OpenSite) -> Iterator[Site]:
    with open_site(request.param) as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    """With all that an earlier test has broken whole again."""
    shared_site.server.start()
    shared_site.wait_listening(30)
    yield shared_site
    shared_site.proxy.heal()
    shared_site.switches.reset()
