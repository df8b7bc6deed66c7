"""A private ZooKeeper server, standalone."""

import socket
from pathlib import Path
from typing import ClassVar

from tests.support import binaries
from tests.support.processes import Command
from tests.support.service import Service
from tests.support.waiting import HOST

JARS = (Path("/usr/share/java/zookeeper.jar"),)
JVM_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
ASKER = "127.0.0.2"
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
CONFIGURATION = """\
dataDir={directory}/data
clientPort={port}
clientPortAddress={host}
tickTime=500
maxClientCnxns={connections}
admin.enableServer=false
4lw.commands.whitelist=*
forceSync=no
"""


class ZooKeeper(Service):
    name: ClassVar[str] = "zookeeper"
    patience: ClassVar[float] = 60.0
    most_connections = 500  # from one address

    def __init__(self, port: int | None = None) -> None:
        self.java = binaries.require("ZooKeeper (java)", "java")
        jar = next((path for path in JARS if path.exists()), None)
        if jar is None:
            raise binaries.Missing("ZooKeeper not found: make services")
        self.jar = jar
        super().__init__(port)

    @property
    def url(self) -> str:
        """As in ZOOKEEPER_HOSTS: no scheme."""
        return f"{HOST}:{self.port}"

    def command(self) -> Command:
        place = ["-cp", f"{self.directory}:{self.jar}"]
        return Command([self.java, *JVM_OPTIONS, *place, MAIN, str(self.directory / "zoo.cfg")])

    def prepare(self) -> None:
        settings = CONFIGURATION.format(
            directory=self.directory, host=HOST, port=self.port, connections=self.most_connections
        )
        (self.directory / "zoo.cfg").write_text(settings)
        (self.directory / "data").mkdir(exist_ok=True)

    def is_ready(self) -> bool:
        return self.ask("ruok") == "imok"

    def ask(self, word: str) -> str:
        """Send one of the four-letter words; empty if nobody answers."""
        try:
            # From an address of its own, so that what is limited for each address leaves it alone.
            with socket.create_connection((HOST, self.port), 2, (ASKER, 0)) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""
