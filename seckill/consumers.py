"""Websockets: they forward frames, and say at the start how things stand. They decide nothing.

A client may send `{"type": "ping"}`, and `{"type": "resume"}` to be told again how things stand,
after a sleep or a gap. Frames have ids, so what it knows already is harmless. Whatever it sends, it
gets a frame or a close code, never an error of ours.
"""

import asyncio
import contextlib
import json
import logging
import math
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

from channels.consumer import AsyncConsumer
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from django.db import DatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from orders import notifications
from orders.notifications import Frame
from seckill import catalog, presence
from seckill.sessions import session_user
from seckill.snapshots import snapshot
from seckill.windows import Windows

T = TypeVar("T")

log = logging.getLogger(__name__)

SIGN_IN, BAD_MESSAGE, NOT_FOUND, TOO_FAST = 4401, 4400, 4404, 4429
RESTART = 1012

LONGEST = 4096  # characters of a message
BAD_MESSAGES = 3  # this many close the socket
RATE, RATE_WINDOW = 10, 10.0  # messages per seconds
RECHECK = 20.0  # seconds between two looks at a session that nobody told us about
BACKEND_DEADLINE = 2.5  # seconds for one question to the database
HEARTBEAT = 20.0  # seconds; a client that hears nothing for 45 takes the socket for dead
PUBLIC_EVERY = 0.5  # seconds between two frames about the same sale
SLOWEST = 10.0  # seconds that a client may take to read one frame
LAST_FRAME = 1.0  # the same, when the process ends

_AWAY = (RedisError, DatabaseError, OSError)  # TimeoutError is an OSError.


async def _read(function: Callable[..., T], *args: Any) -> T:
    """Call what blocks in a thread of its own: one slow answer stops no other socket."""
    call = database_sync_to_async(function, thread_sensitive=False)
    async with asyncio.timeout(BACKEND_DEADLINE):
        result: T = await call(*args)
        return result


_open: "set[Socket]" = set()  # of this process
_windows = Windows(partial(_read, catalog.offer), away=_AWAY)


async def close_all() -> None:
    """Send everybody to another process, or to this one's successor; `LAST_FRAME` at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_FRAME):
            # One that is gone already must not keep the others from hearing.
            closing = [socket.close(RESTART) for socket in _open]
            await asyncio.gather(*closing, return_exceptions=True)


class Socket(AsyncConsumer):  # type: ignore[misc]
    """What both sockets share: limits on what comes in, frames going out."""

    groups: list[str]
    closed = False
    too_slow = False
    main: "asyncio.Task[Any] | None" = None
    slowest: ClassVar[float] = SLOWEST
    heartbeat_every: ClassVar[float] = HEARTBEAT

    def __init__(self) -> None:
        self.groups = []
        self.came: deque[float] = deque(maxlen=RATE + 1)
        self.bad = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.main = asyncio.current_task()
        _open.add(self)
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if not self.too_slow:
                raise
        finally:
            _open.discard(self)
            for task in self.tasks:
                task.cancel()
            await self.left()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; it ends with the socket."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.finished)

    def finished(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.info("a socket could not be told: %r", error)

    def give_up(self) -> None:
        """Let go of a client that doesn't read: what waits for it would fill the memory."""
        self.closed = self.too_slow = True
        if self.main is not None:
            self.main.cancel()

    async def left(self) -> None:
        """The layer keeps members for ever unless they are taken out."""
        for group in self.groups:
            with contextlib.suppress(RedisError, OSError):
                await self.channel_layer.group_discard(group, self.channel_name)

    async def join(self, group: str) -> None:
        self.groups.append(group)
        await self.channel_layer.group_add(group, self.channel_name)

    async def websocket_connect(self, message: Mapping[str, Any]) -> None:
        if self.closed:  # The process ends.
            return
        await self.send({"type": "websocket.accept"})
        await self.opened()
        if not self.closed:
            self.start(self.beat())

    async def opened(self) -> None:
        """Join the group first, then tell the present state, so that nothing is missed."""

    async def resume(self) -> None:
        """Tell the present state again."""

    async def beat(self) -> None:
        while not self.closed:
            await asyncio.sleep(self.heartbeat_every)
            await self.tell("ping", {})

    async def websocket_disconnect(self, message: Mapping[str, Any]) -> None:
        raise StopConsumer

    async def websocket_receive(self, message: Mapping[str, Any]) -> None:
        if self.closed:
            return
        now = time.monotonic()
        self.came.append(now)
        if len(self.came) > RATE and now - self.came[0] < RATE_WINDOW:
            await self.close(TOO_FAST)
        else:
            await self.heard(message.get("text"))

    async def heard(self, text: str | None) -> None:
        if text is None or len(text) > LONGEST:
            await self.complain("bad_message", "Send short JSON text.")
            return
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            await self.complain("bad_message", "This is not JSON.")
            return
        kind = said.get("type") if isinstance(said, dict) else None
        if kind == "ping":
            await self.tell("pong", {})
        elif kind == "resume":
            await self.resume()
        else:
            await self.complain("unknown_type", "Only the types ping and resume are understood.")

    async def complain(self, code: str, message: str) -> None:
        self.bad += 1
        await self.tell("error", {"code": code, "message": message})
        if self.bad >= BAD_MESSAGES:
            await self.close(BAD_MESSAGE)

    async def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        event = uuid.uuid4().hex
        await self.forward(notifications.frame(kind, event=event, at=timezone.now(), data=data))

    async def forward(self, sent: Frame) -> None:
        if self.closed:
            return
        try:
            async with asyncio.timeout(self.slowest):
                await self.send({"type": "websocket.send", "text": json.dumps(sent)})
        except TimeoutError:
            self.give_up()

    async def close(self, code: int) -> None:
        if not self.closed:
            self.closed = True
            await self.send({"type": "websocket.close", "code": code})

    async def frame(self, event: Mapping[str, Any]) -> None:
        """From the channel layer: what orders.notifications pushed."""
        await self.forward(event["frame"])


class Me(Socket):
    """A buyer's own results. Ends when the session does."""

    recheck_every: ClassVar[float] = RECHECK
    user_id: int | None = None
    doubt: asyncio.Event

    async def opened(self) -> None:
        self.doubt = asyncio.Event()
        self.user_id = await self.signed_in()
        if self.user_id is None:
            await self.close(SIGN_IN)
            return
        await self.join(notifications.buyer_group(self.user_id))
        await self.make_room(self.user_id)
        await self.resume()
        self.start(self.keep_looking())

    async def resume(self) -> None:
        present = await _read(snapshot, self.user_id)
        await self.tell("hello", {"purchases": present.states})
        for sent in present.frames:
            await self.forward(sent)

    async def left(self) -> None:
        await super().left()
        if self.user_id is not None:
            with contextlib.suppress(RedisError, OSError):
                await presence.leave(self.user_id, self.channel_name)

    async def signed_in(self) -> int | None:
        cookies = [value for name, value in self.scope["headers"] if name == b"cookie"]
        return await _read(session_user, b"; ".join(cookies))

    async def make_room(self, user_id: int) -> None:
        for channel in await presence.enter(user_id, self.channel_name):
            await self.channel_layer.send(channel, {"type": "evicted"})

    async def evicted(self, event: Mapping[str, Any]) -> None:
        """Another socket of this buyer was opened, and it was one too many."""
        await self.close(TOO_FAST)

    async def revalidate(self, event: Mapping[str, Any]) -> None:
        """Somebody signed out or was shut out: is it this session?"""
        self.doubt.set()

    async def keep_looking(self) -> None:
        while not self.closed:
            # Django tells of a sign-out just before it deletes the session: look twice.
            for pause in (0.05, 1.0) if await self.in_doubt() else (0.0,):
                await asyncio.sleep(pause)
                await self.look()

    async def in_doubt(self) -> bool:
        """Wait until it is time to look at the session; True if somebody told us to."""
        try:
            async with asyncio.timeout(self.recheck_every * random.uniform(0.8, 1.2)):
                await self.doubt.wait()
        except TimeoutError:
            return False
        self.doubt.clear()
        return True

    async def look(self) -> None:
        try:
            if await self.signed_in() != self.user_id:
                await self.close(SIGN_IN)
        except _AWAY:
            return  # Not knowing is no reason to shut anybody out; the next look tells.


class Sale(Socket):
    """A sale's changes, for anybody: the latest, at most two in a second."""

    public_every: ClassVar[float] = PUBLIC_EVERY
    told_at = -math.inf
    waiting: "Frame | None" = None

    async def opened(self) -> None:
        await self.join(notifications.sale_group(self.sale_id))
        await self.resume()

    @property
    def sale_id(self) -> int:
        return int(self.scope["url_route"]["kwargs"]["sale_id"])

    async def resume(self) -> None:
        offer = await _read(catalog.offer, self.sale_id)
        if offer is None:
            await self.tell("error", {"code": "not_found", "message": "There is no such sale."})
            await self.close(NOT_FOUND)
            return
        _windows.watch(self, offer)
        await self.tell("hello", catalog.sale_json(offer))

    async def frame(self, event: Mapping[str, Any]) -> None:
        """A newer change takes the place of one that still waits: it says how things stand."""
        _windows.heard(self.sale_id, event["frame"]["type"])
        is_alone, self.waiting = self.waiting is None, event["frame"]
        if is_alone:
            self.start(self.tell_latest())

    async def left(self) -> None:
        _windows.leave(self, self.sale_id)
        await super().left()

    async def tell_latest(self) -> None:
        await asyncio.sleep(max(0.0, self.told_at + self.public_every - time.monotonic()))
        latest, self.waiting = self.waiting, None
        self.told_at = time.monotonic()
        if latest is not None:
            await self.forward(latest)
