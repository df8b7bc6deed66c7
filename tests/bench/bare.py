"""The yardstick: an ASGI function that does nothing, on the same server, for the same requests."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"2")]


async def application(
    scope: Mapping[str, Any],
    receive: Callable[[], Awaitable[Mapping[str, Any]]],
    send: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"{}"})
