"""Django's synchronous request chain in a persistent thread pool, as an ASGI application.

One request costs one hop into a thread and one wake-up of the event loop. Bodies are read in the
event loop, so a slow client holds no thread; a request without an answer at its deadline gets a
503 while its thread ends alone. Threads keep their database connections, as under WSGI.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from django.core import signals
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest, get_script_name
from django.db import close_old_connections, reset_queries
from django.urls import get_resolver, set_script_prefix

from config import pool_pages
from config.pool_request import (
    ClientGone,
    Environ,
    Receive,
    Refusal,
    Scope,
    make_environ,
    read_body,
)
from config.pool_threads import Job, Threads, settle

MAX_BODY = 10 * 1024 * 1024  # bytes
CHUNK = 64 * 1024  # bytes of a file sent at once
STALL = 30.0  # seconds that a client may take for one chunk
WATCH_AFTER = 0.1  # seconds; a request that waits longer looks whether its client left
BODILESS = frozenset({204, 304})

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
T = TypeVar("T")

logger = logging.getLogger("django.request")


class StreamBroken(Exception):
    """The answer broke off after its head; only a closed connection tells the client.

    Never let it reach the server: an error after the head ends daphne's housekeeping for good.
    """


class Head(NamedTuple):
    """A whole answer, or (`body` is None) the start of a stream."""

    status: int
    headers: Headers
    body: bytes | None


class Handler(WSGIHandler):
    """Django's handler up to the response, without what belongs to a WSGI server."""

    def respond(self, environ: Environ) -> Any:
        set_script_prefix(get_script_name(environ))
        signals.request_started.send(sender=self.__class__, environ=environ)
        response = self.get_response(WSGIRequest(environ))
        vars(response)["_handler_class"] = self.__class__  # The sender of request_finished.
        return response


class Exchange(Job):
    """One HTTP request and its answer, between the event loop and a thread."""

    def __init__(self, load: Callable[[], Handler], environ: Environ) -> None:
        super().__init__()
        self._load = load
        self._environ = environ
        # The loop asks for each chunk of a stream with a future; None: nobody listens any more.
        self._asked: SimpleQueue[asyncio.Future[bytes | None] | None] = SimpleQueue()
        self._chunk: asyncio.Future[bytes | None] | None = None
        self._interrupted: Exception | None = None

    # In the thread.

    def work(self) -> None:
        try:
            response = self._load().respond(self._environ)
        except BaseException:  # Django itself failed, or SystemExit: as a WSGI server, a bare 500.
            logger.exception("No response to %s", self._environ["PATH_INFO"])
            self.settle(_failed())
            signals.request_finished.send(sender=Handler)
        else:
            self._hand_over(response)
        finally:
            self.close_body()

    def _hand_over(self, response: Any) -> None:
        try:
            status = response.status_code
            bodiless = status in BODILESS or self._environ["REQUEST_METHOD"] == "HEAD"
            if response.streaming and not bodiless:
                self.settle(Head(status, _headers(response), None))
                self._stream(response)
            else:
                body = b"" if bodiless else response.content
                self.settle(Head(status, _headers(response), body))
        finally:
            response.close()  # Sends request_finished.

    def _stream(self, response: Any) -> None:
        if getattr(response, "file_to_stream", None) is not None:
            response.block_size = CHUNK
        chunks = _chunks(response)
        while (asked := self._asked.get()) is not None:
            chunk = self._next(chunks)
            self.settle(chunk, asked)
            if not isinstance(chunk, bytes):
                return

    def _next(self, chunks: Iterator[bytes]) -> bytes | StreamBroken | None:
        try:
            return next(chunks, None)
        except BaseException as error:  # No error may look like the end of the stream.
            logger.exception("Stream of %s broke", self._environ["PATH_INFO"])
            return StreamBroken(repr(error))

    # In the event loop.

    def close_body(self) -> None:
        self._environ["wsgi.input"].close()

    async def next_chunk(self) -> bytes | None:
        """The next piece of the stream, None at its end; raises StreamBroken, ClientGone."""
        if self._interrupted is not None:
            raise self._interrupted  # It came while the loop was busy with the last chunk.
        self._chunk = self.loop.create_future()
        self._asked.put(self._chunk)
        return await self._chunk

    def interrupt(self, error: Exception) -> None:
        """End the wait for the head or for a chunk, now or when it begins."""
        self._interrupted = error
        for future in (self.outcome, self._chunk):
            if future is not None:
                settle(future, error)

    def hang_up(self) -> None:
        """Tell the thread that no chunk will be asked for any more."""
        self._asked.put(None)


class Watch:
    """Ends the wait for an exchange when its deadline passes or its client leaves.

    Most answers come before the first look, so they don't pay for a task that listens.
    """

    def __init__(self, exchange: Exchange, receive: Receive, *, deadline: float) -> None:
        self._exchange, self._receive = exchange, receive
        self._task: asyncio.Task[None] | None = None
        self.expired = False
        first = min(WATCH_AFTER, deadline)
        self._timer = exchange.loop.call_later(first, self._wait_on, deadline - first)

    def _wait_on(self, rest: float) -> None:
        self.listen()
        self._timer = self._exchange.loop.call_later(rest, self._expire)

    def _expire(self) -> None:
        if not self._exchange.outcome.done():
            self.expired = True
            self._exchange.interrupt(_unavailable())

    def listen(self) -> None:
        if self._task is None:
            self._task = self._exchange.loop.create_task(self._listen())

    async def _listen(self) -> None:
        # Bounded, because a server may repeat the empty end of the body instead of waiting.
        for _ in range(3):
            if (await self._receive())["type"] == "http.disconnect":
                self._exchange.interrupt(ClientGone())
                return

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


class Call(Job):
    """A plain function for a pool thread; its outcome is a tuple of one."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__()
        self._call = call

    def work(self) -> None:
        reset_queries()
        close_old_connections()
        try:
            self.settle((self._call(),))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits the call
            self.settle(error)
        finally:
            close_old_connections()


class PooledDjango:
    """The ASGI application; `run` lends its threads to other synchronous work."""

    def __init__(
        self,
        *,
        threads: int = 8,
        queue_size: int = 1024,
        deadline: float = 2.8,
        max_body: int = MAX_BODY,
        body_deadline: float = 30.0,
    ) -> None:
        """Times in seconds, `max_body` in bytes; nothing is loaded or started yet."""
        self._threads = Threads(size=threads, queue_size=queue_size)
        self._deadline = deadline
        self._max_body, self._body_deadline = max_body, body_deadline
        self._handler: Handler | None = None
        self._loading = threading.Lock()

    @property
    def stuck(self) -> int:
        """Threads at work on something whose deadline has passed."""
        return self._threads.stuck

    def load(self) -> Handler:
        """Load middleware and URLs, once; the first request does it if nobody else did."""
        if self._handler is None:
            with self._loading:
                if self._handler is None:
                    _ = get_resolver().url_patterns  # Imports every view.
                    self._handler = Handler()
        return self._handler

    def close(self, *, timeout: float = 5.0) -> None:
        """Refuse new work and wait at most `timeout` seconds for what is under way."""
        self._threads.close(timeout=timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"only http is served here, not {scope['type']}")
        try:
            body, length = await read_body(
                scope, receive, limit=self._max_body, deadline=self._body_deadline
            )
            exchange = Exchange(self.load, make_environ(scope, body, length))
            await self._serve(exchange, receive, send)
        except Refusal as refusal:
            await _refuse(refusal, scope, send)
        except StreamBroken:
            _hang_up(send)
        except ClientGone:
            pass

    async def _serve(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        if not self._threads.submit(exchange):
            exchange.close_body()
            raise _unavailable()
        watch = Watch(exchange, receive, deadline=self._deadline)
        try:
            head: Head = await exchange.outcome
            await _send_answer(head, exchange, watch, send)
        finally:
            watch.end()
            exchange.hang_up()
            if self._threads.drop(exchange, overdue=watch.expired):
                exchange.close_body()

    async def run(self, func: Callable[..., T], *args: Any, deadline: float | None = None) -> T:
        """The function's result, from a pool thread with usable database connections.

        Raises TimeoutError after `deadline` seconds (None: the pool's own) or if no thread can
        take it; a function that had started still runs to its end.
        """
        job = Call(partial(func, *args))
        if not self._threads.submit(job):
            raise TimeoutError("no thread is free")
        seconds = self._deadline if deadline is None else deadline
        late = TimeoutError(f"no result after {seconds:g} seconds")
        timer = job.loop.call_later(seconds, settle, job.outcome, late)
        try:
            result: tuple[T] = await job.outcome
        finally:
            timer.cancel()
            overdue = job.outcome.done() and not job.outcome.cancelled()
            self._threads.drop(job, overdue=overdue and job.outcome.exception() is late)
        return result[0]


def _unavailable() -> Refusal:
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", pool_pages.BUSY)


def _failed() -> Refusal:
    detail = "Something went wrong on our side."
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", detail)


def _headers(response: Any) -> Headers:
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in response.items()
    ]
    if response.status_code in BODILESS:
        headers = [pair for pair in headers if pair[0] != b"content-length"]
    for cookie in response.cookies.values():
        headers.append((b"set-cookie", cookie.OutputString().encode("latin-1")))
    return headers


def _chunks(response: Any) -> Iterator[bytes]:
    yield from filter(None, response)


async def _send_answer(head: Head, exchange: Exchange, watch: Watch, send: Send) -> None:
    start = {"type": "http.response.start", "status": head.status}
    try:
        await send({**start, "headers": head.headers})
        if head.body is not None:
            await send({"type": "http.response.body", "body": head.body})
            return
        watch.listen()
        await _send_stream(exchange, send)
    except OSError as error:  # What a server raises when the connection is gone.
        raise ClientGone from error


async def _send_stream(exchange: Exchange, send: Send) -> None:
    message: dict[str, Any] = {"type": "http.response.body", "more_body": True}
    while (chunk := await exchange.next_chunk()) is not None:
        try:
            # A client that stops reading may not keep the thread for ever.
            async with asyncio.timeout(STALL):
                await send({**message, "body": chunk})
        except TimeoutError as error:
            raise StreamBroken(f"no chunk taken for {STALL:g} seconds") from error
    await send({"type": "http.response.body", "body": b""})


def _hang_up(send: Send) -> None:
    """Close the connection under daphne; other servers do it when an answer stays unfinished."""
    protocol = next(iter(getattr(send, "args", ())), None)
    channel = getattr(protocol, "channel", None)
    if channel is not None:
        channel.loseConnection()


async def _refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    kind, body = b"text/plain; charset=utf-8", refusal.detail.encode()
    if scope["path"].startswith("/api/"):
        kind, body = b"application/problem+json", _problem(refusal)
    elif b"text/html" in dict(scope["headers"]).get(b"accept", b""):
        again = refusal.status == HTTPStatus.SERVICE_UNAVAILABLE and scope["method"] == "GET"
        kind, body = b"text/html; charset=utf-8", pool_pages.page(refusal.detail, again=again)
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", b"1"))
    elif refusal.status < 500 and scope.get("http_version", "1.1")[:1] == "1":
        # The rest of the body may still be on its way.
        headers.append((b"connection", b"close"))
    await send(
        {
            "type": "http.response.start",
            "status": int(refusal.status),
            "headers": headers,
        }
    )
    if scope["method"] == "HEAD":
        body = b""
    await send({"type": "http.response.body", "body": body})


def _problem(refusal: Refusal) -> bytes:
    return json.dumps(
        {
            "type": "about:blank",
            "title": refusal.status.phrase,
            "status": int(refusal.status),
            "code": refusal.code,
            "detail": refusal.detail,
        }
    ).encode()
