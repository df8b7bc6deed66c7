"""doctor: what it finds, and how long it takes when nothing answers."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from inventory import redis_clients, reports
from seckill.management import checks
from seckill.management.commands import doctor
from tests.seckill.test_commands import refuse, run, run_json
from tests.support.redis_server import RedisServer
from tests.support.waiting import free_port

# Its checks run in threads of their own, which see only what is committed.
pytestmark = pytest.mark.django_db(transaction=True)
MOST_SECONDS = 4.0  # 3 for the checks, and what the machine needs


def findings(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in answer["checks"]}


@contextmanager
def redis_at(settings: Settings, port: int) -> Iterator[None]:
    settings.REDIS_URL = f"redis://127.0.0.1:{port}/0"
    redis_clients.forget()
    yield
    redis_clients.forget()


def test_doctor_finds_nothing_wrong() -> None:
    answer = run_json("doctor")

    found = findings(answer)
    assert answer["ok"] is True
    assert list(found) == [check.name for check in doctor.CHECKS]
    # No worker runs here, and the private Redis of the tests keeps nothing.
    assert {name for name, finding in found.items() if not finding["ok"]} <= {
        "redis-aof",
        "workers",
        "files",
    }
    assert found["workers"]["hint"] == "start `celery -A config worker`, or `make run`"


def test_doctor_prints_a_line_for_each() -> None:
    lines = run("doctor").splitlines()

    assert [line.split()[1] for line in lines] == [check.name for check in doctor.CHECKS]
    assert lines[0].startswith("ok       python         Python 3.")


def test_doctor_names_what_is_down(settings: Settings) -> None:
    with redis_at(settings, free_port()):
        code, text, out = refuse("doctor", "--json")

    answer = json.loads(out)
    found = findings(answer)
    assert (code, text, answer["ok"]) == (1, "The shop can't work like this.", False)
    assert {name for name in found if not found[name]["ok"]} >= {"redis", "redis-script", "clocks"}
    assert found["redis"]["hint"].startswith("is REDIS_URL right")
    assert (found["database"]["ok"], found["migrations"]["ok"]) == (True, True)


def test_doctor_waits_for_nothing_longer_than_three_seconds(settings: Settings) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        since = time.monotonic()
        with redis_at(settings, silent.getsockname()[1]):
            code, _, out = refuse("doctor", "--json")

    assert time.monotonic() - since < MOST_SECONDS
    assert (code, findings(json.loads(out))["redis"]["ok"]) == (1, False)


def test_doctor_sees_a_redis_that_throws_keys_away(
    settings: Settings, own_redis: RedisServer
) -> None:
    with own_redis.client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")

    with redis_at(settings, own_redis.port):
        found = findings(json.loads(refuse("doctor", "--json")[2]))

    assert found["redis"]["detail"] == "maxmemory-policy allkeys-lru"
    assert found["redis"]["hint"].startswith("set maxmemory-policy noeviction")


def test_doctor_sees_missing_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "missing_migrations", lambda: 2)

    found = findings(json.loads(refuse("doctor", "--json")[2]))

    assert found["migrations"]["detail"] == "2 migrations are missing"
    assert found["migrations"]["hint"] == "run `manage.py migrate`"


def test_doctor_sees_a_clock_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_redis_skew", lambda: -2.0)

    found = findings(json.loads(refuse("doctor", "--json")[2]))

    assert found["clocks"]["detail"] == "Redis is -2.00 s off this machine"


def test_doctor_looks_at_zookeeper_if_it_is_chosen(settings: Settings) -> None:
    settings.SOLD_OUT_CHANNEL = "zookeeper"
    settings.ZOOKEEPER_HOSTS = f"127.0.0.1:{free_port()}"
    since = time.monotonic()

    code, _, out = refuse("doctor", "--json")

    assert time.monotonic() - since < MOST_SECONDS
    zookeeper = findings(json.loads(out))["zookeeper"]
    assert (code, zookeeper["ok"], zookeeper["required"]) == (1, False, True)


def test_doctor_speaks_to_zookeeper(settings: Settings, zookeeper_hosts: str) -> None:
    settings.ZOOKEEPER_HOSTS = zookeeper_hosts

    assert checks.zookeeper().startswith("ZooKeeper ")


def test_doctor_says_which_web_process_does_not_hear_the_others() -> None:
    assert checks.listeners() == "no web process has reported"
    reports._write({"listener": "ok"})
    assert checks.listeners() == "1 web processes hear the others"
    reports._write({"listener": "connecting"})

    with pytest.raises(checks.Trouble, match=reports.name()):
        checks.listeners()
