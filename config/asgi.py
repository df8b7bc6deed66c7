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
from seckill.lane import Lane  # noqa: E402
from seckill.microcache import MicroCache  # noqa: E402
from seckill.publisher import publisher  # noqa: E402
from seckill.replies import NOSNIFF  # noqa: E402
from seckill.routing import websocket_application  # noqa: E402


class Application:
    """Sends each connection where it belongs."""

    def __init__(self) -> None:
        self.listening = False
        self.pool = PooledDjango(threads=settings.WEB_THREADS)
        self.pool.load()
        self.static = static_application()
        self.lane = Lane(MicroCache(self.pool), self.pool.run)
        self.farewell = Farewell(self.lane.let_go)
        self._static_url: str = settings.STATIC_URL

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.listening:  # Here, because by now the server has forked.
            self.listening = True
            channel.start()
        kind = scope["type"]
        if kind == "http":
            path: str = scope["path"]
            if path.startswith(self._static_url):
                await self.static(scope, receive, send)
            elif path == "/livez":
                await self._alive(send)
            else:
                await self.lane(scope, receive, send)
        elif kind == "websocket":
            await websocket_application(scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)

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
                self.farewell.listen()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._shut_down()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _shut_down(self) -> None:
        """Finish what was begun: purchases that wait, those of the forms, then their messages."""
        self.farewell.begin()
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
