"""The figures of the report, from logs, `ops` tables and Dagster's instance: no engine, no scan, no row of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from lakehouse.build.freshness import freshness
from lakehouse.build.open_days import newest_partition, still_open
from lakehouse.build.verdicts import Verdict, verdicts
from lakehouse.checks.freshness import BUDGET_DAYS, FreshnessState, of_the_month
from lakehouse.contracts import Table
from lakehouse.contracts.lineage import sources
from lakehouse.days import is_between, newest_day
from lakehouse.orchestration.outcomes import Outcomes
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import CHECKS_ONLY, OF_JUDGEMENTS, all_records, judged_by
from lakehouse.records.quarantined import QuarantinedRow, quarantined_rows
from lakehouse.report.figures import (
    Cell,
    ColumnOrigin,
    LakeReport,
    Punctuality,
    Series,
    State,
    TableReport,
    Waiting,
)
from lakehouse.report.states import Days, days_by_table
from lakehouse.report.usual import business_series, cost_series, null_series, rows_series
from lakehouse.report.verdicts import check_cells

FIGURES = ("rows", "bytes", "seconds", "nulls", "figures")  # of a record; there is much more that is not shown
Between = tuple[date | None, date | None]  # first and last day, both included; None: without that bound
MOST_NULL_RATES = 4  # columns of a table whose null rates are plotted


def collect(
    lake: Lake,
    names: Sequence[str],
    now: datetime,
    of_runs: Mapping[str, Outcomes] | None,
    between: Between = (None, None),
) -> LakeReport:
    """The figures of some tables, upstream first.

    Args:
        lake: where the tables are; one that opens each log once.
        names: tables.
        now: the moment, with a time zone.
        of_runs: by table, how the newest runs of its days ended; None: nothing was run yet.
        between: first and last data day to show; None: all, as far as there are partitions.
    """
    # A window reaches days that nobody builds yet.
    asked, between = between, (between[0], between[1] or newest_partition(lake.settings, lake.tables, now))
    by_table = days_by_table(lake, of_runs or {})
    found = tuple(_table(lake, lake.table(name), now, between, by_table[name], asked) for name in names)
    days = [day for each in found for day in each.days]
    return LakeReport(now, between[0] or min(days, default=None), max(days, default=None), found)


def _table(
    lake: Lake,
    table: Table,
    now: datetime,
    between: Between,
    days: Days,
    asked: Between,
) -> TableReport:
    def within(day: date) -> bool:
        return is_between(day, *between)

    told = all_records(lake.settings.root, table.id, figures=(*FIGURES, *OF_JUDGEMENTS))
    everything = [each for each in told if each.operation != CHECKS_ONLY]
    newest = {each.day: each for each in everything}
    kept = {day: record for day, record in newest.items() if within(day)}
    failing = verdicts(lake, table, kept=judged_by(told))
    broken = {each.day for each in failing if each.blocking and each.day}.union(days.failed)
    also = broken.union(newest, days.ended)
    # A day without a partition is built by nobody: sessions of the first day may have begun on the day before.
    first, last = lake.settings.first_day, newest_partition(lake.settings, lake.tables, now)
    known = {day for day in {each for each in days.known if first <= each <= last} | also if within(day)}
    stale = days.all_stale(lake, table, also)
    waits = days.waits
    judged = _judged(lake, table, everything, now)
    fresh, late = of_the_month(judged), set(judged.missed)
    states = _states(known, newest, broken, stale.intersection(days.ended), waits, stale, late, failing)
    cells = check_cells(table, kept, [each for each in failing if each.day and within(each.day)], waits)
    aside = _aside(lake, table, asked)  # also rows of days to come, which are in quarantine because of that
    return TableReport(
        name=table.id,
        owner=table.owner,
        about=table.description.split("\n\nGrain:")[0],
        grain=table.grain,
        days=_with_open(lake, table, states, now),
        rows=sum(each.rows for each in kept.values()),
        bytes=sum(int(each.figures.get("bytes", 0)) for each in kept.values()),
        published_at=max((each.at for each in everything), default=None),
        figures=_shown(_figures(table, newest), _over(lake, between, now)),
        cost=_shown(cost_series(newest), between),
        checks=cells,
        quarantine=_quarantine(table, aside),
        quarantined=sum(not each.discarded for each in aside),
        discarded=sum(each.discarded for each in aside),
        fresh=_punctuality(table, fresh),
        columns=_columns(table, lake.tables),
        reads=_reads(table),
    )


def _over(lake: Lake, between: Between, now: datetime) -> Between:
    """The days of a span that are over: a plot would show the last one as a day that lacks rows."""
    return between[0], min(between[1] or date.max, newest_day(lake.settings.last_day, now))


def _aside(lake: Lake, table: Table, between: Between) -> list[QuarantinedRow]:
    rows = quarantined_rows(lake.settings.root, table) if table.rules else []
    return [each for each in rows if is_between(each.day, *between)]


def _figures(table: Table, newest: Mapping[date, DayRecord]) -> list[Series]:
    """Of all days, also those that are not shown: they tell what was usual, and who shares the cost of a build."""
    nulls = null_series(table, newest, MOST_NULL_RATES)
    return [*business_series(table, newest), rows_series(table, newest), *nulls]


def _punctuality(table: Table, fresh: FreshnessState) -> Punctuality:
    hours = table.freshness.within / timedelta(hours=1)
    missed, judged = fresh.missed, len(fresh.judged)
    return Punctuality(fresh.met, fresh.due, fresh.standing, fresh.newest, missed, judged, fresh.budget_left, hours)


def _shown(several: Sequence[Series], between: Between) -> list[Series]:
    first, last = between[0] or date.min, between[1] or date.max
    return [replace(each, points=[point for point in each.points if first <= point.day <= last]) for each in several]


def _judged(lake: Lake, table: Table, everything: Sequence[DayRecord], now: datetime) -> FreshnessState:
    """The freshness of every day since the table's first commit."""
    since = (now.date() - everything[0].at.date()).days + 1 if everything else 0
    return freshness(lake, table, now, everything, max(since, BUDGET_DAYS))


def _states(
    known: Iterable[date],
    newest: Mapping[date, DayRecord],
    broken: Collection[date],
    ended: Collection[date],
    waits: Mapping[date, str],
    stale: Collection[date],
    late: Collection[date],
    failing: Sequence[Verdict],
) -> dict[date, Cell]:
    states: dict[date, Cell] = {}
    plain = {state: Cell(state) for state in State}
    for day in sorted(known):
        if day in broken and day not in waits:
            told = [f"{each.check}: {each.found}" for each in failing if each.day == day and each.blocking]
            states[day] = Cell(State.FAILED, "; ".join(told))
        elif day in ended:
            states[day] = plain[State.ENDED]
        elif day in waits and (day in newest or day in broken):
            states[day] = Cell(State.WAITING, waits[day])
        elif day not in newest:
            if day in stale:
                states[day] = plain[State.NOT_BUILT]
        elif day in stale:
            states[day] = plain[State.STALE]
        elif day in late:
            states[day] = plain[State.LATE]
        else:
            states[day] = plain[State.PUBLISHED if newest[day].rows else State.EMPTY]
    return states


def _with_open(lake: Lake, table: Table, states: Mapping[date, Cell], now: datetime) -> dict[date, Cell]:
    """The states, where a day that is not over is open, unless it fails: all day long its newest rows are not built.

    A day before it may be open for long, where a stream was stopped while messages waited: what it lacks is told first.
    """
    whole = (State.PUBLISHED, State.EMPTY, State.LATE)
    today = {day for day, cell in states.items() if day >= now.date() and cell.sign not in (State.FAILED, State.ENDED)}
    may_be = today.union(day for day, cell in states.items() if cell.sign in whole)
    return {**states, **dict.fromkeys(still_open(lake, table, may_be, now), Cell(State.OPEN))}


def _quarantine(table: Table, aside: Sequence[QuarantinedRow]) -> list[Waiting]:
    meaning = {rule.name: rule.describes for rule in table.rules}
    by_rule: dict[str, list[QuarantinedRow]] = {}
    for each in aside:
        for rule in each.rules if not each.discarded else ():
            by_rule.setdefault(rule, []).append(each)
    found = [
        Waiting(
            rule,
            meaning.get(rule, "a rule that the contract had before"),
            len(rows),
            min(each.first for each in rows),
            dict(sorted(Counter(each.day for each in rows).items())),
        )
        for rule, rows in by_rule.items()
    ]
    return sorted(found, key=lambda each: (-each.rows, each.rule))


def _columns(table: Table, known: Mapping[str, Table]) -> list[ColumnOrigin]:
    read = sources(table, known)
    return [
        ColumnOrigin(
            field.name,
            field.dataType.simpleString(),
            field.metadata.get("comment", ""),
            field.name in table.pii,
            read[field.name],
        )
        for field in table.schema.fields
    ]


def _reads(table: Table) -> tuple[str, ...]:
    landed = (f"landing.{table.landing.source}",) if table.landing else ()
    taken = (table.taken.source,) if table.taken else ()
    return (*landed, *taken, *dict.fromkeys(each.table for each in table.upstream.values()))
