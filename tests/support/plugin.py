"""Prepares the environment before Django is set up, and skips what the machine lacks."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import environment
from tests.support.binaries import Missing
from tests.support.params import LONG
from tests.support.stack import Stack

LOGS = 8000  # characters of each process


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Generator[None, None, None]:
    environment.prepare()
    return (yield)


@contextmanager
def skip_if_missing() -> Iterator[None]:
    """A service that isn't on the machine skips the test; with REQUIRE_SERVICES=1 it fails."""
    try:
        yield
    except Missing as missing:
        skip_or_fail(str(missing))


def skip_or_fail(reason: str) -> None:
    if os.environ.get("REQUIRE_SERVICES", "") not in ("", "0"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("postgres") and environment.database_url().startswith("sqlite"):
        skip_or_fail(environment.back_ends().postgres_missing or "DATABASE_URL names SQLite")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    group_what_shares_a_back_end(items)
    leave_out_what_takes_long(config, items)
    yield
    keep_packages_together(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure comes with what the shop's processes wrote; the shop lives on for other tests."""
    report = yield
    if report.failed and report.when != "teardown":
        values = getattr(item, "funcargs", {}).values()
        stacks = [getattr(value, "stack", value) for value in values]
        for stack in {id(s): s for s in stacks if isinstance(s, Stack)}.values():
            report.sections.append(("logs of the shop", stack.logs(LOGS)))
    return report


def group_what_shares_a_back_end(items: list[pytest.Item]) -> None:
    """Tests that share a back end of the developer's own run one after the other."""
    shared = {"broker_url": "CELERY_BROKER_URL", "zookeeper_hosts": "ZOOKEEPER_HOSTS"}
    for item in items:
        for fixture, name in shared.items():
            if name in environment.original() and fixture in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(name))


def leave_out_what_takes_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`long`: more of the same; all of it with LONG=1 or FULL=1, or when asked for by its name."""
    named = "long" in config.option.markexpr or any("::" in name for name in config.args)
    if named or LONG:
        return
    left = [item for item in items if item.get_closest_marker("long")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def keep_packages_together(items: list[pytest.Item]) -> None:
    """In random order, but not so that a package's shop is started again and again."""
    first: dict[Path, int] = {}
    for place, item in enumerate(items):
        first.setdefault(item.path.parent, place)
    items.sort(key=lambda item: first[item.path.parent])


def pytest_report_header() -> list[str]:
    named = ", ".join(environment.original()) or "none"
    database = environment.database_url().partition(":")[0]
    return [f"database: {database}; back ends named in the environment: {named}"]
