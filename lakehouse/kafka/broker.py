"""A Kafka broker on this machine, for development and tests: one process, which is its own controller.

    kafka/                mode 0700, under the root
        alive             locked by the broker for as long as it lives
        broker.json       where it listens, kept: who was told its address finds it there after a restart, too
        server.properties what it is told
        data/             its messages and its own log; `.format` is one in the making

It listens on loopback alone and has no login: whoever can reach this machine's loopback can read and write.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakehouse.errors import EngineError
from lakehouse.kafka.address import OPEN, Address
from lakehouse.kafka.jars import broker_jars
from lakehouse.kafka.topics import answers
from lakehouse.servers.local_server import LocalServer
from lakehouse.servers.place import Place, log_with_room, write_private
from lakehouse.servers.ports import HERE, free_port
from lakehouse.settings import Settings
from lakehouse.spark.jars import java_command, java_home_problem

MEMORY = "512m"
START_SECONDS = 120.0  # it takes some six; a busy machine takes a while
# Code that was compiled quickly is good enough, and out of memory it does not go on in a state nobody has thought of.
_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", "-Dlog4j2.level=WARN")
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # A name with a typing mistake is no topic.
    "auto.create.topics.enable": "false",
    # A message's time is when it was there to be read: no producer's clock moves it.
    "log.message.timestamp.type": "LogAppendTime",
    # One node holds everything, offsets and transactions too; fifty partitions of each would be files and no use.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # No other node has to be told twice a second that this log goes on: that is a third of what an idle broker costs.
    "metadata.max.idle.interval.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(8 * 2**20),
}


@dataclass(frozen=True)
class Broker:
    """A broker that is on.

    Attributes:
        port: of this machine alone.
        pid: of its process.
        started: seconds since 1970.
        memory: most that its heap holds, such as 512m.
        data: folder of its messages.
        log: file of what it prints.
    """

    port: int
    pid: int
    started: float
    memory: str
    data: str
    log: str

    @property
    def servers(self) -> str:
        """What Kafka's clients call `bootstrap.servers`."""
        return f"{HERE}:{self.port}"

    @property
    def url(self) -> str:
        """Its address, as settings have it."""
        return f"{OPEN}://{self.servers}"

    @property
    def address(self) -> Address:
        """The same, for clients of this process."""
        return Address(self.servers)


def place_of(settings: Settings) -> Place:
    """Where the broker of this lakehouse is, or would be."""
    return Place(settings.root / "kafka", settings.root / "logs" / "kafka.log")


def broker_of(settings: Settings) -> Broker | None:
    """The broker of this lakehouse; None where none is on. One that has just started may not answer yet."""
    if (on := _server(settings).found()) is None:
        return None
    (pid, found), place = on, place_of(settings)
    return Broker(
        found["port"], pid, found["started"], found["memory"], str(place.folder / "data"), str(place.log)
    )  # fmt: skip


def start(settings: Settings, *, port: int | None = None, memory: str = MEMORY) -> Broker:
    """Start the broker and wait until it answers; one that is on is left as it is.

    Args:
        settings: which lakehouse it is for.
        port: where it listens; None: where it did before, or on a free one.
        memory: of its heap.

    Raises:
        EngineError: it does not come up, with its log; or its jars could not be fetched.
        UsageError: the port is somebody else's, or the broker listens on another.
    """
    server = _server(settings)
    return server.started(
        lambda: _launch(settings, server, port, memory),
        lambda: broker_of(settings),
        lambda found: answers(found.address, 1.0),
        port,
    )


def _server(settings: Settings) -> LocalServer:
    return LocalServer("the broker", "kafka", place_of(settings), "broker.json", START_SECONDS, 0.1)


def _launch(settings: Settings, server: LocalServer, port: int | None, memory: str) -> None:
    folder, port = server.place.folder, server.port_for(port)
    if problem := java_home_problem():
        raise EngineError(problem)
    classes = os.pathsep.join(map(str, broker_jars(settings)))
    java = [java_command(), f"-Xmx{memory}", *_JAVA, "-cp", classes]
    if not (folder / "data").exists():
        _format(server, java)
    _write(folder / "server.properties", port, "data")
    server.run(settings, [*java, "kafka.Kafka", "server.properties"], {"port": port, "memory": memory})


def _format(server: LocalServer, java: Sequence[str]) -> None:
    """Make the folder of the data, whole or not at all: a start that was killed leaves none that is half made."""
    folder = server.place.folder
    draft, properties = folder / ".format", folder / "format.properties"
    shutil.rmtree(draft, ignore_errors=True)
    _write(properties, free_port(), draft.name)
    with log_with_room(server.place.log).open("ab") as output:
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", properties.name],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, umask=0o077, check=False,
        )  # fmt: skip
    if done.returncode:
        raise EngineError(f"The broker's data could not be made: {server.see_log()}")
    draft.rename(folder / "data")
    properties.unlink()


def cluster_id() -> str:
    """A new one, of 22 characters; it begins with none that would make it an option on a command line."""
    below = 62 << 2  # the last two of the 64 characters are - and _
    return urlsafe_b64encode(bytes([secrets.randbelow(below)]) + secrets.token_bytes(15)).decode().rstrip("=")


def _write(path: Path, port: int, data: str) -> None:
    """What the broker is told; it is started in the folder, so that no path needs an escape."""
    controller = free_port(port)
    own: Mapping[str, str] = {
        "listeners": f"PLAINTEXT://{HERE}:{port},CONTROLLER://{HERE}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HERE}:{port}",
        "controller.quorum.voters": f"1@{HERE}:{controller}",
        "log.dirs": data,
    }
    write_private(path, "".join(f"{name}={value}\n" for name, value in {**_PROPERTIES, **own}.items()))
