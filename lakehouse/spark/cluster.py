"""A Spark cluster on this machine: a master, workers and, where asked for, a Spark Connect server, each a process.

    engine/cluster/standalone/   mode 0700
        alive           locked by the process that started the others, and by them: until the last has ended
        cluster.json    what is on
        *.conf, token   mode 0600: what the processes, and drivers, are told; the cluster's secret is in them
        work/ scratch/  of executors, emptied at each start

All listen on loopback and know a secret, without which nobody computes here: it is on no command line. They are one
process group, so that no executor outlives the cluster. A worker that dies is started again.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.errors import EngineError
from lakehouse.servers.place import Place, read_record, write_private
from lakehouse.servers.ports import HERE, free_port
from lakehouse.settings import Settings
from lakehouse.spark.config import class_path, spark_config
from lakehouse.spark.engine_place import engine_logs
from lakehouse.spark.keeper import EXIT, JAVA_OPTIONS, SERVING
from lakehouse.spark.options import java_options
from lakehouse.spark.warm import engines, handed_on
from lakehouse.store.disk import private_umask

START_SECONDS = 240.0  # a busy machine takes a while; longer, and something is wrong
RECORD = "cluster.json"
SCRATCH = ("work", "scratch")  # of executors
_KEEPER = "lakehouse.spark.cluster_keeper"  # it imports this
# They do little, and that soon after their start: code that was compiled quickly is good enough.
_DAEMON = {
    "SPARK_LOCAL_IP": HERE,
    "SPARK_DAEMON_MEMORY": "512m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

# What a master and workers are told beside the secret. The gateway of a master for jobs (REST) asks for none. On
# another port than that which was chosen, a master is found by nobody: it ends instead, and with it the start.
_CLOSED = {"spark.ui.killEnabled": "false", "spark.master.rest.enabled": "false", "spark.port.maxRetries": "0"}


@dataclass(frozen=True)
class Size:
    """How large a cluster is.

    Attributes:
        workers: how many; each runs one executor.
        cores: of each worker.
        memory: of each worker's executor, such as 1g.
        connect: with a Spark Connect server, which is one application on the cluster.
    """

    workers: int = 2
    cores: int = 1
    memory: str = "1g"
    connect: bool = False


@dataclass(frozen=True)
class Cluster:
    """A cluster that is on.

    Attributes:
        url: of its master, for `LAKEHOUSE_SPARK_URL`.
        page: of its master's page, and with `json/` of what it says of its workers.
        size: how large it is.
        pids: its processes by name, as they were started first.
        connect_port: of its Spark Connect server; 0: it has none.
        folder: of its files.
        log: of what its processes print.
    """

    url: str
    page: str
    size: Size
    pids: Mapping[str, int]
    connect_port: int
    folder: str
    log: str

    @property
    def token_file(self) -> Path:
        """The token of its Spark Connect server."""
        return Path(self.folder, "token")

    @property
    def export(self) -> str:
        """What to type, so that a shell's commands run on it: a token is read from its file."""
        if not self.connect_port:
            return f"export LAKEHOUSE_SPARK_URL={self.url}"
        # The server has all cores: another application would wait for ever.
        token = f"$(cat {shlex.quote(str(self.token_file))})"
        return f'export LAKEHOUSE_SPARK_URL="sc://localhost:{self.connect_port}/;token={token}"'


@dataclass(frozen=True)
class MasterState:
    """What a master says of what it has.

    Attributes:
        workers: that are alive, as it tells of each.
        applications: names of those that are on, also of those that wait for cores.
    """

    workers: Sequence[Mapping[str, Any]]
    applications: Sequence[str]

    @property
    def cores(self) -> int:
        """Of all workers."""
        return sum(each["cores"] for each in self.workers)

    @property
    def free_cores(self) -> int:
        """Those that no application has."""
        return sum(each["cores"] - each["coresused"] for each in self.workers)


def place_of(settings: Settings) -> Place:
    """Where the cluster of this lakehouse is, or would be."""
    return Place(engines(settings) / "cluster" / "standalone", engine_logs(settings) / "cluster.log")


def cluster_of(settings: Settings) -> Cluster | None:
    """The cluster of this lakehouse; None where none is on."""
    place = place_of(settings)
    found = read_record(place.folder / RECORD)
    if found is None or not place.is_alive():
        return None
    with suppress(TypeError, KeyError):  # of another version of this program
        return Cluster(**{**found, "size": Size(**found["size"])})
    return None


def own_cluster(settings: Settings) -> Cluster | None:
    """This lakehouse's cluster, where the settings name it as their engine; None where it is another, or none is on."""
    found = cluster_of(settings) if settings.spark_url.startswith("spark://") else None
    return found if found is not None and found.url == settings.spark_url else None


def who_has_all_cores(settings: Settings) -> list[str]:
    """The applications for whose end one that begins now waits, where the settings name this lakehouse's cluster."""
    if (found := own_cluster(settings)) is not None:
        with suppress(OSError, ValueError):  # a silent master is told by the engine
            state = state_of(found.page, seconds=1)
            return [] if state.free_cores else list(state.applications)
    return []


def check_memory(settings: Settings) -> None:
    """Refuse executors that no worker of this lakehouse's own cluster has room for: Spark waits for one for ever.

    Args:
        settings: of who is to compute, on whatever engine.

    Raises:
        EngineError: they ask for more than a worker has.
    """
    found = own_cluster(settings)
    if found is None or "spark.executor.memory" in settings.spark_config:
        return
    if megabytes(settings.spark_memory) > megabytes(found.size.memory):
        raise EngineError(
            f"LAKEHOUSE_SPARK_MEMORY (or LAKEHOUSE_BACKFILL_SPARK_MEMORY) asks for {settings.spark_memory} for each "
            f"executor, but each worker of {found.url} has {found.size.memory}: nothing would ever run. Set no more, "
            "or end the cluster and start one with more (lakehouse engine cluster start --memory "
            f"{settings.spark_memory})."
        )


def megabytes(size: str) -> int:
    """Of a size such as 1500m or 2g; 0 where none is set."""
    return int(size[:-1]) * {"m": 1, "g": 1024}[size[-1]] if size else 0


def start(settings: Settings, size: Size) -> Cluster:
    """Start a cluster and wait until all of it is there; one that is on is left as it is.

    Args:
        settings: which lakehouse it is for.
        size: how large it is.

    Raises:
        EngineError: it does not come up, with its log.
    """
    place = place_of(settings)
    store.make_folder(engines(settings), private=True)  # as an engine does that is first there
    place.prepare()
    with place.door():
        if (found := cluster_of(settings)) is not None:
            return found
        if not place.is_alive():
            _launch(settings, size, place)
        deadline = time.monotonic() + START_SECONDS
        while (found := cluster_of(settings)) is None:
            if not place.is_alive() or time.monotonic() > deadline:
                place.end()
                raise EngineError(
                    f"The cluster did not start: see {place.log}. `lakehouse doctor` checks Java and jars."
                )
            time.sleep(0.1)
    return found


def end(settings: Settings) -> bool:
    """End the cluster of this lakehouse, and leave nothing of what it kept on disk. False if none is on."""
    place = place_of(settings)
    if not place.end():
        return False
    with place.door():
        if not place.is_alive():  # else there is another one meanwhile
            remove_scratch(place.folder)  # a keeper that had to be killed has left it
    return True


def remove_scratch(folder: Path) -> None:
    """Remove what executors have left in the folder of a cluster that has ended: rows may be in there."""
    for each in SCRATCH:
        shutil.rmtree(folder / each, ignore_errors=True)


@contextmanager
def introduced(settings: Settings) -> Iterator[None]:
    """While a driver starts on this lakehouse's cluster, it is told the secret: by a file, not by its command line."""
    found, name = own_cluster(settings), "PYSPARK_SUBMIT_ARGS"
    if found is None:
        yield
        return
    before = os.environ.get(name)
    told = shlex.quote(str(Path(found.folder, "driver.conf")))
    os.environ[name] = f"--load-spark-defaults --properties-file {told} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _launch(settings: Settings, size: Size, place: Place) -> None:
    remove_scratch(place.folder)
    for each in SCRATCH:
        (place.folder / each).mkdir(mode=0o700)
    place.log.parent.mkdir(parents=True, exist_ok=True)
    (place.folder / RECORD).unlink(missing_ok=True)
    port = free_port()
    connect_port = free_port(port) if size.connect else 0
    url = f"spark://{HERE}:{port}"
    secret = {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_urlsafe(32)}
    driver = {
        **secret,
        "spark.executor.memory": size.memory,
        "spark.executor.cores": str(size.cores),
        "spark.sql.shuffle.partitions": str(max(2 * size.cores * size.workers, 4)),
        "spark.executor.extraJavaOptions": java_options(),
        # As drivers have it, so that the archive of classes fits.
        "spark.executor.extraClassPath": class_path(settings),
    }
    _properties(place.folder / "daemon.conf", {**secret, **_CLOSED})
    _properties(place.folder / "driver.conf", driver)
    if size.connect:
        token = secrets.token_urlsafe(32)
        write_private(place.folder / "token", token)
        # What runs ask for elsewhere says nothing of these workers: who asks for more than they have waits for ever.
        config = spark_config(settings.model_copy(update={"spark_url": url, "spark_memory": size.memory}))
        serving = {
            "spark.connect.grpc.binding.address": HERE,
            "spark.connect.grpc.binding.port": str(connect_port),
            "spark.connect.grpc.port.maxRetries": "0",
            "spark.driver.memory": "1g",
        }
        config[JAVA_OPTIONS] = f"{EXIT} {config.get(JAVA_OPTIONS, '')}".strip()
        _properties(place.folder / "server.conf", {**driver, **SERVING, **serving, **config})
    orders = {
        "folder": str(place.folder), "log": str(place.log), "url": url, "connect_port": connect_port,
        "size": asdict(size), "umask": private_umask(settings.root),
    }  # fmt: skip
    with place.log.open("ab") as output:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", _KEEPER],
            input=json.dumps(orders).encode(), stdout=output, stderr=output, check=True, cwd=place.folder,
            env={**handed_on(), **_DAEMON, "SPARK_LOCAL_DIRS": str(place.folder / "scratch")},
        )  # fmt: skip


def _properties(path: Path, config: Mapping[str, str]) -> None:
    """Settings as Java reads them from a file, for its owner alone."""
    lines = (f"{name}={value}".replace("\\", "\\\\").replace("\n", "\\n") for name, value in config.items())
    write_private(path, "\n".join([*lines, ""]))


def state_of(page: str, seconds: float = 5.0) -> MasterState:
    """What a master says of itself.

    Args:
        page: its address.
        seconds: that it has for an answer.

    Raises:
        OSError, ValueError: it does not answer, or nothing that a master would.
    """
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy is not for this machine
    with opener.open(f"{page.rstrip('/')}/json/", timeout=seconds) as answer:
        found = json.load(answer)
    if not isinstance(found, dict) or not {"workers", "activeapps"} <= found.keys():
        raise ValueError("it is no page of a Spark master")
    alive = [each for each in found["workers"] if each["state"] == "ALIVE"]
    return MasterState(alive, [each["name"] for each in found["activeapps"]])
