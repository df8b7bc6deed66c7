"""One running shop for all of bad input: a web process and a worker. It must take everything."""

from collections.abc import Iterator

import pytest

from tests.e2e.shop import SETTINGS, Shop
from tests.support.postgres import Postgres
from tests.support.redis_server import RedisServer
from tests.support.stack import Plan, Stack

PLAN = Plan(web=1, workers=1, timers=False, beat=False, migrate=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that share the running shop run in one worker."""
    for item in items:
        if "/tests/badinput/" in item.path.as_posix() and "site" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.xdist_group("badinput"))


@pytest.fixture(scope="package")
def site(_own_postgres: Postgres, _migrated: str) -> Iterator[Shop]:
    url = _own_postgres.create_database("badinput", template=_migrated)
    with RedisServer(append_only=True) as redis:
        back_ends = {"DATABASE_URL": url, "REDIS_URL": redis.url}
        with Stack(SETTINGS | back_ends, plan=PLAN) as stack:
            yield Shop(stack, redis)
    _own_postgres.drop_database("badinput")
