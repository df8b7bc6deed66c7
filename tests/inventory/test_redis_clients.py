"""One place makes the clients: bounded waits, no sharing over forks, a clear word if unset."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis.asyncio
import uvloop
from pytest_django import Settings
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from inventory import gate, redis_clients
from inventory.gate import GateError
from inventory.redis_clients import ChannelLayer, RedisNotConfigured, async_client, sync_client
from tests.support.proxy import FaultProxy

NEW_LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


@pytest.fixture(autouse=True)
def _fresh(redis_url: str) -> Iterator[None]:
    redis_clients.forget()
    yield
    redis_clients.forget()


@pytest.fixture
def proxy(settings: Settings, redis_url: str) -> Iterator[FaultProxy]:
    with FaultProxy(int(redis_url.rpartition(":")[2].partition("/")[0])) as between:
        settings.REDIS_URL = between.url(redis_url)
        yield between


def test_sync_client_is_one_per_process() -> None:
    assert sync_client() is sync_client()


async def test_async_client_is_one_per_event_loop() -> None:
    client = async_client()

    assert async_client() is client
    assert await client.ping()
    await client.aclose()


def test_async_clients_of_two_loops_differ() -> None:
    async def make() -> int:
        client = async_client()
        await client.ping()
        await client.aclose()
        return id(client)

    kept = [asyncio.run(make()) for _ in range(2)]

    assert len(kept) == 2


def test_clients_say_what_to_do_if_redis_is_not_configured(settings: Settings) -> None:
    settings.REDIS_URL = ""

    with pytest.raises(RedisNotConfigured, match="make run"):
        sync_client()
    with pytest.raises(RedisNotConfigured, match="REDIS_URL"):
        asyncio.run(_make_async())


async def _make_async() -> None:
    async_client()


def test_sync_client_waits_for_two_timeouts_at_most(proxy: FaultProxy, settings: Settings) -> None:
    settings.REDIS_TIMEOUT = 0.2
    sync_client().ping()
    proxy.set("blackhole")

    began = time.monotonic()
    with pytest.raises(GateError):
        gate.stocks([1])
    took = time.monotonic() - began

    assert took < 1.5  # the call and one repeat, each with a new connection
    proxy.heal()
    assert gate.stocks([1]) == {1: None}


def test_sync_client_reports_a_machine_that_is_down_at_once(proxy: FaultProxy) -> None:
    sync_client().ping()
    proxy.set("refuse")

    began = time.monotonic()
    with pytest.raises(GateError):
        sync_client().ping()

    assert time.monotonic() - began < 1
    proxy.heal()
    assert sync_client().ping()


async def test_async_client_waits_for_two_timeouts_at_most(
    proxy: FaultProxy, settings: Settings
) -> None:
    settings.REDIS_TIMEOUT = 0.2
    client = async_client()
    await client.ping()
    proxy.set("blackhole")

    began = time.monotonic()
    with pytest.raises(GateError):
        await client.ping()
    took = time.monotonic() - began

    proxy.heal()
    assert await client.ping()
    await client.aclose()
    assert took < 1.5


@NEW_LOOPS
def test_async_client_reports_a_connection_that_ends_under_its_hands(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """uvloop has an error of its own for that, which would become a 500."""

    async def ping(connection: Any) -> None:
        await connection.send_command("PING")
        await connection.read_response()

    async def scenario() -> None:
        client = async_client()
        connection: Any = await client.connection_pool.get_connection()
        connection._writer.transport.abort()
        with pytest.raises(GateError):
            await ping(connection)
        assert await client.ping()
        await client.connection_pool.release(connection)
        await client.aclose()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


@NEW_LOOPS
def test_channel_layer_reports_a_connection_that_ends_under_its_hands(
    new_loop: Callable[[], asyncio.AbstractEventLoop], redis_url: str
) -> None:
    """The socket that wanted to join a group is told to come again, not that all is broken."""

    async def scenario() -> None:
        layer = ChannelLayer(hosts=[{"address": redis_url, "socket_timeout": 5}])
        channel = await layer.new_channel()
        await layer.group_add("first", channel)
        shard = layer._get_layer()._shards[0]
        shard._receive_task.cancel()  # It would open the connection again.
        shard._pubsub.connection._writer.transport.abort()
        shard._pubsub.connection.retry = AsyncRetry(NoBackoff(), 0)
        with pytest.raises(RedisConnectionError):
            await layer.group_add("second", channel)
        shard._receive_task = None
        await layer.flush()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("url", ["redis://h:1/0", "rediss://h:1/0"])
async def test_channel_layer_of_any_address_is_of_its_kind(url: str) -> None:
    layer = ChannelLayer(hosts=[{"address": url, "socket_timeout": 5}])
    plain = redis.asyncio.ConnectionPool.from_url(url, socket_timeout=5)

    told = layer._kwargs["hosts"][0]

    kind = told.pop("connection_class")
    assert issubclass(kind, plain.connection_class)
    assert kind.__init__ is plain.connection_class.__init__
    assert told["socket_timeout"] == 5
    assert told == {name: plain.connection_kwargs[name] for name in told}


@pytest.mark.parametrize("url", ["redis://h:1/0", "rediss://h:1/0"])
async def test_async_client_of_any_address_is_of_its_kind(settings: Settings, url: str) -> None:
    settings.REDIS_URL = url
    plain = redis.asyncio.ConnectionPool.from_url(url).connection_class

    kind = async_client().connection_pool.connection_class

    assert issubclass(kind, plain)
    assert kind.__init__ is plain.__init__


def test_sync_client_of_a_forked_process_is_its_own() -> None:
    sync_client().ping()
    mine = sync_client()
    reader, writer = os.pipe()
    redis_clients._lock.acquire()  # as if another thread were making a client just now
    child = os.fork()
    if child == 0:
        try:
            os.write(
                writer, b"own" if sync_client() is not mine and sync_client().ping() else b"no"
            )
        finally:
            os._exit(0)
    redis_clients._lock.release()
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    os.waitpid(child, 0)

    assert answer == b"own"
    assert sync_client() is mine
    assert mine.ping()
