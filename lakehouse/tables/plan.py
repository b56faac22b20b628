"""What a run would read and whether it would change anything: decided from logs and landed files, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from lakehouse.contracts import Input, Table
from lakehouse.settings import key_id
from lakehouse.sources.digests import digests
from lakehouse.sources.landing import LandingFile, landing_files
from lakehouse.tables.content import content_name
from lakehouse.tables.lake import Lake
from lakehouse.tables.late import accepted_through
from lakehouse.tables.snapshot import Snapshot, fingerprint

_DAY = "day/"


@dataclass(frozen=True)
class Plan:
    """The inputs of one build, pinned.

    Attributes:
        inputs: snapshot of each upstream table, by parameter of the transform.
        landed: landed files by arrival day, for a bronze table.
        fingerprints: by day, a number over code version and inputs: the same number means the same rows.
        rows_in: by day, the rows the inputs hold for that very day; None where rows are not conserved.
        has_input: days for which any input has rows or files.
        accepted: by day, the last arrival date whose late rows were accepted.
    """

    table: Table
    inputs: Mapping[str, Snapshot]
    landed: Mapping[date, Sequence[LandingFile]]
    fingerprints: Mapping[date, int]
    rows_in: Mapping[date, int] | None
    has_input: frozenset[date]
    accepted: Mapping[date, date] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, int]:
        """Version read of each upstream table."""
        return {self.table.upstream[name].table: s.version for name, s in self.inputs.items()}


def day_transaction(day: date) -> str:
    """Application id under which a table's log keeps the fingerprint of a published day."""
    return f"{_DAY}{day.isoformat()}"


def days_of_transactions(names: Iterable[str]) -> set[date]:
    """The days among application ids."""
    return {date.fromisoformat(name.removeprefix(_DAY)) for name in names if name.startswith(_DAY)}


def make_plan(lake: Lake, table: Table, days: Sequence[date]) -> Plan:
    """Pin the inputs of `days` and derive each day's fingerprint."""
    if table.landing is not None:
        return _plan_landing(lake, table, days)
    inputs = {name: lake.snapshot(each.table) for name, each in table.upstream.items()}
    prints: dict[date, int] = {}
    rows_in: dict[date, int] = {}
    has_input: set[date] = set()
    states = {name: _DayStates(lake.table(each.table), inputs[name]) for name, each in table.upstream.items()}
    accepted = accepted_through(table, lake.snapshot(table.quarantine_id), days) if table.rules else {}
    for day in days:
        parts = [table.code_version]
        if day in accepted:
            parts.append(f"late/{accepted[day]}")
        for name, each in table.upstream.items():
            for read in window(each, day):
                parts.append(f"{name}/{read}/{states[name].identity(read)}")
                if states[name].rows.get(read):
                    has_input.add(day)
        prints[day] = fingerprint(parts)
        rows_in[day] = sum(state.rows.get(day, 0) for state in states.values())
    return Plan(table, inputs, {}, prints, rows_in if table.conserves_rows else None, frozenset(has_input), accepted)


def window(each: Input, day: date) -> list[date]:
    """The days of an input that one day of output reads."""
    return [day - timedelta(days=n) for n in range(each.days_before, -1, -1)]


class _DayStates:
    """What one version of an input holds for a day, as downstream tables see days."""

    def __init__(self, table: Table, snapshot: Snapshot) -> None:
        self._table, self._snapshot = table, snapshot
        # Other days' runs replace days of an upsert table; batches add to days of a table taken from a database.
        self._by_file = table.upsert or table.extract is not None
        self._identities: dict[date, str] = {}
        self._files = snapshot.by_day(table.content_day_column)
        self.rows = snapshot.rows_by_day(table.content_day_column)

    def identity(self, day: date) -> str:
        """Of the partitions that hold rows of the day: what they were made from, and which rows they are."""
        if day not in self._identities:  # a window asks for each day several times, and the log takes a millisecond
            self._identities[day] = self._identity(day)
        return self._identities[day]

    def _identity(self, day: date) -> str:
        parts: dict[str, list[str]] = {}
        for file in self._files.get(day, []):
            values = dict(zip(self._snapshot.partition_by, file.partition, strict=True))
            name, own = content_name(self._table, values), values[self._table.day_column]
            rows = self._snapshot.transaction(name) if name else None
            made_from = None if self._by_file else self._snapshot.transaction(f"{_DAY}{own}")
            # What was committed before there were numbers for rows is known by what it was made from, or by its files.
            unknown = file.first_name if self._by_file else None
            parts.setdefault(f"{own}:{made_from}", []).append(f"{rows if rows is not None else unknown}")
        if not parts and not self._by_file and self._table.content_day_column == self._table.day_column:
            return str(self._snapshot.transaction(day_transaction(day)))  # published without rows, or not at all
        return ",".join(f"{own}:{'+'.join(sorted(set(rows)))}" for own, rows in sorted(parts.items()))


def _plan_landing(lake: Lake, table: Table, days: Sequence[date]) -> Plan:
    assert table.landing is not None
    landed: dict[date, list[LandingFile]] = {day: [] for day in days}
    for file in landing_files(lake.settings.root, table.landing.source, min(days), max(days)):
        if file.arrival_date in landed:
            landed[file.arrival_date].append(file)
    content = digests(lake.settings.root, [file for files in landed.values() for file in files])
    keyed = [key_id(lake.settings.pii_key_bytes())] if table.tokens else []
    prints = {
        day: fingerprint([table.code_version, *keyed, *(f"{f.path.name}/{content[f.path]}" for f in files)])
        for day, files in landed.items()
    }
    return Plan(table, {}, landed, prints, None, frozenset(day for day, files in landed.items() if files))
