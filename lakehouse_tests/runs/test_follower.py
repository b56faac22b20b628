"""What a run says about its days, as a report takes note of it."""

from __future__ import annotations

from datetime import date

from dagster import AssetCheckEvaluation, AssetCheckSeverity, DagsterEvent, DagsterInstance

from lakehouse.catalog import tables
from lakehouse.contracts.clock import CLOCKS_CHECK
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.pieces import Piece
from lakehouse.runs.follower import Follower
from lakehouse.runs.reports import RunReport, TableOutcome

TABLE = "silver.transactions"
DAYS = [date(2011, 3, n) for n in (1, 2, 3)]


def test_what_each_run_finds_of_the_whole_table_is_told_once() -> None:
    """Without it, a backfill of twenty runs said the same twenty times, and cut what its days warn of off the list."""
    reports = {TABLE: TableOutcome(TABLE)}
    with DagsterInstance.ephemeral() as instance:
        for day in DAYS:
            run = RunReport("r", Piece((TABLE,), day, day))
            follower = Follower(run, reports, tables(), lambda *_: None)
            for check, partition in ((CLOCKS_CHECK, None), ("volume", str(day))):
                found = AssetCheckEvaluation(
                    asset_key=asset_key(TABLE), check_name=check, passed=False, metadata={}, partition=partition,
                    severity=AssetCheckSeverity.WARN, description="is odd",
                )  # fmt: skip
                follower.see(DagsterEvent("ASSET_CHECK_EVALUATION", "job", event_specific_data=found))
            follower.finish(instance)
    assert reports[TABLE].warnings == [
        f"{CLOCKS_CHECK}: is odd", *(f"volume: {day} is odd" for day in DAYS)
    ]  # fmt: skip
