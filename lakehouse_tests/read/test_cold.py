"""Tables are read by processes that have done nothing yet."""

from pathlib import Path

import pytest

from lakehouse_tests.faults.laboratory import EngineProcess, Laboratory


@pytest.mark.spark
def test_a_table_can_be_the_first_thing_a_process_reads(engine_process: EngineProcess, tmp_path: Path) -> None:
    """Without it, building one silver table alone would fail: columns cannot be named before there is an engine."""
    assert Laboratory(engine_process, "cold").run(tmp_path / "root") == [1, 0]
