"""Do the layers add up, now: landed lines, bronze, silver and gold against each other, by day.

Read from landed files, logs, and the figures that commits keep: no engine and no table data, unless rows are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from pyspark.sql import Row
from pyspark.sql import functions as F

from lakehouse.build.intake.closings import input_rows
from lakehouse.build.open_days import landed_by_now, newest_partition
from lakehouse.build.unique import beaten, with_neighbours
from lakehouse.contracts import Table
from lakehouse.contracts.figures import EXACT, added
from lakehouse.days import is_between
from lakehouse.read.lake import Lake, joined
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import latest_records
from lakehouse.sources.probe import probe_of
from lakehouse.store import parquet


@dataclass(frozen=True)
class Balance:
    """One day of one link: what goes in, and what came of it; rows, or a sum."""

    incoming: Decimal
    published: Decimal
    quarantined: Decimal = Decimal(0)
    duplicates: Decimal = Decimal(0)

    @property
    def outgoing(self) -> Decimal:
        """What came of it."""
        return added((self.published, self.quarantined, self.duplicates))

    @property
    def difference(self) -> Decimal:
        """What came out more than went in; 0 where the day adds up."""
        return EXACT.subtract(self.outgoing, self.incoming)


@dataclass(frozen=True)
class Link:
    """Two places that must agree, day by day; `unknown` are days of which no figures are kept.

    Of an upsert table, whose days are not its input's, only all days together can agree: `together` are those days, and
    `days` holds their one balance under the last of them; none where the figures of one are unknown.
    """

    source: str
    target: str
    measure: str
    days: Mapping[date, Balance]
    unknown: tuple[date, ...] = ()
    together: tuple[date, ...] = ()

    @property
    def total(self) -> Balance:
        """All days together."""
        each = list(self.days.values())
        return Balance(
            added(b.incoming for b in each),
            added(b.published for b in each),
            added(b.quarantined for b in each),
            added(b.duplicates for b in each),
        )

    @property
    def differing(self) -> dict[date, Balance]:
        """The days that do not add up."""
        return {day: balance for day, balance in sorted(self.days.items()) if balance.difference}


@dataclass
class _Days:
    """Rows by day of what one table and its quarantine hold now, and the newest record of each day."""

    rows: Mapping[date, int]
    quarantined: Mapping[date, int]
    records: Mapping[date, DayRecord] = field(default_factory=dict)


def reconcile(lake: Lake, tables: Iterable[Table], first: date | None = None, last: date | None = None) -> list[Link]:
    """Every link into these tables, upstream first.

    A day that was never built is part of a link where its input has rows: nothing came of them yet, and that is said.

    Args:
        lake: where the tables are.
        tables: the tables that take in.
        first: first day looked at; None: all.
        last: last day looked at; None: all, but for those that have no partition yet, of which nothing can have come.
    """
    newest = newest_partition(lake.settings, lake.tables, datetime.now(UTC)) if last is None else last
    links: list[Link] = []
    for table in tables:
        held = _held(lake, table)
        if table.landing:
            links.append(_landed(lake, table, held, first, last))
        if table.conserves_rows:
            links.append(_conserved(lake, table, held))
        links += _sums(lake, table, held)
    return [_within(link, first, last, newest) for link in links]


def _held(lake: Lake, table: Table) -> _Days:
    rows = lake.snapshot(table.id).rows_by_day(table.day_column)
    side = lake.snapshot(table.quarantine_id).rows_by_day(table.day_column) if table.rules else {}
    return _Days(rows, side, latest_records(lake.settings.root, table.id))


def _landed(lake: Lake, table: Table, held: _Days, first: date | None, last: date | None) -> Link:
    assert table.landing is not None
    incoming: dict[date, int] = {}
    for found in probe_of(table, landed_by_now(lake, table, first, last)):
        day = found.file.arrival_date
        # An unreadable file is one row in quarantine, which says so.
        incoming[day] = incoming.get(day, 0) + (1 if found.problem else found.lines)
    days = {
        day: Balance(*map(Decimal, (incoming.get(day, 0), held.rows.get(day, 0), held.quarantined.get(day, 0))))
        for day in {*incoming, *held.rows}
    }
    # A file that was tidied away after it was read is no loss.
    days = {day: balance for day, balance in days.items() if day in incoming}
    return Link(f"landing/{table.landing.source}", table.id, "lines", days)


def _conserved(lake: Lake, table: Table, held: _Days) -> Link:
    incoming: dict[date, int] = {}
    for each in table.upstream.values():
        source = lake.table(each.table)
        for day, rows in lake.snapshot(each.table).rows_by_day(source.content_day_column).items():
            incoming[day] = incoming.get(day, 0) + rows
    # A day with rows and no record was published before figures were kept: it can be neither right nor wrong.
    known = {*incoming, *held.rows, *held.quarantined}
    unknown = tuple(sorted(day for day in known if held.rows.get(day) and day not in held.records))
    days = {
        day: Balance(
            Decimal(incoming.get(day, 0)),
            Decimal(held.rows.get(day, 0)),
            Decimal(held.quarantined.get(day, 0)),
            Decimal(held.records[day].figures.get("duplicates", 0) if day in held.records else 0),
        )
        for day in known - set(unknown)
    }
    return Link(" + ".join(each.table for each in table.upstream.values()), table.id, "rows", days, unknown)


def _sums(lake: Lake, table: Table, held: _Days) -> Iterator[Link]:
    for own, (name, column) in table.reconciles.items():
        source = latest_records(lake.settings.root, name)
        days: dict[date, Balance] = {}
        unknown: list[date] = []
        for day in sorted({*source, *held.records}):
            # A day that one side never had adds nothing there; None is a sum that nobody kept, which is not nothing.
            here = held.records[day].total(own) if day in held.records else Decimal(0)
            there = source[day].total(column) if day in source else Decimal(0)
            if here is None or there is None:
                unknown.append(day)
            else:
                days[day] = Balance(there, here)
        link = Link(name, table.id, f"sum of {column} = sum of {own}", days, tuple(unknown))
        yield _together(link) if table.upsert else link


def _together(link: Link) -> Link:
    """The link with all its days as one: where one is unknown, the sums of the others say nothing."""
    days = tuple(sorted(link.days))
    one = {days[-1]: link.total} if days and not link.unknown else {}
    return Link(link.source, link.target, link.measure, one, link.unknown, days)


def _within(link: Link, first: date | None, last: date | None, newest: date) -> Link:
    if link.together:  # its days cannot be looked at one by one
        return link

    days = {
        day: balance
        for day, balance in link.days.items()
        if is_between(day, first, last) and (day <= newest or balance.outgoing)
    }
    return Link(
        link.source, link.target, link.measure, days, tuple(day for day in link.unknown if is_between(day, first, last))
    )


def differing_rows(lake: Lake, table: Table, day: date, limit: int = 20) -> list[str]:
    """The rows that make a day of a conserving table differ: in words, with file and line, never other columns.

    Recomputes the day from its inputs of now; a row is accounted for where its key is published or in quarantine.

    Args:
        lake: where the tables are.
        table: the conserving table.
        day: of the table.
        limit: rows told of, at most.
    """
    frames = {name: input_rows(lake, each, [day], lake.snapshot(each.table)) for name, each in table.upstream.items()}
    keys = list(table.key)
    origin = [F.col("_source_file"), F.col("_source_row")]
    expected = table.transformed(**frames).where(F.col(table.day_column) == F.lit(day))
    if table.unique_days:
        near = with_neighbours(table, [day])
        beside = {
            name: input_rows(lake, each, near, lake.snapshot(each.table)) for name, each in table.upstream.items()
        }
        repeated = beaten(table, table.transformed(**beside), [day]).select(*keys)
        expected = joined(expected, repeated, keys, "left_anti")
    expected = expected.select(*keys, *origin)
    published = lake.read(table, [day], lake.snapshot(table.id)).select(*keys)
    # Without rules there is no quarantine: the published rows stand in once more, which accounts for nothing new.
    quarantine = lake.read(table, [day], lake.snapshot(table.quarantine_id)) if table.rules else published
    accounted = published.unionByName(quarantine.select(*keys))
    missing = joined(expected, accounted, keys, "left_anti").limit(limit).collect()
    surplus = joined(published, expected.select(*keys), keys, "left_anti").limit(limit).collect()
    named = [f"missing: {_key(row, keys)}, {row['_source_file']} line {row['_source_row']}" for row in missing]
    return named + [f"not in the input: {_key(row, keys)}" for row in surplus]


def differing_lines(lake: Lake, table: Table, day: date, limit: int = 20) -> list[str]:
    """The landed lines of a day that are neither in the table nor in its quarantine, and those there twice.

    Args:
        lake: where the tables are.
        table: a landed table.
        day: of arrival.
        limit: lines told of, at most.
    """
    assert table.landing is not None
    seen: Counter[tuple[str, int]] = Counter()
    for name in (table.id, table.quarantine_id):
        snapshot = lake.snapshot(name)
        for file in snapshot.by_day(table.day_column).get(day, []):
            read = parquet.read(Path(snapshot.uri) / file.path, ["_source_file", "_source_row"])
            seen.update(zip(*(read[c].to_pylist() for c in ("_source_file", "_source_row")), strict=True))
    named = [f"{number} times: {file} line {row}" for (file, row), number in seen.items() if number > 1]
    # Lines are counted as an editor shows them, the header first.
    header = 1 if table.landing.format == "csv" else 0
    for found in probe_of(table, landed_by_now(lake, table, day, day)):
        name = found.file.path.relative_to(lake.settings.root).as_posix()
        lines = range(1 + header, found.lines + header + 1)
        named += [f"missing: {name} line {n}" for n in lines if (name, n) not in seen and not found.problem]
    return named[:limit]


def _key(row: Row, keys: list[str]) -> str:
    return ", ".join(f"{k}={row[k]}" for k in keys)
