"""Dagster's event log as findings: check results, broken steps, failed runs and freshness, a step at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from dagster import (
    AssetCheckEvaluation,
    AssetMaterialization,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    EventLogRecord,
    EventRecordsFilter,
)
from dagster._core.definitions.freshness import FreshnessState
from dagster._core.events import RunFailureReason
from dagster._utils.error import SerializableErrorInfo

from lakehouse.build.result import PUBLISHED
from lakehouse.build.verdicts import INPUTS_FRESH
from lakehouse.catalog import tables
from lakehouse.days import is_younger
from lakehouse.errors import BadPartitionsError
from lakehouse.orchestration.alerts.message import ERROR, WARN
from lakehouse.orchestration.alerts.problems import Failure, Key, Observed
from lakehouse.orchestration.backfills import broken_backfill_of, cancelled_backfill_of, left_of, why_broken
from lakehouse.orchestration.checks import SUMS_UP
from lakehouse.orchestration.ended import ended_by_somebody
from lakehouse.orchestration.instance import days_of_run, table_of, table_of_step
from lakehouse.orchestration.retries import SPARK_ERROR

BUILD, FRESHNESS = "build", "freshness"
SETTLES_IN = 5.0  # seconds after which the events of a step are all in the log
BATCH = 2_000
FIRST_LOOK_BACK = 86_400.0  # seconds of history that the very first look takes in
_WAITS = "waits until its input changes or somebody launches it (lakehouse backfill --failed-only)"

READ = (
    DagsterEventType.ASSET_CHECK_EVALUATION,
    DagsterEventType.ASSET_MATERIALIZATION,
    DagsterEventType.STEP_FAILURE,
    DagsterEventType.STEP_SUCCESS,
    DagsterEventType.RUN_FAILURE,
    DagsterEventType.RUN_CANCELED,
    DagsterEventType.FRESHNESS_STATE_CHANGE,
)


@dataclass(frozen=True)
class EventBatch:
    """Findings in the order of the log, and the id of the last event they take in."""

    observed: Sequence[Observed]
    position: int
    more: bool


def first_position(instance: DagsterInstance, now: float) -> int:
    """The id of the last event that is not looked at: alerts begin with what the last day brought."""
    storage = instance.event_log_storage
    found = [
        record.storage_id - 1
        for kind in READ
        for record in storage.get_event_records(
            EventRecordsFilter(kind, after_timestamp=now - FIRST_LOOK_BACK), limit=1, ascending=True
        )
    ]
    return min(found, default=last_position(instance))


def last_position(instance: DagsterInstance) -> int:
    """The id of the newest event; 0 where there is none."""
    return instance.event_log_storage.get_maximum_record_id() or 0


def read_batch(
    instance: DagsterInstance, after: int, now: float, limit: int = BATCH, settles_in: float = SETTLES_IN
) -> EventBatch:
    """The settled steps after an event.

    The events of a step come within a moment. A step that is still speaking is left for the next look, and so is all
    that follows it: the position is one number, and no event may be passed over.

    Args:
        instance: whose log.
        after: id of the last event taken in.
        now: seconds since the epoch.
        limit: most events of one kind that are read.
        settles_in: seconds after which the events of a step are all in the log.
    """
    records, horizon = _read(instance, after, limit)
    groups = _by_step(records)
    # A clock may have been put back since.
    cuts = [group[0].storage_id for group in groups.values() if is_younger(group[-1].timestamp, now, settles_in)]
    if horizon and len(groups) > 1:  # the batch ends somewhere within its last step
        cuts.append(groups[_step(records[-1])][0].storage_id)
    cut = min(cuts, default=None)
    settled = [r for r in records if cut is None or r.storage_id < cut]
    left = cache(partial(_left, instance))  # all runs of a backfill tell the same of it
    observed = [_observe(instance, run_id, group, left) for (run_id, _), group in _by_step(settled).items()]
    position = settled[-1].storage_id if settled else after
    return EventBatch(observed, position, more=bool(horizon) and position > after)


def _read(instance: DagsterInstance, after: int, limit: int) -> tuple[list[EventLogRecord], int | None]:
    """The next events of all kinds in the order of the log, and up to where every kind was read; None: to the end.

    Each kind is read by itself, so one that has more than the limit ends earlier than the others: what the others have
    beyond that point is left for the next batch, or events would be taken in out of their order.
    """
    records: list[EventLogRecord] = []
    ends: list[int] = []
    for kind in READ:
        wanted = EventRecordsFilter(kind, after_cursor=after)
        found = instance.event_log_storage.get_event_records(wanted, limit=limit, ascending=True)
        records += found
        if len(found) == limit:
            ends.append(found[-1].storage_id)
    horizon = min(ends, default=None)
    kept = (each for each in records if horizon is None or each.storage_id <= horizon)
    return sorted(kept, key=lambda each: each.storage_id), horizon


def _by_step(records: Sequence[EventLogRecord]) -> dict[tuple[str, str], list[EventLogRecord]]:
    groups: dict[tuple[str, str], list[EventLogRecord]] = {}
    for record in records:
        groups.setdefault(_step(record), []).append(record)
    return groups


def _step(record: EventLogRecord) -> tuple[str, str]:
    entry = record.event_log_entry
    # What no run does, such as a change of freshness, stands for itself.
    return entry.run_id, (entry.step_key or "") if entry.run_id else str(record.storage_id)


def _observe(
    instance: DagsterInstance, run_id: str, records: Sequence[EventLogRecord], left: Callable[[str], str]
) -> Observed:
    seen = Observed(run_id)
    for record in records:
        event = record.event_log_entry.dagster_event
        seen.at = max(seen.at, record.timestamp)
        if event is None:
            continue
        match event.event_type:
            case DagsterEventType.ASSET_CHECK_EVALUATION:
                _checked(seen, event.asset_check_evaluation_data)
            case DagsterEventType.ASSET_MATERIALIZATION:
                _built(seen, event.step_materialization_data.materialization)
            case DagsterEventType.STEP_FAILURE:
                _broke(seen, event, lambda: _days_of_run(instance, run_id))
            case DagsterEventType.STEP_SUCCESS:
                seen.present.add((table_of_step(event.step_key or ""), ""))
            case DagsterEventType.RUN_FAILURE:
                _run_failed(instance, seen, event)
            case DagsterEventType.RUN_CANCELED:
                _run_ended(instance, seen, event, left)
            case DagsterEventType.FRESHNESS_STATE_CHANGE:
                _freshness(seen, event)
    return seen


def _checked(seen: Observed, found: AssetCheckEvaluation) -> None:
    table = ".".join(found.asset_key.path)
    seen.evaluated.add((table, found.check_name))
    if found.check_name == INPUTS_FRESH:  # what holds its input back is told where it failed
        return
    if SUMS_UP in found.metadata:  # the days it sums up have spoken for themselves
        return
    shown = found.metadata.get("day")
    day = found.partition or (str(shown.value) if shown is not None else "")
    key = (table, found.check_name, day)
    if found.passed:
        seen.passed.add(key)
    else:
        severity = ERROR if found.severity.value == ERROR else WARN
        seen.failures[key] = Failure(key, severity, found.description or "")


def _built(seen: Observed, found: AssetMaterialization) -> None:
    where = (".".join(found.asset_key.path), found.partition or "")
    seen.present.add(where)
    status = found.metadata.get("status")
    if status is not None and status.value == PUBLISHED:
        seen.audited.add(where)


def _first_cause(error: SerializableErrorInfo | None) -> str:
    """The name of the error at the beginning of the chain."""
    while error is not None and error.cause is not None:
        error = error.cause
    return error.cls_name or "an error" if error else "an error"


def _broke(seen: Observed, event: DagsterEvent, days: Callable[[], list[str]]) -> None:
    data = event.step_failure_data
    told = data.user_failure_data
    kind = told.metadata.get("error") if told else None
    if data.error_source.name == "INTERRUPT":
        return
    if kind is not None and kind.value == BadPartitionsError.__name__:  # the checks of its days have said why
        return
    # A message of Spark or Python may quote values of rows: only errors written by this project are quoted.
    text = told.description if told and kind is not None else None
    spark = told.metadata.get(SPARK_ERROR) if told else None
    name = spark.value if spark else _first_cause(data.error)
    text = text or f"{name}; the run's log in Dagster has the message"
    table = table_of_step(event.step_key or "")
    # Features online, upkeep and the like have no days, whatever those of their run are.
    for day in days() if table in tables() else [""]:
        key: Key = (table, BUILD, day)
        seen.failures[key] = Failure(key, ERROR, text)


def _run_failed(instance: DagsterInstance, seen: Observed, event: DagsterEvent) -> None:
    data = event.job_failure_data if event.event_specific_data is not None else None
    if data is not None and data.failure_reason == RunFailureReason.STEP_FAILURE:
        return  # its steps have said why
    why = f" ({data.error.cls_name})" if data is not None and data.error is not None else ""
    run = instance.get_run_by_id(seen.run_id)
    seen.run_tables = frozenset(map(table_of, (run.asset_selection if run else None) or ()))
    seen.run_failure = f"Run {seen.run_id[:8]} of {event.job_name} failed: {event.message or 'without a message'}{why}"


def _run_ended(instance: DagsterInstance, seen: Observed, event: DagsterEvent, left: Callable[[str], str]) -> None:
    backfill = broken_backfill_of(instance, seen.run_id)
    if backfill is None:
        if not ended_by_somebody(instance, seen.run_id):
            return  # its process was told to stop; what it has not built is due as before
        seen.run_severity = WARN
        backfill = cancelled_backfill_of(instance, seen.run_id)
    if backfill is not None:
        seen.run_backfill, seen.run_failure = backfill, left(backfill)
        return
    days = _days_of_run(instance, seen.run_id)
    when = f" over {days[0]}" + (f" … {days[-1]}" if len(days) > 1 else "") if days[0] else ""
    what = (
        f"what it had not built {_WAITS}"
        if when
        else "what it had not done is left to its next run"  # upkeep, features online
    )
    seen.run_failure = f"Somebody ended run {seen.run_id[:8]} of {event.job_name}{when}: {what}"


def _left(instance: DagsterInstance, backfill: str) -> str:
    """What a backfill leaves that somebody cancelled, or that broke, in words."""
    runs, found = left_of(instance, backfill), instance.get_backfill(backfill)
    days = {day for run in runs for day in days_of_run(run.tags)}
    left = f"{len(runs)} run(s) over {len(days)} day(s) were left"
    if found is not None and (why := why_broken(found)):
        again = f"lakehouse backfills retry {backfill}"
        return f"Backfill {backfill} broke ({why}): {left}; what they had not built: {again}"
    return f"Somebody cancelled backfill {backfill}: {left}; what they had not built {_WAITS}"


def _freshness(seen: Observed, event: DagsterEvent) -> None:
    change = event.asset_freshness_state_change_data
    key: Key = (".".join(change.key.path), FRESHNESS, "")
    if change.new_state in (FreshnessState.FAIL, FreshnessState.WARN):
        severity = ERROR if change.new_state == FreshnessState.FAIL else WARN
        seen.failures[key] = Failure(key, severity, "has not been materialized in time")
    elif change.new_state == FreshnessState.PASS:
        seen.passed.add(key)


def _days_of_run(instance: DagsterInstance, run_id: str) -> list[str]:
    run = instance.get_run_by_id(run_id)
    days = [day.isoformat() for day in days_of_run(run.tags)] if run else []
    return days or [""]
