"""How the fields of landed data differ from the contract: fields without a column, and columns whose field stays away.

Unknown fields are kept in `_rescued`. Only their names are looked at here, never a value; a name that looks like data
(an address, a number, a sentence) is not told either.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date

from lakehouse.checks.metrics import DayMetrics, Outcome, Value
from lakehouse.checks.profile import OTHER
from lakehouse.contracts import Table
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.staged import StagedFile
from lakehouse.read.promote import RESCUED
from lakehouse.store import parquet
from lakehouse.texts import counted

MOST_FIELDS = 30  # told by name for a day; the rest together
MOST_COUNTED = 1000  # different names held while counting
DAYS_BEFORE = 7  # with rows, that say how often a column used to be filled
CHANCE = 0.001  # a column is missed where its absence would be rarer than this by chance
_BATCH = 10_000  # rows of `_rescued` in memory at a time
_PLAIN = re.compile(r"[^\W\d][\w .:/-]{0,63}")


def with_fields(
    table: Table, base: Snapshot, files: Iterable[StagedFile], metrics: Mapping[date, DayMetrics]
) -> dict[date, DayMetrics]:
    """The figures of a landed table's days, with the unknown fields and the columns that nothing came for.

    Args:
        table: whose days they are; of a table that reads tables nothing is said.
        base: the table before this run, whose log says what used to come.
        files: the staged files; `_rescued` is read only where its footer says that there is something in it.
        metrics: figures by day.
    """
    if table.landing is None:
        return dict(metrics)
    found: dict[date, Counter[str]] = {day: Counter() for day in metrics}
    for file in files:
        day = date.fromisoformat(file.partition[table.day_column] or "")
        if RESCUED in table.columns and file.nulls.get(RESCUED) != file.rows:
            for fields in _names(file):
                found[day].update(fields)
                if len(found[day]) > 2 * MOST_COUNTED:
                    found[day] = _largest(found[day], MOST_COUNTED)
    return {
        day: replace(
            metrics[day],
            unknown_fields=dict(_largest(found[day], MOST_FIELDS)),
            missed_columns=_missed(table, base, metrics, day),
        )
        for day in sorted(metrics)
    }


def schema_drift(m: DayMetrics) -> Outcome:
    """The check over these figures: a warning, since nothing is lost."""
    told = []
    if m.unknown_fields:
        listed = ", ".join(f"{name} ({counted(rows, 'row')})" for name, rows in m.unknown_fields.items())
        told.append(f"fields without a column, kept in {RESCUED}: {listed}")
    told += [
        f"{name} is in no row, but was in {share:.0%} of the rows of the days before"
        for name, share in m.missed_columns.items()
    ]
    values: dict[str, Value] = {f"unknown/{name}": rows for name, rows in m.unknown_fields.items()}
    values |= {f"missed/{name}": round(share, 6) for name, share in m.missed_columns.items()}
    text = "; ".join(told) or ("the fields are those of the contract" if m.staged else "empty day: no fields")
    return Outcome("schema_drift", m.day, not told, text, blocking=False, values=values)


def told_fields(rescued: str | None) -> str | None:
    """What is shown of a `_rescued` cell: how many fields it has, and their names as far as they look like names."""
    if rescued is None:
        return None
    named = Counter(_named(rescued))
    listed = ", ".join(name if number == 1 else f"{number} {name}" for name, number in sorted(named.items()))
    return f"{named.total()} field(s): {listed}"


def _named(rescued: str) -> list[str]:
    try:
        fields = json.loads(rescued)
    except (ValueError, RecursionError):
        fields = None
    names = fields if isinstance(fields, dict) else [OTHER]
    return [name if _PLAIN.fullmatch(name) else OTHER for name in names]


def _names(file: StagedFile) -> Iterator[set[str]]:
    """The unknown fields of each row that has any."""
    with parquet.opened(file.path) as data:
        for batch in data.iter_batches(batch_size=_BATCH, columns=[RESCUED]):
            for text in batch.column(0).drop_null().to_pylist():
                yield set(_named(text))


def _largest(names: Counter[str], most: int) -> Counter[str]:
    """The most frequent names, and the rest together: there a row counts once for each of its fields."""
    named = Counter({name: rows for name, rows in names.items() if name != OTHER})
    kept = Counter(dict(named.most_common(most)))
    if rest := names.total() - kept.total():
        kept[OTHER] = rest
    return kept


def _missed(table: Table, base: Snapshot, metrics: Mapping[date, DayMetrics], day: date) -> dict[str, float]:
    """Columns that are null in all rows of a day, with the share of rows they were filled in on the days before.

    Where so few rows came, or the column was so rare, that its absence may be chance, nothing is said; nor where the
    log has no null counts, as of personal data and of compacted files. Columns whose share of nulls has a bound in the
    contract are the business of the check `null_rates`, which blocks the day.
    """
    m = metrics[day]
    elsewhere = {*table.required, *table.quality.max_null_rate}
    judged = [c for c in table.columns if not c.startswith("_") and c not in elsewhere]
    found: dict[str, float] = {}
    for name in (c for c in judged if m.rows and m.nulls.get(c) == m.rows):
        rows, filled = _filled(_counts_before(table, base, metrics, day, name))
        # As if each row were filled by chance, as often as before: how likely is a day on which none is?
        # With p filled as a rule, (1 - p) to the power of the day's rows: for a column filled in one of a hundred rows,
        # forty empty rows say nothing.
        if filled and (1 - filled / rows) ** m.rows < CHANCE:
            found[name] = filled / rows
    return found


def _counts_before(
    table: Table, base: Snapshot, metrics: Mapping[date, DayMetrics], day: date, name: str
) -> list[tuple[int, int | None]]:
    """Rows of a column, and its nulls where they are known, on the days before: staged with this one, or published."""
    by_day = base.by_day(table.day_column)
    # Days of this very build count by what was staged for them, not by what they held before.
    before = {d for d in by_day if d < day and d not in metrics} | {d for d in metrics if d < day and metrics[d].rows}
    logged = base.nulls(name)
    counts: list[tuple[int, int | None]] = []
    for each in sorted(before, reverse=True)[:DAYS_BEFORE]:
        if each in metrics:
            counts.append((metrics[each].rows, metrics[each].nulls.get(name)))
        else:
            counts += [(file.rows, logged.get(file.path)) for file in by_day[each]]
    return counts


def _filled(counts: Iterable[tuple[int, int | None]]) -> tuple[int, int]:
    """Rows whose nulls are known, and those of them that are filled."""
    known = [(rows, nulls) for rows, nulls in counts if nulls is not None]
    rows = sum(number for number, _ in known)
    return rows, rows - sum(nulls for _, nulls in known)
