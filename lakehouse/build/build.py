"""Build some days of one table: plan, stage, audit, publish; each step hands the next a value that stays as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from lakehouse.build.audit import audit
from lakehouse.build.base import Base, open_base
from lakehouse.build.grow import BuildWholeError, growth_of
from lakehouse.build.intake.take import take
from lakehouse.build.laps import Laps
from lakehouse.build.older_reads import keep_reads
from lakehouse.build.plan import Plan, make_plan
from lakehouse.build.publish import Published, publish
from lakehouse.build.result import UNCHANGED, BuildResult, DayResult
from lakehouse.build.slices import Slicing
from lakehouse.build.space import said_when_full
from lakehouse.build.stage import stage
from lakehouse.build.stale import turned_down
from lakehouse.build.work import Run, Work, growing, make_work
from lakehouse.checks.metrics import DayMetrics
from lakehouse.checks.producers import producer_days
from lakehouse.contracts import Table
from lakehouse.read.lake import Lake
from lakehouse.records.depth import depth_now
from lakehouse.records.erasures import take_out_forgotten
from lakehouse.records.history import latest_records
from lakehouse.records.quarantined import project_quarantine


def build(
    lake: Lake,
    table: Table,
    days: Iterable[date],
    *,
    run_id: str,
    force: bool = False,
    slicing: Slicing | None = None,
    one_batch: bool = False,
    unasked: bool = False,
) -> BuildResult:
    """Compute and publish some days of a table.

    Of a table that is taken from a source outside, what is new there is added, whatever the days.

    A day whose inputs and code are what they were when it was published is left alone, unless forced. Days that fail
    their audit are not published; the others are. A day that another run publishes meanwhile holds none of the others
    back: it is looked at again once these are published.

    Args:
        lake: where the tables are and what computes them.
        table: what to build.
        days: the daily partitions, in any order.
        run_id: recorded in the commit.
        force: build unchanged days too, and publish a day empty whose landed rows are gone; read a database table
            from its beginning.
        slicing: stage the rows slice by slice, where the contract says how (`slice_by`); what was staged outlives a
            kill. Forced builds begin anew.
        one_batch: of a source outside, take one batch, even where more is there.
        unasked: nobody has asked for it: days that somebody restored are left alone until their inputs change.

    Raises:
        PublishConflictError: another run published the only day that is left meanwhile, or one of those of an upsert.
        DiskFullError: there was no space; the last good data stays visible.
        SchemaMismatchError, StagedFileError, UnsupportedTableError: nothing was published.
    """
    if slicing is not None and table.layout.slice_by is None:
        slicing.tell(f"{table.id}: built whole, since its contract has no slice_by")
        slicing = None
    asked, run, laps = sorted(set(days)), Run(run_id, force, slicing, one_batch, unasked), Laps()
    with said_when_full(table.id, lake.path(table.id)):
        keep_reads(lake, table)
        base = open_base(lake, table)  # first: what is published meanwhile is then a conflict, and not overwritten
        return _build(base, asked, run, laps) if table.taken is None else take(base, asked, run, laps)


def carry_through(work: Work) -> Published:
    """Stage the rows, audit them, and publish the days that pass.

    Raises:
        PublishConflictError: another run published one of the days meanwhile.
        SchemaMismatchError, StagedFileError: nothing was published.
    """
    with stage(work) as staged:
        return publish(audit(staged))


def _build(base: Base, asked: Sequence[date], run: Run, laps: Laps) -> BuildResult:
    lake, table = base.lake, base.table
    plan, todo = _planned(base, asked, run)
    # Days that are left alone are told as well: a run's report has every day that was asked for.
    unchanged = _unchanged(base, set(asked) - set(todo))
    result = BuildResult(table, base.main.snapshot.version, plan.versions, unchanged)
    laps = laps.lap("plan")
    growth = None if run.force or run.slicing else growth_of(base, plan, todo)
    while todo:
        try:
            published = carry_through(
                growing(base, plan, growth, run, laps) if growth else make_work(base, plan, todo, run, laps)
            )
        except BuildWholeError:
            growth, laps = None, laps.lap("stage")
            continue
        result, growth, laps = _with(result, published), None, published.laps
        todo = left = sorted(set(todo) - published.audited.results.keys())
        if left:
            # Days that are not added to, and days that others have published meanwhile: what is there now counts.
            base = open_base(lake, table)
            plan, todo = _planned(base, left, run)
            alone = _unchanged(base, set(left) - set(todo))
            result, laps = replace(result, days={**result.days, **alone}), laps.lap("plan")
    if table.rules:
        result = _looked_at(lake, result, asked)
        laps = laps.lap("quarantine")
    return replace(result, seconds=laps.seconds)


def _planned(base: Base, days: Sequence[date], run: Run) -> tuple[Plan, list[date]]:
    """The plan of some days, and which of them are to be built."""
    lake, table = base.lake, base.table
    plan = make_plan(lake, table, days)
    # By fingerprints alone, before any engine starts: a repeat of a whole backfill costs a look at the logs.
    todo = [day for day in days if run.force or not base.is_current(day, plan.fingerprints[day])]
    if run.unasked:
        # Now, and not when the run was decided on: since then somebody may have restored them, or its own steps before
        # this one have published what they are to be built from.
        restored = turned_down(lake, table, todo)
        todo = [day for day in todo if day not in restored]
    if table.landing and take_out_forgotten(lake.settings, table, [file for day in todo for file in plan.landed[day]]):
        plan = make_plan(lake, table, days)  # the files are not what they were a moment ago
    return plan, todo


def _unchanged(base: Base, days: Collection[date]) -> dict[date, DayResult]:
    """The results of days that are left alone: what the log says of their rows."""
    table = base.table
    rows, quarantined = base.main.snapshot.rows_by_day(table.day_column), dict[date, int]()
    if base.side is not None:
        quarantined = base.side.snapshot.rows_by_day(table.day_column)
    told = latest_records(base.lake.settings.root, table.id, days) if days and table.figures else {}
    found = {}
    for day in sorted(days):
        figures = told[day].business if day in told else {}
        metrics = DayMetrics(day, rows=rows.get(day, 0), quarantined=quarantined.get(day, 0), figures=figures)
        found[day] = DayResult(UNCHANGED, metrics)
    return found


def _with(result: BuildResult, published: Published) -> BuildResult:
    audited = published.audited
    return replace(
        result,
        version=published.version,
        days={**result.days, **audited.results},
        also_replaced=published.also_replaced,
        facts=audited.staged.facts,
    )


def _looked_at(lake: Lake, result: BuildResult, asked: Sequence[date]) -> BuildResult:
    """The result with how the quarantine and the clocks of producers stand afterwards."""
    table = result.table
    # Also where nothing was built: a killed run may have committed to the quarantine and come no further.
    project_quarantine(lake.settings.root, table)
    depth = depth_now(lake.settings.root, table, datetime.now(UTC))
    if not table.clock:
        return replace(result, quarantine=depth)
    built = {day: each.metrics for day, each in result.days.items() if each.status != UNCHANGED}
    return replace(result, quarantine=depth, producers=producer_days(lake, table, asked, built))
