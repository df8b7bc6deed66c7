"""What `soldout show` says of the web processes."""

import io
import time
from typing import Any

import pytest
import redis
from django.core.management import call_command

from inventory import reports
from inventory.soldout import Marks
from tests.seckill.test_commands import refuse, run, run_json

HEARD = {"channel": "broadcast", "listener": "ok", "age": 0.25}


@pytest.fixture
def report() -> dict[str, Any]:
    """Of a process that knows three sales: sold out, sold out long ago, in stock."""
    marks, now = Marks(), time.monotonic()
    marks.observe(7, epoch=70, sold_out=True, seen_at=now)
    marks.observe(8, epoch=80, sold_out=True, seen_at=now - 60)
    marks.observe(9, epoch=90, sold_out=False, seen_at=now)
    report = {**HEARD, "marks": marks.told()}
    reports._write(report)
    return report


def test_soldout_shows_what_each_process_believes(report: dict[str, Any]) -> None:
    lines = [line.split() for line in run("soldout", "show").splitlines()]

    name = reports.name()
    assert [name, "broadcast", "ok", "0.2", "s"] in lines
    beliefs = {line[1]: " ".join(line[2:-3]) for line in lines if len(line) > 5 and line[0] == name}
    assert beliefs == {"7": "sold out", "8": "sold out, asks again", "9": "asks the gate"}


def test_soldout_shows_the_same_to_machines(report: dict[str, Any]) -> None:
    assert run_json("soldout", "show") == {"processes": {reports.name(): report}}


def test_soldout_forgets_processes_that_report_no_more(
    report: dict[str, Any], redis_client: redis.Redis
) -> None:
    redis_client.delete(*redis_client.scan_iter("*soldout:report:*"))
    talk = io.StringIO()

    call_command("soldout", "show", stdout=io.StringIO(), stderr=talk)

    assert "No web process has reported" in talk.getvalue()
    assert run_json("soldout", "show") == {"processes": {}}


def test_soldout_knows_one_thing_to_do() -> None:
    assert "invalid choice: 'hide'" in refuse("soldout", "hide")[1]
