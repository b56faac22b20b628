"""Runs that were ended before they had built their days: by somebody, which stands, or by a stop of their process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus, RunsFilter

from lakehouse.orchestration.instance import attempts


@dataclass(frozen=True)
class Ended:
    """Days whose newest run was ended before it built them, by table.

    Attributes:
        by_somebody: a person ended the run: that stands until the input changes, or somebody launches them.
        interrupted: the process was told to stop, as when the daemon is stopped; they are due as before.
    """

    by_somebody: Mapping[str, Collection[date]] = field(default_factory=dict)
    interrupted: Mapping[str, Collection[date]] = field(default_factory=dict)


def ended_days(instance: DagsterInstance, tables: Sequence[str]) -> Ended:
    """The days of some tables whose newest run was cancelled before it built them."""
    if not instance.get_run_ids(RunsFilter(statuses=[DagsterRunStatus.CANCELED]), limit=1):
        return Ended()
    people: dict[str, set[date]] = {}
    others: dict[str, set[date]] = {}
    by: dict[str, bool | None] = {}
    for table in tables:
        for day, run_id in attempts(instance, table).items():
            if run_id not in by:
                run = instance.get_run_by_id(run_id)
                cancelled = run is not None and run.status == DagsterRunStatus.CANCELED
                by[run_id] = ended_by_somebody(instance, run_id) if cancelled else None
            if (person := by[run_id]) is not None:
                (people if person else others).setdefault(table, set()).add(day)
    return Ended(people, others)


def ended_by_somebody(instance: DagsterInstance, run_id: str) -> bool:
    """Whether a cancelled run was cancelled by a request, which Dagster notes first, and not by a signal."""
    return bool(instance.all_logs(run_id, of_type=DagsterEventType.RUN_CANCELING))
