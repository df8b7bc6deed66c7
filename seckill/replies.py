"""Requests and answers of the lane as plain ASGI: read what is needed, send JSON or a problem."""

import itertools
import os
import re
from functools import lru_cache
from typing import Any

from django.utils import translation

from seckill import problems
from seckill.asgi_types import Headers, Scope, Send

JSON_HEADERS: Headers = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
]
_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")
_prefix = os.urandom(6).hex().encode()
_numbers = itertools.count(1)


class Request:
    """The few headers that the lane looks at; looked up once, in one walk."""

    __slots__ = (
        *("accept", "authorization", "content_type", "cookie"),
        *("encoded", "head_only", "id", "length"),
    )

    def __init__(self, scope: Scope) -> None:
        self.accept = self.authorization = self.cookie = self.content_type = b""
        # In HTTP/1 a header announces a body; later versions may send one without a word.
        self.length: bytes | None = None if scope.get("http_version", "1.1")[0] == "1" else b"?"
        self.encoded = False
        self.head_only = scope["method"] == "HEAD"
        self.id = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                self.authorization = value
            elif name == b"content-length":
                self.length = value
            elif name == b"content-type":
                self.content_type = value
            elif name == b"accept-language":
                self.accept = value
            elif name == b"cookie":
                self.cookie = value
            elif name == b"x-request-id":
                self.id = value
            elif name == b"transfer-encoding":
                self.length = b"?"
            elif name == b"content-encoding":
                self.encoded = True
        if not self.id or not _ID.fullmatch(self.id):
            self.id = b"%b-%d" % (_prefix, next(_numbers))

    @property
    def token(self) -> bytes | None:
        scheme, _, token = self.authorization.partition(b" ")
        return token.strip() if scheme.lower() == b"bearer" else None


class Refused(Exception):
    """Ends a request with a problem. `wait`: seconds for Retry-After."""

    def __init__(
        self, code: str, *, wait: float | None = None, headers: Headers | None = None, **more: Any
    ) -> None:
        super().__init__(code)
        self.code, self.wait, self.more = code, wait, more
        self.headers = headers or []


async def send_json(
    send: Send, request: Request, body: bytes, *, status: int = 200, headers: Headers | None = None
) -> None:
    await _send(send, request, status, JSON_HEADERS + (headers or []), body)


async def send_problem(send: Send, request: Request, refused: Refused, language: str) -> None:
    if refused.more or refused.wait is not None:
        status, headers, body = _problem(refused, language)
    else:
        status, headers, body = _plain_problem(refused.code, language)
    # The body is an object that is never empty: the request id goes in at its end.
    body = b'%b,"instance":"%b"}' % (body[:-1], request.id)
    await _send(send, request, status, headers + refused.headers, body)


def _problem(refused: Refused, language: str) -> tuple[int, Headers, bytes]:
    with translation.override(language):
        built = problems.problem(refused.code, retry_after=refused.wait, **refused.more)
    headers = [(k.lower().encode(), v.encode()) for k, v in built.headers.items()]
    headers.append((b"content-language", language.encode()))
    return built.status, headers, built.body


@lru_cache(maxsize=256)
def _plain_problem(code: str, language: str) -> tuple[int, Headers, bytes]:
    return _problem(Refused(code), language)


async def _send(send: Send, request: Request, status: int, headers: Headers, body: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                *headers,
                (b"content-length", b"%d" % len(body)),
                (b"x-request-id", request.id),
            ],
        }
    )
    await send({"type": "http.response.body", "body": b"" if request.head_only else body})
