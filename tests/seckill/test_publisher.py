"""What the web sends to the broker, whatever the broker does."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from amqp.exceptions import AMQPError
from django.conf import settings as django_settings
from kombu import Connection
from kombu.exceptions import OperationalError
from pytest_django.fixtures import Settings
from redis.exceptions import RedisError

from seckill import publisher as module
from seckill.publisher import Entry, Publisher, Sender, unpublished
from tests.support.proxy import FaultProxy, Mode
from tests.support.waiting import wait_until

AWAY = (OSError, OperationalError, RedisError, AMQPError)
QUEUE = f"{django_settings.REDIS_PREFIX}celery:orders"


class Broker:
    """Fails while it is `down`; holds each message back until `gate` is set."""

    def __init__(self) -> None:
        self.down = False
        self.gate = threading.Event()
        self.gate.set()
        self.tries = 0
        self.messages: list[tuple[int, list[Entry]]] = []
        self.closed = False

    def __call__(self, sale_id: int, entries: list[Entry]) -> None:
        self.tries += 1
        assert self.gate.wait(10)
        if self.down:
            raise OSError("down")
        self.messages.append((sale_id, list(entries)))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def publisher(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setattr(module, "PAUSE", 0.02)
    publisher = Publisher(broker)
    yield publisher
    broker.gate.set()
    publisher.close()


def entries(*names: object) -> list[Entry]:
    return [[f"purchase-{name}", 1, 1] for name in names]


def left_to_the_sweep() -> float:
    return float(unpublished._value.get())


def test_put_sends_at_once(publisher: Publisher, broker: Broker) -> None:
    publisher.put(7, entries("a", "b"))

    wait_until(lambda: broker.messages)
    assert broker.messages == [(7, entries("a", "b"))]


def test_put_never_waits_for_the_broker(publisher: Publisher, broker: Broker) -> None:
    broker.gate.clear()
    begun = time.monotonic()

    for number in range(1000):
        publisher.put(7, entries(number))

    assert time.monotonic() - begun < 1
    assert broker.messages == []


def test_what_waits_is_sent_together_and_sales_take_turns(
    publisher: Publisher, broker: Broker
) -> None:
    broker.gate.clear()
    publisher.put(1, entries("first"))
    wait_until(lambda: broker.tries == 1)
    many = entries(*range(django_settings.ORDER_BATCH + 50))
    for entry in many:
        publisher.put(1, [entry])
    publisher.put(2, entries("x"))
    publisher.put(2, entries("y"))

    broker.gate.set()

    wait_until(lambda: len(broker.messages) == 4)
    assert broker.messages == [
        (1, entries("first")),
        (1, many[: django_settings.ORDER_BATCH]),
        (2, entries("x", "y")),
        (1, many[django_settings.ORDER_BATCH :]),
    ]


def test_failed_message_is_tried_again_in_its_place(publisher: Publisher, broker: Broker) -> None:
    broker.down = True
    publisher.put(1, entries("a"))
    wait_until(lambda: broker.tries >= 2)
    publisher.put(1, entries("b"))

    broker.down = False

    wait_until(lambda: sum(len(sent) for _, sent in broker.messages) == 2)
    assert [entry for _, sent in broker.messages for entry in sent] == entries("a", "b")


def test_old_purchases_are_left_to_the_sweep(
    publisher: Publisher, broker: Broker, settings: Settings
) -> None:
    settings.ADMIT_RETRY_AFTER = 0.1
    before = left_to_the_sweep()
    broker.down = True
    publisher.put(1, entries("a", "b"))
    wait_until(lambda: left_to_the_sweep() == before + 2)
    tries = broker.tries

    broker.down = False
    publisher.put(1, entries("c"))

    wait_until(lambda: broker.messages)
    assert broker.messages == [(1, entries("c"))]
    assert broker.tries == tries + 1


def test_too_many_are_left_to_the_sweep(
    publisher: Publisher, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    before = left_to_the_sweep()
    broker.gate.clear()
    publisher.put(1, entries("under way"))
    wait_until(lambda: broker.tries == 1)

    publisher.put(1, entries("a", "b"))
    publisher.put(2, entries("c", "d"))
    publisher.put(2, entries("e"))

    assert left_to_the_sweep() == before + 2
    broker.gate.set()
    wait_until(lambda: len(broker.messages) == 3)
    assert broker.messages[1:] == [(1, entries("a", "b")), (2, entries("e"))]


def test_close_sends_what_waits(publisher: Publisher, broker: Broker) -> None:
    broker.gate.clear()
    for number in range(3):
        publisher.put(number, entries(number))
    threading.Timer(0.1, broker.gate.set).start()

    publisher.close()

    assert broker.messages == [(number, entries(number)) for number in range(3)]
    assert broker.closed


def test_close_does_not_wait_for_a_broker_that_hangs(publisher: Publisher, broker: Broker) -> None:
    broker.gate.clear()
    publisher.put(1, entries("a"))
    begun = time.monotonic()

    publisher.close(timeout=0.2)

    assert time.monotonic() - begun < 1


def test_close_gives_up_on_a_broker_that_is_down(publisher: Publisher, broker: Broker) -> None:
    broker.down = True
    publisher.put(1, entries("a"))
    wait_until(lambda: broker.tries >= 1)

    publisher.close()

    wait_until(lambda: broker.closed)


def test_put_after_close_is_left_to_the_sweep(publisher: Publisher, broker: Broker) -> None:
    publisher.put(1, entries("a"))
    publisher.close()
    before = left_to_the_sweep()

    publisher.put(1, entries("b"))

    assert left_to_the_sweep() == before + 1
    assert broker.messages == [(1, entries("a"))]


# --- the sender, to a real broker -----------------------------------------------------------------


@pytest.fixture
def sender() -> Iterator[Sender]:
    sender = Sender()
    yield sender
    sender.close()


@pytest.fixture
def way(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    port = int(redis_url.rpartition(":")[2].partition("/")[0])
    with FaultProxy(port) as proxy:
        monkeypatch.setenv("CELERY_BROKER_WRITE_URL", proxy.url(redis_url))
        yield proxy


def arguments(message: bytes) -> Any:
    return json.loads(base64.b64decode(json.loads(message)["body"]))[0]


def test_sender_writes_what_the_worker_reads(sender: Sender, redis_client: Any) -> None:
    sender(7, entries("a", "b"))
    sender(8, entries("c"))

    messages = [arguments(message) for message in redis_client.lrange(QUEUE, 0, -1)]
    assert messages == [[8, entries("c")], [7, entries("a", "b")]]


@pytest.mark.parametrize("mode", ["refuse", "cut", "blackhole"])
def test_sender_fails_in_time_and_works_again(
    sender: Sender, redis_client: Any, way: FaultProxy, mode: Mode, settings: Settings
) -> None:
    settings.BROKER_TIMEOUT = 0.5
    sender(1, entries("before"))
    way.set(mode)
    begun = time.monotonic()

    with pytest.raises(AWAY):
        sender(1, entries("lost"))

    assert time.monotonic() - begun < 3
    way.heal()
    sender(1, entries("after"))
    assert arguments(redis_client.lindex(QUEUE, 0)) == [1, entries("after")]


def test_publisher_delivers_when_the_broker_comes_back(
    redis_client: Any, way: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.05)
    publisher = Publisher()
    way.set("refuse")
    publisher.put(7, entries("a"))
    publisher.put(7, entries("b"))
    assert redis_client.llen(QUEUE) == 0

    way.heal()

    wait_until(lambda: redis_client.llen(QUEUE))
    publisher.close()
    sent = [arguments(message)[1] for message in redis_client.lrange(QUEUE, 0, -1)]
    assert sorted(entry[0] for batch in sent for entry in batch) == ["purchase-a", "purchase-b"]


@pytest.mark.slow
def test_sender_over_amqp_fails_in_time_and_works_again(
    sender: Sender, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        **dict.fromkeys(("confirm_timeout", "read_timeout", "write_timeout"), 1.0),
        "confirm_publish": True,
        "connect_timeout": 1.0,
    }
    monkeypatch.setattr(django_settings, "CELERY_BROKER_TRANSPORT_OPTIONS", options)
    with FaultProxy(urlsplit(broker_url).port or 5672) as way:
        monkeypatch.setenv("CELERY_BROKER_WRITE_URL", way.url(broker_url))
        sender(1, entries("before"))
        for mode in ("refuse", "blackhole"):
            way.set(mode)
            begun = time.monotonic()
            with pytest.raises(AWAY):
                sender(1, entries("lost"))
            assert time.monotonic() - begun < 4
            way.heal()
            sender(1, entries("after"))
        sender.close()

    with Connection(broker_url) as connection:
        channel: Any = connection.channel()
        messages = iter(lambda: channel.basic_get("orders", no_ack=True), None)
        names = [json.loads(message.body)[0][1][0][0] for message in messages]
    # What was lost on the way may have arrived all the same.
    assert [name for name in names if name != "purchase-lost"] == [
        "purchase-before",
        "purchase-after",
        "purchase-after",
    ]
