"""A real cluster: a master, workers and executors in processes of their own, some of which are killed in a build."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from lakehouse.commands.operate.doctor_engine import ended_in_time
from lakehouse.commands.operate.doctor_remote import ProblemError, answers, fix_of, workers
from lakehouse.errors import EngineError
from lakehouse.settings import Settings
from lakehouse.spark import cluster
from lakehouse.spark.cluster import Cluster, Size, cluster_of, introduced, place_of
from lakehouse.spark.config import spark_config
from lakehouse.spark.options import archive_path
from lakehouse_tests.conftest import ENGINES, SHORT
from lakehouse_tests.faults.crashing import DAYS, expected, land, tables
from lakehouse_tests.faults.test_crashes import assert_state, assert_swept
from lakehouse_tests.faults.test_stream_crashes import assert_exact
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.spark.test_warm import is_gone, until

EXECUTOR = b"CoarseGrainedExecutorBackend"
PUBLISHED = {name: ["published"] * len(DAYS) for name in tables()}


@dataclass
class Shared:
    """One folder that all processes share: of the lake, and of the cluster."""

    root: Path
    url: str = ""

    @property
    def settings(self) -> Settings:
        """Those of who uses the cluster."""
        return Settings(
            root=self.root, engine_dir=self.root / "engine", spark_url=self.url or "local[2]", spark_memory=""
        )

    @property
    def environment(self) -> dict[str, str]:
        """The same, for processes."""
        ours = {"LAKEHOUSE_ROOT": str(self.root), "LAKEHOUSE_SPARK_URL": self.url or "local[2]"}
        ours |= {"LAKEHOUSE_SPARK_MEMORY": "", ENGINES: str(self.root / "engine")}  # memory: what its workers have
        ours["LAKEHOUSE_REDIS_URL"] = "redis://127.0.0.1:1"  # nobody is there: workers are asked whether they could
        # Executors do not see the variable by which the tests' other engines are told.
        return os.environ | ours | {"JAVA_TOOL_OPTIONS": SHORT}

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`lakehouse …`."""
        command = [sys.executable, "-m", "lakehouse.cli", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def start(self, *options: str) -> Cluster:
        """Start the cluster by its command, and run on it from now on."""
        started = self.command("engine", "cluster", "start", "--memory", "700m", *options)
        assert started.returncode == 0, started.stderr
        found = cluster_of(self.settings)
        assert found is not None
        self.url = found.url
        if found.connect_port:
            self.url = f"sc://localhost:{found.connect_port}/;token={found.token_file.read_text()}"
        assert "token=$(cat " in started.stderr if found.connect_port else self.url in started.stderr
        return found

    def executors(self) -> list[int]:
        """Process ids of the executors, which are in the cluster's process group."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                if EXECUTOR in (each / "cmdline").read_bytes() and os.getpgid(int(each.name)) == self.group():
                    found.append(int(each.name))
            except (OSError, ProcessLookupError):  # it has just ended
                continue
        return found

    def group(self) -> int:
        """The cluster's process group."""
        found = cluster_of(self.settings)
        assert found is not None
        return os.getpgid(found.pids["master"])


class Builder:
    """A process that builds the lake on the cluster."""

    def __init__(self, shared: Shared) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "lakehouse_tests.spark.builder", str(shared.root)]
        self.shared = shared
        self.process = subprocess.Popen(
            command, env=shared.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.line()

    def line(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the builder has ended"
        return line

    def build(self, generation: int) -> Any:
        """Land a generation of the lake and build it; returns how the days of each table ended."""
        land(self.shared.root, generation)
        return self._told("build")

    def stream(self, kafka: Kafka, topic: str, most: int) -> Any:
        """Take a topic in batches of so many messages and build what they touch; returns turns and messages."""
        return self._told(json.dumps({"root": str(self.shared.root), "url": kafka.url, "topic": topic, "most": most}))

    def _told(self, order: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return json.loads(self.line())


@contextmanager
def building(shared: Shared) -> Iterator[Builder]:
    """A builder for a block."""
    builder = Builder(shared)
    try:
        yield builder
    finally:
        assert builder.process.stdin is not None
        assert builder.process.stdout is not None
        builder.process.stdin.close()
        builder.process.wait()
        builder.process.stdout.close()


class Killer(threading.Thread):
    """Kills all executors with -9, once for each of some tables, when tasks have begun files that nobody may read yet."""

    def __init__(self, shared: Shared, names: tuple[str, ...]) -> None:
        super().__init__(daemon=True)
        self.shared, self.kills, self.over = shared, 0, threading.Event()
        self.waiting = [shared.root.joinpath("tables", *name.split(".")) for name in names]

    def run(self) -> None:
        """Look until all is done."""
        while self.waiting and not self.over.wait(0.005):
            for table in self.waiting:
                if any(table.glob("staged/*/_temporary/0/_temporary/*/route=*")):
                    for pid in self.shared.executors():
                        with suppress(ProcessLookupError):  # its worker was as quick
                            os.kill(pid, signal.SIGKILL)
                            self.kills += 1
                    self.waiting.remove(table)
                    break

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A root whose cluster ends with the module."""
    made = Shared(tmp_path_factory.mktemp("shared") / "root")
    yield made
    place_of(made.settings).end()


def assert_private(root: Path, cluster: Cluster) -> None:
    """Nobody else reads what was made, and no secret is on a command line."""
    assert not [path for path in (root / "tables").rglob("*") if path.stat().st_mode & 0o077]
    assert Path(cluster.folder).stat().st_mode & 0o777 == 0o700
    conf = (Path(cluster.folder) / "driver.conf").read_text()
    secrets = [line.partition("=")[2] for line in conf.splitlines() if line.startswith("spark.authenticate.secret=")]
    secrets += [cluster.token_file.read_text()] if cluster.connect_port else []
    assert all(secrets)
    lines = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(each.read_bytes())
        except OSError:
            continue
    assert any(str(root).encode() in line for line in lines), "nothing of the cluster was seen"
    assert not [line for line in lines for secret in secrets if secret.encode() in line]


def assert_doctor_is_content(shared: Shared, *checks: str) -> Any:
    """Executors read and write the root, as doctor says; returns its findings by their names."""
    found = {each["check"]: each for each in json.loads(shared.command("doctor", "--json").stdout)}
    assert all(found[each]["ok"] for each in (*checks, "engine")), found
    assert "published 50 rows and read them back" in found["engine"]["found"]
    assert f"its Python {platform.python_version()} can load Redis" in found["engine"]["found"]
    return found


def classes_are_shared(shared: Shared) -> bool:
    """Executors have mapped the archive of classes: a JVM that cannot take it says nothing."""
    maps = []
    for pid in shared.executors():
        with suppress(OSError):  # it has just ended
            maps.append(Path(f"/proc/{pid}/maps").read_text())
    return bool(maps) and all(str(archive_path()) in each for each in maps)


def problem(settings: Settings) -> str:
    """What is wrong with the workers, for who wants them; empty: nothing."""
    try:
        workers(settings)
    except ProblemError as error:
        return str(error)
    return ""


@pytest.mark.spark
@pytest.mark.slow
def test_a_cluster_builds_what_a_laptop_builds_whoever_is_killed(shared: Shared) -> None:
    """Without it, the first cluster would show what local mode hides: other processes write, and some of them die."""
    cluster = shared.start()
    assert_doctor_is_content(shared, "master", "workers")
    with building(shared) as builder:
        # What it has, it has: somebody else would wait for ever, and is told so. Doctor's may still be on their way back.
        until(lambda: "2 workers alive, 0 of 2 cores free: lakehouse has them" in problem(shared.settings))
        with pytest.raises(
            ProblemError, match="asks for 9216 MB for each executor, but no worker has more than 700 MB"
        ):
            workers(shared.settings.model_copy(update={"spark_memory": "9g"}))
        with Killer(shared, ("bronze.readings", "gold.recent")) as killer:
            assert builder.build(1) == PUBLISHED
        assert killer.kills >= 2, "nothing was killed"
        assert_state(shared.root, expected(1))
        assert_private(shared.root, cluster)
    group = shared.group()
    assert shared.command("engine", "cluster", "stop").returncode == 0
    until(lambda: is_gone(group))
    with pytest.raises(ProblemError, match="does not answer") as none:
        answers(shared.settings)
    assert "lakehouse engine cluster start" in none.value.fix


@pytest.mark.spark
@pytest.mark.slow
def test_a_server_on_a_cluster_serves_several(shared: Shared) -> None:
    """Without it, two runs could not be on one cluster: the second would wait for the first one's cores."""
    cluster = shared.start("--connect")
    assert cluster.token_file.stat().st_mode & 0o777 == 0o600
    with building(shared) as builder:
        with Killer(shared, ("silver.readings",)) as killer:
            assert builder.build(2) == PUBLISHED
        assert killer.kills, "nothing was killed"
        assert_state(shared.root, expected(2))
        if archive_path().is_file():
            until(lambda: classes_are_shared(shared))  # one that was killed may be on its way back
        found = assert_doctor_is_content(shared, "server")
        assert cluster.token_file.read_text() not in json.dumps(found)
        assert_private(shared.root, cluster)
    assert_swept(shared.root)


@pytest.mark.spark
@pytest.mark.slow
def test_executors_that_are_killed_under_a_stream_lose_and_double_nothing(shared: Shared, kafka: Kafka) -> None:
    """Without it, a worker that dies in a batch could leave half of it, or write it twice."""
    if cluster_of(shared.settings) is None:
        shared.start()
    topic, ids = kafka.topic(2), [f"v{n}" for n in range(600)]
    for number in range(2):
        kafka.send(topic, [visit(each) for each in [*ids[number::2], *ids[:50]]], number)
    with building(shared) as builder:
        with Killer(shared, ("bronze.visits", "silver.visits")) as killer:
            assert builder.stream(kafka, topic, 200)["messages"] == 700
        assert killer.kills, "nothing was killed"
    assert_exact(shared.root, kafka, topic, set(ids), executors=killer.kills)


def visit(number: str) -> str:
    """A message of today, the same whenever it is sent again."""
    return json.dumps({"id": number, "page": "home", "at": f"{datetime.now(UTC):%Y-%m-%d}T00:00:00Z"})


def test_doctor_says_what_executors_lack(tmp_path: Path) -> None:
    """Without it, who runs a cluster would be shown the last line of a Java trace."""
    settings = Settings(root=tmp_path, spark_url="spark://127.0.0.1:1")
    for said, todo in {
        "The engine wrote 3 row(s) to /x, but the files there hold 0.": f"do not see {tmp_path}",
        "java.io.FileNotFoundException: File file:/x does not exist": f"do not see {tmp_path}",
        "ModuleNotFoundError: No module named 'pyarrow'": "PYSPARK_PYTHON",
        'Cannot run program "python3": error=2, No such file or directory': "PYSPARK_PYTHON",
        "java.io.IOException: Permission denied": "the user whose it is",
        "[DATA_SOURCE_NOT_FOUND] Failed to find data source: delta": "python -m lakehouse.spark.jars",
        "java.io.InvalidClassException: local class incompatible": "one Spark",
        "<_InactiveRpcError: UNAUTHENTICATED>": "token=",
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.": "no master of this Spark",
    }.items():
        assert todo in fix_of(said, settings)
    assert fix_of("something else", settings) == ""


def test_a_server_asks_its_workers_for_what_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a memory that is set for other engines left the server without an executor, and every query hung."""
    settings = Settings(root=tmp_path, engine_dir=tmp_path, spark_memory="4g")
    place = place_of(settings)
    place.prepare()
    monkeypatch.setattr(cluster, "subprocess", SimpleNamespace(run=lambda *_, **__: None))
    cluster._launch(settings, Size(memory="700m", connect=True), place)
    for name in ("driver.conf", "server.conf"):
        asked = [line for line in (place.folder / name).read_text().splitlines() if "spark.executor.memory" in line]
        assert len(asked) == 1, name
        assert asked[0].endswith("700m"), name


def test_a_server_that_ends_no_query_is_told() -> None:
    """Without it, the doctor itself hung on a server without executors."""
    interrupted = threading.Event()
    server: Any = SimpleNamespace(interruptAll=interrupted.set)

    def ask() -> None:
        assert interrupted.wait(60)
        raise RuntimeError("OPERATION_CANCELED")

    with pytest.raises(ProblemError, match="ends none within") as told, ended_in_time(server, 0.01):
        ask()
    assert "spark.executor.memory" in told.value.fix
    with pytest.raises(RuntimeError, match="another"), ended_in_time(server, 600):
        raise RuntimeError("another")


def test_a_driver_is_told_the_secret_of_its_own_cluster_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, another cluster, or every reader of command lines, would be told it."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    place = place_of(Settings(root=tmp_path, engine_dir=tmp_path))
    place.prepare()
    assert place.be_alive()
    told = {
        "url": "spark://127.0.0.1:7077", "page": "", "size": {}, "pids": {}, "connect_port": 0,
        "folder": str(place.folder), "log": "",
    }  # fmt: skip
    (place.folder / "cluster.json").write_text(json.dumps(told))
    with introduced(Settings(root=tmp_path, engine_dir=tmp_path, spark_url="spark://127.0.0.1:7077")):
        assert str(place.folder / "driver.conf") in os.environ["PYSPARK_SUBMIT_ARGS"]
    with introduced(Settings(root=tmp_path, engine_dir=tmp_path, spark_url="spark://elsewhere:7077")):
        assert "PYSPARK_SUBMIT_ARGS" not in os.environ
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_executors_write_as_the_driver_does_and_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, what they write would be for everybody to read, or they would look for the driver on their own machine."""
    urls = ("local[2]", "spark://127.0.0.1:7077", "k8s://https://127.0.0.1:6443", "spark://no.such.host.invalid:7077")
    monkeypatch.setenv("SPARK_LOCAL_IP", "192.0.2.1")  # as pandera sets one
    found = [spark_config(Settings(root=tmp_path, spark_url=url)) for url in urls]
    assert {each["spark.hadoop.fs.permissions.umask-mode"] for each in found} == {"077"}
    files = [each["spark.hadoop.fs.file.impl"].rpartition(".")[2] for each in found]
    assert files == ["NakedLocalFileSystem"] + ["RawLocalFileSystem"] * 3, "executors elsewhere have Hadoop's own"
    assert len({each["spark.driver.extraClassPath"] for each in found}) == 1, "the archive of classes fits no other"
    assert [each.get("spark.driver.host") for each in found] == ["127.0.0.1"] * 3 + [None]


@pytest.mark.parametrize(
    ("asked", "config", "refused"),
    [("1g", {}, True), ("700m", {}, False), ("", {}, False), ("1g", {"spark.executor.memory": "500m"}, False)],
)
def test_executors_that_no_worker_has_room_for_are_refused(
    asked: str, config: dict[str, str], refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, who had set a memory for the warm engine waited for ever, without a word, on a cluster of less."""
    found = Cluster("spark://127.0.0.1:24772", "", Size(memory="700m"), {}, 0, str(tmp_path), "")
    monkeypatch.setattr(cluster, "cluster_of", lambda _: found)
    settings = Settings(root=tmp_path, spark_url=found.url, spark_memory=asked, spark_config=config)
    with pytest.raises(EngineError, match="asks for 1g .* has 700m") if refused else nullcontext():
        cluster.check_memory(settings)
    cluster.check_memory(settings.model_copy(update={"spark_url": "spark://10.0.0.1:7077"}))  # not known here


def test_nobody_hands_a_master_a_job_without_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, every user of the machine could run a program as the cluster's owner, by its gateway on port 6066."""
    monkeypatch.setattr(cluster.subprocess, "run", lambda *_, **__: None)
    settings = Settings(root=tmp_path)
    place = place_of(settings)
    place.prepare()
    cluster._launch(settings, Size(), place)
    told = (place.folder / "daemon.conf").read_text().splitlines()
    assert {"spark.master.rest.enabled=false", "spark.port.maxRetries=0"} <= set(told)
