"""A private RabbitMQ server, with a port mapper (epmd) of its own."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import kombu

from tests.support import binaries
from tests.support.processes import Command, this_run
from tests.support.service import Service
from tests.support.waiting import HOST, free_port, listens, wait_until

# One core's worth of schedulers that don't spin while they wait: the tests need the other one.
ERLANG_OPTIONS = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
CONFIGURATION = """\
listeners.tcp.default = {host}:{port}
log.file.level = warning
disk_free_limit.absolute = 50MB
"""


class RabbitMQ(Service):
    """Takes about ten seconds to start; `ctl` takes one or two per call."""

    name: ClassVar[str] = "rabbitmq"
    patience: ClassVar[float] = 90.0

    def __init__(self, port: int | None = None) -> None:
        self.binary = binaries.require("RabbitMQ", "rabbitmq-server")
        self.control = binaries.require("RabbitMQ", "rabbitmqctl")
        self.port_mapper = binaries.require("RabbitMQ (epmd)", "epmd")
        super().__init__(port)
        self.distribution_port, self.mapper_port = free_port(), free_port()
        self._mapper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_of("/")

    def url_of(self, vhost: str) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/{vhost}"

    def environment(self) -> Mapping[str, str]:
        home = str(self.directory)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": home,
            "ERL_EPMD_PORT": str(self.mapper_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"seckill{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_MNESIA_BASE": f"{home}/mnesia",
            "RABBITMQ_LOG_BASE": f"{home}/logs",
            "RABBITMQ_PID_FILE": f"{home}/pid",
            "RABBITMQ_CONFIG_FILE": f"{home}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/enabled_plugins",
            # What the machine's own server is told must not reach this one.
            "RABBITMQ_CONF_ENV_FILE": f"{home}/none",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_OPTIONS,
            # With this the start script becomes the server instead of watching over it (and with
            # -noinput the server doesn't end at the end of its input).
            "RABBITMQ_ALLOW_INPUT": "1",
        }

    def command(self) -> Command:
        return Command([self.binary, "-noinput"], environment=self.environment())

    def prepare(self) -> None:
        settings = CONFIGURATION.format(host=HOST, port=self.port)
        (self.directory / "rabbitmq.conf").write_text(settings)
        (self.directory / "enabled_plugins").write_text("[].\n")
        # Started here and in the foreground; left to itself it becomes a daemon that stays.
        mapper = Command([self.port_mapper], environment=self.environment())
        self._mapper = this_run().spawn(mapper, log=self.directory / "epmd.log")
        wait_until(lambda: listens(self.mapper_port))

    def cleanup(self) -> None:
        if self._mapper:
            self._mapper.kill()
            self._mapper.wait()
            this_run().forget(self._mapper)
            self._mapper = None

    def is_ready(self) -> bool:
        try:
            with kombu.Connection(self.url, connect_timeout=2) as connection:
                connection.connect()
        except OSError:
            return False
        return True

    def ctl(self, *arguments: str) -> str:
        """Run rabbitmqctl; returns what it prints. Raises CalledProcessError."""
        command = [self.control, "--quiet", "-n", self.environment()["RABBITMQ_NODENAME"]]
        result = subprocess.run(
            [*command, *arguments],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return result.stdout

    def create_vhost(self, name: str) -> str:
        """A broker of one's own on the same server; returns its address."""
        self.ctl("add_vhost", name)
        self.ctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return self.url_of(name)

    def purge(self, queue: str, *, vhost: str = "/") -> int:
        """Lose every message of a queue that waits; returns how many those were."""
        with self._channel(vhost) as channel:
            return int(channel.queue_purge(queue))

    def depth(self, queue: str, *, vhost: str = "/") -> int:
        """Messages that wait in a queue; those that a worker holds don't count."""
        with self._channel(vhost) as channel:
            return int(channel.queue_declare(queue, passive=True).message_count)

    @contextmanager
    def _channel(self, vhost: str) -> Iterator[Any]:
        with kombu.Connection(self.url_of(vhost)) as connection, connection.channel() as channel:
            yield channel
