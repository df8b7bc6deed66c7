"""From an ASGI scope and its messages to a WSGI environ; what can't be one is refused."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, Any

BODY_IN_MEMORY = 256 * 1024  # bytes; what is longer goes to a temporary file

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Environ = dict[str, Any]


class ClientGone(Exception):
    """The client closed the connection; there is nobody left to answer."""


class Refusal(Exception):
    """An answer given without Django; the connection ends if the body may be unread."""

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


async def read_body(
    scope: Scope, receive: Receive, *, limit: int, deadline: float
) -> tuple[IO[bytes], int]:
    """The whole body as a file at its start, and its length; the caller closes the file.

    `limit` is in bytes, `deadline` in seconds. Raises Refusal (400, 408, 413) and ClientGone.
    """
    declared = _declared_length(scope)
    if declared is not None and declared > limit:
        raise _too_large(limit)
    if declared == 0:
        return BytesIO(), 0
    try:
        async with asyncio.timeout(deadline):
            body, length = await _collect(receive, declared=declared, limit=limit)
    except TimeoutError:
        detail = f"The request body took longer than {deadline:g} seconds."
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", detail) from None
    return body, length


def _declared_length(scope: Scope) -> int | None:
    """What the headers say of the length; None if they leave it open."""
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    if not values:
        # In HTTP/1 a header announces the body; for other methods one look costs little.
        bare = scope["method"] in ("GET", "HEAD") and not chunked
        return 0 if bare and scope.get("http_version", "2")[:1] == "1" else None
    if len(set(values)) > 1 or chunked or not values[0].isdigit():
        raise _malformed("Content-Length is wrong or contradicts another header.")
    return int(values[0]) if len(values[0]) < 19 else sys.maxsize


async def _collect(receive: Receive, *, declared: int | None, limit: int) -> tuple[IO[bytes], int]:
    file: IO[bytes] = BytesIO()
    try:
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk, more = message.get("body", b""), message.get("more_body", False)
            length += len(chunk)
            _check_length(length, more=more, declared=declared, limit=limit)
            if length > BODY_IN_MEMORY and isinstance(file, BytesIO):
                file = _to_disk(file)
            file.write(chunk)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file, length


def _check_length(length: int, *, more: bool, declared: int | None, limit: int) -> None:
    if length > limit:
        raise _too_large(limit)
    if declared is not None and (length > declared or (not more and length < declared)):
        raise _malformed("The body is not as long as Content-Length says.")


def _to_disk(memory: BytesIO) -> IO[bytes]:
    file: IO[bytes] = TemporaryFile()  # noqa: SIM115 - the request's end closes it
    file.write(memory.getbuffer())
    return file


def _malformed(detail: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "malformed_request", detail)


def _too_large(limit: int) -> Refusal:
    detail = f"The request body is longer than {limit} bytes."
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", detail)


@lru_cache(maxsize=512)
def _environ_key(name: bytes) -> str | None:
    # "X_Real_IP" would overwrite what a proxy says in "X-Real-IP".
    if b"_" in name:
        return None
    key = name.decode("latin-1").upper().replace("-", "_")
    return key if key == "CONTENT_TYPE" else f"HTTP_{key}"


def _wsgi_text(text: str) -> str:
    return text.encode("utf-8", "replace").decode("latin-1")


def make_environ(scope: Scope, body: IO[bytes], length: int) -> Environ:
    """The WSGI environ of an HTTP scope; CONTENT_LENGTH is what has really arrived."""
    root, path = scope.get("root_path") or "", scope["path"]
    if root and (path == root or path.startswith(root.rstrip("/") + "/")):
        path = path[len(root.rstrip("/")) :]
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": _wsgi_text(root),
        "PATH_INFO": _wsgi_text(path),
        "QUERY_STRING": (scope.get("query_string") or b"").decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme") or "http",
        "wsgi.input": body,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    _add_addresses(environ, scope)
    _add_headers(environ, scope)
    environ["CONTENT_LENGTH"] = str(length) if length else ""
    return environ


def _add_addresses(environ: Environ, scope: Scope) -> None:
    host, port = scope.get("server") or ("unknown", 0)
    environ["SERVER_NAME"], environ["SERVER_PORT"] = host, str(port or 0)
    client = scope.get("client")
    environ["REMOTE_ADDR"] = environ["REMOTE_HOST"] = client[0] if client else ""
    if client:
        environ["REMOTE_PORT"] = str(client[1])


def _add_headers(environ: Environ, scope: Scope) -> None:
    for name, value in scope["headers"]:
        key = _environ_key(name)
        if key is None:
            continue
        text = value.decode("latin-1")
        if key in environ:
            text = f"{environ[key]}{'; ' if key == 'HTTP_COOKIE' else ','}{text}"
        environ[key] = text
