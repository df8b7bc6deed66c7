"""What `manage.py doctor` looks at. A check returns what it saw, or raises Trouble with a hint."""

import asyncio
import contextlib
import platform
import re
import resource
import sys
import time
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from celery import current_app
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import connection
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kombu import Connection, Exchange, Producer, Queue
from kombu.transport.base import Message

from inventory import reports
from inventory.redis_clients import sync_client
from seckill.management.migrations import missing_migrations

BUDGET = 2.5  # seconds that one check gives to a back end
MOST_SKEW = 0.5  # seconds between two clocks
FEW_FILES = 4096
REQUIREMENTS = Path(settings.BASE_DIR) / "requirements.txt"


class Trouble(Exception):
    """Raised by a check: what is wrong, and what to do about it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


def python() -> str:
    if sys.version_info < (3, 11):  # noqa: UP036 - it is what this check is about
        raise Trouble(f"Python {platform.python_version()}", "Python 3.11 or newer is needed")
    return f"Python {platform.python_version()}"


def packages() -> str:
    """Compares what is installed with the lock."""
    wanted = re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    wrong = [f"{name} {version}" for name, version in wanted if _installed(name) != version]
    if wrong:
        raise Trouble(f"not as locked: {', '.join(wrong[:5])}", "run `make install`")
    return f"{len(wanted)} as locked"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def environment() -> str:
    profile = "embedded" if settings.EMBEDDED_DATABASE else "full"
    if not settings.EMBEDDED_DATABASE and settings.DEBUG:
        raise Trouble("DEBUG is on beside a database of your own", "unset DEBUG")
    if len(settings.SECRET_KEY) < 32:
        raise Trouble("SECRET_KEY has less than 32 characters", "set a longer one")
    return f"{profile} profile, DEBUG {'on' if settings.DEBUG else 'off'}"


def database() -> str:
    connection.ensure_connection()
    version = ".".join(str(part) for part in connection.get_database_version())
    _check_isolation()
    return f"{connection.display_name} {version}, {_how_isolated()}"


def _how_isolated() -> str:
    statement = (
        "PRAGMA journal_mode" if connection.vendor == "sqlite" else "SHOW transaction_isolation"
    )
    return str(_ask(statement)).lower()


def _ask(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    return row[0] if row else None


def _check_isolation() -> None:
    mode = _how_isolated()
    if connection.vendor == "sqlite" and mode != "wal":
        raise Trouble(f"journal_mode {mode}", "the folder of the database must allow WAL (no NFS)")
    if connection.vendor == "postgresql" and mode != "read committed":
        raise Trouble(f"isolation {mode}", "set default_transaction_isolation to 'read committed'")


def migrations() -> str:
    missing = missing_migrations()
    if missing:
        raise Trouble(f"{missing} migrations are missing", "run `manage.py migrate`")
    return "all applied"


def redis() -> str:
    info: dict[str, Any] = sync_client().info()
    name = info.get("server_name", "redis")
    version = info.get(f"{name}_version", info.get("redis_version", "?"))
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory") and policy != "noeviction":
        raise Trouble(f"maxmemory-policy {policy}", "set maxmemory-policy noeviction: keys may go")
    if info.get("role", "master") != "master":
        raise Trouble("it is a replica", "REDIS_URL must name the primary")
    return f"{name} {version}, {policy}"


def redis_aof() -> str:
    if not sync_client().info("persistence").get("aof_enabled"):
        raise Trouble("off", "set appendonly yes: a restart would forget who was admitted")
    return "on"


def redis_script() -> str:
    key = f"{settings.REDIS_PREFIX}doctor:{uuid.uuid4()}"
    script = "redis.call('SET', KEYS[1], 1, 'PX', 5000) return redis.call('TIME')"
    before = time.time()
    sync_client().eval(script, 1, key)
    return f"answered in {(time.time() - before) * 1000:.1f} ms"


def clocks() -> str:
    """The gate goes by Redis's clock, orders by the database's."""
    skews = {"Redis": _redis_skew(), "the database": _database_skew()}
    for name, skew in skews.items():
        if abs(skew) > MOST_SKEW:
            raise Trouble(f"{name} is {skew:+.2f} s off this machine", "run NTP on both machines")
    return ", ".join(f"{name} {skew:+.3f} s" for name, skew in skews.items())


def _redis_skew() -> float:
    before = time.time()
    seconds, micros = sync_client().time()
    return float(seconds + micros / 1e6) - (before + time.time()) / 2


def _database_skew() -> float:
    if connection.vendor != "postgresql":
        return 0.0  # SQLite has no clock of its own.
    before = time.time()
    there = _ask("SELECT extract(epoch FROM clock_timestamp())")
    return float(there) - (before + time.time()) / 2


def broker() -> str:
    """Sends itself a message, confirmed where the broker can, through a fanout exchange."""
    name = f"{settings.REDIS_PREFIX}doctor.{uuid.uuid4()}"
    exchange = Exchange(name, type="fanout", durable=False, auto_delete=True)
    queue = Queue(name, exchange, durable=False, auto_delete=True, exclusive=True)
    came: list[object] = []

    def note(body: object, message: Message) -> None:
        came.append(body)

    with current_app.connection_for_write(connect_timeout=BUDGET) as link:
        with link.Consumer([queue], callbacks=[note], accept=["json"], no_ack=True):
            _publish_until(came, link, Producer(link, exchange, serializer="json"))
        transport: str = link.as_uri().partition(":")[0]
    if not came:
        raise Trouble("a message didn't come back", "look at the broker's log and its free disk")
    return f"{transport}, message round trip"


def _publish_until(came: list[object], link: Connection, producer: Producer) -> None:
    """Again and again: over Redis a fanout reaches only those whose subscription has arrived."""
    deadline = time.monotonic() + BUDGET
    while not came and time.monotonic() < deadline:
        producer.publish("ping")
        with contextlib.suppress(TimeoutError):
            link.drain_events(timeout=0.3)


def channel_layer() -> str:
    asyncio.run(asyncio.wait_for(_round_trip(), BUDGET))
    return "message round trip"


async def _round_trip() -> None:
    layer = get_channel_layer()
    if layer is None:
        raise Trouble("there is none", "CHANNEL_LAYERS is missing in the settings")
    channel = await layer.new_channel()
    await layer.send(channel, {"type": "doctor"})
    answer = await layer.receive(channel)
    await layer.flush()
    if answer != {"type": "doctor"}:
        raise Trouble(f"another message came back: {answer}", "give this shop a REDIS_PREFIX")


def zookeeper() -> str:
    client = KazooClient(hosts=settings.ZOOKEEPER_HOSTS, timeout=BUDGET)
    try:
        client.start(timeout=BUDGET)
        version = _zookeeper_version(client)
    finally:
        client.stop()
        client.close()
    return f"ZooKeeper {version}"


def _zookeeper_version(client: KazooClient) -> str:
    try:
        return ".".join(str(part) for part in client.server_version())
    except KazooException:  # It tells only those whom its 4lw.commands.whitelist lets ask.
        return "of a version that it doesn't tell"


def listeners() -> str:
    """What web processes say of their ear for the others' news about sold-out marks."""
    processes = reports.read()
    deaf = sorted(name for name, report in processes.items() if report.get("listener") != "ok")
    if deaf:
        hint = "marks last SOLD_OUT_TTL there; look at the broker, or ZooKeeper"
        raise Trouble(f"deaf: {', '.join(deaf)}", hint)
    if not processes:
        return "no web process has reported"
    return f"{len(processes)} web processes hear the others"


def workers() -> str:
    replies = current_app.control.ping(timeout=1.0)
    names = sorted(name for reply in replies or () for name in reply)
    if not names:
        raise Trouble("no worker answers", "start `celery -A config worker`, or `make run`")
    return ", ".join(names)


def files() -> str:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FEW_FILES:
        raise Trouble(f"{soft} open files", f"raise it to {FEW_FILES} or more: ulimit -n")
    return f"{soft} open files"
