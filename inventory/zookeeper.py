"""News about marks over ZooKeeper: a node for each sale, `/seckill/sold-out/<sale>`.

A node holds the sale's epoch and state; the node above them holds the latest news of all, and is
the one that everybody watches: a watch on each sale's node costs each process a millisecond for
each change. Both are written in one transaction, on the condition that nobody else wrote meanwhile.
The watch only says that there is something to read, so it doesn't matter how often it fires.

What is there already when a connection begins may be as old as it likes, so it tells the epoch but
refuses nobody; what comes from then on is news. A connection that was lost is never mended but
replaced, with everything read anew: the session holds nothing worth keeping, and kazoo may wait for
ever for a server that lost its data.

Each look ends with an answer of the server. Within a session watches come before later answers, so
that answer is the heartbeat.
"""

import logging
import random
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.conf import settings
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.security import make_digest_acl

from inventory.news import Ear, News
from inventory.nodes import Bulletin, State

log = logging.getLogger(__name__)

ROOT = "/seckill/sold-out"
SESSION = 6.0  # seconds
PATIENCE = 2.0  # seconds for one answer of the server
TICK = 0.5  # seconds between two looks when nothing fires
GATHER = 0.3  # seconds between two looks when much fires
TRIES = 10  # to write what others write too
PAUSE = 0.02  # seconds between two of them, at most
MOST_TOGETHER = 100  # news in one transaction


class Lost(Exception):
    """Raised when the connection isn't what it was."""


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
            for start in range(0, len(news), MOST_TOGETHER):
                _write(client, news[start : start + MOST_TOGETHER])
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
    """What was read last. The callbacks run in kazoo's thread and only note what to do."""

    def __init__(self, client: Any, ear: Ear) -> None:
        self._client = client
        self._ear = ear
        self._poked = threading.Event()
        self._fired = True
        self._lost = False
        self._number: int | None = None
        self._looked_at = 0.0

    # --- called by kazoo --------------------------------------------------------------------------

    def state_changed(self, state: str) -> None:
        if state != KazooState.CONNECTED:
            self._lost = True
            self._poked.set()

    def fired(self, _event: Any) -> None:
        self._fired = True
        self._poked.set()

    # --- called by the listener -------------------------------------------------------------------

    def wait(self) -> None:
        if self._poked.wait(TICK):
            self._ear.stopping.wait(max(0, self._looked_at + GATHER - time.monotonic()))
        self._poked.clear()
        if self._lost:
            raise Lost("connection lost")

    def look(self) -> None:
        """Read the news, with a new watch; raises if the server doesn't answer in time."""
        self._looked_at = time.monotonic()
        if not self._fired:
            self._client.exists_async(ROOT).get(timeout=PATIENCE)
            return
        self._fired = False
        data, _stat = self._client.get_async(ROOT, watch=self.fired).get(timeout=PATIENCE)
        bulletin = Bulletin.parse(data)
        if self._number is None:
            self._learn_epochs()
        else:
            self._take(bulletin.since(self._number))
        self._number = bulletin.number

    def _learn_epochs(self) -> None:
        names = [name for name in _children(self._client) if name.isdecimal()]
        for name, (data, _version) in zip(names, _read(self._client, names), strict=True):
            if epoch := State.parse(data).epoch:
                self._ear.hear(News(int(name), epoch, False))

    def _take(self, news: list[News] | None) -> None:
        if news is None:
            self._ear.connected()  # Some were missed, and nobody can tell which: begin anew.
            self._learn_epochs()
        for item in news or ():
            self._ear.hear(item)


def _read(client: Any, names: Iterable[object]) -> list[tuple[bytes, int | None]]:
    """Data and version of the sales' nodes; version None: there is no such node."""
    answers = [client.get_async(f"{ROOT}/{name}") for name in names]
    found: list[tuple[bytes, int | None]] = []
    for answer in answers:
        try:
            data, stat = answer.get(timeout=PATIENCE)
        except NoNodeError:
            found.append((b"", None))
        else:
            found.append((data, stat.version))
    return found


def _write(client: Any, news: Sequence[News]) -> None:
    """Only over what was read: who comes second reads again, so an older epoch never wins."""
    for _ in range(TRIES):
        if _try_to_write(client, news):
            return
        time.sleep(random.uniform(0, PAUSE))
    raise Lost(f"{ROOT} is written too often by others")


def _try_to_write(client: Any, news: Sequence[News]) -> bool:
    try:
        data, stat = client.get_async(ROOT).get(timeout=PATIENCE)
    except NoNodeError:
        client.ensure_path_async(ROOT).get(timeout=PATIENCE)
        return False
    transaction, told = client.transaction(), []
    nodes = _read(client, [item.sale_id for item in news])
    for item, (known, version) in zip(news, nodes, strict=True):
        if not item.epoch:
            told.append(item)
        elif item.epoch > State.parse(known).epoch:
            told.append(item)
            _set(transaction, item, version)
    if not told:
        return True
    transaction.set_data(ROOT, Bulletin.parse(data).after(told).dump(), stat.version)
    results = transaction.commit_async().get(timeout=PATIENCE)
    return not any(isinstance(result, KazooException) for result in results)


def _set(transaction: Any, news: News, version: int | None) -> None:
    path, state = f"{ROOT}/{news.sale_id}", State(news.epoch, news.sold_out).dump()
    if version is None:
        transaction.create(path, state)
    else:
        transaction.set_data(path, state, version)


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
