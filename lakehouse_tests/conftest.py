"""One engine for all tests, started by the first that needs it, and lakes on temporary roots."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.contracts import Table
from lakehouse.read.lake import Lake
from lakehouse.settings import Settings, get_settings
from lakehouse.spark.options import REMOTE
from lakehouse_tests.fixtures.midnight import present_day, wait_near_midnight
from lakehouse_tests.fixtures.packages import SHOP
from lakehouse_tests.fixtures.tally import counts, lines, tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakehouse_tests.faults.laboratory import EngineProcess
    from lakehouse_tests.fixtures.kafka import Kafka
    from lakehouse_tests.fixtures.postgres import Server
    from lakehouse_tests.fixtures.redis import RedisServer

PII_KEY = "a key of the tests"
ENGINES = "LAKEHOUSE_ENGINE_DIR"
_OF_THE_MACHINE = {"LAKEHOUSE_JARS_DIR", "LAKEHOUSE_TABLES", "LAKEHOUSE_TEST_DATA", "LAKEHOUSE_TEST_SPARK_URL", ENGINES}

# A query over a few rows costs its plan and its tasks: to compile it, and to plan it again after every stage, is a third
# of the time, and to read a few small files in two tasks rather than one a tenth.
TINY = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# What users have, and so what the whole lakehouse is built with from end to end; a demonstration runs with no setting at all.
USUAL = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}

# Memory is whole from the start: each time that it grew by a tenth, Java would look through all of it, nine times in the
# first minute. What is compiled stays: with less room for it, Java throws some away all the time.
JAVA = "-XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:InitialRAMPercentage=100"
# Hardly any code of an engine that is soon killed runs long enough for the optimizing compiler to save what it costs.
SHORT = f"{JAVA} -XX:TieredStopAtLevel=1"

# All processes of a run share one warm engine, as users' commands and runs do: each would start, load and compile the same.
SHARED = {
    "LAKEHOUSE_SPARK_URL": "local[2]",
    "LAKEHOUSE_SPARK_MEMORY": "2500m",
    "LAKEHOUSE_ENGINE_MINUTES": "10",
    "LAKEHOUSE_SPARK_UI": "true",  # by it tests count jobs
    "SPARK_SUBMIT_OPTS": f"{JAVA} -Xmn600m",
}
# What is killed with its engine, or asks for the JVM, has one in its own process.
ALONE = {
    "LAKEHOUSE_SPARK_MEMORY": "1500m",
    "LAKEHOUSE_ENGINE_MINUTES": "0",
    "LAKEHOUSE_SPARK_UI": "false",
    "SPARK_SUBMIT_OPTS": f"{SHORT} -Xmn300m",
}

# Dagster, pandera and Spark leave a million objects that stay: to look through them for garbage again and again is a tenth
# of the time of the tests that need no engine.
gc.set_threshold(100_000, 50, 50)

LakeFactory = Callable[..., Lake]
_sessions: list[Any] = []  # the one of this process, on the shared engine


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[None]:
    """No setting of the developer's shell reaches a test, and no test writes into the developer's lakehouse."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("LAKEHOUSE_") and n not in _OF_THE_MACHINE]:
            patch.delenv(name)
        patch.setenv("LAKEHOUSE_ROOT", str(tmp_path_factory.mktemp("lakehouse")))
        patch.setenv("LAKEHOUSE_PII_KEY", PII_KEY)
        for name, value in (SHARED | (ALONE if pytestconfig.option.in_process else {})).items():
            patch.setenv(name, value)
        patch.setenv("LAKEHOUSE_SPARK_CONFIG", json.dumps(TINY | {"spark.ui.retainedJobs": "1000"}))
        get_settings.cache_clear()
        yield
    get_settings.cache_clear()


def engine_settings(root: Path) -> Settings:
    """Settings of a small engine for tests on a root."""
    if url := os.environ.get("LAKEHOUSE_TEST_SPARK_URL"):
        return Settings(root=root, spark_url=url, spark_memory="")
    return Settings(root=root)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """This process's session, on the engine that runs have."""
    from lakehouse.spark.session import start
    from lakehouse.spark.warm import is_wanted
    from lakehouse_tests.fixtures.bridge import remember_names

    settings = engine_settings(tmp_path_factory.mktemp("engine"))
    if is_wanted(settings):
        joined: Any = start(settings)
        _sessions.append(joined)
        yield joined
        _sessions.clear()
        return
    remember_names()
    session = start(settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def session_stays() -> Iterator[None]:
    """A test that has its process join another engine, or ends the one that all share, fails; not those after it."""
    yield
    closed = [session for session in _sessions if session.is_stopped or REMOTE not in os.environ]
    for session in closed:
        _sessions.remove(session)
    assert not closed, "the session that tests share was closed"


@pytest.fixture
def today() -> date:
    """The day, of a test that needs a real clock and sees no other day."""
    wait_near_midnight()
    return present_day()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one PostgreSQL server, whose transaction numbers wrap around while the tests run."""
    from lakehouse_tests.fixtures.postgres import binaries, serving

    if binaries() is None and not os.environ.get("CI"):
        pytest.skip("no PostgreSQL server here: make database")
    with serving(tmp_path_factory.mktemp("postgres")) as started:
        yield started


@pytest.fixture(scope="session")
def engine_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One process with one engine for all that is killed."""
    from lakehouse_tests.faults.laboratory import EngineProcess

    made = EngineProcess(tmp_path_factory.mktemp("laboratory"))
    yield made
    made.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The one Kafka broker of this process; whoever kills it starts it again."""
    from lakehouse_tests.fixtures.kafka import serving

    with serving(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The one Redis of this process; whoever kills it starts it again."""
    from lakehouse_tests.fixtures.redis import is_here, serving

    if not is_here() and not os.environ.get("CI"):
        pytest.skip("no Redis server here: make redis")
    with serving(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> LakeFactory:
    """Makes a lake of the given tables on a root of the test's own; the engine starts when it is first used."""

    def make(*tables: Table, root: Path | None = None) -> Lake:
        def engine() -> SparkSession:
            session: SparkSession = request.getfixturevalue("spark")
            return session

        return Lake(engine_settings(root or tmp_path / "root"), {table.id: table for table in tables}, engine)

    return make


def pytest_addoption(parser: pytest.Parser) -> None:
    """Length and seed of the random harnesses: crashes, faults, histories of a table, inputs."""
    parser.addoption("--cases", type=int, help="random cases of each harness (default: a few each)")
    parser.addoption(
        "--in-process", action="store_true", help="an engine in each process, not one behind Spark Connect"
    )
    parser.addoption("--few", action="store_true", help="few examples of each property, where a test sets no number")
    parser.addoption("--seed", type=int, help="repeats the random cases of an earlier run")


def pytest_configure(config: pytest.Config) -> None:
    """A run without a seed gets one, which its summary says; it can be interrupted, and no example of a test is timed.

    How long one takes says how busy the machine is. A shell has what it starts in the background ignore interrupts, and
    Dagster then has SIGTERM ignored as well, by this process and all that it starts.
    """
    if not hasattr(config, "workerinput"):  # the first process of a run; the others find the folder named
        os.environ[ENGINES] = tempfile.mkdtemp(prefix="lakehouse-engines-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["LAKEHOUSE_TABLES"] = SHOP  # here, since tests ask for tables while they are collected
    # Definitions are made while tests are collected: by the usual settings, not by those of the developer's own lake.
    os.environ["LAKEHOUSE_ROOT"] = str(config.rootpath / "no lake here")
    # Wherever a process that a test starts stands, it finds them.
    paths = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys(paths)))
    from hypothesis import HealthCheck, settings

    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("few", settings.get_profile("untimed"), max_examples=10)
    settings.load_profile("few" if config.option.few else "untimed")
    if config.option.seed is None:
        config.option.seed = getattr(config, "workerinput", {}).get("seed", random.randrange(1 << 30))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker has the seed that the summary says."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_collection_finish() -> None:
    """What is loaded by now stays."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What the harnesses did."""
    if found := lines():
        terminalreporter.section(f"--seed {config.option.seed}")
        for line in found:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run."""
    found: int = request.config.option.seed
    return found


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """How many cases a harness runs, given how many it runs by default."""
    asked: int | None = request.config.option.cases
    return lambda usual: usual if asked is None else asked


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What the harnesses did in one of several processes goes to the one that sums up, which also ends the engines.

    Their logs stay where a test has failed. Where that process is killed, they end by themselves.
    """
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tally"] = counts()
        return
    from lakehouse.spark.warm import leave
    from lakehouse_tests.fixtures.engines import end_engines

    folder = Path(os.environ[ENGINES])
    leave()
    end_engines(Settings(engine_dir=folder))
    if exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take it there; a process that broke down has left nothing."""
    for name, (template, found) in getattr(node, "workeroutput", {}).get("tally", {}).items():
        tally(name, template, **found)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files that share an engine go to one process."""
    if config.getvalue("dist") != "loadfile":
        return None
    from lakehouse_tests.fixtures.together import Together

    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the engine, or may, so that `-m "not spark"` is quick; files with slow tests come first.

    Processes that take file after file then end together.
    """
    for item in items:
        if {"spark", "lake"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
