"""How each table stands: what is published, how fresh it is, what fails, and what is in quarantine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from lakehouse.build.open_days import newest_partition, still_open
from lakehouse.build.stale import all_waiting_days, known_days, published_days, stale_days, turned_down
from lakehouse.build.verdicts import by_check, refused_days, sentence, table_verdicts, verdicts
from lakehouse.catalog import lake_without_engine
from lakehouse.contracts import Table
from lakehouse.days import days_between
from lakehouse.delta.log import oldest_entry, read_entry
from lakehouse.delta.snapshot import Snapshot
from lakehouse.orchestration.outcomes import Outcomes, outcomes
from lakehouse.read.lake import Lake
from lakehouse.records.depth import depth_now, depth_of
from lakehouse.records.history import CHECKS_ONLY, older_code
from lakehouse.settings import Settings


@dataclass(frozen=True)
class Days:
    """What the logs of all tables, and Dagster, say of a table's days.

    Attributes:
        known: those with input or rows.
        stale: those of them that are not published from the inputs and the code of now.
        waits: those that read what is not published from its newest input, and what that is.
        failed: those whose newest run did not publish them, without the next.
        ended: those whose newest run somebody ended.
    """

    known: AbstractSet[date]
    stale: Collection[date]
    waits: Mapping[date, str]
    failed: AbstractSet[date]
    ended: AbstractSet[date]

    def all_stale(self, lake: Lake, table: Table, also: AbstractSet[date]) -> set[date]:
        """The stale days, of some others too, which may not be known: their input is gone, or they were empty."""
        further = also - self.known
        return {*self.stale, *(stale_days(lake, table, further) if further else ())}


def days_by_table(lake: Lake, of_runs: Mapping[str, Outcomes]) -> dict[str, Days]:
    """The days of each table of the lake; each table is looked at once.

    Args:
        lake: where the tables are; one that opens each log once.
        of_runs: by table, how the newest runs of its days ended; of others nothing was run.
    """
    known = {name: known_days(lake, table) for name, table in lake.tables.items()}
    stale = {name: stale_days(lake, table, known[name]) for name, table in lake.tables.items()}
    waits, found = all_waiting_days(lake, stale), dict[str, Days]()
    for name, table in lake.tables.items():
        ended = of_runs.get(name, Outcomes())
        failed = ended.unfinished - ended.by_somebody
        if failed:  # a run that was killed after its commit has told nobody that these days are published
            failed -= set(published_days(lake, table, sorted(failed))).difference(stale_days(lake, table, failed))
        found[name] = Days(known[name], stale[name], waits[name], failed, ended.by_somebody)
    return found


@dataclass(frozen=True)
class Status:
    """One table.

    Attributes:
        days: partitions published, empty ones included.
        first_day, last_day: the first and the last of them.
        rows: published rows.
        version: newest commit; -1 where the table was never built.
        published_at: time of the newest commit of a run.
        checked_at: when a run last found the table up to date or made it so.
        fresh_within_hours: age of `checked_at` that breaks the SLA; `fresh` says whether it holds.
        failing_checks: by name, the days that fail it and what was found on the first of them.
        warnings: those of them that keep no day from being published.
        failed_days: days whose newest run did not publish them, without the next.
        ended_days: days whose newest run somebody ended; they wait until their input changes or they are launched.
        restored_days: days that somebody restored though their inputs would give others; they wait as well.
        open_days: published days of which rows may come yet, as of today.
        unbuilt_days: days with input that no run has published, failed or left to somebody yet.
        stale_days: published days whose inputs or code have changed since, of those that a run can build.
        waiting_days: published days that read what is not published from its newest input.
        waits_for: what that is for the first of them; empty: there are none.
        older_code: published days that code other than today's built, counted by code version.
        older_code_kept: how many of these stay as they are: their landed files are no longer there to be read, their
            rows were taken from a topic or a database, once, or they are before the lake's first day.
        quarantined: rows in quarantine, without discarded ones.
        quarantined_since: when the oldest of them first failed.
        quarantined_by_rule: a row counts for each rule it broke.
        discarded: rows in quarantine that a person discarded.
    """

    table: str
    days: int
    first_day: date | None
    last_day: date | None
    rows: int
    version: int
    published_at: datetime | None
    checked_at: datetime | None
    fresh_within_hours: float
    fresh: bool
    failing_checks: dict[str, str]
    warnings: list[str]
    failed_days: list[date]
    ended_days: list[date]
    restored_days: list[date]
    open_days: list[date]
    unbuilt_days: list[date]
    stale_days: list[date]
    waiting_days: list[date]
    waits_for: str
    older_code: dict[str, int]
    older_code_kept: int
    quarantined: int
    quarantined_since: datetime | None
    quarantined_by_rule: dict[str, int]
    discarded: int


def table_states(settings: Settings, names: Sequence[str], now: datetime | None = None) -> list[Status]:
    """The state of each table, from its log and from Dagster's instance.

    Args:
        settings: where the lakehouse is.
        names: tables by `layer.name`.
        now: by which freshness is judged; None: the present time.
    """
    lake, moment = lake_without_engine(settings), now or datetime.now(UTC)
    of_runs = outcomes(settings, names)
    days = days_by_table(lake, of_runs)
    return [_state(lake, lake.table(name), days[name], of_runs[name], moment) for name in names]


def _state(lake: Lake, contract: Table, days: Days, of_runs: Outcomes, now: datetime) -> Status:
    snapshot = lake.snapshot(contract.id)
    aside = depth_now(lake.settings.root, contract, now) if contract.rules else depth_of((), now)
    judged = verdicts(lake, contract)
    failing = by_check([*judged, *table_verdicts(lake, contract, depth=aside)])
    # Somebody may have deleted the runs that say so, too.
    failed = days.failed | (refused_days(lake, contract, judged) - days.ended - of_runs.underway)
    rows = snapshot.rows_by_day(contract.day_column)
    # Where a log tells its transactions one by one only, days between those with rows are asked for.
    found = published_days(lake, contract, _between(rows))
    first, last = lake.settings.first_day, newest_partition(lake.settings, lake.tables, now)
    # A day to come is published empty where its rows are in quarantine because of their day.
    published = sorted(day for day in found if day <= last or rows.get(day))
    # No run builds a day before the first, which somebody may have moved since it was published.
    stale = {day for day in days.all_stale(lake, contract, {*days.ended, *published}) if first <= day <= last}
    restored = turned_down(lake, contract, stale)
    left = {*published, *failed, *days.ended, *restored}
    waiting = [day for day in published if day in days.waits]
    older = older_code(lake.settings.root, contract.id, contract.code_version, published)
    published_at = _published_at(snapshot)
    checked_at = of_runs.materialized_at or published_at
    return Status(
        table=contract.id,
        days=len(published),
        first_day=min(published, default=None),
        last_day=max(published, default=None),
        rows=sum(rows.values()),
        version=snapshot.version,
        published_at=published_at,
        checked_at=checked_at,
        fresh_within_hours=contract.freshness.age / timedelta(hours=1),
        fresh=checked_at is not None and now - checked_at <= contract.freshness.age,
        failing_checks={name: sentence(found) for name, found in failing.items()},
        warnings=[name for name, found in failing.items() if not any(each.blocking for each in found)],
        failed_days=sorted(failed),
        ended_days=sorted(stale & days.ended),  # a day that is up to date waits for nothing
        restored_days=sorted(restored),
        open_days=sorted(still_open(lake, contract, published, now)),
        unbuilt_days=[day for day in sorted(days.known) if first <= day <= last and day not in left],
        stale_days=[day for day in published if day in stale],
        waiting_days=waiting,
        waits_for=days.waits[waiting[0]] if waiting else "",
        older_code={code: len(days) for code, days in older.items()},
        older_code_kept=len(set().union(*older.values()) - stale),
        quarantined=aside.rows,
        quarantined_since=aside.oldest,
        quarantined_by_rule=dict(aside.by_rule.most_common()),
        discarded=aside.discarded,
    )


def _between(days: Collection[date]) -> list[date]:
    """Every day from the first to the last: days without rows can be published as well."""
    return days_between(min(days), max(days)) if days else []


def _published_at(snapshot: Snapshot) -> datetime | None:
    path = Path(snapshot.uri)
    last = max(snapshot.version - 20, oldest_entry(path) - 1, -1)
    for version in range(snapshot.version, last, -1):
        entry = read_entry(path, version)
        if "lakehouse.run_id" in entry.facts and entry.facts.get("lakehouse.operation") != CHECKS_ONLY:
            return entry.time
    return None
