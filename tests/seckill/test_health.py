"""Liveness, readiness, figures."""

import socket
import time

import pytest
from django.db import DatabaseError
from django.test import Client
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from inventory import redis_clients
from orders.tasks import sweep_expired
from seckill import health

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("checks")]


def test_livez_asks_no_back_end(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        response = client.get("/livez")

    assert (response.status_code, response.text) == (200, "ok\n")


def test_readyz_is_green_when_all_is_there(client: Client) -> None:
    response = client.get("/readyz")

    assert response.json() == {
        "ready": True,
        "checks": {"database": "ok", "migrations": "ok", "redis": "ok", "broker": "ok"},
        "sweep_age_seconds": None,
    }
    assert response.status_code == 200


def test_readyz_tells_how_long_ago_a_sweep_ended(client: Client) -> None:
    sweep_expired()

    age = client.get("/readyz").json()["sweep_age_seconds"]

    assert 0 <= age < 5
    assert "seckill_sweep_age_seconds 0." in client.get("/metrics").text


def test_readyz_names_what_is_down_and_tells_no_secret(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down() -> None:
        raise DatabaseError("postgres://user:secret@host")

    monkeypatch.setitem(health.CHECKS, "database", down)

    response = client.get("/readyz")

    assert response.status_code == 503
    assert response.json()["checks"]["database"] == "down (DatabaseError)"
    assert "secret" not in response.text
    assert response["Retry-After"] == "1"


def test_readyz_answers_in_time_if_a_back_end_hangs(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as black_hole:  # Takes calls, never answers.
        settings.REDIS_URL = f"redis://127.0.0.1:{black_hole.getsockname()[1]}/0"
        redis_clients.forget()
        began = time.monotonic()

        response = client.get("/readyz")

        assert time.monotonic() - began < 2
        assert response.json()["checks"]["redis"] == "no answer within 1 s"
    redis_clients.forget()


def test_readyz_sees_missing_migrations(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_known_migrated", False)
    plan = "seckill.health.MigrationExecutor.migration_plan"
    monkeypatch.setattr(plan, lambda self, targets: ["x"])

    response = client.get("/readyz")

    assert "migrations are missing" in response.json()["checks"]["migrations"]


@pytest.mark.parametrize(
    ("policy", "maxmemory", "state"),
    [
        ("noeviction", 1000, "ok"),
        ("volatile-lru", 1000, "ok"),
        ("allkeys-lru", 0, "ok"),
        ("allkeys-lru", 1000, "maxmemory-policy allkeys-lru may throw stock away: use noeviction"),
    ],
)
def test_readyz_minds_what_redis_may_throw_away(
    monkeypatch: pytest.MonkeyPatch, policy: str, maxmemory: int, state: str
) -> None:
    memory = {"maxmemory": maxmemory, "maxmemory_policy": policy}
    monkeypatch.setattr(redis_clients.sync_client(), "info", lambda section: memory)

    assert health.check_all({"redis": health.check_redis}) == {"redis": state}


@pytest.mark.parametrize(
    ("address", "headers", "token", "status"),
    [
        ("127.0.0.1", {}, "", 200),
        ("::1", {}, "", 200),
        ("10.0.0.1", {}, "", 403),
        ("", {}, "", 403),
        ("127.0.0.1", {"x-forwarded-for": "10.0.0.1"}, "", 403),
        ("127.0.0.1", {"forwarded": "for=10.0.0.1"}, "", 403),
        ("10.0.0.1", {"authorization": "Bearer t0ken"}, "t0ken", 200),
        ("10.0.0.1", {"authorization": "bearer t0ken"}, "t0ken", 200),
        ("10.0.0.1", {"authorization": "Bearer wrong"}, "t0ken", 403),
        ("10.0.0.1", {"authorization": "Bearer "}, "", 403),
        ("10.0.0.1", {"authorization": "Bearer é"}, "t0ken", 403),
    ],
)
def test_metrics_are_for_this_machine_or_a_token(
    client: Client,
    settings: Settings,
    address: str,
    headers: dict[str, str],
    token: str,
    status: int,
) -> None:
    settings.METRICS_TOKEN = token

    response = client.get("/metrics", headers=headers, REMOTE_ADDR=address)

    assert response.status_code == status
    assert ("process_cpu_seconds_total" in response.text) is (status == 200)
