"""Runs that ended before they had built their days: by somebody, which stands, or by nobody, as with their process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from functools import partial

from dagster import (
    DagsterEventType,
    DagsterExecutionInterruptedError,
    DagsterInstance,
    DagsterRunStatus,
    RunsFilter,
)

from lakehouse import catalog
from lakehouse.build.open_days import newest_partition
from lakehouse.days import is_between
from lakehouse.orchestration.backfills import broken_backfill_of
from lakehouse.orchestration.instance import attempts
from lakehouse.settings import get_settings

BY_SOMEBODY = "Somebody ended this run."
"""What the page of such a run says first."""


@dataclass(frozen=True)
class Ended:
    """Days whose newest run was ended before it built them, by table.

    Attributes:
        by_somebody: a person ended the run: that stands until the input changes, or somebody launches them.
        interrupted: the process was told to stop, as when the daemon is stopped, or the backfill broke that it was of;
            they are due as before.
        tried: of one table, by day that its newest run has not built, that run, however it ended; seldom needed.
    """

    by_somebody: Mapping[str, Collection[date]] = field(default_factory=dict)
    interrupted: Mapping[str, Collection[date]] = field(default_factory=dict)
    tried: Callable[[str], Mapping[date, str]] = field(default=lambda _: {}, compare=False)


class End(Enum):
    """How a run ended that was to build a day and did not."""

    BY_ITSELF = 0
    BY_SOMEBODY = 1
    INTERRUPTED = 2


def ends(instance: DagsterInstance, tables: Sequence[str]) -> dict[str, dict[date, End | None]]:
    """By table, the days whose newest run has not built them, and how it ended; None where it is not over, or unknown.

    Only days that have a partition: Dagster notes any that its API is asked for, and keeps those of a lake whose days
    have become fewer. A run over such a day is refused, so it would stay unfinished for ever.

    Args:
        instance: where the runs are kept.
        tables: by `layer.name`.
    """
    by_run: dict[str, End | None] = {}  # a run is of many days and tables
    found: dict[str, dict[date, End | None]] = {}
    settings = get_settings()
    first, last = settings.first_day, newest_partition(settings, catalog.tables(), datetime.now(UTC))
    for table in tables:
        tried = {day: run_id for day, run_id in attempts(instance, table).items() if is_between(day, first, last)}
        by_run |= {run_id: _end_of(instance, run_id) for run_id in set(tried.values()) - by_run.keys()}
        found[table] = {day: by_run[run_id] for day, run_id in tried.items()}
    return found


def _end_of(instance: DagsterInstance, run_id: str) -> End | None:
    run = instance.get_run_by_id(run_id)
    if run is None or not run.is_finished:
        return None
    if run.status != DagsterRunStatus.CANCELED:
        return End.BY_ITSELF
    return End.BY_SOMEBODY if ended_by_somebody(instance, run_id) else End.INTERRUPTED


def unfinished_days(
    instance: DagsterInstance,
    tables: Sequence[str],
    *,
    first: date | None = None,
    last: date | None = None,
    refused: Mapping[str, Collection[date]] | None = None,
) -> dict[str, set[date]]:
    """By table, the days whose newest run was to materialize them, did not, and is over.

    That is: days that failed, days that were left alone because an input failed, and the rest of a broken or
    cancelled run.

    Args:
        instance: where the runs are kept.
        tables: by `layer.name`.
        first: first day looked at; None: the first there is.
        last: last day looked at, inclusive; None: the last there is.
        refused: by table, the days of which its own log says so; somebody may have deleted their runs.
    """
    refused = refused or {}
    found = {
        table: {day for day, end in days.items() if end is not None and is_between(day, first, last)}
        for table, known in ends(instance, tables).items()
        if (days := {**dict.fromkeys(refused.get(table, ()), End.BY_ITSELF), **known})
    }
    return {table: days for table, days in found.items() if days}


def ended_days(instance: DagsterInstance, tables: Sequence[str]) -> Ended:
    """The days of some tables whose newest run was cancelled before it built them."""
    tried = partial(attempts, instance)
    if not instance.get_run_ids(RunsFilter(statuses=[DagsterRunStatus.CANCELED]), limit=1):
        return Ended(tried=tried)
    found = ends(instance, tables)
    return Ended(_with(found, End.BY_SOMEBODY), _with(found, End.INTERRUPTED), tried)


def _with(found: Mapping[str, Mapping[date, End | None]], wanted: End) -> dict[str, set[date]]:
    chosen = {table: {day for day, end in days.items() if end is wanted} for table, days in found.items()}
    return {table: days for table, days in chosen.items() if days}


def ended_by_somebody(instance: DagsterInstance, run_id: str) -> bool:
    """Whether a cancelled run was cancelled by a request, which Dagster notes first, and not by a signal.

    A backfill that breaks requests it of its runs as a person does, and notes no more than that.
    """
    if not instance.all_logs(run_id, of_type=DagsterEventType.RUN_CANCELING):
        return False
    return broken_backfill_of(instance, run_id) is None


@contextmanager
def told_by_whom(instance: DagsterInstance, run_id: str) -> Iterator[None]:
    """Have a step that is interrupted say that somebody ended its run: an interrupt has no words of its own.

    Args:
        instance: where the run is kept.
        run_id: the run.

    Raises:
        DagsterExecutionInterruptedError: in these words.
    """
    try:
        yield
    except (DagsterExecutionInterruptedError, KeyboardInterrupt):
        if not ended_by_somebody(instance, run_id):
            raise
        raise DagsterExecutionInterruptedError(
            f"{BY_SOMEBODY} What it has published stays. The rest waits for a new input, or until somebody launches it."
        ) from None
