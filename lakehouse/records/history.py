"""The history of metrics: one record for each day that a commit published, keyed by table, day and Delta version.

Figures are written into the commit that publishes them, so they are as true as the data. From there they are projected
into one Delta table, `ops.partition_metrics`, that checks and people read without touching data: appended with the last
projected version as its application transaction, so that a crash in between loses and doubles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from lakehouse.delta.commit import ensure_table
from lakehouse.delta.log import LogEntry, entries, oldest_entry
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.target import Target
from lakehouse.errors import PublishConflictError
from lakehouse.lazy import T
from lakehouse.read.lake import table_path
from lakehouse.records.ops import MOST_FILES, MOST_TRIES, add_rows, ops_target, rows_about

HISTORY = "ops.partition_metrics"
JUDGED = "lakehouse.judged"  # of a commit: by day that was not published, the checks that failed

OF_JUDGEMENTS = ("checks", "tried")  # figures that say how checks stand
JUDGE = "judge"
"""Operation of a record that says what the checks found on a day which was not published."""
_SAME_ROWS = ("restore", "forget")  # operations that bring rows back or take some away, and judge none
_FACTS = ("day", "version", "published_at", "run_id", "code_version", "operation")
_COUNTS = ("rows", "quarantined", "duplicates", "rows_in", "files", "bytes")
_NESTED = ("categories", "clocks")
_MAPS = ("nulls", "failures", "unknown_fields", "event_days")


@lru_cache(maxsize=1)
def schema() -> T.StructType:
    """The columns of the history."""
    text, long = T.StringType(), T.LongType()
    numbers = T.MapType(text, long)
    profile = T.StructType(
        [
            T.StructField("count", long),
            T.StructField("sum", T.DecimalType(38, 6)),
            T.StructField("mean", T.DoubleType()),
            T.StructField("stddev", T.DoubleType()),
            T.StructField("log_mean", T.DoubleType()),
            T.StructField("log_stddev", T.DoubleType()),
            T.StructField("min", T.DoubleType()),
            T.StructField("max", T.DoubleType()),
        ]
    )
    failed_check = T.StructType([T.StructField("blocking", T.BooleanType()), T.StructField("found", text)])
    return T.StructType(
        [
            T.StructField("table", text),
            T.StructField("day", T.DateType(), metadata={"comment": "Daily partition"}),
            T.StructField("version", long, metadata={"comment": "Delta version that published the day"}),
            T.StructField("published_at", T.TimestampType()),
            T.StructField("run_id", text),
            T.StructField("code_version", text),
            T.StructField("operation", text, metadata={"comment": "publish, judge, restore, swap and the like"}),
            T.StructField("rows", long),
            T.StructField("quarantined", long),
            T.StructField("duplicates", long),
            T.StructField("rows_in", long, metadata={"comment": "Rows of the input, where rows are conserved"}),
            T.StructField("files", long),
            T.StructField("bytes", long),
            T.StructField("seconds", T.DoubleType(), metadata={"comment": "Of the whole build, all its days"}),
            T.StructField("nulls", numbers),
            T.StructField("failures", numbers, metadata={"comment": "Rows by broken rule"}),
            T.StructField("unknown_fields", numbers, metadata={"comment": "Rows by field without a column"}),
            T.StructField("profile", T.MapType(text, profile), metadata={"comment": "Of numeric columns"}),
            T.StructField(
                "categories", T.MapType(text, numbers), metadata={"comment": "Rows by value, of columns with few"}
            ),
            T.StructField("event_days", numbers, metadata={"comment": "Rows by event day, of landed tables"}),
            T.StructField(
                "clocks",
                T.MapType(text, numbers),
                metadata={"comment": "By producer: rows, and how its clock is wrong (lakehouse.checks.clocks)"},
            ),
            T.StructField("inputs", numbers, metadata={"comment": "Version read of each input"}),
            T.StructField(
                "figures",
                T.MapType(text, T.DecimalType(38, 6)),
                metadata={"comment": "Of the business, as the contract names them"},
            ),
            T.StructField("checks", T.MapType(text, failed_check), metadata={"comment": "Those that failed"}),
            T.StructField("tried", long, metadata={"comment": "Fingerprint of what was judged and not published"}),
        ]
    )


@dataclass(frozen=True)
class DayRecord:
    """What one commit published for one day. `figures` are those of `DayMetrics.as_json`."""

    table: str
    day: date
    version: int
    at: datetime
    run_id: str
    code_version: str
    operation: str
    inputs: Mapping[str, int]
    figures: Mapping[str, Any]

    @property
    def rows(self) -> int:
        """Published rows."""
        return int(self.figures.get("rows", 0))

    @property
    def business(self) -> dict[str, Decimal]:
        """The figures that the contract named when the day was published."""
        return {name: plain(number) for name, number in self.figures.get("figures", {}).items()}

    def total(self, column: str) -> Decimal | None:
        """Exact sum of a numeric column; None where the commit kept none of a column with values."""
        kept = self.figures.get("profile", {}).get(column)
        if kept is not None:
            return plain(kept["sum"])
        empty = self.figures.get("nulls", {}).get(column, 0) == self.rows
        return Decimal(0) if empty else None


def plain(number: object) -> Decimal:
    """An exact number as people write it, whatever scale it was kept with: with two digits where these are enough."""
    exact = Decimal(str(number))
    money = exact.quantize(Decimal("0.01"))
    return money if money == exact else exact.normalize()


def records(
    root: Path, table: str, days: Collection[date] | None = None, figures: Sequence[str] | None = None
) -> list[DayRecord]:
    """Every record of what a table published, oldest commit first: the projected ones, and the log for what came after.

    Args:
        root: of the lakehouse.
        table: `layer.name`.
        days: only these; None: all.
        figures: what is needed of the figures; None: all, which is most of what there is to read.
    """
    return [each for each in all_records(root, table, days, figures) if each.operation != JUDGE]


def all_records(
    root: Path, table: str, days: Collection[date] | None = None, figures: Sequence[str] | None = None
) -> list[DayRecord]:
    """As `records`, with those of builds that published nothing (`JUDGE`), which `judged_by` asks for."""
    projected, newer = _all(root, table, days, None if figures is None else (*_FACTS, *figures))
    return sorted([*(_record(table, row) for row in projected), *newer], key=lambda each: (each.version, each.day))


def judgements(root: Path, table: str, days: Collection[date] | None = None) -> dict[date, DayRecord]:
    """The record of each day that says how its checks stand: the newest build, published or not.

    A day whose newest build was not published stands by that one: restoring older rows does not mend its input.

    Args:
        root: of the lakehouse.
        table: `layer.name`.
        days: only these; None: all.
    """
    projected, newer = _all(root, table, days, (*_FACTS, *OF_JUDGEMENTS))
    return judged_by(sorted([*(_record(table, row) for row in projected), *newer], key=lambda each: each.version))


def judged_by(everything: Iterable[DayRecord]) -> dict[date, DayRecord]:
    """What `judgements` says, from all records of a table: oldest commit first, with the figures `OF_JUDGEMENTS`."""
    found: dict[date, DayRecord] = {}
    for each in everything:
        before = found.get(each.day)
        # A restore brings rows back and judges none: what the newest build found of the day's input goes on being true.
        if each.operation not in _SAME_ROWS or before is None or before.operation != JUDGE:
            found[each.day] = each
    return found


def latest_records(
    root: Path, table: str, days: Collection[date] | None = None, figures: Sequence[str] | None = None
) -> dict[date, DayRecord]:
    """The newest record of each day: what readers see now. The arguments are those of `records`.

    Args:
        root: of the lakehouse.
        table: `layer.name`.
        days: only these; None: all.
        figures: what is needed of the figures; None: all.
    """
    return {each.day: each for each in records(root, table, days, figures)}


def older_code(root: Path, table: str, current: str, days: Collection[date] | None = None) -> dict[str, list[date]]:
    """The published days that code other than the current one built, by code version, the newest of them first.

    Args:
        root: of the lakehouse.
        table: `layer.name`.
        current: the code version that is not older.
        days: only these; None: all.
    """
    # Without the figures, which would be most of what there is to read.
    projected, newer = _kept(root, table, days, ("day", "version", "code_version", "operation"))
    built = [(int(row["version"]), row["day"], str(row["code_version"])) for row in projected]
    built += [(each.version, each.day, each.code_version) for each in newer]
    # Sorted by version, so that of each day the last one stays.
    newest = {day: (version, code) for version, day, code in sorted(built)}
    found: dict[str, list[date]] = {}
    for day, (_, code) in sorted(newest.items(), key=lambda each: (-each[1][0], each[0])):
        if code != current:
            found.setdefault(code, []).append(day)
    return found


def _kept(
    root: Path, table: str, days: Collection[date] | None, columns: Sequence[str] | None = None
) -> tuple[Iterable[dict[str, Any]], list[DayRecord]]:
    """What a table published: projected rows, with some columns or all, and the records that only its log has yet."""
    projected, newer = _all(root, table, days, columns)
    return (row for row in projected if row["operation"] != JUDGE), [each for each in newer if each.operation != JUDGE]


def _all(
    root: Path, table: str, days: Collection[date] | None, columns: Sequence[str] | None
) -> tuple[Iterable[dict[str, Any]], list[DayRecord]]:
    projected, wanted = open_snapshot(table_path(root, HISTORY)), None if days is None else set(days)
    # What a killed run has committed and not projected is read from the table's own log, so nothing is missing
    # meanwhile.
    newer = _newer(open_snapshot(table_path(root, table)), table, projected.transaction(table))
    return rows_about(projected, table, days, columns), [each for each in newer if wanted is None or each.day in wanted]


def project_history(root: Path, snapshot: Snapshot, table: str, *, most_files: int = MOST_FILES) -> int:
    """Append what the table's log says beyond the last projection; returns how many records that were.

    Safe at any time and from any process: the same versions are never projected twice.

    Args:
        root: of the lakehouse.
        snapshot: the table at the version up to which its log is read.
        table: `layer.name`.
        most_files: of the table's part of the history; from so many on they are merged.
    """
    target = _target(root)
    for _ in range(MOST_TRIES):
        base = ensure_table(target)
        newer = _newer(snapshot, table, base.transaction(table))
        if not newer:
            return 0
        try:
            # Rows and the version they go up to are one commit: killed before it nothing is kept, after it all is.
            position = {table: snapshot.version}
            add_rows(target, table, [_row(each) for each in newer], position, after=base, most_files=most_files)
        except PublishConflictError:
            continue  # another process projected some of them meanwhile
        return len(newer)
    return 0  # others project all the time; what is left is read from the log


def _target(root: Path) -> Target:
    return ops_target(root, HISTORY, schema(), "What each commit published, by day")


def _newer(snapshot: Snapshot, table: str, done: int | None) -> list[DayRecord]:
    """Records of the log's versions after `done`, up to the snapshot's."""
    if not snapshot.exists:
        return []
    path = Path(snapshot.uri)
    # Entries that were cleaned up before anybody projected them are lost to the history, not to the table.
    first = max((done or 0) + 1, oldest_entry(path))
    # Not delta-rs's history: of a snapshot that is not the newest any more it numbers the entries wrongly.
    newer = entries(path, first, snapshot.version, snapshot.partition_by)
    return [record for entry in newer for record in _of_commit(table, entry)]


def _of_commit(table: str, entry: LogEntry) -> Iterable[DayRecord]:
    operation = str(entry.facts.get("lakehouse.operation", "publish"))
    told = [(day, operation, figures) for day, figures in entry.figures.items()]
    told += [(day, JUDGE, figures) for day, figures in _loaded(entry.facts.get(JUDGED)).items()]
    for day, kind, figures in told:
        yield DayRecord(
            table,
            date.fromisoformat(day),
            entry.version,
            entry.time,
            str(entry.facts.get("lakehouse.run_id", "")),
            str(figures.get("code_version") or entry.facts.get("lakehouse.code_version", "")),
            kind,
            _loaded(entry.facts.get("lakehouse.inputs")),
            figures,
        )


def _loaded(value: Any) -> dict[str, Any]:
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}


def _row(record: DayRecord) -> dict[str, Any]:
    figures = record.figures
    profile = figures.get("profile", {})
    return {
        "day": record.day,
        "version": record.version,
        "published_at": record.at,
        "run_id": record.run_id,
        "code_version": record.code_version,
        "operation": record.operation,
        "seconds": figures.get("seconds"),
        **{name: figures.get(name, 0) for name in _COUNTS},
        "rows_in": figures.get("rows_in"),
        **{name: list(figures.get(name, {}).items()) for name in _MAPS},
        "inputs": list(record.inputs.items()),
        "figures": [(name, Decimal(str(number))) for name, number in figures.get("figures", {}).items()],
        # Sums are text in the log: a float would lose pence of large ones.
        "profile": [(name, {**each, "sum": Decimal(str(each["sum"]))}) for name, each in profile.items()],
        **{name: [(key, list(each.items())) for key, each in figures.get(name, {}).items()] for name in _NESTED},
        "checks": list(figures.get("checks", {}).items()),
        "tried": figures.get("tried"),
    }


def _record(table: str, row: Mapping[str, Any]) -> DayRecord:
    figures = {name: made(value) for name, made in _READ.items() if (value := row.get(name))}
    figures |= {name: row[name] for name in ("seconds", "tried") if row.get(name) is not None}
    return DayRecord(
        table, row["day"], row["version"], row["published_at"], row["run_id"], row["code_version"],
        row["operation"], dict(row.get("inputs") or ()), figures,
    )  # fmt: skip


def _mapped(pairs: Iterable[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: dict(each) for name, each in pairs}


_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_COUNTS, int),
    **dict.fromkeys((*_MAPS, "figures"), dict),
    **dict.fromkeys((*_NESTED, "profile", "checks"), _mapped),
}
"""How the figures of a record are read from its row."""
