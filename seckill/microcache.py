"""A cache of about a second in front of Django, for pages that are the same for everybody.

It keeps what the app marked `Cache-Control: public, max-age=N` (status 200, 301 or 404, no cookie
set, no `Vary: Cookie` or `*`), in variants by the headers that the answer's Vary names. While one
request fetches a page all others wait for it or get the copy that has just run out; if the app
fails or hangs they get that copy for up to STALE_IF_ERROR seconds. Everything else passes
untouched. What a visitor gets of a kept page, and how his CSRF token comes into it, is in
public_page.py. HEAD is answered from kept pages only.

For one event loop; in the next one an instance goes on with the pages that it has.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from seckill import languages
from seckill.asgi_types import App, Message, Receive, Scope, Send
from seckill.csrf_hole import CSRF_MARKER
from seckill.public_page import STALE_IF_ERROR, Head, Headers, Page, Pairs, Sniffer

__all__ = ["CSRF_MARKER", "STALE_IF_ERROR", "MicroCache", "django_language"]

Url = tuple[Any, ...]
Key = tuple[Url, tuple[Any, ...] | None]

STALE_WHILE_REVALIDATE = 1.0  # seconds that a copy is served while one request fetches a new one
PATIENCE = 0.5  # seconds that anyone waits for the app who could have an old copy
PASS_FOR = 10.0  # seconds for which requests of a page that can't be kept don't wait for each other
TOTAL_BYTES = 64 * 1024 * 1024  # of all pages together
LONGEST_URL = 2000  # bytes; longer ones are not worth their memory

_CONDITIONS = frozenset({b"if-none-match", b"if-modified-since"})

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Visit:
    """One request."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Headers
    url: Url

    @property
    def may_share(self) -> bool:
        """Whether its answer may be for others too, as far as the request tells."""
        odd = {b"authorization", b"range", b"transfer-encoding"} & self.headers.keys()
        has_body = self.headers.get(b"content-length", b"0") != b"0"
        size = len(self.scope["path"]) + len(self.url[3])
        return not odd and not has_body and size <= LONGEST_URL


class Fill:
    """One call of the app for all who want the same page; it outlives the request that began it.

    `decided` gets the page for everybody, or None: everyone for himself. Then `own` may still be a
    page for the one who began; if it isn't, the answer goes straight to his connection.
    """

    def __init__(self, visit: Visit, key: Key, old: Page | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.decided: asyncio.Future[Page | None] = self.loop.create_future()
        self.key, self.old = key, old
        self.own: Page | None = None
        self.task: asyncio.Task[None] | None = None
        self._visit: Visit | None = visit
        self._passing = asyncio.Event()
        self._muted = False
        self._asked = False

    def decide(self, page: Page | None) -> None:
        # Who has a page sends it himself; what the app still says is for nobody.
        self._muted = page is not None or self.own is not None
        self.decided.set_result(page)
        self._passing.set()

    @property
    def left(self) -> bool:
        return self._visit is None

    def leave(self) -> None:
        """The one who began it has his answer, or has gone."""
        self._visit = None
        self._passing.set()

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        # Others may count on this call, so the app hears of a client that left only when it is
        # clear that the answer is for this client alone.
        # Not awaited itself: the task that listens is canceled at the end of the app's call, and
        # would take the future with it.
        await asyncio.wait([self.decided])
        await self._passing.wait()
        return await self._visit.receive() if self._visit else {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._muted:
            return
        if self._visit is None:
            raise OSError("the client has gone")
        await self._visit.send(message)


class MicroCache:
    """The ASGI middleware. `language_of`: what stands for Accept-Language in the key of a page.

    `max_age_cap` in seconds of `clock`, `max_body` in bytes.
    """

    def __init__(
        self,
        app: App,
        *,
        max_age_cap: float = 1.0,
        max_entries: int = 1024,
        max_body: int = 512 * 1024,
        language_of: Callable[[Headers], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._max_age_cap, self._max_entries, self._max_body = max_age_cap, max_entries, max_body
        self._language_of = language_of or django_language
        self._clock = clock
        self._forwarded = _forwarded_headers()
        self._pages: OrderedDict[Key, Page] = OrderedDict()
        self._bytes = 0
        self._vary: OrderedDict[Url, tuple[bytes, ...]] = OrderedDict()
        self._passes: OrderedDict[Url, float] = OrderedDict()
        self._fills: dict[Key, Fill] = {}

    def clear(self) -> None:
        """Forget all pages."""
        for memory in (self._pages, self._vary, self._passes):
            memory.clear()
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        headers = _read(scope["headers"])
        url = self._url(scope, headers)
        key = self._key(url, headers)
        page = self._pages.get(key)
        if page is not None and b"authorization" not in headers:
            now = self._clock()
            if now < page.fresh_until or (scope["method"] == "HEAD" and now < page.until):
                self._pages.move_to_end(key)
                await _send(send, page.answer(headers, now), scope["method"])
                return
        await self._miss(Visit(scope, receive, send, headers, url))

    def _url(self, scope: Scope, headers: Headers) -> Url:
        forwarded = [headers.get(name) for name in self._forwarded]
        query = scope.get("query_string", b"")
        return (scope.get("scheme"), headers.get(b"host"), scope["path"], query, *forwarded)

    def _key(self, url: Url, headers: Headers) -> Key:
        """`(url, None)` as long as it isn't known what the page varies by."""
        vary = self._vary.get(url)
        if not vary:
            return url, vary
        if vary == (b"accept-language",):
            return url, (self._language_of(headers),)
        return url, tuple(
            self._language_of(headers) if name == b"accept-language" else headers.get(name, b"")
            for name in vary
        )

    async def _miss(self, visit: Visit) -> None:
        if visit.scope["method"] == "HEAD":
            await self._app(visit.scope, visit.receive, visit.send)
        elif not visit.may_share:
            await self._fetch_alone(visit, keep=False)
        elif self._passes.get(visit.url, 0.0) > self._clock():
            await self._fetch_alone(visit)
        else:
            await self._share(visit)

    async def _share(self, visit: Visit) -> None:
        # Twice, because the page that we waited for may turn out to be in another language.
        for _ in range(2):
            key = self._key(visit.url, visit.headers)
            old = self._old(key)
            fill = self._fills.get(key)
            if old and self._clock() < old.fresh_until + (STALE_WHILE_REVALIDATE if fill else 0):
                await self._answer(visit, old)
                return
            if fill is None or fill.loop is not asyncio.get_running_loop():
                await self._fetch_for_all(visit, key, old)
                return
            page = await self._wait(fill, old)
            if page is None:
                break
            if page is old or self._key(visit.url, visit.headers) == fill.key:
                await self._answer(visit, page)
                return
        await self._fetch_alone(visit)

    def _old(self, key: Key) -> Page | None:
        page = self._pages.get(key)
        return page if page is not None and self._clock() < page.until else None

    async def _wait(self, fill: Fill, old: Page | None) -> Page | None:
        await asyncio.wait([fill.decided], timeout=PATIENCE if old else None)
        if fill.decided.done() or old is None:
            return fill.decided.result()
        old.outlive(self._clock())
        return old

    async def _fetch_alone(self, visit: Visit, *, keep: bool = True) -> None:
        pages: list[Page] = []

        def decided(head: Head, body: bytes | None) -> None:
            if body is not None:
                pages.append(self._page(visit, head, body, keep=keep))

        sniffer = Sniffer(visit.send, decided, self._max_body)
        await self._app(visit.scope, visit.receive, sniffer)
        for page in pages:
            await self._answer(visit, page)

    async def _fetch_for_all(self, visit: Visit, key: Key, old: Page | None) -> None:
        fill = self._fills[key] = Fill(visit, key, old)
        task = self._start(fill, visit)
        try:
            page = await self._wait(fill, old) or fill.own
            if page is None:
                # Now the app's task talks to our client; if he leaves, the task ends with us.
                await task
            else:
                await self._answer(visit, page)
        finally:
            fill.leave()

    def _start(self, fill: Fill, visit: Visit) -> asyncio.Task[None]:
        begun_as = fill.key

        def decided(head: Head, body: bytes | None) -> None:
            self._decide(fill, visit, head, body)

        def done(task: asyncio.Task[None]) -> None:
            if self._fills.get(begun_as) is fill:
                del self._fills[begun_as]
            error = None if task.cancelled() else task.exception()
            if fill.decided.done():
                return
            if error is not None and (fill.old or fill.left):
                logger.error("No new copy of %s", visit.scope["path"], exc_info=error)
            fill.decide(self._outlived(fill) if error is not None else None)

        # The app always answers in full; whether the visitor has it already is decided here.
        headers = [pair for pair in visit.scope["headers"] if pair[0] not in _CONDITIONS]
        sniffer = Sniffer(fill.send, decided, self._max_body, carries=visit.send)
        call = self._app({**visit.scope, "headers": headers}, fill.receive, sniffer)
        fill.task = fill.loop.create_task(_run(call))
        fill.task.add_done_callback(done)
        return fill.task

    def _decide(self, fill: Fill, visit: Visit, head: Head, body: bytes | None) -> None:
        if body is not None:
            page = self._page(visit, head, body)
            if head.may_be_kept:
                fill.key = self._key(visit.url, visit.headers)
                fill.decide(page)
                return
            fill.own = page
        elif head.status >= 500:
            logger.warning("%s answered %s", visit.scope["path"], head.status)
            fill.decide(self._outlived(fill))
            return
        if visit.url not in self._vary:
            _remember(self._passes, visit.url, self._clock() + PASS_FOR, 4 * self._max_entries)
        fill.decide(None)

    def _outlived(self, fill: Fill) -> Page | None:
        """The old copy, for all, if it may still be served after a failure."""
        if fill.old is None or self._clock() >= fill.old.until:
            return None
        fill.old.outlive(self._clock())
        return fill.old

    def _page(self, visit: Visit, head: Head, body: bytes, *, keep: bool = True) -> Page:
        lifetime = min(head.lifetime or 0.0, self._max_age_cap)
        page = Page(head, body, now=self._clock(), lifetime=lifetime)
        if keep and head.may_be_kept:
            _remember(self._vary, visit.url, head.vary, 4 * self._max_entries)
            self._passes.pop(visit.url, None)
            self._store(self._key(visit.url, visit.headers), page)
        return page

    def _store(self, key: Key, page: Page) -> None:
        before = self._pages.pop(key, None)
        self._pages[key] = page
        self._bytes += page.size - (before.size if before else 0)
        while len(self._pages) > self._max_entries or self._bytes > TOTAL_BYTES:
            self._bytes -= self._pages.popitem(last=False)[1].size

    async def _answer(self, visit: Visit, page: Page) -> None:
        answer = page.answer(visit.headers, self._clock())
        await _send(visit.send, answer, visit.scope["method"])


async def _run(call: Awaitable[None]) -> None:
    await call


async def _send(send: Send, answer: tuple[int, Pairs, bytes], method: str) -> None:
    status, headers, body = answer
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = b"" if method == "HEAD" else body
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _read(pairs: Pairs) -> Headers:
    """The headers by name; what came twice is joined, as Django does it."""
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    headers = {}
    for name, value in pairs:
        between = b"; " if name == b"cookie" else b","
        headers[name] = headers[name] + between + value if name in headers else value
    return headers


def _remember(memory: "OrderedDict[Url, Any]", url: Url, value: object, most: int) -> None:
    memory[url] = value
    if len(memory) > most:
        memory.popitem(last=False)


def _forwarded_headers() -> tuple[bytes, ...]:
    """The headers by which a proxy changes what Django takes for the scheme and the host."""
    names = []
    if settings.SECURE_PROXY_SSL_HEADER:
        names.append(settings.SECURE_PROXY_SSL_HEADER[0])
    if settings.USE_X_FORWARDED_HOST:
        names.append("HTTP_X_FORWARDED_HOST")
    return tuple(
        name.removeprefix("HTTP_").replace("_", "-").lower().encode("ascii") for name in names
    )


def django_language(headers: Headers) -> str:
    """The language that Django's LocaleMiddleware chooses for a visitor (no path prefixes)."""
    return languages.choose(headers.get(b"accept-language", b""), headers.get(b"cookie", b""))
