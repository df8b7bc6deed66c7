"""A micro-cache over an app that counts its calls, and a clock to turn."""

import asyncio
from typing import Any

from seckill.microcache import CSRF_MARKER, MicroCache

PUBLIC = {"Cache-Control": "public, max-age=1", "Content-Type": "text/html; charset=utf-8"}
FORM = f'<input name="csrfmiddlewaretoken" value="{CSRF_MARKER}">'.encode()
SECRET = "abcdefghijklmnopqrstuvwxyz012345"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class App:
    """Answers with its call number, or with `body`; waits while `gate` is clear."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.status, self.headers = 200, dict(PUBLIC)
        self.body: bytes | None = None
        self.chunks: list[bytes] | None = None
        self.error: Exception | None = None
        self.fails_at: set[int] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.sent: list[str] = []

    @property
    def calls(self) -> int:
        return len(self.scopes)

    async def __call__(self, scope, receive, send) -> None:
        self.scopes.append(scope)
        number = self.calls
        body = b"page %d" % number if self.body is None else self.body
        await receive()
        await self.gate.wait()
        if self.error and (self.fails_at is None or number in self.fails_at):
            raise self.error
        headers = [(k.lower().encode(), v.encode()) for k, v in self.headers.items()]
        chunks = self.chunks
        if chunks is None:
            chunks = [body]
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for number, chunk in enumerate(chunks, 1):
            more = number < len(chunks)
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
            self.sent.append("chunk")


class Answer:
    def __init__(self, messages: list[dict[str, Any]]) -> None:
        start, *bodies = messages
        self.messages = messages
        self.status = start["status"]
        self.pairs = [(k.decode(), v.decode()) for k, v in start["headers"]]
        self.headers = dict(self.pairs)
        self.body = b"".join(message["body"] for message in bodies)
        assert [message.get("more_body", False) for message in bodies][-1] is False


class Rig:
    """A cache over an App, with a clock to turn."""

    def __init__(self, **limits) -> None:
        self.app, self.clock = App(), Clock()
        self.cache = MicroCache(self.app, clock=self.clock, **limits)

    async def get(self, path="/", method="GET", query=b"", **headers) -> Answer:
        messages: list[dict[str, Any]] = []
        pairs = {"host": "shop.example"} | {k.replace("_", "-"): v for k, v in headers.items()}

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            messages.append(message)

        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": path,
            "query_string": query,
            "headers": [(k.encode(), v.encode()) for k, v in pairs.items()],
        }
        await self.cache(scope, receive, send)
        return Answer(messages)

    def start(self, *args, **kwargs) -> asyncio.Task[Answer]:
        return asyncio.create_task(self.get(*args, **kwargs))

    async def arrived(self, calls: int) -> None:
        """The app has been called so often, and everybody else had time to get in line."""
        while self.app.calls < calls:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)


def run(scenario, **limits) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario(Rig(**limits))

    asyncio.run(bounded())
