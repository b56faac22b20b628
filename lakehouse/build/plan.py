"""What a run would read and whether it would change anything: decided from logs and landed files, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import chain
from typing import TYPE_CHECKING

from lakehouse import store
from lakehouse.build import made_from, open_days
from lakehouse.build.intake.closings import Closings, closings_read, input_rows, parts_of
from lakehouse.build.late import accepted_through
from lakehouse.build.made_from import DayStates, MadeFrom
from lakehouse.contracts import Input, Table
from lakehouse.days import days_around
from lakehouse.delta.snapshot import Snapshot, fingerprint
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.lake import Lake
from lakehouse.settings import Settings, key_id
from lakehouse.sources.digests import digests
from lakehouse.sources.landing import LandingFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY_ID = "pii_key_id"  # a file under the root: no secret, since it stands in every token


@dataclass(frozen=True)
class Plan:
    """The inputs of one build, pinned.

    Attributes:
        inputs: snapshot of each upstream table, by parameter of the transform.
        landed: landed files by arrival day, for a bronze table.
        fingerprints: by day, a number over code version and inputs: the same number means the same rows.
        rows_in: by day, the rows the inputs hold for that very day; None where rows are not conserved.
        has_input: days for which any input has rows or files.
        beside: days whose neighbours have rows that may come before theirs (`unique_within`).
        accepted: by day, the last arrival date whose late rows were accepted.
        at: the moment by which days are open, or are not.
        open: the days that are to be judged as open ones.
    """

    table: Table
    inputs: Mapping[str, Snapshot]
    landed: Mapping[date, Sequence[LandingFile]]
    fingerprints: Mapping[date, int]
    rows_in: Mapping[date, int] | None
    has_input: frozenset[date]
    accepted: Mapping[date, date] = field(default_factory=dict)
    beside: frozenset[date] = frozenset()
    at: datetime = field(default_factory=open_days.present)
    open: Collection[date] = frozenset()

    @property
    def versions(self) -> dict[str, int]:
        """Version read of each upstream table."""
        return {self.table.upstream[name].table: s.version for name, s in self.inputs.items()}

    def input_days(self, parameter: str, days: Iterable[date]) -> list[date]:
        """The days of an input that some days of the table are made from, in order."""
        return sorted({read for day in days for read in input_days(self.table.upstream[parameter], day)})

    def size(self, lake: Lake, days: Iterable[date], files: Mapping[str, Collection[str]] | None = None) -> int:
        """Bytes of the inputs' files that some days of the table are made from.

        Args:
            lake: where the inputs are.
            days: of the table.
            files: by parameter, only these of an input; None: all.
        """
        days = list(days)
        size = sum(file.size for day in days for file in self.landed.get(day, ()))
        for name, inputs in self.inputs.items():
            by_day = inputs.by_day(lake.table(self.table.upstream[name].table).content_day_column)
            read = [file for day in self.input_days(name, days) for file in by_day.get(day, ())]
            size += sum(file.size for file in read if files is None or file.path in files[name])
        return size

    def frames(
        self, lake: Lake, days: Iterable[date], files: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, DataFrame]:
        """What the transform reads for some days, by parameter.

        Args:
            lake: where the inputs are.
            days: of the table.
            files: by parameter, only these of an input; None: all.
        """
        days = list(days)
        return {
            name: input_rows(lake, each, self.input_days(name, days), self.inputs[name], files[name] if files else None)
            for name, each in self.table.upstream.items()
        }


def make_plan(
    lake: Lake,
    table: Table,
    days: Sequence[date],
    inputs: Mapping[str, Snapshot] | None = None,
    now: datetime | None = None,
) -> Plan:
    """Pin the inputs of some days and derive each day's fingerprint; nothing is written, and no engine starts.

    Args:
        lake: where the tables are.
        table: what to build.
        days: the daily partitions.
        inputs: of a table that reads tables, by parameter; None: as they are now.
        now: the moment that decides which days are open; None: the present.

    Raises:
        UnsupportedTableError: an input is a table that cannot be read.
    """
    now = now or open_days.present()
    if table.landing is not None:
        return _plan_landing(lake, table, days, now)
    # First: what closes a day from here on may bring rows of it that the inputs, as they are pinned below, lack.
    still_open = open_days.still_open(lake, table, days, now)
    if inputs is None:
        inputs = {name: lake.snapshot(each.table) for name, each in table.upstream.items()}
    return _plan_tables(lake, table, days, inputs, now, still_open)


def _plan_tables(
    lake: Lake,
    table: Table,
    days: Sequence[date],
    inputs: Mapping[str, Snapshot],
    now: datetime,
    still_open: Collection[date],
) -> Plan:
    accepted = accepted_through(table, lake.snapshot(table.quarantine_id), days) if table.rules else {}
    known = made_from.kept(lake, table, inputs)
    if new := [day for day in days if day not in known or known[day].accepted != accepted.get(day)]:
        states = {name: DayStates(lake.table(each.table), inputs[name]) for name, each in table.upstream.items()}
        closings = {name: closings_read(lake, each, inputs[name]) for name, each in table.upstream.items()}
        known |= {day: _made_from(table, states, closings, day, accepted.get(day)) for day in new}
        made_from.keep(lake, table, inputs, known)
    has_input = frozenset(day for day in days if known[day].has_input)
    beside = frozenset(day for day in days if known[day].beside)
    prints, judged_open = _as_of(lake, table, {day: known[day].whole for day in days}, has_input, still_open)
    conserved = _rows_in(lake, table, inputs, days) if table.conserves_rows else None
    return Plan(table, inputs, {}, prints, conserved, has_input, accepted, beside, now, judged_open)


def _made_from(
    table: Table, states: Mapping[str, DayStates], closings: Mapping[str, Closings], day: date, accepted: date | None
) -> MadeFrom:
    """What a day is made from.

    All that decides the day's rows, and nothing else: with less, a stale day would pass for current; with more, days
    would be built again that come out the same. What that is beside the days that it reads, `made_from` must know.
    """
    reads = _reads(table, day)
    parts = [table.code_version]
    if accepted is not None:
        parts.append(f"late/{accepted}")
    parts += [f"{name}/{read}/{states[name].identity(read)}" for name, read in reads]
    with_rows = [(name, read) for name, read in reads if states[name].rows.get(read)]
    parts += _closed(table, closings, with_rows)
    # Days that share keys with their neighbours are rare: only for these are neighbours read and marked in the build.
    near = _near(table, states, day) if table.unique_days and with_rows else []
    return MadeFrom(fingerprint([*parts, *near]), bool(with_rows), bool(near), accepted)


def as_open(whole: int) -> int:
    """The fingerprint of a day while it is open: what is built by then is not what it is once it is judged as a whole.

    Args:
        whole: its fingerprint once it is closed.
    """
    return fingerprint([str(whole), "open"])


def _as_of(
    lake: Lake, table: Table, whole: Mapping[date, int], has_input: Collection[date], still_open: Collection[date]
) -> tuple[dict[date, int], set[date]]:
    """The fingerprints of days of which some are open, and those that are to be judged so."""
    published = lake.snapshot(table.id).transaction
    # One that stood as a whole and is open again, because messages wait that may be of it, is what it was until one is.
    judged_open = {day for day in still_open if day not in has_input or published(day_transaction(day)) != whole[day]}
    marked = judged_open.intersection(has_input)
    return {day: as_open(each) if day in marked else each for day, each in whole.items()}, judged_open


def _reads(table: Table, day: date) -> list[tuple[str, date]]:
    """The days of each input, by parameter, that one day of the table is made from."""
    return [(name, read) for name, each in table.upstream.items() for read in input_days(each, day)]


def _closed(table: Table, closings: Mapping[str, Closings], reads: Sequence[tuple[str, date]]) -> list[str]:
    """Closed hours of days that the stream has rows of, and not each batch that moved the watermark."""
    return [
        f"{name}/{read}/closed/{parts_of(closed)}"
        for name, read in reads
        if (after := table.upstream[name].hours_close_after) and (closed := closings[name].of(read, after))
    ]


def _rows_in(lake: Lake, table: Table, inputs: Mapping[str, Snapshot], days: Sequence[date]) -> dict[date, int]:
    """For the conservation of rows: each is published, set aside or left out as a duplicate, or the day fails."""
    of = [inputs[n].rows_by_day(lake.table(each.table).content_day_column) for n, each in table.upstream.items()]
    return {day: sum(rows.get(day, 0) for rows in of) for day in days}


def _near(table: Table, states: Mapping[str, DayStates], day: date) -> list[str]:
    """What of the neighbours' inputs may come before rows of the day, and so decides which of these are repeats."""
    # Rows that arrive after all of the day's come after them, where arrival decides: they cannot make these repeats.
    through = _latest_arrival(table, states, day)
    return [
        f"{name}/{read}/beside/{found}"
        for near in neighbours(table, day)
        for name, read in _reads(table, near)
        if states[name].rows.get(read) and (found := states[name].identity(read, through))
    ]


def _latest_arrival(table: Table, states: Mapping[str, DayStates], day: date) -> date | None:
    """The last arrival among a day's rows, where rows that arrive later come after them all; None: nothing is known."""
    # Arrival decides only where it is the first column of the order, and where each input's log has it as a partition.
    first = table.keep_first_by[0] if table.keep_first_by else ""
    if first in table.columns or not all(state.arrives_by(first) for state in states.values()):
        return None
    arrivals = {arrival for name, read in _reads(table, day) for arrival in states[name].arrivals(read)}
    return date.fromisoformat(max(arrivals)) if arrivals else None


def neighbours(table: Table, day: date) -> list[date]:
    """The other days whose rows may be repeats of a day's rows, or the other way round (`unique_within`)."""
    return [each for each in days_around(day, table.unique_days, table.unique_days) if each != day]


def input_days(each: Input, day: date) -> list[date]:
    """The days of an input that one day of output reads."""
    return days_around(day, each.days_before, each.days_after)


def output_days(each: Input, day: date) -> list[date]:
    """The days of output that read one day of an input: `input_days` the other way round."""
    return days_around(day, each.days_after, each.days_before)


def _plan_landing(lake: Lake, table: Table, days: Sequence[date], now: datetime) -> Plan:
    landed: dict[date, list[LandingFile]] = {day: [] for day in days}
    between = open_days.landed_by_now(lake, table, min(days), max(days))
    for file in (file for file in between if file.arrival_date in landed):
        landed[file.arrival_date].append(file)
    content = digests(lake.settings.root, list(chain.from_iterable(landed.values())))
    # A new key gives other tokens for the same bytes, so it is an input like a file. A day without files has no tokens.
    keyed = [present_key_id(lake.settings)] if table.privacy.tokens and content else []
    whole = {
        day: fingerprint(
            [table.code_version, *(keyed if files else ()), *(f"{f.path.name}/{content[f.path]}" for f in files)]
        )
        for day, files in landed.items()
    }
    has_input = frozenset(day for day, files in landed.items() if files)
    prints, judged_open = _as_of(lake, table, whole, has_input, open_days.still_open(lake, table, days, now))
    return Plan(table, {}, landed, prints, None, has_input, at=now, open=judged_open)


def present_key_id(settings: Settings) -> str:
    """The id of the key that tokens are made with; who must not read the key reads what the last build kept of it.

    Raises:
        PermissionError: the key is somebody else's, who has built nothing with it yet.
    """
    try:
        return key_id(settings.pii_key_bytes())
    except PermissionError:
        if store.exists(kept := settings.root / _KEY_ID):
            return store.read_text(kept)
        raise


def keep_key_id(settings: Settings) -> None:
    """Keep the id of the key, which is about to make tokens, for those who must not read the key itself."""
    store.put(settings.root / _KEY_ID, key_id(settings.pii_key_bytes()))
