"""Publisher and listener: nobody waits, the newest news wins, and both come back."""

import ctypes
import threading
from collections.abc import Callable, Collection, Iterator, Sequence

import pytest
from pytest_django import Settings

from inventory.channel import Channel
from inventory.listening import Listener
from inventory.news import Ear, News
from inventory.publishing import Publisher
from inventory.soldout import Marks
from tests.support.waiting import wait_until

SALE = 1


class Wire:
    """A transport within the process. `broken`: sending fails; `raises`: the next news do."""

    needs_beats = True

    def __init__(self) -> None:
        self.sent: list[list[News]] = []
        self.broken = False
        self.stuck = threading.Event()
        self.stuck.set()
        self.ear: Ear | None = None
        self.inbox: list[Callable[[Ear], None]] = []
        self.connections = 0

    def listen(self, ear: Ear) -> None:
        self.connections += 1
        self.ear = ear
        ear.connected()
        while not ear.stopping.wait(0.01):
            if self.inbox:
                self.inbox.pop(0)(ear)
            ear.check()

    def send(self, news: Sequence[News]) -> None:
        self.stuck.wait(10)
        if self.broken:
            raise OSError("the transport is down")
        self.sent.append(list(news))
        if self.ear is not None:
            self.inbox.append(lambda ear: ear.beat())
            self.inbox.extend(lambda ear, item=item: ear.hear(item) for item in news)  # type: ignore[misc]

    def tidy(self, keep: Collection[int]) -> int:
        return 0

    def close(self) -> None:
        pass

    @property
    def news(self) -> list[News]:
        """All that was sent, without its age."""
        return [item._replace(age=0) for items in self.sent for item in items]


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def marks() -> Marks:
    return Marks()


@pytest.fixture
def channel(wire: Wire, marks: Marks) -> Iterator[Channel]:
    channel = Channel(wire, marks)
    yield channel
    wire.stuck.set()
    channel.close()


def listener(channel: Channel) -> Listener:
    assert channel.listener is not None
    return channel.listener


def start(channel: Channel) -> None:
    channel.start()
    wait_until(lambda: listener(channel).state == "ok")


def test_news_reach_the_marks_of_who_listens(channel: Channel, marks: Marks) -> None:
    start(channel)

    channel.publish(News(SALE, 5, True))
    wait_until(lambda: marks.refuses(SALE))
    channel.publish(News(SALE, 6, False))

    wait_until(lambda: not marks.refuses(SALE))
    assert marks.believed() == {SALE: False}


def test_a_change_of_another_kind_drops_the_mark_but_keeps_its_epoch(
    channel: Channel, marks: Marks
) -> None:
    start(channel)
    marks.observe(SALE, epoch=5, sold_out=True, seen_at=listener(channel)._last_word)

    channel.publish(News(SALE, 0, False))

    wait_until(lambda: marks.believed() == {SALE: False})
    assert not marks.observe(SALE, epoch=4, sold_out=True, seen_at=0)


def test_newest_news_wait_while_the_transport_is_stuck(channel: Channel, wire: Wire) -> None:
    wire.stuck.clear()
    channel.publish(News(2, 1, True))  # This one hangs.
    wait_until(lambda: not channel._publisher._waiting)

    for item in (
        News(SALE, 7, True),
        News(SALE, 8, False),
        News(SALE, 6, True),
        News(SALE, 0, False),
    ):
        channel.publish(item)
    wire.stuck.set()

    wait_until(lambda: len(wire.news) == 3)
    assert wire.news == [News(2, 1, True), News(SALE, 8, False), News(SALE, 0, False)]


def test_news_are_sent_again_after_a_failure(channel: Channel, wire: Wire) -> None:
    wire.broken = True
    channel.publish(News(SALE, 7, True))
    wait_until(lambda: channel._publisher._waiting)

    wire.broken = False

    wait_until(lambda: wire.news == [News(SALE, 7, True)])


def test_sold_out_that_waited_longer_than_its_mark_would_last_is_not_sent(
    channel: Channel, wire: Wire, settings: Settings
) -> None:
    settings.SOLD_OUT_TTL = 0.3
    wire.stuck.clear()
    channel.publish(News(2, 1, False))  # This one hangs.
    wait_until(lambda: not channel._publisher._waiting)
    channel.publish(News(SALE, 7, True, age=0.4))
    channel.publish(News(3, 7, False, age=0.4))
    wire.stuck.set()

    wait_until(lambda: len(wire.news) == 2)
    assert wire.news == [News(2, 1, False), News(3, 7, False)]


def test_mark_counts_from_when_its_news_was_learnt(channel: Channel, marks: Marks) -> None:
    start(channel)

    channel.publish(News(SALE, 5, True, age=1.0))

    wait_until(lambda: marks.believed() == {SALE: True})
    assert marks._marks[SALE].seen_at < listener(channel)._last_word - 0.9


def test_publisher_keeps_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inventory.publishing.MAX_WAITING", 3)
    publisher = Publisher(Wire())
    monkeypatch.setattr(publisher, "ensure", lambda: None)

    for sale_id in range(10):
        publisher.put(News(sale_id, 1, True))

    assert [key for key, _ in publisher._waiting] == [0, 1, 2]


def test_callback_that_raises_costs_a_connection_and_all_marks(
    channel: Channel, wire: Wire, marks: Marks
) -> None:
    start(channel)
    marks.observe(SALE, epoch=1, sold_out=True, seen_at=listener(channel)._last_word)

    def explode(_ear: Ear) -> None:
        raise ValueError("a bug")

    wire.inbox.append(explode)

    wait_until(lambda: wire.connections == 2, 3)
    wait_until(lambda: listener(channel).state == "ok", 3)
    assert marks.believed() == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_listener_thread_that_is_killed_is_replaced(channel: Channel, wire: Wire) -> None:
    start(channel)
    victim = listener(channel)._thread
    assert victim is not None
    number = ctypes.c_ulong(victim.ident or 0)

    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(SystemExit))

    wait_until(lambda: not victim.is_alive(), 3)
    wait_until(lambda: wire.connections == 2, 3)
    wait_until(lambda: listener(channel).state == "ok", 3)


def test_silence_makes_the_listener_late_and_connect_anew(
    channel: Channel, wire: Wire, marks: Marks, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr("inventory.listening.DEAF_AFTER", 0.3)
    settings.SOLD_OUT_TTL = 0.3
    start(channel)
    wire.broken = True
    marks.observe(SALE, epoch=1, sold_out=True, seen_at=listener(channel)._last_word + 100)

    wait_until(lambda: wire.connections >= 2, 5)

    assert marks.believed() == {}
    wire.broken = False
    wait_until(lambda: listener(channel).state == "ok", 5)
