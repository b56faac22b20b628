"""What there is to stage: the transform's rows of the days to build, and what is known of these days beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.build.base import Base
from lakehouse.build.grow import Growth, grown_rows
from lakehouse.build.laps import Laps
from lakehouse.build.open_days import waits
from lakehouse.build.plan import Plan, keep_key_id
from lakehouse.build.slices import FanOut, Slicing
from lakehouse.build.unique import with_marks, with_neighbours
from lakehouse.build.upsert import upsert_frame
from lakehouse.contracts import Landing, Table
from lakehouse.delta.snapshot import fingerprint
from lakehouse.read.lake import Lake, in_days
from lakehouse.sources.probe import Probe, probe_of
from lakehouse.sources.reader import read_lines
from lakehouse.texts import counted


@dataclass(frozen=True)
class Arrived:
    """What landed files told of some days before they were read.

    Attributes:
        rows: lines by day; a file that cannot be read counts as one.
        problems: by day, why its source could not be read.
        doubts: by day, why its text may not be what was meant.
        lines: by day and producer, lines of landed files.
        emptied: days of which rows are kept, though none of their lines is there: refused, and their rows left alone.
    """

    rows: Mapping[date, int] = field(default_factory=dict)
    problems: Mapping[date, Sequence[str]] = field(default_factory=dict)
    doubts: Mapping[date, Sequence[str]] = field(default_factory=dict)
    lines: Mapping[date, Mapping[str, int]] = field(default_factory=dict)
    emptied: Collection[date] = frozenset()


@dataclass(frozen=True)
class Work:
    """The rows of one build and what is known of them; they are computed when they are staged.

    Attributes:
        base: the table, at the version that the build starts from.
        plan: the inputs, pinned.
        days: the days to build, in order.
        run_id: recorded in the commits.
        frame: the transform's rows; None where there is no input and so no row, or where they come in slices.
        fan_out: the transform's rows in slices.
        also: further days whose full content the frame holds (an upsert's).
        arrived: of a landed table, what its files told.
        growth: the rows are added to the days; None: they take the place of what is there.
        laps: the seconds so far.
    """

    base: Base
    plan: Plan
    days: Sequence[date]
    run_id: str
    frame: DataFrame | None = None
    fan_out: FanOut | None = None
    also: Sequence[date] = ()
    arrived: Arrived | None = None
    growth: Growth | None = None
    laps: Laps = field(default_factory=Laps)

    @property
    def made_as(self) -> str | None:
        """A name for the way in which the rows are made, where all that are made so have the same columns."""
        return None if self.growth is None else "grown"

    @property
    def size(self) -> int:
        """Bytes of the input files that its rows are made of; of older files beside them, keys alone are read."""
        return self.plan.size(self.base.lake, self.replaced, self.growth.added if self.growth else None)

    @property
    def replaced(self) -> list[date]:
        """Every day whose rows are staged."""
        return [*self.days, *self.also]

    def rows_in(self, day: date) -> int | None:
        """Rows of the day, counted at the input; None where a row of the output is no row of the input."""
        counted = self.plan.rows_in if self.arrived is None else self.arrived.rows
        return None if counted is None else counted.get(day, 0)


@dataclass(frozen=True)
class Run:
    """How one build is to be done.

    Attributes:
        run_id: recorded in the commits.
        force: nothing that is there counts: neither rows whose landed files are gone, nor slices staged before, nor how
            far a database was read.
        slicing: how the rows are cut; None: staged as a whole.
        one_batch: of a source outside, take no second batch where more is there.
        unasked: nobody has asked for it: days that somebody restored wait for another input.
    """

    run_id: str
    force: bool = False
    slicing: Slicing | None = None
    one_batch: bool = False
    unasked: bool = False


def growing(base: Base, plan: Plan, growth: Growth, run: Run, laps: Laps) -> Work:
    """How the rows are computed that are added to days; the arguments are those of `make_work`."""
    started = base.lake.engine_seconds
    rows = grown_rows(base.lake, plan, growth)
    laps = laps.lap("read", base.lake.engine_seconds - started)
    return Work(base, plan, growth.days, run.run_id, rows, growth=growth, laps=laps)


def make_work(base: Base, plan: Plan, days: Sequence[date], run: Run, laps: Laps) -> Work:
    """Read what is needed of the inputs, and say how the rows of some days are computed from them.

    Args:
        base: the table.
        plan: its inputs, pinned for these days at least.
        days: the days to build, in order.
        run: how it is to be done.
        laps: the seconds so far.
    """
    started = base.lake.engine_seconds
    if plan.table.landing:
        work = _from_landing(base, plan, days, run)
    elif plan.table.upsert:
        frame, replaced = upsert_frame(base.lake, plan, [each.snapshot for each in base.stores], days)
        work = Work(base, plan, days, run.run_id, frame, also=sorted(set(replaced) - set(days)))
    else:
        work = _from_tables(base, plan, days, run)
    return replace(work, laps=laps.lap("read", base.lake.engine_seconds - started))


def _from_landing(base: Base, plan: Plan, days: Sequence[date], run: Run) -> Work:
    ((parameter, landing),) = plan.table.inputs.items()
    assert isinstance(landing, Landing)
    probes = probe_of(plan.table, [file for day in days for file in plan.landed[day]])
    # Forced, a day may come out empty: then what is kept of it does not count.
    arrived = _arrived(probes, landing, days)
    if not run.force:
        emptied = _emptied(base, landing, arrived)
        arrived = replace(arrived, problems={**arrived.problems, **emptied}, emptied=frozenset(emptied))
    if not probes:
        return Work(base, plan, days, run.run_id, arrived=arrived)
    lake = base.lake
    if plan.table.privacy.tokens:
        keep_key_id(lake.settings)
    lines = read_lines(lake.spark, probes, landing, lake.settings.root, run.run_id, plan.table.code_version)
    return Work(base, plan, days, run.run_id, plan.table.transformed(**{parameter: lines}), arrived=arrived)


def _arrived(probes: Iterable[Probe], landing: Landing, days: Sequence[date]) -> Arrived:
    rows = dict.fromkeys(days, 0)
    problems, doubts = dict[date, list[str]](), dict[date, list[str]]()
    lines: dict[date, Counter[str]] = {day: Counter() for day in days}
    for found in probes:
        day = found.file.arrival_date
        lines[day][landing.producer_of(found.file.path.name)] += found.lines
        # A file that cannot be read gives one row, which says so; its lines cannot be counted.
        rows[day] += 1 if found.problem else found.lines
        if found.problem:
            problems.setdefault(day, []).append(found.problem)
        if found.doubt:
            doubts.setdefault(day, []).append(found.doubt)
    return Arrived(rows, problems, doubts, lines)


def _emptied(base: Base, landing: Landing, arrived: Arrived) -> dict[date, list[str]]:
    """Why days of which rows are kept are not published empty: a landing zone is tidied up, an export is empty."""
    found = {}
    kept = base.rows_kept()
    for day in (day for day, rows in arrived.rows.items() if kept.get(day) and not rows):
        why, do = "but no line of it is in the landing zone any more", "land its file again"
        if waits(base.lake, landing, day):
            why = f"and its files wait until it is over (UTC), since {landing.source} has no during_day"
            do = "run it then"
        rows = f"{counted(kept[day], 'row')} of this day {'is' if kept[day] == 1 else 'are'} kept"
        found[day] = [f"{rows}, {why}; {do}, or force the build to publish it empty"]
    return found


def _from_tables(base: Base, plan: Plan, days: Sequence[date], run: Run) -> Work:
    if not plan.has_input & set(days):
        return Work(base, plan, days, run.run_id)
    frames = plan.frames(base.lake, days)
    # Neighbours are read only where the plan knows that they have rows: most days have no key beyond their own.
    beside = plan.frames(base.lake, with_neighbours(plan.table, days)) if plan.beside & set(days) else None
    if run.slicing is None:
        return Work(base, plan, days, run.run_id, _rows(plan.table, frames, days, beside))
    # Slices of an earlier attempt are taken only under this name: any other input, code or number has other slices.
    identity = _identity(base.lake, plan, days, run.slicing.number)
    slices = _slices(plan, days, run.slicing, frames, beside)
    fan_out = FanOut(run.slicing, slices, identity, run.force, counted=not base.lake.settings.is_local)
    return Work(base, plan, days, run.run_id, fan_out=fan_out)


def _rows(
    table: Table, frames: Mapping[str, DataFrame], days: Sequence[date], beside: Mapping[str, DataFrame] | None = None
) -> DataFrame:
    """The rows of some days, and marks for those that rows of other days come before (`beside`: what these read)."""
    if beside is not None:
        return with_marks(table, _rows(table, frames, days), table.transformed(**beside), days)
    frame = table.transformed(**frames)
    if table.reads_other_days:
        # A window also yields days beyond those asked for. A row without a day is a mistake, to be seen by the gate.
        frame = frame.where(in_days(table.day_column, days) | F.col(table.day_column).isNull())
    return frame


def _slices(
    plan: Plan,
    days: Sequence[date],
    slicing: Slicing,
    frames: Mapping[str, DataFrame],
    beside: Mapping[str, DataFrame] | None,
) -> Callable[[int], DataFrame]:
    """The rows of a slice by its number: all inputs are cut by the key, then only the slice's own rows are kept."""
    cut, of = plan.table.layout.slice_by, slicing.number
    assert cut is not None

    def slice_of(number: int) -> DataFrame:
        near = cut.cut(beside, number, of) if beside is not None else None
        # Cut twice: the inputs to save work, the rows because a transform may make rows of other keys.
        return _rows(plan.table, cut.cut(frames, number, of), days, near).where(cut.mine(number, of))

    return slice_of


def _identity(lake: Lake, plan: Plan, days: Sequence[date], number: int) -> str:
    """A name of all that decides the rows of a build in slices: these very files of the inputs, and the code."""
    table = plan.table
    # By the files' first names, beside the fingerprints: where a person was forgotten, only the files tell.
    parts = [table.code_version, f"{number} slices", repr(table.layout.slice_by)]
    parts += [f"{day} {plan.fingerprints[day]} {plan.accepted.get(day)}" for day in days]
    for name, each in table.upstream.items():
        source = lake.table(each.table)
        files = plan.inputs[name].by_day(source.content_day_column)
        parts += [f"{name} {source.code_version}"]
        read = plan.input_days(name, with_neighbours(table, days))
        parts += sorted({file.first_name for day in read for file in files.get(day, [])})
    return f"{fingerprint(parts):016x}"
