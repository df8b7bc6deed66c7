"""The web process: `granian --interface asgi config.asgi:application`, or any other ASGI server.

static files → lane (hot endpoints) → micro-cache (public pages) → Django in a thread pool;
websockets → Channels. Nothing connects to a back end before the first request needs it.
"""

import asyncio
import gc
import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

# Only now, with the apps loaded, may modules with models be imported.
from django.conf import settings  # noqa: E402

from config.farewell import Farewell  # noqa: E402
from config.pool import PooledDjango  # noqa: E402
from config.static_files import static_application  # noqa: E402
from inventory import channel  # noqa: E402
from seckill.asgi_types import Receive, Scope, Send  # noqa: E402
from seckill.consumers import close_all  # noqa: E402
from seckill.lane import Lane  # noqa: E402
from seckill.microcache import MicroCache  # noqa: E402
from seckill.publisher import publisher  # noqa: E402
from seckill.replies import NOSNIFF, Refused, Request, problem, send_answer  # noqa: E402
from seckill.routing import come_again, websocket_application  # noqa: E402


class Application:
    """Sends each connection where it belongs."""

    def __init__(self) -> None:
        self.listening = False
        self.pool = PooledDjango(threads=settings.WEB_THREADS)
        self.pool.load()
        self.static = static_application()
        self.lane = Lane(MicroCache(self.pool), self.pool.run)
        self.in_flight = 0
        self.has_lifespan = self.closes = False
        self.farewell = Farewell(self._last_words)
        self.farewell.precede()
        self._static_url: str = settings.STATIC_URL

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.listening:  # Here, because by now the server has forked.
            self.listening = True
            channel.start()
            self.farewell.listen()
        kind = scope["type"]
        if kind == "http":
            self.in_flight += 1
            try:
                await self._answer(scope, receive, send)
            finally:
                self.in_flight -= 1
        elif kind == "websocket":
            if self.farewell.begun:
                await come_again(receive, send)
            else:
                await websocket_application(scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self.closes:
            request = Request(scope)
            refusal = problem(request, Refused("unavailable", headers=[(b"connection", b"close")]))
            await send_answer(send, request, refusal)
        elif path.startswith(self._static_url):
            await self.static(scope, receive, send)
        elif path == "/livez":
            await self._alive(send)
        else:
            await self.lane(scope, receive, send)

    async def _alive(self, send: Send) -> None:
        """Answered by the event loop itself, so it tells of the process and nothing else."""
        headers = [
            *((b"content-type", b"text/plain"), (b"cache-control", b"no-store")),
            *((b"content-length", b"3"), NOSNIFF),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok\n"})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.has_lifespan = True
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._shut_down()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _last_words(self) -> None:
        self.lane.let_go()
        await close_all()
        if not self.has_lifespan:
            # This server drops requests, and won't call again.
            self.closes = True
            while self.in_flight:
                await asyncio.sleep(0.01)
            await self._finish()

    async def _shut_down(self) -> None:
        await self.farewell.begin()
        await self._finish()

    async def _finish(self) -> None:
        """Purchases that wait, those of the forms, then their messages."""
        await self.lane.close()
        await asyncio.to_thread(self.pool.close)
        await asyncio.to_thread(publisher.close)
        await asyncio.to_thread(channel.close)


application = Application()
# What is loaded now lives as long as the process; the collector need not look at it again.
gc.collect()
gc.freeze()
# Requests leave little in cycles; looking for them 70 times a second costs more than it frees.
gc.set_threshold(20_000, 20, 50)
