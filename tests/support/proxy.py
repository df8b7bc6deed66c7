"""A TCP proxy that misbehaves on demand, to stand between the product and one of its back ends.

Modes:
    pass              forward everything
    refuse            no new connections, existing ones are reset (the machine is down)
    cut               accept, then reset at once; existing connections are reset
    blackhole         accept and keep everything, answer nothing; what was kept goes on after `heal`
    delay_request     what the client sends arrives `seconds` later
    delay_reply       what the server sends arrives `seconds` later
    drop_reply        what the server sends is lost, the connection stays
    drop_reply_once   the next reply is lost, then `pass`
    cut_reply_once    the next reply is lost and its connection reset, then `pass`
    cut_request_once  the next request is lost and its connection reset, then `pass`

A request or reply is what arrives in one piece, as good as always one message of the small ones
that are in use here; `when` narrows a one-time fault down to a piece with a certain content.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from tests.support.waiting import HOST, free_port

T = TypeVar("T")

Mode = Literal[
    "pass",
    "refuse",
    "cut",
    "blackhole",
    "delay_request",
    "delay_reply",
    "drop_reply",
    "drop_reply_once",
    "cut_reply_once",
    "cut_request_once",
]
Direction = Literal["request", "reply"]

PIECE = 256 * 1024
# Closing a socket with this set sends a reset instead of an orderly end.
NO_LINGER = struct.pack("ii", 1, 0)


def always(_piece: bytes) -> bool:
    return True


@dataclass(eq=False)
class Connection:
    """One client and its connection to the server. Lives in the proxy's event loop."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def reset(self) -> None:
        for writer in (self.client, self.server):
            if writer is None:
                continue
            raw = writer.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            writer.transport.abort()
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()


class FaultProxy:
    """Runs an event loop in a thread of its own; all methods may be called from any thread."""

    def __init__(self, upstream: int, port: int | None = None) -> None:
        self.upstream = upstream
        self.port = port or free_port()
        self.fired = threading.Event()  # set when a one-time fault has happened
        self._mode: Mode = "pass"
        self._seconds = 0.0
        self._when: Callable[[bytes], bool] = always
        self._connections: set[Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._listener: asyncio.Server | None = None
        self._healthy = asyncio.Event()
        self._healthy.set()

    # --- for tests ----------------------------------------------------------------------------
    def start(self) -> Self:
        self._thread.start()
        self._call(self._open())
        return self

    def stop(self) -> None:
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    @property
    def mode(self) -> Mode:
        return self._mode

    def set(
        self, mode: Mode, *, seconds: float = 0, when: Callable[[bytes], bool] = always
    ) -> None:
        """Takes effect before it returns, for existing connections too."""
        self._call(self._set(mode, seconds, when))

    def heal(self) -> None:
        self.set("pass")

    def url(self, original: str) -> str:
        """The address of a back end with this proxy in its way."""
        parts = urlsplit(original)
        account = parts.netloc.rpartition("@")[0]
        place = f"{HOST}:{self.port}"
        return urlunsplit(parts._replace(netloc=f"{account}@{place}" if account else place))

    def connections(self) -> int:
        return len(self._connections)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- in the event loop --------------------------------------------------------------------
    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=10)

    async def _open(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, HOST, self.port, backlog=512)

    async def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _shut(self) -> None:
        await self._close()
        tasks = [task for connection in self._connections for task in connection.tasks]
        self._reset_all()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set(self, mode: Mode, seconds: float, when: Callable[[bytes], bool]) -> None:
        self._mode, self._seconds, self._when = mode, seconds, when
        self.fired.clear()
        if mode in ("refuse", "cut"):
            self._reset_all()
        if mode == "refuse":
            await self._close()
        else:
            await self._open()
        if mode == "blackhole":
            self._healthy.clear()
        else:
            self._healthy.set()

    def _reset_all(self) -> None:
        for connection in list(self._connections):
            connection.reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(writer)
        if self._mode == "cut":
            connection.reset()
            return
        task = asyncio.current_task()
        if task is not None:
            connection.tasks.add(task)
        self._connections.add(connection)
        try:
            await self._relay(connection, reader)
        except (OSError, asyncio.CancelledError):
            # The one end is gone, so the other must be; a cancelled task is done with, too.
            connection.reset()
        finally:
            self._connections.discard(connection)

    async def _relay(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        await self._healthy.wait()
        answers, server = await asyncio.open_connection(HOST, self.upstream)
        connection.server = server
        pumps = [
            asyncio.create_task(self._pump("request", connection, (reader, server))),
            asyncio.create_task(self._pump("reply", connection, (answers, connection.client))),
        ]
        connection.tasks.update(pumps)
        await asyncio.gather(*pumps)
        for writer in (server, connection.client):
            writer.close()
            await writer.wait_closed()

    async def _pump(
        self,
        direction: Direction,
        connection: Connection,
        ends: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        reader, writer = ends
        # A piece is held back for so long from when it came, so reading and writing are apart.
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        forward = asyncio.create_task(self._forward(connection, pieces, writer))
        connection.tasks.add(forward)
        while piece := await reader.read(PIECE):
            if self._is_lost(direction, piece):
                continue
            if self._is_cut(direction, piece):
                connection.reset()
                return
            pieces.put_nowait((self._loop.time() + self._delay(direction), piece))
        pieces.put_nowait((self._loop.time(), b""))
        await forward

    async def _forward(
        self,
        connection: Connection,
        pieces: "asyncio.Queue[tuple[float, bytes]]",
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - self._loop.time())
                await self._healthy.wait()
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        except OSError:
            connection.reset()

    # --- what becomes of a piece --------------------------------------------------------------
    def _delay(self, direction: Direction) -> float:
        return self._seconds if self._mode == f"delay_{direction}" else 0.0

    def _is_lost(self, direction: Direction, piece: bytes) -> bool:
        if self._mode == "drop_reply":
            return direction == "reply"
        return self._fires(f"drop_{direction}_once", piece)

    def _is_cut(self, direction: Direction, piece: bytes) -> bool:
        return self._fires(f"cut_{direction}_once", piece)

    def _fires(self, mode: str, piece: bytes) -> bool:
        if self._mode != mode or not self._when(piece):
            return False
        self._mode = "pass"
        self.fired.set()
        return True
