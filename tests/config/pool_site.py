"""A small Django site and a client for the tests of config.pool; no test is in here."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from io import BytesIO
from typing import Any, TypeVar

from django.db import connection, connections
from django.http import (
    FileResponse,
    HttpRequest,
    HttpResponse,
    JsonResponse,
    StreamingHttpResponse,
)
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from config.pool import CHUNK, PooledDjango

T = TypeVar("T")

PATIENCE = 10.0  # seconds; what takes longer has failed


class Gates:
    """What views and tests tell each other across threads."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.closed, self.finished = threading.Event(), threading.Event()
        self.calls = 0
        self.produced = 0
        self.seen: list[Any] = []
        self.closings: list[int] = []


gates = Gates()


def plain(request: HttpRequest) -> HttpResponse:
    gates.calls += 1
    return HttpResponse("plain")


@csrf_exempt
def echo(request: HttpRequest) -> JsonResponse:
    length = request.META["CONTENT_LENGTH"]
    return JsonResponse({"body": request.body.decode(), "length": length})


def fail(request: HttpRequest) -> HttpResponse:
    raise ZeroDivisionError("on purpose")


def leave_process(request: HttpRequest) -> HttpResponse:
    raise SystemExit(3)


@csrf_exempt
def blocked(request: HttpRequest) -> HttpResponse:
    gates.calls += 1
    gates.entered.set()
    assert gates.leave.wait(PATIENCE)
    return HttpResponse("late")


def cookies(request: HttpRequest) -> HttpResponse:
    response = HttpResponse("crumbs")
    response.set_cookie("a", "1")
    response.set_cookie("b", "2")
    response["X-Name"] = "caf\xe9"
    return response


def status(request: HttpRequest, code: int) -> HttpResponse:
    return HttpResponse(b"no body may follow", status=code)


def _numbers() -> Iterator[bytes]:
    try:
        for number in range(1000):
            gates.produced += 1
            yield b"%d," % number
            yield b""
    finally:
        gates.closed.set()


def numbers(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(_numbers())


def broken(request: HttpRequest) -> StreamingHttpResponse:
    def pieces() -> Iterator[bytes]:
        yield b"first"
        raise ZeroDivisionError("on purpose")

    return StreamingHttpResponse(pieces())


def file(request: HttpRequest) -> FileResponse:
    return FileResponse(BytesIO(bytes(2 * CHUNK + 1)))


def thread(request: HttpRequest) -> HttpResponse:
    gates.seen.append(("view", threading.get_ident()))
    return HttpResponse("ok")


def use_database(*, too_old: bool) -> None:
    """Use this thread's connection, and note when it is closed; SQLite in memory hides that."""
    connection.ensure_connection()
    gates.seen.append(connection.connection)
    if too_old:
        close = connection.close

        def noted() -> None:
            gates.closings.append(threading.get_ident())
            close()

        # On the thread's own wrapper, which ends with the thread.
        vars(connections["default"])["close"] = noted
        connection.close_at = 0


def database(request: HttpRequest) -> HttpResponse:
    use_database(too_old="expire" in request.GET)
    return HttpResponse("ok")


urlpatterns = [
    path("plain", plain),
    path("echo", echo),
    path("fail", fail),
    path("exit", leave_process),
    path("blocked", blocked),
    path("api/blocked", blocked),
    path("cookies", cookies),
    path("status/<int:code>", status),
    path("numbers", numbers),
    path("broken", broken),
    path("file", file),
    path("thread", thread),
    path("database", database),
]


class Client:
    """One request and what the server gets back; `leave` closes its connection."""

    def __init__(
        self,
        target: str,
        *,
        method: str = "GET",
        body: bytes = b"",
        endless: bool = False,
        **scope: Any,
    ) -> None:
        address, _, query = target.partition("?")
        headers = [(b"host", b"127.0.0.1"), *scope.pop("headers", [])]
        if body:
            headers.append((b"content-length", b"%d" % len(body)))
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": address,
            "query_string": query.encode(),
            "headers": headers,
            "client": ("192.0.2.1", 5000),
            "server": ("127.0.0.1", 80),
        } | scope
        # An endless body stays open: the server waits for the rest of it.
        self._body: bytes | None = body
        self._endless = endless
        self._left = asyncio.Event()
        self.messages: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": self._endless}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.messages.append(dict(message))

    def leave(self) -> None:
        self._left.set()

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return list(self.messages[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])

    @property
    def complete(self) -> bool:
        return not self.messages[-1].get("more_body", False)


async def get(app: PooledDjango, target: str, **options: Any) -> Client:
    client = Client(target, **options)
    async with asyncio.timeout(PATIENCE):
        await app(client.scope, client.receive, client.send)
    return client


def start(app: PooledDjango, client: Client) -> asyncio.Task[None]:
    return asyncio.ensure_future(app(client.scope, client.receive, client.send))


async def wait_for(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE)


def run(
    scenario: Callable[[PooledDjango], Coroutine[Any, Any, T]], *, threads: int = 2, **options: Any
) -> T:
    """Run a coroutine function with an application of its own, then end its threads."""
    app = PooledDjango(threads=threads, **options)
    try:
        return asyncio.run(scenario(app))
    finally:
        gates.leave.set()
        app.close(timeout=PATIENCE)
        assert app.stuck == 0
