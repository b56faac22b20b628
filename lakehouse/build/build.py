"""Build some days of one table: pin the inputs, skip what is unchanged, compute the rest, publish it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.build.intake import take
from lakehouse.build.laps import Stopwatch
from lakehouse.build.plan import Plan, make_plan, window
from lakehouse.build.publish import UNCHANGED, BuildResult, DayResult, Job, Publisher
from lakehouse.build.slices import FanOut, Slicing
from lakehouse.build.space import said_when_full
from lakehouse.build.unique import with_marks, with_neighbours
from lakehouse.build.upsert import upsert_frame
from lakehouse.checks.clocks import producer_days
from lakehouse.checks.metrics import DayMetrics
from lakehouse.contracts import Landing, Table
from lakehouse.contracts.versions import added_later, read_lock
from lakehouse.delta.snapshot import fingerprint
from lakehouse.read.lake import Lake, in_days
from lakehouse.records.depth import depth_now
from lakehouse.records.erasures import keep_forgotten
from lakehouse.records.failures import project_failures
from lakehouse.records.history import latest_records
from lakehouse.sources.reader import probe, read_lines


def build(
    lake: Lake,
    table: Table,
    days: Iterable[date],
    *,
    run_id: str,
    force: bool = False,
    slicing: Slicing | None = None,
) -> BuildResult:
    """Compute and publish some days of a table.

    Of a table that is taken from a database, one batch of what is new there is added, whatever the days.

    A day whose inputs and code are what they were when it was published is left alone, unless forced. Days that fail
    their audit are not published; the others are.

    Args:
        lake: where the tables are and what computes them.
        table: what to build.
        days: the daily partitions, in any order.
        run_id: recorded in the commit.
        force: build unchanged days too, and publish a day empty whose landed rows are gone; read a database table
            from its beginning.
        slicing: stage the rows slice by slice, where the contract says how (`slice_by`); what was staged outlives a
            kill. Forced builds begin anew.

    Raises:
        PublishConflictError: another run published one of the days meanwhile.
        DiskFullError: there was no space; the last good data stays visible.
        SchemaMismatchError, StagedFileError, UnsupportedTableError: nothing was published.
    """
    if slicing is not None and table.slice_by is None:
        slicing.tell(f"{table.id}: built whole, since its contract has no slice_by")
        slicing = None
    if table.extract is not None:
        return take(lake, table, days, run_id=run_id, whole=force)
    with said_when_full(table.id, lake.path(table.id)):
        return _build(lake, table, sorted(set(days)), run_id, force, slicing)


def _build(
    lake: Lake, table: Table, asked: list[date], run_id: str, force: bool, slicing: Slicing | None
) -> BuildResult:
    seconds: dict[str, float] = {}
    clock = Stopwatch(seconds)
    publisher = Publisher(lake, table)
    plan = make_plan(lake, table, asked)
    result = BuildResult(table, publisher.base.version, plan.versions, seconds=seconds)
    todo = [day for day in asked if force or not publisher.is_current(day, plan.fingerprints[day])]
    if table.landing and keep_forgotten(lake.settings, table, [file for day in todo for file in plan.landed[day]]):
        plan = make_plan(lake, table, asked)
    _report_unchanged(lake, publisher, result, set(asked) - set(todo))
    clock.lap("plan")
    if todo:
        if table.landing:
            job = _from_landing(lake, plan, todo, run_id, {} if force else _kept(publisher))
        else:
            job = _from_tables(lake, plan, publisher, todo, slicing, anew=force)
        clock.lap("read")
        publisher.publish(job, result, run_id)
    if table.rules:
        clock = Stopwatch(seconds)
        project_failures(lake.settings.root, table)
        result.quarantine = depth_now(lake.settings.root, table, datetime.now(UTC))
        if table.clock:
            built = {day: each.metrics for day, each in result.days.items() if each.status != UNCHANGED}
            result.producers = producer_days(lake, table, asked, built)
        clock.lap("quarantine")
    return result


def _kept(publisher: Publisher) -> dict[date, int]:
    """Rows by day that are published or in quarantine: what an empty landing zone must not take away."""
    kept: Counter[date] = Counter()
    for each in (publisher.base, publisher.side_base):
        kept.update(each.rows_by_day(publisher.table.day_column) if each else {})
    return dict(kept)


def _report_unchanged(lake: Lake, publisher: Publisher, result: BuildResult, days: set[date]) -> None:
    column = publisher.table.day_column
    rows = publisher.base.rows_by_day(column)
    quarantined = publisher.side_base.rows_by_day(column) if publisher.side_base else {}
    told = latest_records(lake.settings.root, publisher.table.id, days) if days and publisher.table.figures else {}
    for day in days:
        figures = DayMetrics(day, rows=rows.get(day, 0), quarantined=quarantined.get(day, 0))
        figures.figures = told[day].business if day in told else {}
        result.days[day] = DayResult(UNCHANGED, figures)


def _from_landing(lake: Lake, plan: Plan, days: list[date], run_id: str, published: Mapping[date, int]) -> Job:
    ((parameter, landing),) = plan.table.inputs.items()
    assert isinstance(landing, Landing)
    later = added_later(plan.table, read_lock().get(plan.table.id, ())) or ()  # old files know nothing of these
    probes = probe([file for day in days for file in plan.landed[day]], landing, later)
    rows_in = dict.fromkeys(days, 0)
    problems: dict[date, list[str]] = {}
    lines: dict[date, Counter[str]] = {day: Counter() for day in days}
    for found in probes:
        lines[found.file.arrival_date][landing.producer_of(found.file.path.name)] += found.lines
        rows_in[found.file.arrival_date] += 1 if found.problem else found.lines
        if found.problem:
            problems.setdefault(found.file.arrival_date, []).append(found.problem)
    for day in days:
        if published.get(day) and not rows_in[day]:
            # A landing zone that was tidied up, or an export that came out empty, must not empty the lake.
            what = f"{published[day]} rows of this day are kept, but no line of it is in the landing zone any more"
            problems[day] = [f"{what}; land its file again, or force the build to publish it empty"]
    frame = None
    if probes:
        frame = read_lines(lake.spark, probes, landing, lake.settings.root, run_id, plan.table.code_version)
        frame = plan.table.transform(**{parameter: frame})
    return Job(frame, days, (), plan.fingerprints, rows_in, problems, lines)


def _from_tables(
    lake: Lake, plan: Plan, publisher: Publisher, days: list[date], slicing: Slicing | None, *, anew: bool
) -> Job:
    table = plan.table
    rows_in: Mapping[date, int] | None = plan.rows_in
    if table.upsert:
        stores = [each for each in (publisher.base, publisher.side_base) if each is not None]
        frame, replaced = upsert_frame(lake, plan, stores, days)
        also: Sequence[date] = sorted(set(replaced) - set(days))
        return Job(frame, days, also, plan.fingerprints, rows_in)
    if not plan.has_input & set(days):
        return Job(None, days, (), plan.fingerprints, rows_in)
    frames = _frames(lake, plan, days)
    beside = _frames(lake, plan, with_neighbours(table, days)) if plan.beside & set(days) else None
    if slicing is None:
        made, fan_out = _rows(table, frames, days, beside), None
    else:
        made, fan_out = None, _fan_out(lake, plan, frames, beside, days, slicing, anew=anew)
    return Job(made, days, (), plan.fingerprints, rows_in, accepted=plan.accepted, fan_out=fan_out)


def _frames(lake: Lake, plan: Plan, days: Iterable[date]) -> dict[str, DataFrame]:
    """What the transform reads for some days, by parameter."""
    days = list(days)
    return {
        name: lake.read(lake.table(each.table), _read_days(plan, name, days), plan.inputs[name])
        for name, each in plan.table.upstream.items()
    }


def _read_days(plan: Plan, parameter: str, days: Iterable[date]) -> list[date]:
    return sorted({read for day in days for read in window(plan.table.upstream[parameter], day)})


def _rows(
    table: Table, frames: Mapping[str, DataFrame], days: Sequence[date], beside: Mapping[str, DataFrame] | None = None
) -> DataFrame:
    """The rows of some days, and marks for those that rows of other days come before (`beside`: what these read)."""
    if beside is not None:
        return with_marks(table, _rows(table, frames, days), table.transform(**beside), days)
    frame = table.transform(**frames)
    if any(each.days_before for each in table.upstream.values()):
        # A window also yields days beyond those asked for. A row without a day is a mistake, to be seen by the gate.
        frame = frame.where(in_days(table.day_column, days) | F.col(table.day_column).isNull())
    return frame


def _fan_out(
    lake: Lake,
    plan: Plan,
    frames: Mapping[str, DataFrame],
    beside: Mapping[str, DataFrame] | None,
    days: Sequence[date],
    slicing: Slicing,
    *,
    anew: bool,
) -> FanOut:
    """The build in slices, named by all that decides its rows: these very files of the inputs, and the code."""
    table, of = plan.table, slicing.number
    assert table.slice_by is not None
    cut = table.slice_by

    def slice_of(number: int) -> DataFrame:
        near = cut.cut(beside, number, of) if beside is not None else None
        return _rows(table, cut.cut(frames, number, of), days, near).where(cut.mine(number, of))

    parts = [table.code_version, f"{of} slices", repr(cut)]
    parts += [f"{day} {plan.fingerprints[day]} {plan.accepted.get(day)}" for day in days]
    for name, each in table.upstream.items():
        source = lake.table(each.table)
        files = plan.inputs[name].by_day(source.content_day_column)
        parts += [f"{name} {source.code_version}"]
        read = _read_days(plan, name, with_neighbours(table, days))
        parts += sorted({file.first_name for day in read for file in files.get(day, [])})
    return FanOut(slicing, slice_of, f"{fingerprint(parts):016x}", anew)
