"""A private PostgreSQL server, and what the tests do with any such server."""

import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

import psycopg2
from psycopg2 import sql

from tests.support import binaries
from tests.support.processes import Command
from tests.support.service import Service
from tests.support.waiting import HOST

OWNER = "seckill"
OPTIONS = {
    "listen_addresses": HOST,
    "max_connections": "200",
    "shared_buffers": "64MB",
    # Only processes are killed here, never the machine: what was written to the system stays.
    "fsync": "off",
    "full_page_writes": "off",
    # A commit is written before it is answered, as in production.
    "synchronous_commit": "on",
    "jit": "off",
    "log_min_messages": "fatal",
}


class Databases:
    """What can be done with any PostgreSQL server whose address is known."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    def url_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    def query(self, statement: str | sql.Composed, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement by itself, outside any transaction, in the database `postgres`."""
        with closing(psycopg2.connect(self.url_of("postgres"), connect_timeout=2)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """Make a database, in place of one of that name, as a copy; returns its address."""
        self.drop_database(name)
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self.query(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self.query(statement.format(sql.Identifier(name)))

    def terminate_connections(self, database: str) -> int:
        """Cut every connection to a database; returns how many there were."""
        statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        return len(self.query(statement, database))


class Postgres(Service, Databases):
    name: ClassVar[str] = "postgres"

    def __init__(self, port: int | None = None) -> None:
        self.binary = binaries.require("PostgreSQL", "postgres")
        # Not on PATH in Debian, but always beside the server.
        self.initdb = str(Path(self.binary).with_name("initdb"))
        self.user = binaries.require_user("PostgreSQL", "postgres")
        Service.__init__(self, port)

    @property
    def url(self) -> str:
        return f"postgres://{OWNER}@{HOST}:{self.port}/{OWNER}"

    def command(self) -> Command:
        options = [f"--{name}={value}" for name, value in OPTIONS.items()]
        place = ["-D", str(self.data), "-p", str(self.port), "-k", str(self.data)]
        # SIGINT is its fast stop: it doesn't wait for clients.
        return Command([self.binary, *place, *options], user=self.user, stop_signal=signal.SIGINT)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def prepare(self) -> None:
        if self.data.exists():
            return
        self.data.mkdir(mode=0o700)
        self._run_initdb()

    def _run_initdb(self) -> None:
        if self.user:
            subprocess.run(["chown", self.user, str(self.data)], check=True)
        arguments = ["-D", str(self.data), "-U", OWNER, "-A", "trust", "-E", "UTF8"]
        arguments += ["--locale=C", "--no-sync", "--no-instructions"]
        result = subprocess.run(
            [self.initdb, *arguments],
            user=self.user,
            group=self.user,
            extra_groups=[] if self.user else None,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise RuntimeError(f"initdb failed: {result.stderr}")

    def is_ready(self) -> bool:
        try:
            existing = self.query("SELECT datname FROM pg_database")
        except psycopg2.OperationalError:
            return False
        if (OWNER,) not in existing:
            self.create_database(OWNER)
        return True
