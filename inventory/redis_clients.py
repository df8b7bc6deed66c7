"""The one place that makes Redis clients: explicit timeouts, bounded retries, none made at import.

redis-py repeats a call whose reply was lost. All scripts of this project give the same answer to
the same entry, so one repeat is safe; more would only make callers wait.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import redis
import redis.asyncio
from channels_redis.pubsub import RedisPubSubChannelLayer
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

_REPEATED = (RedisConnectionError, RedisTimeoutError)
_lock = threading.Lock()
_sync: dict[int, redis.Redis] = {}
_async: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = weakref.WeakKeyDictionary()


class RedisNotConfigured(ImproperlyConfigured):
    """Raised when Redis is needed, REDIS_URL isn't set and no `manage.py up` runs here."""


class _Honest(AbstractConnection):
    """Says ConnectionError of a connection that the server has just ended.

    Under uvloop that is a RuntimeError, which nobody takes for a back end that is away.
    """

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        try:
            await super().send_packed_command(command, check_health)
        except RuntimeError as error:
            raise RedisConnectionError(f"connection lost: {error}") from error


def _honest(kind: type[Any]) -> type[Any]:
    """For each kind of connection: plain, TLS, Unix socket."""
    return type(kind.__name__, (_Honest, kind), {})


def _options() -> dict[str, Any]:
    return {
        "socket_timeout": settings.REDIS_TIMEOUT,
        "socket_connect_timeout": settings.REDIS_TIMEOUT,
        "socket_keepalive": True,
        "health_check_interval": 30,
        "protocol": settings.REDIS_PROTOCOL,
        "client_name": "seckill",
    }


def _url() -> str:
    if not settings.REDIS_URL:
        raise RedisNotConfigured("Redis isn't there: start `make run`, or set REDIS_URL.")
    return settings.REDIS_URL


def sync_client() -> redis.Redis:
    """This process's client; it keeps a pool of connections and may be used by many threads."""
    pid = os.getpid()
    client = _sync.get(pid)
    if client is None:
        with _lock:
            client = _sync.get(pid)
            if client is None:
                retry = Retry(ConstantBackoff(0.05), 1)
                client = redis.Redis.from_url(
                    _url(), retry=retry, retry_on_error=list(_REPEATED), **_options()
                )
                _sync.clear()  # A client of the parent process must not be shared after a fork.
                _sync[pid] = client
    return client


def async_client() -> redis.asyncio.Redis:
    """The running event loop's client."""
    loop = asyncio.get_running_loop()
    client = _async.get(loop)
    if client is None:
        retry = AsyncRetry(ConstantBackoff(0.05), 1)
        client = redis.asyncio.Redis.from_url(
            _url(), retry=retry, retry_on_error=list(_REPEATED), **_options()
        )
        pool = client.connection_pool
        pool.connection_class = _honest(pool.connection_class)
        _async[loop] = client
    return client


class ChannelLayer(RedisPubSubChannelLayer):  # type: ignore[misc]
    """The channel layer over connections of the same kind; each host is {"address": URL, …}."""

    def __init__(self, hosts: Sequence[Mapping[str, Any]], **options: Any) -> None:
        super().__init__(hosts=[_layer_host(**host) for host in hosts], **options)


def _layer_host(address: str, **options: Any) -> dict[str, Any]:
    """What a connection pool takes; given an address it would choose the kind itself."""
    told: dict[str, Any] = dict(parse_url(address))
    return options | told | {"connection_class": _honest(told.get("connection_class", Connection))}


def _after_fork() -> None:
    """Another thread of the parent may have held the lock at the moment of the fork."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def forget() -> None:
    """Drop the clients, so that the next call reads the settings again (used by tests)."""
    for client in _sync.values():
        client.close()
    _sync.clear()
    _async.clear()
