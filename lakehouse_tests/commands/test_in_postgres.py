"""Dagster's state in PostgreSQL, by the words of the guide: what commands and pages show is what they show of files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from dagster_postgres import PostgresRunStorage

from lakehouse.catalog import tables
from lakehouse.orchestration.in_postgres import EventLog
from lakehouse.orchestration.instance import opened_instance
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.state import prepare_dagster_home
from lakehouse.servers.ports import free_port
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.commands.conftest import BAD, FIRST, LAST, RANGE, land, run
from lakehouse_tests.fixtures.postgres import Server

pytestmark = [pytest.mark.spark, pytest.mark.slow]
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "dagster-in-postgresql.md"


def as_told(settings: Settings) -> None:
    """Change the lake's `dagster.yaml` as the guide says."""
    (told,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    ours = prepare_dagster_home(settings) / "dagster.yaml"
    ours.write_text(yaml.safe_dump({**yaml.safe_load(ours.read_text()), **yaml.safe_load(told)}))


def test_a_lake_is_built_and_told_of(
    spark: object, server: Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, all but the last table of a run would look unbuilt, and a failed day be told by nobody."""
    monkeypatch.setenv("DAGSTER_DATABASE_URL", server.database("dagster").url.replace("://", "+psycopg2://"))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    file = land(root)
    whole = file.read_bytes()
    file.write_bytes(whole[:900])
    settings = get_settings().model_copy(update={"root": root})
    as_told(settings)
    assert run(root, "backfill", *RANGE).code == 1
    states = {each["table"]: each for each in run(root, "status", "--json").json}
    assert states["bronze.online_retail"]["failed_days"] == [str(BAD)]
    file.write_bytes(whole)
    assert run(root, "backfill", "--failed-only", *RANGE).code == 0
    states = {each["table"]: each for each in run(root, "status", "--json").json}
    assert all(each["failed_days"] == [] and each["days"] == 3 for each in states.values()), states
    assert not list((root / "dagster").glob("*.db")), "nothing is kept in files beside it"
    with opened_instance(settings) as instance:
        assert isinstance(instance.event_log_storage, EventLog)
        assert isinstance(instance.run_storage, PostgresRunStorage)
        keys = {name: asset_key(name) for name in tables()}
        days = {str(FIRST), str(BAD), str(LAST)}
        assert {name: instance.get_materialized_partitions(key) for name, key in keys.items()} == dict.fromkeys(
            keys, days
        )
        records: Any = instance.get_asset_records(list(keys.values()))
        shown = {each.asset_entry.asset_key for each in records if each.asset_entry.last_materialization_record}
    assert shown == set(keys.values())
    doctor = {each["check"]: each for each in run(root, "doctor", "--no-engine", "--json").json}
    assert (doctor["dagster"]["ok"], doctor["dagster"]["found"]) == (True, "2 runs on record")
    monkeypatch.setenv("DAGSTER_DATABASE_URL", f"postgresql+psycopg2://nobody@127.0.0.1:{free_port()}/dagster")
    doctor = {each["check"]: each for each in run(root, "doctor", "--no-engine", "--json").json}
    assert not doctor["dagster"]["ok"]
    assert "Connection refused" in doctor["dagster"]["found"]
    assert "dagster.yaml" in doctor["dagster"]["fix"]
