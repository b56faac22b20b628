"""Audit: the figures of what was staged are judged, day by day, and each day is good or is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain

from lakehouse.build import open_days
from lakehouse.build.laps import Laps
from lakehouse.build.late_only import late_only
from lakehouse.build.result import FAILED, PUBLISHED, DayResult
from lakehouse.build.stage import Staged
from lakehouse.build.work import Arrived, Work
from lakehouse.checks.anomalies import Figures, SoFar
from lakehouse.checks.audit import audit_day
from lakehouse.checks.clocks import with_clocks
from lakehouse.checks.drift import with_fields
from lakehouse.checks.metrics import DayMetrics, Outcome, failed_checks, measure
from lakehouse.days import days_between
from lakehouse.delta.staged import VALID
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import latest_records


@dataclass(frozen=True)
class Judged:
    """The figures of one day, and every check's outcome."""

    metrics: DayMetrics
    outcomes: Sequence[Outcome]

    @property
    def broken(self) -> list[Outcome]:
        """The blocking checks that failed."""
        return [each for each in self.outcomes if each.blocking and not each.passed]


@dataclass(frozen=True)
class Audited:
    """What was staged, judged.

    Attributes:
        staged: the rows.
        metrics: figures of every day that was staged, the checks that failed among them.
        results: by day that was asked for, what is to happen to it.
        laps: the seconds so far.
    """

    staged: Staged
    metrics: Mapping[date, DayMetrics]
    results: Mapping[date, DayResult]
    laps: Laps = field(default_factory=Laps)

    @property
    def good(self) -> list[date]:
        """The days asked for that may be published, in order."""
        return [day for day, each in self.results.items() if each.status == PUBLISHED]

    @property
    def refused(self) -> list[DayMetrics]:
        """The figures of the others, in order."""
        return [each.metrics for each in self.results.values() if each.status == FAILED]


def audit(staged: Staged) -> Audited:
    """Judge every day that was staged by its figures; reads no rows, and writes nothing.

    A day that fails does not keep the others from being published, but for an upsert: there keys move between days, so
    that published in part, one could be in two days or in none.
    """
    work = staged.work
    table = work.base.table
    judged = _judged(work, _figures(staged))
    # Rows of a key may leave one day for another: a good day published without the refused one could hold a key that is
    # still published there, or lose one that never arrives.
    if table.upsert and (broken := [*chain.from_iterable(each.broken for each in judged.values())]):
        judged = {day: each if each.broken else _held_back(each, broken[0]) for day, each in judged.items()}
    # Backwards, so that of several files of a day the first is kept: the preview stays the same from build to build.
    samples = {f.partition[table.day_column]: f.path for f in reversed(staged.files) if f.route == VALID}
    results = {
        day: DayResult(
            FAILED if judged[day].broken else PUBLISHED,
            judged[day].metrics,
            judged[day].outcomes,
            samples.get(day.isoformat()),
        )
        for day in sorted(work.days)
    }
    metrics = {day: each.metrics for day, each in judged.items()}
    return Audited(staged, metrics, results, staged.laps.lap("audit"))


def _figures(staged: Staged) -> dict[date, DayMetrics]:
    """By day, all that is counted, from footers, landed files and the log."""
    work = staged.work
    base, arrived = work.base, work.arrived or Arrived()
    # Rows that are added leave a day with those that it has: it is judged by all of them.
    kept, before = (work.growth.kept, work.growth.duplicates) if work.growth else ((), {})
    files = [*kept, *staged.files]
    metrics = measure(base.table, files, work.replaced)
    for day, repeats in before.items():
        metrics[day].duplicates += repeats
    # Further figures are of the columns that came, then of the clocks: each adds to the day's and leaves the rest as it
    # is.
    metrics = with_fields(base.table, base.main.snapshot, files, metrics)
    metrics = with_clocks(base.lake, base.table, files, arrived.lines, metrics)
    # Further days of an upsert hold rows that no input was asked for, so nothing was counted of them there.
    for day in work.days:
        problems, doubts = ([*found.get(day, ())] for found in (arrived.problems, arrived.doubts))
        metrics[day] = replace(metrics[day], rows_in=work.rows_in(day), problems=problems, doubts=doubts)
    return metrics


def _judged(work: Work, metrics: Mapping[date, DayMetrics]) -> dict[date, Judged]:
    """Every day by the days before it: those that stand, and those of this build that are good.

    A day that is built again is judged by the new figures of the days before it, never by its own old ones. Days of
    late rows alone measure nothing.
    """
    base = work.base
    table = base.table
    stragglers = (
        late_only(base.lake, table)
        if table.quality.volume is not None or table.quality.anomalies is not None
        else set()
    )
    # A day of stragglers alone is small by its nature: as a baseline it would make every usual day look too large.
    left_out = {*work.replaced, *stragglers}
    rows = {d: n for d, n in base.main.snapshot.rows_by_day(table.day_column).items() if d not in left_out}
    figures = {d: each for d, each in _figures_before(work).items() if d not in left_out}
    sums = _sums(work)
    judged: dict[date, Judged] = {}
    # As it was planned: a day that closes meanwhile lacks what came in between, and is built once more.
    now, others = work.plan.at, set(work.replaced).difference(work.plan.fingerprints)
    still_open = open_days.still_open(base.lake, table, others, now).union(work.plan.open)
    come_to = open_days.come_to(base.lake, table) if still_open else None
    for day in sorted(work.replaced):
        so_far = _so_far(work, open_days.passed(day, now, come_to)) if day in still_open else None
        reached = so_far is None or open_days.is_reached(day, come_to)
        outcomes = audit_day(table, metrics[day], rows, figures, sums.get(day, {}), so_far=so_far, reached=reached)
        judged[day] = found = Judged(replace(metrics[day], checks=failed_checks(outcomes)), outcomes)
        if not found.broken and day not in stragglers:
            # From here on it is a day before: those that follow are judged by what will stand once this is published.
            rows[day] = found.metrics.rows
            figures[day] = found.metrics.as_json()
    return judged


def _so_far(work: Work, elapsed: timedelta) -> SoFar:
    """What tells the rows that the days before had when so much of them had passed."""
    return partial(open_days.rows_so_far, work.base.lake, work.base.table, elapsed=elapsed)


def _held_back(good: Judged, cause: Outcome) -> Judged:
    """A good day that waits for another one."""
    held = replace(cause, day=good.metrics.day, message=f"held back with {cause.day}: {cause.message}")
    return Judged(replace(good.metrics, checks=failed_checks([held])), [held])


def _figures_before(work: Work) -> dict[date, Figures]:
    """Kept figures of the days that baselines may look at."""
    table = work.base.table
    if table.quality.anomalies is None:
        return {}
    # Baselines take same weekdays with rows: twice their number of weeks leaves room for as many without.
    first = min(work.replaced) - timedelta(weeks=2 * table.quality.anomalies.history)
    found = latest_records(work.base.lake.settings.root, table.id, days_between(first, max(work.replaced)))
    return {day: record.figures for day, record in found.items()}


def _sums(work: Work) -> dict[date, dict[str, Decimal]]:
    """By day, what its columns must add up to, from the figures kept of the inputs at the versions read."""
    sums: dict[date, dict[str, Decimal]] = {day: {} for day in work.replaced}
    kept: dict[str, dict[date, DayRecord]] = {}
    for own, (source, column) in work.base.table.reconciles.items():
        if source not in kept:
            # Newer figures of the input are of rows that this build has not read.
            read = work.plan.versions.get(source, -1)
            kept[source] = latest_records(work.base.lake.settings.root, source, set(work.replaced), up_to=read)
        for day, record in kept[source].items():
            total = record.total(column)
            # No figure of the input is not a sum of zero: the check then says that it could not judge.
            if total is not None:
                sums[day][own] = total
    return sums
