"""Websockets as a test opens them, and the browser tab that they belong to."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from channels.testing import WebsocketCommunicator
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

HOST = "localhost"
OWN = f"http://{HOST}"
T = TypeVar("T")
Dial = Callable[..., Awaitable[WebsocketCommunicator]]


class Tab:
    """A signed-in browser tab: its cookies, and what it may do to its session."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.client = Client()
        self.client.force_login(user)
        key = self.client.cookies[django_settings.SESSION_COOKIE_NAME].value
        self.cookie = f"{django_settings.SESSION_COOKIE_NAME}={key}"


async def rows(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call what uses the database; its connection doesn't outlive the call."""

    def work() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connection.close()

    return await asyncio.to_thread(work)


async def connected(socket: WebsocketCommunicator) -> Any:
    """Connect, and return the first frame."""
    assert await socket.connect(timeout=3) == (True, None)
    return await frame(socket)


async def frame(socket: WebsocketCommunicator) -> Any:
    return json.loads(await socket.receive_from(timeout=3))


async def close_code(socket: WebsocketCommunicator) -> int:
    """Read up to the close and return its code."""
    while True:
        message = await socket.receive_output(timeout=3)
        if message["type"] == "websocket.close":
            code: int = message["code"]
            return code


async def quiet(socket: WebsocketCommunicator) -> bool:
    return bool(await socket.receive_nothing(timeout=0.3))
