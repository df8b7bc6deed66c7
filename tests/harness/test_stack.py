"""The product starts as real processes, survives what is done to them, and leaves nothing."""

import http.client
import signal
import urllib.request
from collections.abc import Iterator
from functools import partial

import psutil
import pytest

from tests.support.processes import family, is_alive
from tests.support.redis_server import RedisServer
from tests.support.stack import CommandFailed, Plan, Stack
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def settings_of_stack(database_url: str, own_redis: RedisServer, broker_url: str) -> dict[str, str]:
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": own_redis.url,
        "CELERY_BROKER_URL": broker_url,
        "CAPTCHA": "off",
    }


@pytest.fixture
def stack(settings_of_stack: dict[str, str]) -> Iterator[Stack]:
    with Stack(settings_of_stack, plan=Plan(web=2)) as stack:
        yield stack


def status(url: str) -> int:
    with urllib.request.urlopen(url, timeout=10) as response:
        return int(response.status)


def has_ended(process: psutil.Process) -> bool:
    return not is_alive(process)


@pytest.mark.long
def test_stack_survives_the_death_of_a_web_process(stack: Stack) -> None:
    sale = stack.manage("create_sale", "--name", "Pen", "--price", "9.90", "--stock", "5", "--json")
    everybody = [process for member in stack.members.values() for process in family(member.pid)]

    stack.kill("web1")
    with pytest.raises(OSError, match="refused"):
        status(f"{stack.base_urls[0]}/livez")
    assert status(f"{stack.base_urls[1]}/livez") == http.client.OK
    stack.launch("web1")
    stack.wait_ready()

    report = stack.audit(sale["sale_id"])
    assert report["ok"], report
    assert [sold["available"] for sold in report["sales"]] == [5]
    stack.stop()
    assert not [process for process in everybody if is_alive(process)]


@pytest.mark.long
def test_stack_stops_each_process_in_order_when_asked(stack: Stack) -> None:
    for name in stack.members:
        process = psutil.Process(stack.members[name].pid)

        stack.kill(name, signal.SIGTERM)

        wait_until(partial(has_ended, process))
    assert [name for name, member in stack.members.items() if member.is_running] == []


def test_manage_tells_what_a_failed_command_said(settings_of_stack: dict[str, str]) -> None:
    stack = Stack(settings_of_stack | {"PAYMENT_WINDOW": "soon"})

    with pytest.raises(CommandFailed, match="PAYMENT_WINDOW: 'soon' is not a number of seconds"):
        stack.manage("audit", "--json")
