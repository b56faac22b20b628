"""What Dagster is told of a stream: materializations and checks of every day that its turns touched, and quarantines.

There is no run of Dagster's behind them: events without one cost milliseconds, runs seconds. A day that many turns
touch is told once for all of them, as it is then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Self

from dagster import (
    AssetCheckEvaluation,
    AssetMaterialization,
    AssetObservation,
    AssetRecordsFilter,
    DagsterInstance,
)

from lakehouse.build.result import FAILED, PUBLISHED, BuildResult, DayResult
from lakehouse.checks.metrics import DayMetrics
from lakehouse.contracts import Table
from lakehouse.orchestration.assets import judged
from lakehouse.orchestration.metadata import asset_key, day_metadata, open_metadata, refused
from lakehouse.orchestration.quarantine import news
from lakehouse.read.lake import Lake
from lakehouse.records.depth import depth_now
from lakehouse.records.history import latest_records

SOON = timedelta(days=3)  # the days of a stream that was off for longer are told when they are touched again
TOLD_EVERY = 10.0  # seconds: many turns touch the same days


@dataclass
class Untold:
    """What was built and not told yet, by table: of each day its newest result."""

    results: dict[str, BuildResult] = field(default_factory=dict)

    def add(self, results: Mapping[str, BuildResult]) -> None:
        """Keep what a turn did."""
        for name, result in results.items():
            told = self.results.get(name)
            days = _days_of(result)
            if days or told is None:
                self.results[name] = replace(result, days={**(told.days if told else {}), **days})

    def tell(self, instance: DagsterInstance, lake: Lake) -> int:
        """Tell Dagster all of it, and forget it; returns how many events that were."""
        events = [event for result in self.results.values() for event in _events(lake, result)]
        events += [event for result in self.results.values() for event in _aside(instance, lake, result)]
        for event in events:
            instance.report_runless_asset_event(event)
        self.results.clear()
        return len(events)


class Telling:
    """Dagster is told of a stream from the beginning of a `with` block, with what was missed, to its end.

    Args:
        instance: is told.
        lake: what was published.
        tables: that the stream builds.
        every: seconds from one time to the next, at least.
    """

    def __init__(
        self, instance: DagsterInstance, lake: Lake, tables: Iterable[Table], every: float = TOLD_EVERY
    ) -> None:
        self._instance, self._lake, self._every = instance, lake, every
        self._untold, self._due = missed(instance, lake, tables), 0.0

    def __enter__(self) -> Self:
        self._tell()
        return self

    def __exit__(self, *_: object) -> None:
        self._tell()

    def add(self, results: Mapping[str, BuildResult]) -> bool:
        """Keep what was built, and tell it if it is time; returns whether it was."""
        self._untold.add(results)
        if is_due := time.monotonic() >= self._due:
            self._tell()
        return is_due

    def _tell(self) -> None:
        self._untold.tell(self._instance, self._lake)
        self._due = time.monotonic() + self._every


def missed(instance: DagsterInstance, lake: Lake, tables: Iterable[Table]) -> Untold:
    """What streams had published in the last days and were killed before they told it.

    Args:
        instance: what was told.
        lake: what was published.
        tables: that streams build.
    """
    found, since = Untold(), datetime.now(UTC) - SOON
    for table in tables:
        records = latest_records(lake.settings.root, table.id, figures=("rows",))
        days = {
            day: DayResult(PUBLISHED, DayMetrics(day, rows=each.rows))
            for day, each in records.items()
            if each.at >= since and each.by_stream and _told_at(instance, table, day) < each.at
        }
        if days:
            found.results[table.id] = BuildResult(table, lake.snapshot(table.id).version, {}, days)
    return found


def _told_at(instance: DagsterInstance, table: Table, day: date) -> datetime:
    """When the newest materialization of a day was told; long ago where none was."""
    wanted = AssetRecordsFilter(asset_key(table.id), asset_partitions=[day.isoformat()])
    records = instance.fetch_materializations(wanted, limit=1).records
    return datetime.fromtimestamp(records[0].timestamp if records else 0.0, UTC)


def _days_of(result: BuildResult) -> dict[date, DayResult]:
    """The days that a build published or refused; of a batch, the days on which its messages arrived."""
    if result.table.taken is None:
        return {day: each for day, each in result.days.items() if each.status in (PUBLISHED, FAILED)}
    return {
        day: DayResult(PUBLISHED, DayMetrics(day, rows=rows), result.outcomes)
        for day, rows in result.also_replaced.items()
    }


def _events(lake: Lake, result: BuildResult) -> list[AssetMaterialization | AssetObservation | AssetCheckEvaluation]:
    table, snapshot = result.table, lake.snapshot(result.table.id)
    uri, now = str(lake.path(table.id)), datetime.now(UTC)
    # The page of a table shows what was told last: today, and no day ahead that a wrong clock has filled.
    days = sorted(result.days, key=lambda day: (day <= now.date(), day))
    good = [day for day in days if result.days[day].status == PUBLISHED]
    rows = snapshot.rows_by_day(table.day_column)
    told: list[AssetMaterialization | AssetObservation | AssetCheckEvaluation] = []
    for day, is_open in open_metadata(lake, table, good, now).items():
        shown = is_open | day_metadata(table, _with_rows(result, day, rows), day, uri, snapshot.live.rows)
        told.append(AssetMaterialization(asset_key(table.id), partition=day.isoformat(), metadata=shown))
    told += refused(lake, table, result)
    evaluations, _ = judged(lake, table, result, sorted(result.days), {})
    return [*told, *evaluations]


def _aside(instance: DagsterInstance, lake: Lake, result: BuildResult) -> list[AssetObservation]:
    """What the table's quarantine holds, with rows of the days that were touched, where it is not as it was shown."""
    table = result.table
    if not (table.rules and result.days):
        return []
    shown = news(instance, table, depth_now(lake.settings.root, table, datetime.now(UTC)), sorted(result.days))
    return [shown] if shown else []


def _with_rows(result: BuildResult, day: date, rows: Mapping[date, int]) -> BuildResult:
    """The result, of a batch with the rows of the whole day in place of the batch's own."""
    if result.table.taken is None:
        return result
    metrics = DayMetrics(day, rows=rows.get(day, 0))
    return replace(result, days={**result.days, day: replace(result.days[day], metrics=metrics)})
