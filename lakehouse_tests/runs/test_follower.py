"""What a run says about its days, as a report takes note of it."""

from __future__ import annotations

from datetime import date

import pytest
from dagster import AssetCheckEvaluation, AssetCheckSeverity, AssetMaterialization, DagsterEvent, DagsterInstance
from dagster._core.events import JobFailureData, RunFailureReason, StepMaterializationData, StepSuccessData
from dagster._core.execution.plan.objects import ErrorSource, StepFailureData
from dagster_shared.error import SerializableErrorInfo

from lakehouse.catalog import tables
from lakehouse.contracts.clock import CLOCKS_CHECK
from lakehouse.errors import BROKEN, CHECKS_FAILED
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.pieces import Piece
from lakehouse.runs.follower import Follower
from lakehouse.runs.reports import Report, RunReport, TableOutcome

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


def test_what_later_runs_did_for_a_table_is_told_beside_what_came_before() -> None:
    """Without it, a demonstration told of a table the days alone that its rows of other days had touched."""
    first = TableOutcome(TABLE, {DAYS[0]: 5}, {DAYS[1]: 3}, skipped={DAYS[2]: "waits"}, aside={DAYS[0]: 2, DAYS[1]: 1})
    first.seconds, first.work_seconds, first.warnings = 3.0, 2.0, ["volume: is odd"]
    later = TableOutcome(TABLE, {DAYS[1]: 4, DAYS[2]: 1}, {DAYS[0]: 5}, aside={DAYS[1]: 2}, broken="no space")
    later.seconds, later.work_seconds, later.warnings = 1.0, 0.5, ["volume: is odd", "clocks: is odd"]
    report = Report({TABLE: first})
    report.add(Report({TABLE: later, "silver.orders": TableOutcome("silver.orders", {DAYS[0]: 7})}))
    told = report.tables[TABLE]
    assert (told.published, told.unchanged, told.skipped) == (dict(zip(DAYS, (5, 4, 1), strict=True)), {}, {})
    assert (told.rows, told.quarantined, told.broken) == (10, 4, "no space")
    assert (told.seconds, told.work_seconds) == (4.0, 2.5)
    assert told.warnings == ["volume: is odd", "clocks: is odd"]
    assert report.tables["silver.orders"].rows == 7


@pytest.mark.parametrize(
    ("data", "message", "error"),
    [
        (None, "The run was not finished: its process was killed by SIGKILL.", "killed by SIGKILL"),
        (JobFailureData(SerializableErrorInfo("InternalError: aborted\n", [], None)), None, "InternalError: aborted"),
        (
            JobFailureData(SerializableErrorInfo("Failure: 1 day(s)\n", [], None), RunFailureReason.STEP_FAILURE),
            "",
            None,
        ),
    ],
)
def test_what_broke_a_run_is_told_also_after_a_step(
    data: JobFailureData | None, message: str | None, error: str | None
) -> None:
    """Without it, a killed run that had built a table was a failure without a reason, and with a bad day ended in 1."""
    run = RunReport("r", Piece((TABLE, "silver.orders"), DAYS[0], DAYS[0]), status="FAILURE")
    report = Report({name: TableOutcome(name) for name in run.piece.tables}, [run])
    follower = Follower(run, report.tables, tables(), lambda *_: None)
    ended = DagsterEvent(
        "STEP_SUCCESS", "job", step_key="silver__transactions", event_specific_data=StepSuccessData(1.0)
    )
    follower.see(ended)
    follower.see(DagsterEvent("PIPELINE_FAILURE", "job", event_specific_data=data, message=message))
    report.tables[TABLE].failed[DAYS[1]] = "volume: is odd"
    assert (error or "") in (run.error or "")
    assert bool(error) == bool(run.error)
    assert report.exit_code == (BROKEN if error else CHECKS_FAILED)


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("/shop/lake/silver/transactions.py", "silver/transactions.py:31: TypeError: 'Column' object is not callable"),
        ("/shop/lake/build/work.py", "TypeError: 'Column' object is not callable"),
    ],
)
def test_a_mistake_in_a_transform_is_told_with_its_line(file: str, told: str) -> None:
    """Without it, who mistyped a method was told of an object that is not callable, and not where."""
    stack = ['  File "/site/dagster.py", line 7, in run\n', f'  File "{file}", line 31, in transactions\n']
    cause = SerializableErrorInfo("TypeError: 'Column' object is not callable\n", stack, "TypeError")
    error = SerializableErrorInfo("Error occurred while executing op\n", stack[:1], "DagsterError", cause)
    reports = {TABLE: TableOutcome(TABLE)}
    follower = Follower(RunReport("r", Piece((TABLE,), DAYS[0], DAYS[0])), reports, tables(), lambda *_: None)
    broke = StepFailureData(error, None, ErrorSource.USER_CODE_ERROR)
    follower.see(DagsterEvent("STEP_FAILURE", "job", step_key="silver__transactions", event_specific_data=broke))
    assert reports[TABLE].broken == told


def test_what_a_crashed_run_had_built_is_not_skipped_by_the_one_in_its_place() -> None:
    """Without it, a backfill that is done would name days as skipped which it had published."""
    orders = "silver.orders"
    reports = {name: TableOutcome(name) for name in (TABLE, orders)}
    built = AssetMaterialization(asset_key(TABLE), partition=str(DAYS[0]), metadata={"dagster/partition_row_count": 5})
    event = DagsterEvent("ASSET_MATERIALIZATION", "job", event_specific_data=StepMaterializationData(built))
    with DagsterInstance.ephemeral() as instance:
        for events in ([event], []):
            follower = Follower(
                RunReport("r", Piece((TABLE, orders), DAYS[0], DAYS[1])), reports, tables(), lambda *_: None
            )
            for each in events:
                follower.see(each)
            follower.finish(instance)
    assert reports[TABLE].published == {DAYS[0]: 5}
    assert reports[TABLE].skipped == {DAYS[1]: "the run ended before"}
    assert reports[orders].skipped == {DAYS[0]: "the run ended before", DAYS[1]: f"waits for {TABLE}"}
