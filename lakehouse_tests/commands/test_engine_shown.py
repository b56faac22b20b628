"""`lakehouse engine status`: what it says of an engine that somebody else may have started."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lakehouse.spark import warm
from lakehouse.spark.engine_place import Address, EnginePlace
from lakehouse_tests.commands.conftest import Cli


def test_status_names_the_log_that_the_engine_writes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, who sets another LAKEHOUSE_ENGINE_DIR than the one who started it is sent to a file that is not there."""
    on = Address(1, "token", os.getpid(), 0.0, "1g", 900.0, "versions", str(tmp_path / "there.log"))
    monkeypatch.setattr(EnginePlace, "address", lambda _: on)
    monkeypatch.setattr(warm, "places", lambda _: [EnginePlace(tmp_path / "place", tmp_path / "elsewhere.log")])
    assert [each["log"] for each in cli("engine", "status", "--json").json] == [on.log]


def test_an_engine_is_not_on_since_a_time_to_come(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a clock that was set back says of an engine that it is on since -60 min."""
    on = Address(1, "token", os.getpid(), time.time() + 3600, "1g", 900.0, "versions", "log")
    monkeypatch.setattr(EnginePlace, "address", lambda _: on)
    monkeypatch.setattr(warm, "places", lambda _: [EnginePlace(tmp_path / "place", tmp_path / "log")])
    assert [each["seconds"] for each in cli("engine", "status", "--json").json] == [0]
