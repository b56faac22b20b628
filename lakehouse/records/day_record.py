"""What one commit published for one day, and how the history of metrics keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from lakehouse.contracts.figures import EXACT
from lakehouse.lazy import T
from lakehouse.records.ops import TABLE_ID

STREAM_RUN = "stream-"  # a stream's commits have a run id that begins so
EXACT_SUMS = "exact_sums"  # column of the sums with more digits than theirs, which holds them rounded or not at all
_DIGITS, _SCALE = 38, 6
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
            T.StructField("sum", T.DecimalType(_DIGITS, _SCALE)),
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
                metadata={"comment": "By producer: rows, and how its clock is wrong (lakehouse.checks.producers)"},
            ),
            T.StructField("inputs", numbers, metadata={"comment": "Version read of each input"}),
            T.StructField(
                "figures",
                T.MapType(text, T.DecimalType(_DIGITS, _SCALE)),
                metadata={"comment": "Of the business, as the contract names them"},
            ),
            T.StructField("checks", T.MapType(text, failed_check), metadata={"comment": "Those that failed"}),
            T.StructField("tried", long, metadata={"comment": "Fingerprint of what was judged and not published"}),
            T.StructField(
                TABLE_ID, text, metadata={"comment": "Id of the Delta table: another, where it was built anew"}
            ),
            T.StructField(
                EXACT_SUMS,
                T.MapType(text, text),
                metadata={"comment": "Sums of profile and figures that have more digits than their columns"},
            ),
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
    def by_stream(self) -> bool:
        """Whether a stream has published it."""
        return self.run_id.startswith(STREAM_RUN)

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
    if not exact.is_finite() or exact.adjusted() >= EXACT.prec - _SCALE:
        return exact  # of a sum of doubles, which may have three hundred digits
    money = exact.quantize(Decimal("0.01"), context=EXACT)
    return money if money == exact else exact.normalize(EXACT)


def row_of(record: DayRecord, table_id: str | None) -> dict[str, Any]:
    """The record's row of the history, without its table.

    Args:
        record: what a commit published for a day.
        table_id: of the log that has the commit.
    """
    figures = record.figures
    named, profile = figures.get("figures", {}), figures.get("profile", {})
    sums = {f"figures/{name}": number for name, number in named.items()}
    sums |= {f"profile/{name}": each["sum"] for name, each in profile.items()}
    held = {name: _held(number) for name, number in sums.items()}
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
        # Sums are text in the log: a float would lose pence of large ones.
        "figures": [(name, held[f"figures/{name}"]) for name in named],
        "profile": [(name, {**each, "sum": held[f"profile/{name}"]}) for name, each in profile.items()],
        EXACT_SUMS: [(name, str(n)) for name, n in sums.items() if held[name] != Decimal(str(n))],
        **{name: [(key, list(each.items())) for key, each in figures.get(name, {}).items()] for name in _NESTED},
        "checks": list(figures.get("checks", {}).items()),
        "tried": figures.get("tried"),
        TABLE_ID: table_id,
    }


def record_of(table: str, row: Mapping[str, Any]) -> DayRecord:
    """The record that a row of the history is of, with those of its figures that were read."""
    figures = {name: made(value) for name, made in _READ.items() if (value := row.get(name))}
    for name, text in row.get(EXACT_SUMS) or ():
        kind, _, own = name.partition("/")
        if kind == "figures" and own in figures.get(kind, {}):
            figures[kind][own] = text
        elif own in figures.get(kind, {}):
            figures[kind][own] = {**figures[kind][own], "sum": text}
    figures |= {name: row[name] for name in ("seconds", "tried") if row.get(name) is not None}
    return DayRecord(
        table, row["day"], row["version"], row["published_at"], row["run_id"], row["code_version"],
        row["operation"], dict(row.get("inputs") or ()), figures,
    )  # fmt: skip


def _held(number: object) -> Decimal | None:
    """A sum as its column holds it, to six digits behind the point; None where it is too large for that."""
    exact = Decimal(str(number))
    # A sum of doubles may have three hundred digits, which are not to be rounded first: none would do that exactly.
    if not exact.is_finite() or exact.adjusted() >= _DIGITS - _SCALE:
        return None
    held = exact.quantize(Decimal("0.000001"), context=EXACT)
    return None if held.adjusted() >= _DIGITS - _SCALE else held


def _mapped(pairs: Iterable[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: dict(each) for name, each in pairs}


_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_COUNTS, int),
    **dict.fromkeys((*_MAPS, "figures"), dict),
    **dict.fromkeys((*_NESTED, "profile", "checks"), _mapped),
}
"""How the figures of a record are read from its row."""
