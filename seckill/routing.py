"""Which websocket goes where, and who may open one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from channels.routing import URLRouter
from django.conf import settings
from django.db import DatabaseError
from django.http.request import split_domain_port, validate_host
from django.urls import re_path
from django.utils.http import is_same_domain
from redis.exceptions import RedisError

from seckill.consumers import Me, Sale

log = logging.getLogger(__name__)

FOREIGN_ORIGIN, NOT_FOUND, TRY_AGAIN = 4403, 4404, 1012
HANDSHAKE = 3.0  # seconds until the first answer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await _deny(receive, send, NOT_FOUND)


async def _deny(receive: Receive, send: Send, code: int) -> None:
    """Refuse before the handshake is answered; servers turn this into HTTP 403."""
    await receive()
    await send({"type": "websocket.close", "code": code})


async def come_again(receive: Receive, send: Send) -> None:
    """Accept, as only then is a close code heard, and send the client elsewhere."""
    await receive()
    await send({"type": "websocket.accept"})
    await _pass_on(send, {"type": "websocket.close", "code": TRY_AGAIN})


async def _pass_on(send: Send, message: Mapping[str, Any]) -> None:
    """Send; but daphne's library has not heard of the close code 1012 and drops the connection."""
    if message["type"] == "websocket.close" and message.get("code") == TRY_AGAIN:
        protocol: Any = next(iter(getattr(send, "args", ())), None)
        if hasattr(protocol, "sendCloseFrame") and protocol.state == protocol.STATE_OPEN:
            protocol.sendCloseFrame(code=TRY_AGAIN)
            return
    await send(message)


class Door:
    """Lets own pages in, bounds the handshake, and turns lost back ends into "come again"."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not origin_allowed(scope):
            await _deny(receive, send, FOREIGN_ORIGIN)
            return
        closed = False
        try:
            async with asyncio.timeout(HANDSHAKE) as deadline:

                async def answer(message: Mapping[str, Any]) -> None:
                    nonlocal closed
                    closed = closed or message["type"] == "websocket.close"
                    deadline.reschedule(None)
                    await _pass_on(send, message)

                await self.app(scope, receive, answer)
        except (RedisError, DatabaseError, OSError) as error:  # TimeoutError is an OSError.
            log.warning("websocket %s closed: %s", scope["path"], type(error).__name__)
            if not closed:
                await _pass_on(send, {"type": "websocket.close", "code": TRY_AGAIN})


def origin_allowed(scope: Scope) -> bool:
    """Django's rule for the Origin of a POST: this host and scheme, or a trusted origin."""
    origins = [value for name, value in scope["headers"] if name == b"origin"]
    if len(origins) != 1:
        return False
    origin = origins[0].decode("latin-1")
    return origin == _own_origin(scope) or _trusted(origin)


def _own_origin(scope: Scope) -> str | None:
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1:
        return None
    domain, _ = split_domain_port(hosts[0])
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return None
    secure = settings.HTTPS or scope.get("scheme") == "wss"
    return f"{'https' if secure else 'http'}://{hosts[0]}"


def _trusted(origin: str) -> bool:
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return "*" not in origin
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    patterns = [urlsplit(o) for o in settings.CSRF_TRUSTED_ORIGINS if "*" in o]
    return any(
        parts.scheme == p.scheme and is_same_domain(parts.netloc, p.netloc.lstrip("*"))
        for p in patterns
    )


_routes: list[tuple[str, Any]] = [
    (r"^ws/v1/me/?$", Me.as_asgi()),
    (r"^ws/v1/sales/(?P<sale_id>[1-9][0-9]{0,17})/?$", Sale.as_asgi()),
    (r"", not_found),
]
websocket_application: App = Door(URLRouter([re_path(pattern, app) for pattern, app in _routes]))
