"""News about marks over ZooKeeper: a node for each sale, `/seckill/sold-out/<sale>`.

A node holds `{"epoch", "sold_out", "changed", "age"}`; `changed` is a new text whenever something
else about the sale changed. Watches only say *which* node to read again, so it doesn't matter how
often they fire. A connection that was lost is never mended but replaced, with everything read
anew: the session holds nothing worth keeping, and kazoo may wait for ever for a server that lost
its data.

What is there already when a connection begins may be as old as it likes, so it tells the epoch but
refuses nobody; what changes from then on is news.

Each look ends with an answer of the server. Within a session watches come before later answers, so
that answer is the heartbeat.
"""

import json
import logging
import threading
import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.security import make_digest_acl

from inventory.news import Ear, News

log = logging.getLogger(__name__)

ROOT = "/seckill/sold-out"
SESSION = 6.0  # seconds
PATIENCE = 2.0  # seconds for one answer of the server
TICK = 0.5  # seconds between two looks when nothing fires
GATHER = 0.05  # seconds between two looks when much fires
TRIES = 5  # to write a node that others write too


class Lost(Exception):
    """Raised when the connection isn't what it was."""


class State(NamedTuple):
    """`age`: seconds since it was learnt, when it was written."""

    epoch: int = 0
    sold_out: bool = False
    changed: str = ""
    age: float = 0.0

    @classmethod
    def parse(cls, data: bytes) -> "State":
        """What can't be read counts as nothing known."""
        try:
            value = json.loads(data)
            epoch, sold_out = int(value["epoch"]), bool(value["sold_out"])
            return cls(epoch, sold_out, str(value.get("changed", "")), float(value.get("age", 0)))
        except (ValueError, TypeError, LookupError, AttributeError):
            return cls()

    def after(self, news: News) -> "State":
        """The state with these news; an older epoch changes nothing."""
        if not news.epoch:
            return State(self.epoch, False, uuid.uuid4().hex)
        if news.epoch <= self.epoch:
            return self
        return State(news.epoch, news.sold_out, self.changed, round(news.age, 3))

    def dump(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class ZooKeeper:
    """Listening and sending share one client; who meets trouble throws it away for both."""

    needs_beats = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None

    # --- listening --------------------------------------------------------------------------------

    def listen(self, ear: Ear) -> None:
        client = self._acquire()
        view = _View(client, ear)
        client.add_listener(view.state_changed)
        try:
            client.ensure_path_async(ROOT).get(timeout=PATIENCE)
            ear.connected()
            while not ear.stopping.is_set():
                view.look()
                ear.beat()
                view.wait()
                if client is not self._client or not client.connected:
                    raise Lost("connection lost")
        finally:
            client.remove_listener(view.state_changed)
            self._discard(client)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, news: Sequence[News]) -> None:
        client = self._acquire()
        try:
            for item in news:
                _write(client, item)
        except BaseException:
            self._discard(client)
            raise

    def tidy(self, keep: Collection[int]) -> int:
        """Remove the nodes of all other sales; returns how many."""
        client = self._acquire()
        try:
            names = _children(client)
            stale = [name for name in names if not name.isdecimal() or int(name) not in keep]
            for name in stale:
                _delete(client, f"{ROOT}/{name}")
        except BaseException:
            self._discard(client)
            raise
        return len(stale)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            _end(client)

    # --- the client -------------------------------------------------------------------------------

    def _acquire(self) -> Any:
        """This process's client, connected. Raises Lost if nobody answers in time."""
        with self._lock:
            if self._client is not None and not self._client.connected:
                # Kazoo would come back by itself, but slowly, and not at all if data got lost.
                _end_aside(self._client)
                self._client = None
            if self._client is None:
                self._client = _connect()
            return self._client

    def _discard(self, client: Any) -> None:
        with self._lock:
            if client is self._client:
                self._client = None
        _end_aside(client)


def _connect() -> Any:
    user, password = settings.ZOOKEEPER_USER, settings.ZOOKEEPER_PASSWORD
    secured: dict[str, Any] = {}
    if user:
        secured["auth_data"] = [("digest", f"{user}:{password}")]
        secured["default_acl"] = [make_digest_acl(user, password, all=True)]
    client = KazooClient(hosts=settings.ZOOKEEPER_HOSTS, timeout=SESSION, **secured)
    connected = client.start_async()
    try:
        if not (connected.wait(PATIENCE) and client.connected):
            raise Lost("ZooKeeper doesn't answer")
        _make_chroot(client)
    except BaseException:
        _end_aside(client)
        raise
    return client


def _make_chroot(client: Any) -> None:
    """Kazoo makes paths below it, but not the chroot itself."""
    chroot = client.chroot
    if chroot:
        client.chroot = ""
        try:
            client.ensure_path_async(chroot).get(timeout=PATIENCE)
        finally:
            client.chroot = chroot


def _end_aside(client: Any) -> None:
    """In a thread of its own: to end a connection that hangs takes kazoo ten seconds."""
    threading.Thread(target=_end, args=(client,), name="zookeeper-end", daemon=True).start()


def _end(client: Any) -> None:
    try:
        client.stop()
        client.close()
    except Exception as error:  # noqa: BLE001 - it is thrown away, whatever state it is in
        log.debug("while a ZooKeeper client was ended: %r", error)


class _View:
    """What was read last. The callbacks run in kazoo's thread and only write down what to read."""

    def __init__(self, client: Any, ear: Ear) -> None:
        self._client = client
        self._ear = ear
        self._poked = threading.Event()
        self._lock = threading.Lock()
        self._stale: set[str] = set()
        self._children_stale = True
        self._is_first = True
        self._lost = False
        self._changed: dict[str, str] = {}

    # --- called by kazoo --------------------------------------------------------------------------

    def state_changed(self, state: str) -> None:
        if state != KazooState.CONNECTED:
            self._lost = True
            self._poked.set()

    def node_fired(self, event: Any) -> None:
        with self._lock:
            self._stale.add(event.path.rpartition("/")[2])
        self._poked.set()

    def children_fired(self, _event: Any) -> None:
        self._children_stale = True
        self._poked.set()

    # --- called by the listener -------------------------------------------------------------------

    def wait(self) -> None:
        if self._poked.wait(TICK):
            self._ear.stopping.wait(GATHER)
        self._poked.clear()
        if self._lost:
            raise Lost("connection lost")

    def look(self) -> None:
        """Read what fired, with new watches; raises if the server doesn't answer in time."""
        if self._children_stale:
            self._children_stale = False
            names = self._client.get_children_async(ROOT, watch=self.children_fired)
            with self._lock:
                self._stale |= set(names.get(timeout=PATIENCE)) - self._changed.keys()
        with self._lock:
            stale, self._stale = self._stale, set()
        if stale:
            self._read(stale)
        else:
            self._client.exists_async(ROOT).get(timeout=PATIENCE)
        self._is_first = False

    def _read(self, names: Iterable[str]) -> None:
        answers = [
            (name, self._client.get_async(f"{ROOT}/{name}", watch=self.node_fired))
            for name in names
            if name.isdecimal()
        ]
        for name, answer in answers:
            try:
                data, _stat = answer.get(timeout=PATIENCE)
            except NoNodeError:
                self._changed.pop(name, None)
                self._ear.hear(News(int(name), 0, False))
            else:
                self._take(name, State.parse(data))

    def _take(self, name: str, state: State) -> None:
        known = self._changed.get(name, "")
        self._changed[name] = state.changed
        if state.changed != known:
            self._ear.hear(News(int(name), 0, False))
        if state.epoch:
            sold_out = state.sold_out and not self._is_first
            self._ear.hear(News(int(name), state.epoch, sold_out, state.age))


def _write(client: Any, news: News) -> None:
    """Only over what was read: who comes second reads again, so an older epoch never wins."""
    path = f"{ROOT}/{news.sale_id}"
    for _ in range(TRIES):
        try:
            data, stat = client.get_async(path).get(timeout=PATIENCE)
            known = State.parse(data)
            state = known.after(news)
            if state != known:
                client.set_async(path, state.dump(), version=stat.version).get(timeout=PATIENCE)
        except NoNodeError:
            if _create(client, path, State().after(news)):
                return
        except BadVersionError:
            continue
        else:
            return
    raise Lost(f"{path} is written too often by others")


def _create(client: Any, path: str, state: State) -> bool:
    try:
        client.create_async(path, state.dump(), makepath=True).get(timeout=PATIENCE)
    except NodeExistsError:
        return False
    return True


def _children(client: Any) -> list[str]:
    try:
        names: list[str] = client.get_children_async(ROOT).get(timeout=PATIENCE)
    except NoNodeError:
        return []
    return names


def _delete(client: Any, path: str) -> None:
    try:
        client.delete_async(path).get(timeout=PATIENCE)
    except NoNodeError:
        pass  # Somebody else was faster.
