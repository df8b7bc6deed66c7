"""One public page: what its answer says about keeping it, its kept copy, and what a visitor gets.

What leaves. Without a CSRF_MARKER: the app's headers, Age, and a strong ETag if there was none, so
browsers and CDNs may share it. With one: the marker is replaced by the visitor's token, and the
page is his alone. `Cache-Control: private, no-cache` keeps it out of shared caches and makes his
browser ask each time; the ETag is weak, because the token looks different each time, and contains
a hash of his secret, so a 304 never revives a page whose token has become invalid.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping

from seckill.asgi_types import Message, Send
from seckill.csrf_hole import CSRF_MARKER, visitor

Headers = Mapping[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]

STALE_IF_ERROR = 10.0  # seconds that a copy outlives its end if the app fails or hangs
RETRY_AFTER_ERROR = 1.0  # seconds between tries of an app that fails

_MARKER = CSRF_MARKER.encode()
_KEPT_STATUS = frozenset({200, 301, 404})
# What belongs to one answer or one connection and is not repeated from a copy.
_DROPPED = frozenset(
    {b"age", b"connection", b"keep-alive", b"transfer-encoding", b"x-request-id", b"server-timing"}
)
# What a page with a token may not say: it is meant for shared caches.
_SHARED = frozenset(
    {b"cache-control", b"expires", b"surrogate-control", b"cdn-cache-control", b"vary"}
)
_ON_304 = frozenset({b"cache-control", b"content-location", b"date", b"expires", b"vary"})
_ETAG = re.compile(rb'(?:W/)?("[^"]*")')
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")


class Page:
    """A whole answer: `parts` are its body, cut where the visitor's token belongs."""

    __slots__ = (
        *("etag", "fresh_until", "has_hole", "has_id", "headers"),
        *("parts", "size", "status", "stored_at", "until", "version"),
    )

    def __init__(self, head: "Head", body: bytes, *, now: float, lifetime: float) -> None:
        self.status = head.status
        self.parts = body.split(_MARKER) if head.may_have_hole else [body]
        self.has_hole = len(self.parts) > 1
        self.has_id = bool(head.one(b"x-request-id"))
        self.etag = head.one(b"etag") or b'"%s"' % _digest(body)
        self.version = self.etag.removeprefix(b"W/").strip(b'"')
        self.headers = self._outgoing(head, len(body))
        self.stored_at = now
        self.fresh_until = now + lifetime
        self.until = self.fresh_until + STALE_IF_ERROR
        self.size = len(body) + sum(len(name) + len(value) for name, value in head.headers)

    def _outgoing(self, head: "Head", length: int) -> Pairs:
        left_out = _DROPPED | {b"etag", b"content-length"}
        if not self.has_hole:
            kept = [pair for pair in head.headers if pair[0].lower() not in left_out]
            return [*kept, (b"content-length", b"%d" % length), (b"etag", self.etag)]
        left_out |= _SHARED
        kept = [pair for pair in head.headers if pair[0].lower() not in left_out]
        vary = b", ".join(dict.fromkeys([*head.vary, b"cookie"]))
        return [*kept, (b"cache-control", b"private, no-cache"), (b"vary", vary)]

    def outlive(self, now: float) -> None:
        """The app failed: serve this copy as if it were fresh until it is worth another try."""
        self.fresh_until = min(now + RETRY_AFTER_ERROR, self.until)

    def answer(self, headers: Headers, now: float) -> tuple[int, Pairs, bytes]:
        """Status, headers and body for a visitor with these request headers."""
        etag, body = self.etag, self.parts[0]
        own = [(b"age", b"%d" % (now - self.stored_at))]
        if self.has_id:
            own.append((b"x-request-id", _request_id(headers)))
        if self.has_hole:
            body, etag = self._fill_hole(headers, own)
        wanted = headers.get(b"if-none-match")
        if wanted is not None and self.status == 200 and _matches(wanted, etag):
            kept = [pair for pair in self.headers if pair[0].lower() in _ON_304]
            return 304, [*kept, (b"etag", etag), *own[:1]], b""
        return self.status, self.headers + own, body

    def _fill_hole(self, headers: Headers, own: Pairs) -> tuple[bytes, bytes]:
        """The visitor's body and its ETag; adds to the headers that are his own."""
        token, tag, set_cookie = visitor(headers)
        body = token.join(self.parts)
        etag = b'W/"%s-%s"' % (self.version, tag)
        own += [(b"content-length", b"%d" % len(body)), (b"etag", etag)]
        if set_cookie:
            own.append((b"set-cookie", set_cookie))
        return body, etag


def _request_id(headers: Headers) -> bytes:
    """As Django's side does it: the caller's own if it is harmless, else a new one."""
    offered = headers.get(b"x-request-id", b"")
    return offered if _REQUEST_ID.fullmatch(offered) else os.urandom(16).hex().encode()


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).hexdigest().encode()


def _matches(wanted: bytes, etag: bytes) -> bool:
    """Weak comparison, as If-None-Match asks for."""
    return wanted.strip() == b"*" or etag.removeprefix(b"W/") in _ETAG.findall(wanted)


class Head:
    """The start of an answer, and what it says about keeping it."""

    def __init__(self, start: Message) -> None:
        self.status: int = start["status"]
        self.headers: Pairs = [(bytes(name), bytes(value)) for name, value in start["headers"]]
        named = self.one(b"vary").lower().split(b",")
        self.vary = tuple(sorted({name.strip() for name in named} - {b""}))
        self.lifetime = _lifetime(self.one(b"cache-control").decode("latin-1"))
        length = self.one(b"content-length")
        self.length = int(length) if length.isdigit() else None

    def one(self, name: bytes) -> bytes:
        """The values of a header in one, as if they had been sent so; empty if there is none."""
        return b",".join(value for key, value in self.headers if key.lower() == name)

    @property
    def is_public(self) -> bool:
        return self.status in _KEPT_STATUS and self.lifetime is not None

    @property
    def may_be_kept(self) -> bool:
        own = bool({b"cookie", b"*"} & set(self.vary)) or bool(self.one(b"set-cookie"))
        return self.is_public and bool(self.lifetime) and not own

    @property
    def may_have_hole(self) -> bool:
        return self.one(b"content-type").startswith(b"text/html") and not self.one(
            b"content-encoding"
        )


def _lifetime(cache_control: str) -> float | None:
    """Seconds for which anybody may reuse the answer; None if it isn't for everybody."""
    directives: dict[str, str] = {}
    for part in cache_control.lower().split(","):
        name, _, value = part.partition("=")
        directives[name.strip()] = value.strip(' "')
    if "public" not in directives or {"private", "no-store", "no-cache"} & directives.keys():
        return None
    seconds = directives.get("s-maxage", directives.get("max-age", ""))
    return float(seconds) if seconds.isdecimal() and len(seconds) < 10 else None


class Sniffer:
    """The `send` that the app gets: holds an answer back for as long as it may become a Page.

    `decided` gets the whole answer, or None from the moment on at which everything goes straight
    to the client's own `send`.
    """

    def __init__(
        self,
        send: Send,
        decided: Callable[[Head, bytes | None], None],
        max_body: int,
        *,
        carries: object = None,
    ) -> None:
        # The thread pool closes daphne's connections through what the server's `send` carries here.
        self.args = getattr(carries or send, "args", ())
        self._send, self._decided, self._max_body = send, decided, max_body
        self._start: Message | None = None
        self._head: Head | None = None
        self._chunks: list[bytes] = []
        self._size = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._start is None:
            self._start, self._head = message, Head(message)
            if not self._head.is_public or (self._head.length or 0) > self._max_body:
                await self._let_go()
        elif self._head is None:
            await self._send(message)
        else:
            await self._hold(self._head, message)

    async def _hold(self, head: Head, message: Message) -> None:
        chunk, more = message.get("body", b""), message.get("more_body", False)
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > self._max_body or (more and head.length is None):
            await self._let_go(more=more)
        elif not more:
            self._head = None
            self._decided(head, b"".join(self._chunks))

    async def _let_go(self, *, more: bool = True) -> None:
        """Pass on what was held, and from now on everything."""
        head, self._head = self._head, None
        if head is None or self._start is None:
            return
        self._decided(head, None)
        await self._send(self._start)
        held = b"".join(self._chunks)
        self._chunks.clear()
        if held or not more:
            await self._send({"type": "http.response.body", "body": held, "more_body": more})
