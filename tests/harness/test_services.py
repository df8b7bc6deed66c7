"""The private services start, die, come back with their data, and can be paused."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import kombu
import psycopg2
import pytest
import redis
from kazoo.client import KazooClient

from tests.support import binaries
from tests.support.binaries import Missing
from tests.support.plugin import skip_if_missing
from tests.support.postgres import Postgres
from tests.support.rabbitmq import RabbitMQ
from tests.support.redis_server import RedisServer
from tests.support.service import NotStarted
from tests.support.waiting import listens
from tests.support.zookeeper import ZooKeeper

T = TypeVar("T")


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with skip_if_missing():
        server = Postgres()
    with server:
        yield server


def test_redis_keeps_what_it_answered_over_a_kill(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        client.set("stock", 95)

    own_redis.kill()
    was_down = not listens(own_redis.port)
    own_redis.start()

    assert was_down
    with own_redis.client() as client:
        assert client.get("stock") == "95"


def test_redis_without_append_only_forgets_over_a_kill() -> None:
    with RedisServer() as server:
        with server.client() as client:
            client.set("stock", 95)

        server.kill()
        server.start()

        with server.client() as client:
            assert client.get("stock") is None


def test_redis_answers_nothing_while_it_is_paused(own_redis: RedisServer) -> None:
    client = redis.Redis.from_url(own_redis.url, socket_timeout=0.2, retry=None)
    own_redis.pause()

    with pytest.raises(redis.TimeoutError):
        client.ping()

    own_redis.resume()
    assert client.ping()
    client.close()


def test_wipe_loses_the_data(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        client.set("stock", 95)

    own_redis.wipe()
    own_redis.start()

    with own_redis.client() as client:
        assert client.dbsize() == 0


def test_start_and_stop_may_be_repeated() -> None:
    server = RedisServer()

    pid = server.start().pid
    assert server.start().pid == pid
    server.stop()
    server.stop()

    assert not server.is_running


def test_start_tells_why_a_service_ends(own_redis: RedisServer) -> None:
    rival = RedisServer(own_redis.port)

    with pytest.raises(NotStarted, match="Address already in use"):
        rival.start()


def test_postgres_keeps_commits_over_a_kill(own_postgres: Postgres) -> None:
    own_postgres.query("CREATE TABLE sale AS SELECT 7 AS id")

    own_postgres.kill()
    with pytest.raises(psycopg2.OperationalError):
        own_postgres.query("SELECT 1")
    own_postgres.start()

    assert own_postgres.query("SELECT id FROM sale") == [(7,)]


def test_postgres_copies_and_replaces_databases(own_postgres: Postgres) -> None:
    url = own_postgres.create_database("first")
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE sale AS SELECT 7 AS id")
    connection.close()

    copy = own_postgres.create_database("second", template="first")

    connection = psycopg2.connect(copy)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM sale")
        assert cursor.fetchall() == [(7,)]
    assert own_postgres.terminate_connections("second") == 1
    connection.close()


@pytest.mark.long
@pytest.mark.slow
def test_rabbitmq_keeps_durable_messages_over_a_kill(rabbitmq: RabbitMQ, broker_url: str) -> None:
    vhost = broker_url.rpartition("/")[2]
    with kombu.Connection(broker_url, transport_options={"confirm_publish": True}) as connection:
        for queue in ("orders", "timers"):
            kombu.Producer(connection).publish("{}", routing_key=queue, declare=[durable(queue)])

    rabbitmq.kill()
    rabbitmq.start()

    assert rabbitmq.depth("orders", vhost=vhost) == 1
    assert rabbitmq.purge("orders", vhost=vhost) == 1
    assert rabbitmq.depth("orders", vhost=vhost) == 0
    assert rabbitmq.depth("timers", vhost=vhost) == 1


def test_zookeeper_keeps_nodes_over_a_kill(zookeeper: ZooKeeper, zookeeper_hosts: str) -> None:
    path = "/seckill/sold-out/7"
    with_client(zookeeper_hosts, lambda client: client.create(path, b"1", makepath=True))

    zookeeper.kill()
    zookeeper.start()

    assert with_client(zookeeper_hosts, lambda client: client.get(path)[0]) == b"1"


def with_client(hosts: str, call: Callable[[KazooClient], T]) -> T:
    client = KazooClient(hosts, timeout=5)
    client.start(timeout=20)
    try:
        return call(client)
    finally:
        client.stop()
        client.close()


def durable(name: str) -> kombu.Queue:
    return kombu.Queue(name, durable=True)


def test_missing_program_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "find", lambda *_names: None)
    monkeypatch.delenv("REQUIRE_SERVICES", raising=False)

    with pytest.raises(Missing, match=r"^PostgreSQL not found: make services$"):
        Postgres()
    with (
        pytest.raises(pytest.skip.Exception, match="RabbitMQ not found: make services"),
        skip_if_missing(),
    ):
        RabbitMQ()


def test_missing_program_fails_where_services_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "find", lambda *_names: None)
    monkeypatch.setenv("REQUIRE_SERVICES", "1")

    with (
        pytest.raises(pytest.fail.Exception, match="PostgreSQL not found: make services"),
        skip_if_missing(),
    ):
        Postgres()
