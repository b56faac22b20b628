"""Figures of one day of one table, put together from file footers and the log: no query is run for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc

from lakehouse.checks.profile import MOST_CATEGORIES, OTHER, Profile, profiles
from lakehouse.contracts import Count, Sum, Table
from lakehouse.contracts.figures import added
from lakehouse.delta.staged import COPIES, FAILED_RULES, QUARANTINED, REPEATED, VALID, StagedFile
from lakehouse.store import parquet

Value = int | float | str
WARNS_ONLY = " (warns only)"  # ends what a check says of itself in the terminal and the report
HIDDEN = "hidden"  # what a source does not show to the role that reads it


@dataclass(frozen=True)
class Outcome:
    """One check on one day. `blocking` is what decides whether the day may be published."""

    check: str
    day: date
    passed: bool
    message: str
    blocking: bool = True
    values: Mapping[str, Value] = field(default_factory=dict)


def failed_checks(outcomes: Iterable[Outcome]) -> dict[str, dict[str, Any]]:
    """The checks that failed, by name, as a commit keeps them."""
    return {o.check: {"blocking": o.blocking, "found": o.message} for o in outcomes if not o.passed}


def judged_days(refused: Iterable[DayMetrics], fingerprints: Mapping[date, int]) -> dict[str, dict[str, Any]]:
    """What a commit says of days that were judged and not published: the failed checks, what was judged, and clocks."""
    return {
        str(m.day): {"rows": m.rows, "tried": fingerprints.get(m.day), "checks": m.checks}
        | ({"clocks": m.clocks} if m.clocks else {})
        for m in refused
    }


@dataclass
class DayMetrics:
    """What one run found for one day: counts are rows, `size` is bytes of the published files.

    `rows_in` is counted apart from the write (source lines, or the input table's log), None where a row of the
    output is not a row of the input. Of a landed table, `event_days` are rows by the day that downstream tables see
    them in, `unknown_fields` rows by field without a column, and `missed_columns` columns that are null throughout,
    with the share of rows they used to be filled in. `clocks` are figures by producer (`lakehouse.checks.producers`),
    `figures` those of the business that the contract names.
    """

    day: date
    rows: int = 0
    quarantined: int = 0
    duplicates: int = 0
    rows_in: int | None = None
    nulls: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    files: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)  # why its source could not be read
    doubts: list[str] = field(default_factory=list)  # why the text of its source may not be what was meant
    profile: Profile = field(default_factory=Profile)
    unknown_fields: dict[str, int] = field(default_factory=dict)
    missed_columns: dict[str, float] = field(default_factory=dict)
    event_days: dict[date, int] = field(default_factory=dict)
    clocks: dict[str, dict[str, int]] = field(default_factory=dict)
    figures: dict[str, Decimal] = field(default_factory=dict)
    source: dict[str, Value | None] = field(default_factory=dict)  # what a database showed of its transactions
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)  # that failed: whether they block, what they found

    @property
    def staged(self) -> int:
        """Rows the transform gave for the day."""
        return self.rows + self.quarantined + self.duplicates

    def as_json(self) -> dict[str, Any]:
        """The figures for the commit's metadata, without what is zero."""
        named = {
            "rows": self.rows,
            "quarantined": self.quarantined,
            "duplicates": self.duplicates,
            "rows_in": self.rows_in,
            "nulls": {k: v for k, v in self.nulls.items() if v},
            "failures": self.failures,
            "unknown_fields": self.unknown_fields,
            "missed_columns": self.missed_columns,
            "files": self.files,
            "bytes": self.size,
            "event_days": {day.isoformat(): rows for day, rows in sorted(self.event_days.items())},
            "figures": {name: str(number) for name, number in self.figures.items()},
            "clocks": {name: figures for name, figures in self.clocks.items() if figures},
            "checks": self.checks,
            **self.profile.as_json(),
        }
        return {k: v for k, v in named.items() if v}


def measure(table: Table, files: Iterable[StagedFile], days: Iterable[date]) -> dict[date, DayMetrics]:
    """Metrics by day over the staged files; a day without files has zeros.

    Args:
        table: the contract.
        files: staged files of any route.
        days: days that are to be told of in any case.
    """
    metrics = {day: DayMetrics(day) for day in days}
    by_day: dict[date, list[StagedFile]] = defaultdict(list)
    for file in files:
        value = file.partition[table.day_column]
        # A row without a day is refused by the gate, which names its file; it belongs to no day's figures.
        if value is not None:
            by_day[date.fromisoformat(value)].append(file)
    for day, staged in by_day.items():
        each = metrics.setdefault(day, DayMetrics(day))
        for file in staged:
            _add(each, file, table.columns)
            if table.content_day_column != table.day_column:
                _add_event_day(each, file, table.content_day_column)
    _add_profiles(metrics, table, by_day)
    for each in metrics.values():
        each.figures = figures_of(table, each)
    return metrics


def _add_profiles(
    metrics: Mapping[date, DayMetrics], table: Table, by_day: Mapping[date, Sequence[StagedFile]]
) -> None:
    """Read the few columns of the valid files whose distribution is kept; all else comes from footers."""
    valid = [(day, file) for day, staged in by_day.items() for file in staged if file.route == VALID]
    grouped = {(each.column, each.by) for each in table.figures.values() if isinstance(each, Sum) and each.by}
    read = profiles([file.path for _, file in valid], table.profiled, grouped)
    for (day, _), found in zip(valid, read, strict=True):
        metrics[day].profile.add(found)


def figures_of(table: Table, m: DayMetrics) -> dict[str, Decimal]:
    """The figures of a day that a contract names, from what is counted anyway."""
    found: dict[str, Decimal] = {}
    for name, each in table.figures.items():
        match each:
            case Count(column=column):
                found[name] = Decimal(m.rows - (m.nulls.get(column, 0) if column else 0))
            case Sum(column=column, by=""):
                found[name] = m.profile.total(column)
            case Sum(column=column, by=by):
                # The largest sums have a name each, the rest are one figure: each is a plot, and there may be a
                # thousand values.
                sums = sorted(m.profile.groups.get((column, by), {}).items(), key=lambda pair: -abs(pair[1]))
                found |= {f"{name}/{value}": total for value, total in sorted(sums[:MOST_CATEGORIES])}
                if rest := sums[MOST_CATEGORIES:]:
                    found[f"{name}/{OTHER}"] = added(total for _, total in rest)
    return found


def _add_event_day(metrics: DayMetrics, file: StagedFile, column: str) -> None:
    content = file.partition[column]
    if file.route == VALID and content is not None:
        day = date.fromisoformat(content)
        metrics.event_days[day] = metrics.event_days.get(day, 0) + file.rows


def _add(metrics: DayMetrics, file: StagedFile, columns: Sequence[str]) -> None:
    metrics.duplicates += repeats(file)
    if file.route == QUARANTINED:
        metrics.quarantined += file.rows
        counted = Counter(metrics.failures)
        counted.update(failed_rules(file))
        metrics.failures = dict(counted)
    elif file.route == REPEATED:
        metrics.duplicates += file.rows
    elif file.route == VALID:
        metrics.rows += file.rows
        metrics.files += 1
        metrics.size += file.size
        for name in columns:
            if name in file.nulls:
                metrics.nulls[name] = metrics.nulls.get(name, 0) + file.nulls[name]


def repeats(file: StagedFile) -> int:
    """Rows that were dropped as repeats of the file's rows; one column is read, and only where there are any."""
    if file.high.get(COPIES, 1) == 1:
        return 0
    with parquet.opened(file.path) as data:
        counted = sum(pc.sum(batch.column(0)).as_py() for batch in data.iter_batches(columns=[COPIES]))
    return int(counted) - file.rows


def failed_rules(file: StagedFile) -> dict[str, int]:
    """How many rows of a quarantine file broke each rule; reads that one column in batches."""
    counted: Counter[str] = Counter()
    with parquet.opened(file.path) as data:
        for batch in data.iter_batches(columns=[FAILED_RULES]):
            for pair in pc.value_counts(pc.list_flatten(batch.column(0))).to_pylist():
                counted[pair["values"]] += pair["counts"]
    return dict(counted)
