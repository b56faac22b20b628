"""How an engine on this machine writes its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakehouse.settings import Settings
from lakehouse.spark.config import class_path, spark_config
from lakehouse_tests.faults.laboratory import EngineProcess, Laboratory


@pytest.mark.spark
def test_files_are_private_and_no_process_sets_their_mode(engine_process: EngineProcess, tmp_path: Path) -> None:
    """Without it, each file and folder would cost a process, or everybody on the machine could read it."""
    folder = tmp_path / "rows"
    faults = Laboratory(engine_process, "writing").run(folder)
    if faults is None:
        pytest.skip("only Linux counts the faults of processes that were started")
    assert faults == 0, "processes were started, one or more for each of 40 days"
    written = [each for each in folder.rglob("*") if each.name != "_SUCCESS"]
    assert len(written) == 80
    assert {each.stat().st_mode & 0o777 for each in written if each.is_dir()} == {0o700}
    assert {each.stat().st_mode & 0o777 for each in written if each.is_file()} == {0o600}
    assert not list(folder.rglob("*.crc"))


def test_what_users_put_before_sparks_jars_comes_after_ours(tmp_path: Path) -> None:
    """Without it, who has a jar of their own there would have an engine that does not start."""
    own = Settings(root=tmp_path, spark_url="local[2]", spark_config={"spark.driver.extraClassPath": "/opt/own.jar"})
    assert spark_config(own)["spark.driver.extraClassPath"] == f"{class_path(own)}{os.pathsep}/opt/own.jar"
