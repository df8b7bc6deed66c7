"""An event loop of its own for an ASGI application, driven from tests that are plain functions."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Application = Callable[..., Awaitable[None]]
LONGEST = 20.0  # seconds that any question may take


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """What a problem is called; it must be one, and agree with the status."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return self.json["code"]


@dataclass
class Exchange:
    """One request. `left`: set it when the client shall have gone."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | list[bytes] = b""
    http_version: str = "1.1"
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def scope(self) -> dict[str, Any]:
        path, _, query = self.target.partition("?")
        pairs = [(k.lower().encode(), v.encode("latin-1")) for k, v in self.headers.items()]
        size = len(self.body)
        if isinstance(self.body, bytes) and size and self.http_version == "1.1":
            pairs.append((b"content-length", str(size).encode()))
        return {
            "type": "http",
            "http_version": self.http_version,
            "method": self.method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode("latin-1"),
            "headers": [(b"host", b"localhost"), *pairs],
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 8000),
        }

    async def run(self, application: Application) -> Answer:
        pieces = [self.body] if isinstance(self.body, bytes) else list(self.body)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if pieces:
                piece = pieces.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
            await self.left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await application(self.scope(), receive, send)
        return _answer(sent)


def _answer(sent: list[dict[str, Any]]) -> Answer:
    start, *rest = sent
    assert start["type"] == "http.response.start"
    assert {message["type"] for message in rest} == {"http.response.body"}
    names = [name for name, _ in start["headers"]]
    assert len(set(names)) == len(names), names
    headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(message["body"] for message in rest))


class Host:
    """Runs an application's event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="host", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LONGEST)

    def tasks(self) -> int:
        """How many are under way, without the one that counts."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return self.call(count())

    def close(self) -> None:
        self.call(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        self.loop.close()
