"""The warm engine on real servers: started once, shared, left clean by whoever is killed, and gone when unused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse.servers.place import here
from lakehouse.settings import Settings
from lakehouse.spark import options, warm
from lakehouse.spark.config import spark_config
from lakehouse.spark.engine_place import EnginePlace
from lakehouse.spark.warm import place_of, places
from lakehouse_tests.commands.conftest import Result, run
from lakehouse_tests.conftest import ALONE, ENGINES
from lakehouse_tests.fixtures.engines import own_engines
from lakehouse_tests.fixtures.groups import masked
from lakehouse_tests.spark.user import SUM

MOST_SECONDS = 240.0  # until something is given up that always comes


class Engines:
    """A folder of warm engines, and processes that use them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.started: list[subprocess.Popen[str]] = []

    def environment(self, minutes: float = 10) -> dict[str, str]:
        """The settings of a user of the engine."""
        given = {"ROOT": str(self.root), "SPARK_URL": "local[3]", "SPARK_MEMORY": "1g", "ENGINE_MINUTES": str(minutes)}
        given |= {"SPARK_UI": "true"}
        return os.environ | {f"LAKEHOUSE_{name}": value for name, value in given.items()}

    def use(self, what: str, minutes: float = 10) -> subprocess.Popen[str]:
        """A process that joins the engine, or starts it, and works."""
        command = [sys.executable, "-W", "ignore", "-m", "lakehouse_tests.spark.user", what, str(self.root)]
        user = subprocess.Popen(command, env=self.environment(minutes), stdout=subprocess.PIPE, text=True)
        self.started.append(user)
        return user

    def command(self, *arguments: str) -> Result:
        """`lakehouse engine …`, in this process: to start one takes longer than the command, which is asked for often."""
        return run(self.root, "engine", *arguments)

    def status(self) -> Any:
        """What `lakehouse engine status` says."""
        return self.command("status", "--json").json

    def on(self) -> list[EnginePlace]:
        """The engines that are there."""
        return places(Settings(root=self.root))


@pytest.fixture(autouse=True)
def usual_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines are below the root, as users have them, and not where all tests share one."""
    own_engines(monkeypatch)


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    """A root, of a name that people give to folders, whose engines end with the test."""
    made = Engines(tmp_path / "Anna's lake ü")
    yield made
    for user in made.started:
        user.kill()
        user.wait()
        assert user.stdout is not None
        user.stdout.close()
    for place in made.on():
        place.end()


def until(true: Callable[[], Any]) -> None:
    """Wait for what always comes, however busy the machine is."""
    deadline = time.monotonic() + MOST_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_gone(group: int) -> bool:
    """Whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def keeper_of(user: subprocess.Popen[str]) -> int:
    """The id of the keeper that a user was served by."""
    assert user.stdout is not None
    return int(user.stdout.readline())


def written(engines: Engines, *users: subprocess.Popen[str]) -> int:
    """How many files their jobs have written; a folder may go while it is looked at, with the job that wrote it."""
    folders = (each for user in users for each in os.walk(engines.root / f"rows-{user.pid}"))
    return sum(name.endswith(".parquet") for _, _, names in folders for name in names)


def check_pages(address: str, keeper: int) -> None:
    """The owner sees what runs, through the proxy alone, and no process tells the key by its command line."""
    apps = "/api/v1/applications"
    with urllib.request.urlopen(address + apps) as answer:  # noqa: S310  # of this machine
        [app] = json.load(answer)
    with urllib.request.urlopen(f"{address}{apps}/{app['id']}/environment") as answer:  # noqa: S310  # of this machine
        settings = dict(json.load(answer)["sparkProperties"])
    secret = next(value for name, value in settings.items() if name.endswith("secretKey"))
    assert "redacted" in secret
    with urllib.request.urlopen(f"{address}/jobs/") as answer:  # noqa: S310  # of this machine
        assert "Spark Jobs" in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="40[13]"):
        urllib.request.urlopen(f"http://127.0.0.1:{settings['spark.ui.port']}{apps}")
    lines = [path.read_text() for path in Path("/proc").glob("[0-9]*/cmdline") if group_of(path.parent) == keeper]
    assert any("spark.ui.filters" in line for line in lines), "the JVM's"
    assert not any("secretKey" in line for line in lines)


def group_of(process: Path) -> int:
    """The process group of one in `/proc`; -1: it is gone."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[2])
    except OSError:
        return -1


def check_work(engines: Engines, *users: subprocess.Popen[str]) -> None:
    """Each writer is told how far its own query is, and whoever asks sees both, with what they are for."""
    for user in users:
        seen = engines.root / f"progress-{user.pid}"
        until(seen.exists)
        done, tasks = seen.read_text().split()
        assert 0 <= int(done) < int(tasks) == 40_000
    until(lambda: len(engines.status()[0]["running"]) == len(users))  # the first pages take their time
    [state] = engines.status()
    told = {"command": "lakehouse_tests.spark.user", "table": "silver.orders", "days": "2026-03-01"}
    pids = sorted(user.pid for user in users)
    assert sorted(state["work"], key=lambda work: work["pid"]) == [{"pid": pid, **told} for pid in pids]
    assert sorted((each["pid"], each["tasks"]) for each in state["running"]) == [(pid, 40_000) for pid in pids]
    said = engines.command("status").err
    assert f"Process {pids[0]} (lakehouse_tests.spark.user): silver.orders, 2026-03-01." in said
    assert "Running for " in said


def sums(engines: Engines) -> tuple[str, int]:
    """What a new user computes, and its keeper."""
    user = engines.use("sum")
    keeper = keeper_of(user)
    assert user.stdout is not None
    return user.stdout.readline().strip(), keeper


def scratch(place: EnginePlace) -> Path:
    """The folder of an engine's temporary files, which has some."""
    folder = Path(json.loads((place.folder / "scratch.json").read_text())["folder"])
    assert any(folder.iterdir())
    return folder


@pytest.mark.spark
@pytest.mark.slow
def test_one_engine_serves_all_and_outlives_whoever_is_killed(engines: Engines) -> None:
    """Without it, two would start at once, a killed run would go on computing, or one's views would be another's."""
    first, second = engines.use("write"), engines.use("write")
    keeper = keeper_of(first)
    assert keeper_of(second) == keeper, "two cold starters, one engine"
    until(lambda: written(engines, first) and written(engines, second))

    [state] = engines.status()
    check_work(engines, first, second)
    assert state["users"] == sorted((first.pid, second.pid))
    assert (state["pid"], state["memory"]) == (keeper, "1g")
    [place] = engines.on()
    address = place.address()
    assert address is not None
    assert address.token not in json.dumps(state)
    assert (place.folder / "engine.json").stat().st_mode & 0o777 == 0o600
    assert place.folder.stat().st_mode & 0o777 == 0o700
    left = scratch(place)
    check_pages(state["ui"], address.pid)
    refused = engines.command("stop")
    assert refused.code == 2
    assert str(first.pid) in refused.err

    left_alone = f"{SUM} False True "  # the second session of a process is another one, too
    assert sums(engines)[0].startswith(left_alone), "beside two long jobs"
    first.send_signal(signal.SIGKILL)
    second.send_signal(signal.SIGINT)

    def nothing_is_written() -> bool:
        before = written(engines, first, second)
        found, same = sums(engines)
        assert found.startswith(left_alone), "in a session of its own"
        assert not found.endswith(" 7"), "what another has set is not its own"
        assert same == keeper
        return before == written(engines, first, second)

    until(nothing_is_written)
    assert first.wait() == -signal.SIGKILL
    assert second.wait() != 0

    # An engine that is killed takes its users' work along, and nobody waits for it.
    third = engines.use("write")
    keeper_of(third)
    until(lambda: written(engines, third))
    os.kill(keeper, signal.SIGKILL)
    assert third.stdout is not None
    assert "LAKEHOUSE_ENGINE_MINUTES=0" in third.stdout.read()
    assert third.wait() == 3
    found, another = sums(engines)
    assert another != keeper, "the next one starts another"
    assert found.startswith(left_alone)
    assert not left.exists(), "rows may be in there"
    left = scratch(place)
    stopped = engines.command("stop", "--force")  # the last user may be about to end
    assert stopped.code == 0, stopped.err
    assert not engines.on()
    assert engines.status() == []
    assert not left.exists()


@pytest.mark.spark
@pytest.mark.slow
def test_an_engine_ends_with_the_program_that_it_was_started_for(engines: Engines) -> None:
    """Without it, `lakehouse dev` would leave a JVM behind, or lose its engine while it is there."""
    program = engines.use("become", minutes=0.001)
    until(lambda: any(place.users() for place in engines.on()))
    found, keeper = sums(engines)
    assert found.startswith(str(SUM))
    until(lambda: engines.status()[0]["users"] == [])
    [state] = engines.status()
    assert (state["held_by"], state["pid"]) == ([program.pid], keeper), "unused, and kept"
    program.kill()
    until(lambda: not engines.on())
    until(lambda: is_gone(keeper))
    assert "nobody has used it" in Path(state["log"]).read_text()


def test_a_file_that_was_left_behind_is_nobodys(tmp_path: Path) -> None:
    """Without it, the process that has a dead keeper's id today would be taken for it, and killed."""
    place = EnginePlace(tmp_path / "engine", tmp_path / "log")
    place.prepare()
    (place.folder / "alive").write_text(json.dumps({"pid": os.getpid(), "host": here()}))
    (place.folder / "engine.json").write_text(json.dumps({"port": 1, "token": "x", "pid": os.getpid()}))
    assert place.address() is None
    assert not place.end()


def test_an_engine_that_had_to_be_killed_leaves_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`engine stop` said that it ended, and what it had on disk stayed: for good, where no like engine began again."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = EnginePlace(tmp_path / "engine", tmp_path / "log")
    place.prepare()
    kept = place.scratch()
    (kept / "rows").write_text("of somebody")
    code = "import os, signal; from pathlib import Path; from lakehouse.spark.engine_place import EnginePlace; "
    code += "stop = lambda: os.kill(os.getpid(), signal.SIGSTOP); "
    code += f"EnginePlace(Path({str(place.folder)!r}), Path('log')).keep('engine', stop, 0o077)"
    with place.log.open("ab") as output:
        subprocess.run([sys.executable, "-c", code], stdout=output, stderr=output, check=True)
    until(lambda: place.pid() is not None)
    assert place.end(0.2)
    assert not kept.exists()
    assert not (place.folder / "scratch.json").exists()


def test_a_lease_ends_with_its_process(tmp_path: Path) -> None:
    """Without it, a killed process would keep an engine for ever, or its session would."""
    place = EnginePlace(tmp_path / "engine", tmp_path / "log")
    place.prepare()
    code = "import sys, time; from pathlib import Path; from lakehouse.spark.engine_place import EnginePlace; "
    code += f"held = EnginePlace(Path({str(place.folder)!r}), Path('log')).lease('a session'); print('held', flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder, holder.stdout:
        assert holder.stdout.readline() == "held\n"
        assert [lease.pid for lease in place.users()] == [holder.pid]
        place.tell_doing("a session", {"table": "silver.orders"})
        assert place.doing("a session") == {"table": "silver.orders"}
        assert not place.ended()
        holder.kill()
    assert not place.users()
    assert [lease.session for lease in place.ended()] == ["a session"]
    assert place.doing("a session") == {}
    assert not place.ended()


def test_a_session_that_does_not_close_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a command that has done its work would not end: gRPC can wait for ever for what a fork has lost."""
    joined, never = object.__new__(warm._Joined), threading.Event()
    joined.spark, joined._lease = SimpleNamespace(stop=never.wait), os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(warm, "CLOSE_SECONDS", 0.05)
    joined.leave()
    with pytest.raises(OSError, match="Bad file descriptor"):  # the lease is given back, by which the keeper knows
        os.fstat(joined._lease)
    never.set()


def test_another_setting_is_another_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a run would compute with settings, jars or memory that are not its own."""
    jar = tmp_path / "mine.jar"
    jar.write_text("one")
    usual = Settings(root=tmp_path, spark_config={"spark.jars": str(jar)}, spark_memory="1g")
    here = place_of(usual).folder
    other = [usual.model_copy(update={"spark_memory": "2g"}), usual.model_copy(update={"spark_url": "local[1]"})]
    assert place_of(usual).folder == here
    assert len({here, *(place_of(each).folder for each in other)}) == 3
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    java = place_of(usual).folder
    jar.write_text("another")
    assert len({here, java, place_of(usual).folder}) == 3


def test_an_archive_that_is_made_meanwhile_makes_no_other_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the first web interface, which makes the archive, would start a second engine beside the demo's."""
    archive, settings = tmp_path / "classes.jsa", Settings(root=tmp_path, spark_memory="1g")
    monkeypatch.setattr(options, "archive_path", lambda: archive)
    before = place_of(settings).folder
    archive.touch()
    assert "SharedArchiveFile" in spark_config(settings)["spark.driver.extraJavaOptions"]
    assert place_of(settings).folder == before


def test_lakehouses_of_one_folder_share_engines(tmp_path: Path) -> None:
    """Without it, many small lakehouses, as tests have them, would each start a JVM."""
    shared = tmp_path / "engines"
    roots = (tmp_path / "one", tmp_path / "other")
    assert len({place_of(Settings(root=root, engine_dir=shared)).folder for root in roots}) == 1
    assert len({place_of(Settings(root=root)).folder for root in roots}) == 2


def test_no_other_puts_an_engine_among_those_of_a_shared_root(tmp_path: Path) -> None:
    """Without it, a colleague could put a folder in the place of an engine's, and compute as its owner."""
    with masked(0o007):  # as of a root that is open to a group
        for settings in (Settings(root=tmp_path / "one"), Settings(root=tmp_path / "two", engine_dir=tmp_path / "own")):
            place_of(settings).prepare()
            assert (warm.engines(settings).stat().st_mode & 0o777) == 0o700
        (tmp_path / "shared").mkdir()
        place_of(Settings(root=tmp_path / "one", engine_dir=tmp_path / "shared")).prepare()
    assert ((tmp_path / "shared").stat().st_mode & 0o777) == 0o770, "what its owner has opened stays so"


@pytest.mark.spark
@pytest.mark.slow
def test_who_may_only_read_has_an_engine_of_their_own(tmp_path: Path) -> None:
    """Without it, a root that is shared for reading could not be read by Spark any more.

    Nor could it by a process that was started by one with a session on a server, which leaves it a variable.
    """
    place = tmp_path / "no folder"
    place.touch()
    code = (
        "from lakehouse.settings import Settings\n"
        "from lakehouse.spark.session import start\n"
        f"spark = start(Settings(root={str(tmp_path)!r}))\n"
        "assert spark.sparkContext.master == 'local[2]'\n"
        "assert spark.range(4).selectExpr('sum(id)').first()[0] == 6\n"
        "spark.stop()\n"
    )
    environment = os.environ | ALONE | {"LAKEHOUSE_ENGINE_MINUTES": "5", ENGINES: str(place), options.REMOTE: "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, check=True)


@pytest.mark.slow
def test_what_a_process_imports_does_not_decide_its_engine(tmp_path: Path) -> None:
    """Without it, a query would start a second engine beside that of the builds, which import pandera: it sets variables."""
    code = (
        "import os\n"
        "from lakehouse.settings import Settings\n"
        "from lakehouse.spark.warm import place_of\n"
        f"settings = Settings(root={str(tmp_path)!r})\n"
        "before = place_of(settings).folder\n"
        "was = dict(os.environ)\n"
        "import lakehouse.definitions\n"
        "assert {**os.environ} != was, 'nothing to show'\n"
        "assert place_of(settings).folder == before, {**os.environ}.items() ^ was.items()\n"
    )
    clean = {
        name: value for name, value in os.environ.items() if name not in ("SPARK_LOCAL_IP", "PYARROW_IGNORE_TIMEZONE")
    }
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=clean, check=True)
