"""For machines that watch: is the process alive, can it do its work, what are its figures."""

import hmac
import ipaddress
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import cache
from time import monotonic
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from inventory import channel, keys
from inventory.gate import GateError
from inventory.redis_clients import sync_client
from orders import sweeps
from seckill.errors import problem_response

BUDGET = 1.0  # seconds for all checks together; they run side by side
# Writes as the gate does, so a full disk, a full memory and a read-only replica are seen too.
PROBE = "redis.call('SET', KEYS[1], ARGV[1], 'PX', 5000) return redis.call('GET', KEYS[1])"
FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")


def _sweep_age(default: Any) -> Any:
    try:
        age = sweeps.age()
    except GateError:
        return default
    return default if age is None else age


def _listener(name: str, default: Any) -> Any:
    return (channel.state() or {}).get(name, default)


class _Present:
    """What is measured when somebody asks, not counted before."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "seckill_sold_out_listener_age_seconds",
            "Since the listener of the process that answers heard anything",
            _listener("age", math.nan),
        )
        yield GaugeMetricFamily(
            "seckill_sold_out_listener_up",
            "1: the process that answers hears the marks of others",
            float(_listener("listener", "") == "ok"),
        )
        yield GaugeMetricFamily(
            "seckill_sweep_age_seconds",
            "Since a sweep ended; without any it is not a number",
            _sweep_age(math.nan),
        )


_present = CollectorRegistry()
_present.register(_Present())


def _counted() -> CollectorRegistry:
    """The counters of this process, or of all that share PROMETHEUS_MULTIPROC_DIR."""
    if not settings.METRICS_DIR:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=settings.METRICS_DIR)  # type: ignore[no-untyped-call]
    return registry


class NotReady(Exception):
    """Raised by a check that found its part in a state in which it must not be used."""


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    age = _pool().submit(_sweep_age, None)
    states = check_all(CHECKS)
    ready = all(state == "ok" for state in states.values())
    told: dict[str, object] = {"ready": ready, "checks": states}
    # Nobody is turned away because nothing is swept; who watches must know it all the same.
    told["sweep_age_seconds"] = _soon(age)
    if (listener := channel.state()) is not None:
        # Without it refusals cost a call to the gate each; that is no reason to take nobody in.
        told |= {"degraded": listener["listener"] != "ok", "sold_out": listener}
    response = JsonResponse(told, status=200 if ready else 503)
    if not ready:
        response["Retry-After"] = "1"
    return response


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not (_is_local(request) or _has_token(request)):
        return problem_response(request, "forbidden")
    text = generate_latest(_counted()) + generate_latest(_present)
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


def _is_local(request: HttpRequest) -> bool:
    """A loopback peer, and not one that speaks for somebody else."""
    if any(name in request.META for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


def _has_token(request: HttpRequest) -> bool:
    scheme, _, offered = request.headers.get("Authorization", "").partition(" ")
    wanted = settings.METRICS_TOKEN
    if not wanted or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(offered.strip().encode(), wanted.encode())


def check_all(checks: dict[str, Callable[[], None]]) -> dict[str, str]:
    """`ok` or what is wrong, for each; one that doesn't come back in time is told so."""
    deadline = monotonic() + BUDGET
    running = {name: _pool().submit(check) for name, check in checks.items()}
    return {name: _state(future, deadline) for name, future in running.items()}


def _soon(answer: "Future[Any]") -> Any:
    """It was asked for along with all the others, so it is there or late."""
    try:
        return answer.result(timeout=0.1)
    except FutureTimeoutError:
        answer.cancel()
        return None


def _state(check: "Future[None]", deadline: float) -> str:
    try:
        check.result(timeout=max(0.0, deadline - monotonic()))
    except FutureTimeoutError:
        check.cancel()
        return f"no answer within {BUDGET:g} s"
    except NotReady as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever a driver raises, this part is down.
        # The type only: a driver's text may hold addresses and passwords.
        return f"down ({type(error).__name__})"
    return "ok"


@cache
def _pool() -> ThreadPoolExecutor:
    """Kept, so that its threads keep their connections; enough for two probes at once."""
    return ThreadPoolExecutor(2 * len(CHECKS), thread_name_prefix="readyz")


def check_database() -> None:
    connection.close_if_unusable_or_obsolete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def check_migrations() -> None:
    connection.close_if_unusable_or_obsolete()
    if not _migrated():
        raise NotReady("migrations are missing: run manage.py migrate")


def _migrated() -> bool:
    """Remembered once true, because reading all migrations takes long."""
    global _known_migrated
    if not _known_migrated:
        executor = MigrationExecutor(connection)
        _known_migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _known_migrated


_known_migrated = False


def check_redis() -> None:
    client = sync_client()
    answer = client.eval(PROBE, 1, keys.probe(), "1")
    if answer not in (b"1", "1"):
        raise NotReady(f"a script answered {answer!r}")
    memory = client.info("memory")
    policy = str(memory.get("maxmemory_policy", ""))
    if memory.get("maxmemory") and policy.startswith("allkeys-"):
        raise NotReady(f"maxmemory-policy {policy} may throw stock away: use noeviction")


def check_broker() -> None:
    with current_app.connection_for_write(connect_timeout=BUDGET) as broker:
        broker.connect()


CHECKS: dict[str, Callable[[], None]] = {
    "database": check_database,
    "migrations": check_migrations,
    "redis": check_redis,
    "broker": check_broker,
}
