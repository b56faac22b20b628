"""The commands that decide about quarantined rows, through Dagster: the day to build again has no input, so no engine."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from dagster import DagsterInstance

from lakehouse.build.base import open_base
from lakehouse.catalog import tables
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit
from lakehouse.orchestration.metadata import asset_key
from lakehouse.read.lake import Lake
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import Cli
from lakehouse_tests.fixtures.making import stage_rows

pytestmark = pytest.mark.slow

TABLE, DAY = "silver.transactions", date(2011, 3, 1)


@pytest.fixture
def quarantined(root: Path) -> None:
    """Two rows in quarantine, from a source that has nothing any more."""

    def no_engine() -> None:
        raise AssertionError("no engine is needed")

    lake = Lake(Settings(root=root), tables(), no_engine)  # type: ignore[arg-type]
    side = open_base(lake, tables()[TABLE]).stores[1].target
    rows = [
        {"event_id": key, "event_date": DAY, "_failed_rules": [rule], "email_token": "secret", "_source_file": "f"}
        for key, rule in (("a", "currency_known"), ("b", "event_type_known"))
    ]
    facts = {"lakehouse.run_id": "r", "lakehouse.code_version": "old"}
    replace_days(side, ensure_table(side), stage_rows(side, rows, "quarantined"), [DAY], Commit({}, facts))


@pytest.mark.usefixtures("quarantined")
def test_rows_are_listed_discarded_and_replayed(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the commands could disagree on which rows there are, or leave a replay without a run or an end."""
    listed = cli("quarantine", "list", "--code-version", "old", "--json").json
    assert [(each["rule"], each["rows"]) for each in listed] == [("currency_known", 1), ("event_type_known", 1)]
    assert cli("quarantine", "list", "--code-version", "new", "--json").json == []
    assert cli("quarantine", "discard", TABLE, "--rule", "event_type_known").code == 2
    said = cli("quarantine", "discard", TABLE, "--rule", "event_type_known", "--reason", "no sale")
    assert "1 row of 1 day discarded (event_type_known 1)" in said.err
    (shown,) = cli("quarantine", "show", TABLE, "--json").json
    assert (shown["event_id"], shown["_retries"], shown["_code_version"]) == ("a", 0, "old")
    assert "email_token" not in shown
    (aside,) = cli("quarantine", "show", TABLE, "--discarded", "--json").json
    assert aside["event_id"] == "b"
    state = next(each for each in cli("status", "--json").json if each["table"] == TABLE)
    assert (state["quarantined"], state["discarded"]) == (1, 1)
    assert state["quarantined_by_rule"] == {"currency_known": 1}

    assert "1 row on 1 day chosen" in cli("quarantine", "replay", TABLE, "--dry-run").err
    told = cli("quarantine", "replay", TABLE, "--json")
    assert told.code == 0, told.err
    (entry,) = told.json["replays"]
    assert (entry["rows"], entry["outcome"]) == (1, {"gone": 1})
    assert entry["runs"] == [each["run_id"] for each in told.json["runs"]["runs"]]
    assert "Nothing to replay: no such row" in cli("quarantine", "replay", TABLE).err
    assert [each["action"] for each in cli("quarantine", "ledger", "--json").json] == ["discard", "replayed"]
    assert "no sale" in cli("quarantine", "ledger", TABLE).out

    monkeypatch.setenv("DAGSTER_HOME", str(root / "dagster"))
    with DagsterInstance.get() as instance:
        event = instance.get_latest_materialization_event(asset_key(TABLE))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["quarantine_rows"].value == 0
