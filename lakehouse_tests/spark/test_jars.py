"""The engine's jars: what the lock promises, what is done about damage, and racing set-ups. No network, no Spark."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.synchronize import Barrier
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lakehouse.errors import EngineError
from lakehouse.spark import jars

CONTENT = {"alpha-1.0.jar": b"first jar", "beta-core-2.1.jar": b"second jar"}


class FakeIvy:
    """Puts given files into the target and counts how often it was asked."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.calls = 0

    def __call__(self, target: Path, home: Path) -> None:
        self.calls += 1
        home.mkdir(parents=True, exist_ok=True)
        target.mkdir(exist_ok=True)
        for name, content in self.files.items():
            (target / name).write_bytes(content)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock file of `CONTENT`."""
    path = tmp_path / "jars.lock"
    lines = [f"{hashlib.sha256(content).hexdigest()} {len(content)} {name}" for name, content in CONTENT.items()]
    path.write_text("# a comment\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes JAVA_HOME a folder whose `java` is the given shell script."""

    def install(script: str) -> None:
        java = tmp_path / "java-home" / "bin" / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))

    return install


def test_every_dependency_of_ivy_xml_is_locked_at_its_revision() -> None:
    locked = {jar.name for jar in jars.locked_jars()}
    asked = {f"{d.get('name')}-{d.get('rev')}.jar" for d in ET.parse(jars.IVY_FILE).iter("dependency")}  # noqa: S314 (our own file)
    assert asked
    assert asked <= locked


def test_the_lock_holds_checksums_and_no_jar_that_pyspark_ships() -> None:
    shipped = {jars._artifact(path.name) for path in jars._pyspark_jars().glob("*.jar")}
    assert "spark-sql_2.13" in shipped
    for jar in jars.locked_jars():
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256), jar
        assert jar.size > 0, jar
        assert jars._artifact(jar.name) not in shipped


def test_delta_jar_is_built_for_the_installed_spark_and_matches_the_delta_package() -> None:
    spark = ".".join(version("pyspark").split(".")[:2])
    assert f"delta-spark_{spark}_2.13-{version('delta-spark')}.jar" in {jar.name for jar in jars.locked_jars()}


def test_the_kafka_connector_is_built_for_the_installed_spark_and_brings_what_it_needs() -> None:
    """Without it, reading a topic would end in a missing class, in the middle of a run."""
    locked = [jar.name for jar in jars.locked_jars()]
    assert f"spark-sql-kafka-0-10_2.13-{version('pyspark')}.jar" in locked
    for needed in ("kafka-clients-", "commons-pool2-", "spark-token-provider-kafka-0-10_2.13-"):
        assert [name for name in locked if name.startswith(needed)], needed
    assert not [name for name in locked if name.startswith(("kafka_", "kafka-server"))], "the broker's are its own"


@pytest.mark.parametrize(
    ("file", "artifact"),
    [
        ("delta-spark_4.2_2.13-4.4.0.jar", "delta-spark_4.2_2.13"),
        ("netty-codec-4.2.13.Final.jar", "netty-codec"),
        ("guava-33.6.0-jre.jar", "guava"),
        ("hive-shims-0.23-2.3.10.jar", "hive-shims"),
        ("unversioned.jar", "unversioned.jar"),
    ],
)
def test_artifact_is_the_file_name_without_its_version(file: str, artifact: str) -> None:
    assert jars._artifact(file) == artifact


def test_jars_are_fetched_once_and_other_files_left_alone(tmp_path: Path, lock: Path) -> None:
    folder, ivy = tmp_path / "jars", FakeIvy({**CONTENT, "not-locked-9.jar": b"x"})
    folder.mkdir()
    (folder / "mine.jar").write_bytes(b"mine")
    (folder / ".fetch-of-a-killed-process").mkdir()
    first = jars.ensure_jars(folder, lock=lock, retrieve=ivy)
    assert jars.ensure_jars(folder, lock=lock, retrieve=ivy) == first == [folder / name for name in CONTENT]
    assert ivy.calls == 1
    assert {path.name for path in folder.iterdir()} == {*CONTENT, "mine.jar", ".lock"}
    assert jars.jar_problems(folder, lock=lock) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, lock: Path) -> None:
    """Without it, a second user of a machine would get a stack trace of a lock file."""
    (tmp_path / "file").write_text("no folder")
    folder = tmp_path / "file" / "jars"
    with pytest.raises(EngineError, match=rf"cannot be read: .*no jar can be put into {folder}: .*LAKEHOUSE_JARS_DIR"):
        jars.ensure_jars(folder, lock=lock, retrieve=FakeIvy(CONTENT))


def test_a_cut_off_jar_is_noticed_by_its_size_and_replaced(tmp_path: Path, lock: Path) -> None:
    ivy = FakeIvy(CONTENT)
    damaged = jars.ensure_jars(tmp_path, lock=lock, retrieve=ivy)[1]
    damaged.write_bytes(b"sec")
    assert jars.jar_problems(tmp_path, verify=False, lock=lock) == [f"{damaged} is damaged: expected 10 bytes, got 3"]
    jars.ensure_jars(tmp_path, lock=lock, retrieve=ivy)
    assert damaged.read_bytes() == CONTENT[damaged.name]
    assert ivy.calls == 2


def test_a_tampered_jar_of_the_right_size_is_noticed_by_its_checksum_and_replaced(tmp_path: Path, lock: Path) -> None:
    ivy = FakeIvy(CONTENT)
    tampered = jars.ensure_jars(tmp_path, lock=lock, retrieve=ivy)[0]
    tampered.write_bytes(CONTENT[tampered.name].upper())
    (problem,) = jars.jar_problems(tmp_path, lock=lock)
    assert str(tampered) in problem
    assert "expected sha256" in problem
    jars.ensure_jars(tmp_path, verify=True, lock=lock, retrieve=ivy)
    assert tampered.read_bytes() == CONTENT[tampered.name]


def test_a_download_that_is_not_the_locked_file_is_refused_whole(tmp_path: Path, lock: Path) -> None:
    """One bad jar refuses the good one too, and the download cache goes, so that the next try starts clean."""
    folder = tmp_path / "jars"
    forged = FakeIvy({**CONTENT, "alpha-1.0.jar": b"FIRST JAR"})
    with pytest.raises(
        EngineError, match=r"alpha-1\.0\.jar is not the locked file: expected sha256 \w{64}, got \w{64}"
    ):
        jars.ensure_jars(folder, lock=lock, retrieve=forged)
    assert [path.name for path in folder.iterdir()] == [".lock"]
    jars.ensure_jars(folder, lock=lock, retrieve=FakeIvy(CONTENT))


def test_a_failed_fetch_installs_nothing_and_keeps_its_downloads_for_the_next_try(tmp_path: Path, lock: Path) -> None:
    folder = tmp_path / "jars"

    def cut_off(target: Path, home: Path) -> None:
        FakeIvy({"alpha-1.0.jar": CONTENT["alpha-1.0.jar"]})(target, home)
        raise EngineError("no network")

    with pytest.raises(EngineError, match="no network"):
        jars.ensure_jars(folder, lock=lock, retrieve=cut_off)
    assert {path.name for path in folder.iterdir()} == {".lock", ".ivy"}


def _ensure_at_once(folder: Path, lock: Path, calls: Path, barrier: Barrier) -> None:
    def slow(target: Path, home: Path) -> None:
        (calls / str(os.getpid())).touch()
        time.sleep(0.3)  # long enough for the others to arrive
        FakeIvy(CONTENT)(target, home)

    barrier.wait(30)
    found = jars.ensure_jars(folder, lock=lock, retrieve=slow)
    assert all(path.read_bytes() == CONTENT[path.name] for path in found)


@pytest.mark.slow
def test_of_several_processes_at_once_one_fetches_and_all_get_the_jars(tmp_path: Path, lock: Path) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    arguments = (tmp_path / "jars", lock, calls, barrier)
    racers = [context.Process(target=_ensure_at_once, args=arguments) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [racer.exitcode for racer in racers] == [0, 0, 0]
    assert len(list(calls.iterdir())) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_372"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("The operation couldn't be completed.", None),
    ],
)
def test_java_version_reads_what_java_prints(line: str, expected: int | None, fake_java: Callable[[str], None]) -> None:
    fake_java(f"echo 'Picked up JAVA_TOOL_OPTIONS: -Xss4m' >&2\ncat >&2 <<'EOF'\n{line}\nEOF")
    assert jars.java_version() == expected


def test_missing_java_says_how_to_install_it(
    tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = jars.java_home_problem()
    assert problem is not None
    assert "No working Java found in PATH" in problem
    assert "apt-get install openjdk-17-jre-headless" in problem
    assert "brew install openjdk@17" in problem
    with pytest.raises(EngineError, match="No working Java"):
        jars.ensure_jars(tmp_path / "jars", lock=lock)
    assert jars.main([str(tmp_path / "jars")]) == 3
    assert "No working Java" in capsys.readouterr().err


def test_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME={tmp_path}" in (jars.java_home_problem() or "")


def test_an_old_java_is_named_with_its_version(fake_java: Callable[[str], None]) -> None:
    fake_java("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    assert (jars.java_home_problem() or "").startswith("Java 11 found in JAVA_HOME=")


def test_a_new_enough_java_has_no_problem(fake_java: Callable[[str], None]) -> None:
    fake_java("""echo 'openjdk version "21.0.2" 2024-01-16' >&2""")
    assert jars.java_home_problem() is None


def test_what_ivy_complains_of_is_shown_with_the_way_out(tmp_path: Path, fake_java: Callable[[str], None]) -> None:
    fake_java(
        """if [ "$1" = -version ]; then echo 'openjdk version "17.0.1" 2021-10-19' >&2; exit; fi
        echo ':: loading settings'
        echo ':: UNRESOLVED DEPENDENCIES: io.delta#delta-storage;4.4.0: not found'
        exit 1"""
    )
    with pytest.raises(EngineError) as caught:
        jars.retrieve_with_ivy(tmp_path / "target", tmp_path / "home")
    message = str(caught.value)
    assert "io.delta#delta-storage;4.4.0: not found" in message
    assert "loading settings" not in message
    assert "LAKEHOUSE_JARS_DIR" in message


def test_relock_keeps_what_pyspark_does_not_ship(tmp_path: Path) -> None:
    ivy = FakeIvy({**CONTENT, "spark-sql_2.13-4.0.0.jar": b"shipped in another version"})
    written = jars.relock(tmp_path / "new.lock", ivy)
    assert [jar.name for jar in written] == list(CONTENT)
    assert jars.locked_jars(tmp_path / "new.lock") == written
