"""Which processes `manage.py up` runs, as told by PORT, WEB_SERVER, WEB_WORKERS and WORKERS."""

import os
import socket
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

from config import embedded, env

HOST = "127.0.0.1"
WEB_SERVERS = ("granian", "daphne")


@dataclass(frozen=True)
class Plan:
    port: int
    web_server: str
    web_workers: int
    workers: int

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.port}"


def read_plan() -> Plan:
    """Ends the process with exit code 2 if a variable makes no sense."""
    plan = Plan(
        port=env.integer("PORT", 8000, low=1, high=65535),
        web_server=env.choice("WEB_SERVER", "granian", WEB_SERVERS),
        web_workers=env.integer("WEB_WORKERS", 1, low=1, high=64),
        workers=env.integer("WORKERS", 1, low=1, high=64),
    )
    env.finish()
    return plan


def port_in_use(port: int) -> bool:
    with socket.socket() as probe:
        # Connections of the previous run that linger in TIME_WAIT don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def manage(*arguments: str) -> list[str]:
    return [sys.executable, str(embedded.BASE_DIR / "manage.py"), *arguments]


def granian(plan: Plan) -> list[str]:
    return [
        *(sys.executable, "-m", "granian", "--interface", "asgi"),
        *("--host", HOST, "--port", str(plan.port), "--workers", str(plan.web_workers)),
        *("--no-access-log", "--log-level", "warning", "--respawn-failed-workers"),
        *("--workers-kill-timeout", "20", "config.asgi:application"),
    ]


def daphne(fd: int) -> list[str]:
    """One process; those of one shop share the listening socket `fd`."""
    return [
        *(sys.executable, "-m", "daphne", "--fd", str(fd), "-v", "0"),
        *("--access-log", os.devnull, "config.asgi:application"),
    ]


def listen(port: int) -> socket.socket:
    """The socket that several daphne processes share."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen(1024)
    return listener


def worker(name: str, queues: str, *, concurrency: int) -> list[str]:
    return [
        *_celery("worker", "-Q", queues, "-n", f"{name}@%h", "-c", str(concurrency)),
        *("--without-gossip", "--without-mingle"),
    ]


def workers(plan: Plan) -> dict[str, list[str]]:
    """Timers and gateways have processes of their own: they never stand in the way of orders."""
    commands = {"timers": worker("timers", "timers,payments", concurrency=2)}
    for number in range(1, plan.workers + 1):
        commands[f"orders{number}"] = worker(f"orders{number}", "orders,sweeps", concurrency=2)
    return commands


def beat() -> list[str]:
    return _celery("beat", "--pidfile=")


def _celery(*arguments: str) -> list[str]:
    # Celery's warning about the superuser is meant for servers; here it only hides other lines.
    quiet = "ignore:You're running the worker with superuser privileges"
    return [sys.executable, "-W", quiet, "-m", "celery", "-q", "-A", "config", *arguments]


def in_words(url: str) -> str:
    """An address without its password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
