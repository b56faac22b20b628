"""`lakehouse quarantine replay`, `discard` and `ledger` on a small lakehouse of two shops, through Dagster."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakehouse.catalog import tables
from lakehouse_tests.commands.conftest import FIRST, LAST, RANGE, Result, run

pytestmark = [pytest.mark.spark, pytest.mark.slow]
TABLE = "silver.transactions"
OF_A_RUN = ("_ingested_run", "_code_version")


@pytest.fixture
def loose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract without its rule about currencies, as an edit of the table's file would have it."""
    contract = tables()[TABLE]
    rules = tuple(each for each in contract.rules if each.name != "currency_known")
    monkeypatch.setitem(contract.__dict__, "rules", rules)
    monkeypatch.setitem(contract.__dict__, "code_version", "loose")


def rows_of(root: Path) -> dict[str, list[str]]:
    """Every row of silver, gold and their quarantines."""
    found = {}
    for log in sorted(root.glob("tables/*/*/_delta_log")):
        if log.parent.parent.name in ("silver", "gold"):
            rows = DeltaTable(str(log.parent)).to_pyarrow_table().to_pylist()
            found[log.parent.name] = sorted(str({k: row[k] for k in row if k not in OF_A_RUN}) for row in rows)
    return found


def versions(root: Path) -> dict[str, int]:
    """The newest version of every table."""
    return {log.parent.name: DeltaTable(str(log.parent)).version() for log in root.glob("tables/*/*/_delta_log")}


def replayed(said: Result) -> dict[str, Any]:
    """The one replay that a command ended."""
    (entry,) = said.json["replays"]
    found: dict[str, Any] = entry
    return found


@pytest.mark.usefixtures("loose")
def test_a_replay_is_what_a_rebuild_gives_and_is_shown_by_dagster(copied: Path, tmp_path: Path) -> None:
    """Without it, the command could skip what depends on the replayed days, or build something else than a backfill."""
    rebuilt = tmp_path / "rebuilt"
    shutil.copytree(copied, rebuilt)
    days = [each["day"] for each in run(copied, "quarantine", "list", "--rule", "currency_known", "--json").json]
    assert set(days) == {str(FIRST), str(LAST)}
    dry = run(copied, "quarantine", "replay", TABLE, "--rule", "currency_known", "--dry-run")
    assert "2 days of silver.transactions would be built again" in dry.err
    said = run(copied, "quarantine", "replay", TABLE, "--rule", "currency_known", "--json")
    assert said.code == 0, said.err
    entry = replayed(said)
    assert entry["outcome"]["published"] > 0
    assert sum(entry["outcome"].values()) == entry["rows"] == entry["rules"]["currency_known"]
    assert "currency_known" not in entry["still"]
    assert entry["runs"] == [each["run_id"] for each in said.json["runs"]["runs"]]
    assert {each["table"] for each in said.json["runs"]["tables"]} == set(list(tables())[2:])
    assert run(copied, "history", TABLE, "--json").json[0]["run_id"] in entry["runs"]

    assert run(rebuilt, "backfill", *RANGE).code == 1, "the day between them is still broken, and as it was"
    run(rebuilt, "backfill", "--stale", "--select", f"{TABLE}+ and not {TABLE}")  # windows that look back on them
    assert rows_of(copied) == rows_of(rebuilt)
    before = versions(copied)
    rehearsed = run(copied, "quarantine", "replay", TABLE, "--dry-run")
    assert "0 days of silver.transactions would be built again, then" in rehearsed.err, "no empty brackets"
    again = run(copied, "quarantine", "replay", TABLE)
    assert again.code == 0
    assert "Nothing to replay" in again.err
    assert versions(copied) == before
    assert entry["id"] in str(run(copied, "quarantine", "ledger", "--json").json)


def test_a_replay_without_a_fix_builds_nothing(copied: Path) -> None:
    """Without it, each replay would burn an engine and a commit to find the same rows broken again."""
    before = versions(copied)
    said = run(copied, "quarantine", "replay", TABLE)
    assert (said.code, said.out) == (0, "")
    assert "would break the same rules again" in said.err
    assert versions(copied) == before
    assert run(copied, "quarantine", "replay", TABLE, "--rule", "curency_known").code == 2


def test_discarded_rows_leave_every_count_and_stay_as_evidence(copied: Path) -> None:
    """Without it, rows that nobody can fix would keep the depth check red, or vanish without a trace."""

    def depth() -> Any:
        return next(each for each in run(copied, "status", "--json").json if each["table"] == TABLE)

    before = depth()
    assert before["quarantined_by_rule"]["currency_known"] > 0
    assert before["quarantined_since"]
    assert run(copied, "quarantine", "discard", TABLE, "--rule", "currency_known").code == 2
    reason = ("--reason", "the shop never sold in these")
    said = run(copied, "quarantine", "discard", TABLE, "--rule", "currency_known", *reason, "--json").json
    assert said["rows"] == before["quarantined_by_rule"]["currency_known"]
    after = depth()
    assert (after["quarantined"], after["discarded"]) == (before["quarantined"] - said["rows"], said["rows"])
    assert "currency_known" not in after["quarantined_by_rule"]
    assert run(copied, "quarantine", "list", "--rule", "currency_known", "--json").json == []
    shown = run(copied, "quarantine", "show", TABLE, "--discarded", "--limit", "500", "--json").json
    assert len(shown) == said["rows"]
    assert all(row["_retries"] == 0 and row["_first_failed"] and row["_source_file"] for row in shown)
    assert "Nothing to do" in run(copied, "quarantine", "discard", TABLE, "--rule", "currency_known", *reason).err
    forced = run(copied, "materialize", "--from", str(FIRST), "--force", "--select", TABLE)
    assert forced.code == 0, forced.err
    assert depth()["discarded"] == said["rows"]
    ledger = run(copied, "quarantine", "ledger", TABLE)
    assert "the shop never sold in these" in ledger.out
    assert run(copied, "quarantine", "discard", TABLE, "--undo", "--reason", "sold after all").code == 0
    assert depth()["quarantined"] == before["quarantined"]


def test_a_day_whose_landed_file_is_gone_keeps_its_quarantine(copied: Path) -> None:
    """Without it, a replay would find no line of the day and empty its quarantine: rows lost without a word."""
    before = run(copied, "quarantine", "list", "--table", "bronze.events", "--json").json
    assert before
    shutil.rmtree(copied / "landing" / "events")
    said = run(copied, "quarantine", "replay", "bronze.events", "--force")
    assert said.code == 0
    assert "its landed file is gone" in said.err
    assert run(copied, "quarantine", "list", "--table", "bronze.events", "--json").json == before
