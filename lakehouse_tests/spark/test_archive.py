"""Engines start with the archive of their classes, and just as well where there is none or another Java's."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors import EngineError
from lakehouse.settings import Settings
from lakehouse.spark import archive, options
from lakehouse.spark.archive import is_usable, main, make_archive
from lakehouse.spark.config import spark_config
from lakehouse.spark.jars import java_command
from lakehouse.spark.options import archive_path, java_options

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def submit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], None]:
    """Put a process in the place of the one that works and writes the archive: it ends so and leaves this file."""

    def put(code: int, content: str) -> None:
        script = "import os, re, sys; name = re.search('AtExit=(.+?)\"', os.environ['SPARK_SUBMIT_OPTS'])[1]; "
        script += f"open(name, 'w').write({content!r}) if {content!r} else None; print('it broke'); sys.exit({code})"
        real = archive.subprocess.run

        def run(command: list[str], **how: Any) -> Any:
            return real([command[0], "-c", script] if "-c" in command else command, **how)

        monkeypatch.setattr(archive.subprocess, "run", run)

    return put


def test_the_archive_is_told_to_engines_beside_what_the_user_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the archive would be made and not used, or a user's own options would be lost."""
    made = tmp_path / "a place" / "classes.jsa"
    monkeypatch.setattr(options, "archive_path", lambda: made)
    settings = Settings(root=tmp_path, spark_config={JAVA_OPTIONS: "-Dmine=1"})
    assert spark_config(settings)[JAVA_OPTIONS] == f"{options.WARNINGS} -Dmine=1"
    made.parent.mkdir()
    made.touch()
    told = spark_config(settings)[JAVA_OPTIONS]
    assert told.startswith(f'{options.WARNINGS} "-XX:SharedArchiveFile={made}" ')
    assert told.endswith(" -Dmine=1")
    assert JAVA_OPTIONS not in spark_config(Settings(root=tmp_path, spark_url="sc://somewhere"))


@pytest.mark.spark
@pytest.mark.skipif(not archive_path().is_file(), reason="no archive here: make archive")
def test_the_archive_of_this_environment_fits_its_java_and_jars() -> None:
    """Without it, every engine would quietly start without it."""
    assert is_usable()


@pytest.mark.spark
def test_one_that_does_not_fit_harms_nothing(tmp_path: Path) -> None:
    """Without it, a Java that was updated could start no engine, or would complain in every run."""
    other = tmp_path / "classes.jsa"
    other.write_bytes(os.urandom(4096))
    assert not is_usable(other)
    assert not is_usable(tmp_path / "none.jsa")
    assert archive._submit(java_options(other)) == "", "a JVM starts beside it"


@pytest.mark.parametrize("archive", [archive_path(), None])
def test_a_jvm_warns_on_stderr_and_not_of_its_archive(archive: Path | None) -> None:
    """Without it, a warning would stand amid the JSON of a stream, or one of an update of Java in every run."""
    if archive is not None and not archive.is_file():
        pytest.skip("no archive here: make archive")
    told = shlex.split(java_options(archive or Path("none")))
    # Neither the class path nor the sizes fit.
    done = subprocess.run(
        [java_command(), *told, "-XX:+UseSerialGC", "-Xmn64m", "-Xmx32m", "-cp", os.devnull, "-version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == ""
    assert "[warning][gc,ergo]" in done.stderr
    assert "[cds" not in done.stderr


@pytest.mark.parametrize(("code", "content"), [(1, ""), (0, ""), (0, "cut short"), (1, "whole")])
def test_what_could_not_be_made_is_not_kept(
    tmp_path: Path, submit: Callable[[int, str], None], code: int, content: str
) -> None:
    """Without it, an archive cut short by a full disk would crash every engine that maps it."""
    made = tmp_path / "classes.jsa"
    made.write_text("of another Java")
    submit(code, content)
    with pytest.raises(EngineError, match="No archive of the engine's classes was made:\n."):
        make_archive(made)
    assert [each.name for each in tmp_path.iterdir()] == ["classes.jsa.lock"]


def test_a_set_up_goes_on_without_it(
    tmp_path: Path,
    submit: Callable[[int, str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without it, an environment that cannot be written would stop the set-up for a matter of seconds."""
    monkeypatch.setattr(archive, "archive_path", lambda: tmp_path / "classes.jsa")
    submit(1, "")
    assert main() == 0
    assert "it broke" in (said := capsys.readouterr().err)
    assert "Engines will start without it" in said


def test_who_interrupts_it_sees_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first `make dev` makes it, which takes half a minute: long enough for somebody to press Ctrl-C."""

    def interrupted() -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(archive, "make_archive", interrupted)
    assert main() == 130
    assert "the same command again makes it" in capsys.readouterr().err


def test_the_work_it_is_made_from_works(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, an archive could be made from an engine that failed at its first query."""
    archive.work(spark, tmp_path)
    assert (tmp_path / "table" / "_delta_log").is_dir()
