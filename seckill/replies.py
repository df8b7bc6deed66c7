"""Requests and answers of the lane as plain ASGI: read what is needed, send JSON or a problem."""

import itertools
import os
import re
from functools import lru_cache
from typing import Any, NamedTuple

from django.utils import translation

from seckill import languages, problems
from seckill.asgi_types import Headers, Scope, Send

JSON_HEADERS: Headers = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
]
NOSNIFF = (b"x-content-type-options", b"nosniff")
_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")
_prefix = os.urandom(6).hex().encode()
_numbers = itertools.count(1)


class Request:
    """The few headers that the lane looks at. `length`: None = there is no body, ? = unknown."""

    __slots__ = ("_headers", "head_only", "id", "length")

    def __init__(self, scope: Scope) -> None:
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self.head_only = scope["method"] == "HEAD"
        self.length = self._headers.get(b"content-length")
        # In HTTP/1 a header announces a body; later versions may send one without a word.
        unannounced = self.length is None and scope.get("http_version", "1.1")[0] != "1"
        if unannounced or b"transfer-encoding" in self._headers:
            self.length = b"?"
        self.id = self._headers.get(b"x-request-id", b"")
        if not self.id or not _ID.fullmatch(self.id):
            self.id = b"%b-%d" % (_prefix, next(_numbers))

    @property
    def cookie(self) -> bytes:
        return self._headers.get(b"cookie", b"")

    @property
    def content_type(self) -> bytes:
        return self._headers.get(b"content-type", b"")

    @property
    def encoded(self) -> bool:
        return b"content-encoding" in self._headers

    @property
    def language(self) -> str:
        return languages.choose(self._headers.get(b"accept-language", b""), self.cookie)

    @property
    def token(self) -> bytes | None:
        authorization = self._headers.get(b"authorization", b"")
        if authorization[:7] == b"Bearer ":
            return authorization[7:].strip()
        scheme, _, token = authorization.partition(b" ")
        return token.strip() if scheme.lower() == b"bearer" else None


class Answer(NamedTuple):
    """What is sent, but for the headers that every answer gets."""

    status: int
    headers: Headers
    body: bytes


class Refused(Exception):
    """Ends a request with a problem. `wait`: seconds for Retry-After."""

    def __init__(
        self, code: str, *, wait: float | None = None, headers: Headers | None = None, **more: Any
    ) -> None:
        super().__init__(code)
        self.code, self.wait, self.more = code, wait, more
        self.headers = headers or []


def problem(request: Request, refused: Refused) -> Answer:
    language = request.language
    if refused.more or refused.wait is not None:
        answer = _problem(refused, language)
    else:
        answer = _plain_problem(refused.code, language)
    return _instance(request, answer, refused.headers)


def plain_problem(request: Request, code: str) -> Answer:
    """The same for a code that needs no more words, without an exception: the refusals by mark."""
    return _instance(request, _plain_problem(code, request.language), [])


def _instance(request: Request, answer: Answer, headers: Headers) -> Answer:
    status, more, body = answer
    # The body is an object that is never empty: the request id goes in at its end.
    return Answer(status, more + headers, b'%b,"instance":"%b"}' % (body[:-1], request.id))


def _problem(refused: Refused, language: str) -> Answer:
    with translation.override(language):
        built = problems.problem(refused.code, retry_after=refused.wait, **refused.more)
    headers = [(k.lower().encode(), v.encode()) for k, v in built.headers.items()]
    headers.append((b"content-language", language.encode()))
    return Answer(built.status, headers, built.body)


@lru_cache(maxsize=256)
def _plain_problem(code: str, language: str) -> Answer:
    return _problem(Refused(code), language)


async def send_answer(send: Send, request: Request, answer: Answer) -> None:
    status, headers, body = answer
    length, name = (b"content-length", b"%d" % len(body)), (b"x-request-id", request.id)
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [*headers, length, name, NOSNIFF],
    }
    await send(start)
    await send({"type": "http.response.body", "body": b"" if request.head_only else body})
