"""Labels: what is to be predicted, of whom, and when that was asked. Read from a file, and judged before any work."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from lakehouse.delta.opening import open_snapshot
from lakehouse.errors import UsageError
from lakehouse.lazy import F, T
from lakehouse.read.lake import quoted
from lakehouse.store import parquet
from lakehouse.texts import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

UNREAD = "_unread"
# Spark reads "12:30" as half past twelve of today, and "2011" as its first day: neither says when a label is of.
TIME = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?\s?(Z|UTC|[+-]\d{2}(:?\d{2})?)?)?$"
# Of times as pandas writes them unless told otherwise.
_NANOSECONDS = (
    ". Spark reads times of microseconds, not of nanoseconds. Write the labels so: pandas' "
    'to_parquet(…, coerce_timestamps="us", allow_truncated_timestamps=True), or as CSV.'
)
# As strict for a day: Spark reads "2011" as its first.
DAY = r"^\d{4}-\d{2}-\d{2}$"
_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class LabelFile:
    """A file of labels.

    Attributes:
        path: a CSV file (also `.csv.gz`), a Parquet file or folder, or the folder of a Delta table.
        version: of a Delta table the version that is read; else None.
        sha256: of all bytes that are read.
    """

    path: Path
    version: int | None
    sha256: str

    def read(self, spark: SparkSession) -> DataFrame:
        """Its lines. Those of a CSV are text, with `_unread` where a line has other fields than the header.

        Raises:
            UsageError: where Spark cannot read it.
        """
        try:
            frame = self._read(spark)
            _ = frame.schema  # Connect looks at the file no sooner
        except PySparkException as error:
            hint = _NANOSECONDS if "(NANOS" in str(error) else ""
            raise UsageError(f"{self.path} cannot be read: {str(error).strip().splitlines()[0]}{hint}") from None
        return frame

    def _read(self, spark: SparkSession) -> DataFrame:
        if self.version is not None:
            return spark.read.format("delta").option("versionAsOf", self.version).load(str(self.path))
        if not is_csv(self.path):
            return spark.read.parquet(_literal(self.path))
        schema = T.StructType([T.StructField(name, T.StringType()) for name in (*_header(self.path), UNREAD)])
        reader = spark.read.schema(schema).option("header", True).option("escape", '"').option("columnPruning", False)
        return reader.option("columnNameOfCorruptRecord", UNREAD).csv(_literal(self.path))


def label_file(path: Path, version: int | None = None) -> LabelFile:
    """The labels at a place.

    Args:
        path: see `LabelFile`.
        version: of a Delta table; None: the newest.

    Raises:
        UsageError: where there are none.
    """
    path = path.expanduser().absolute()
    if not path.exists():
        raise UsageError(f"{path}: there are no labels here.")
    if (path / "_delta_log").is_dir():
        snapshot = open_snapshot(path, version)
        return LabelFile(path, snapshot.version, _sha256(path, (path / each.path for each in snapshot.files)))
    if path.is_dir():
        files = sorted(path.rglob("*.parquet"))
        if not files:
            raise UsageError(f"{path}: there are no Parquet files in this folder.")
        _check_parquet(files)
        return LabelFile(path, None, _sha256(path, files))
    if not is_csv(path) and path.suffix.lower() != ".parquet":
        raise UsageError(f"{path}: labels are a CSV or Parquet file, or the folder of a Delta table.")
    if not is_csv(path):
        _check_parquet([path])
    return LabelFile(path, None, _sha256(path.parent, [path]))


def is_csv(path: Path) -> bool:
    """Whether a file is a CSV by its name."""
    return path.name.lower().endswith((".csv", ".csv.gz"))


def _literal(path: Path) -> str:
    from lakehouse.spark.session import literal_path

    return literal_path(path)


def _check_parquet(files: Iterable[Path]) -> None:
    for file in files:
        try:
            parquet.columns_of(file)
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"{file} cannot be read: {error}") from None


def _header(path: Path) -> list[str]:
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
            names = next(csv.reader(lines), [])
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"{path}: expected a first line with the columns' names, each once; got {', '.join(names)!r}.")
    return names


def _sha256(home: Path, files: Iterable[Path]) -> str:
    made = hashlib.sha256()
    several = list(files)
    for file in several:
        made.update(str(file.relative_to(home)).encode() + b"\0" if len(several) > 1 else b"")
        with file.open("rb") as data:
            while chunk := data.read(_CHUNK):
                made.update(chunk)
    return made.hexdigest()


# --- judged -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """Labels that can be joined.

    Attributes:
        frame: their columns, with the key as the tables have it and the time in UTC.
        days: the days they are of, UTC.
        rows: how many.
    """

    frame: DataFrame
    days: tuple[date, ...]
    rows: int


def judged(frame: DataFrame, key: T.StructType, time: str, *, source: str) -> Labels:
    """Labels whose key and time are those of tables; one job over them.

    Args:
        frame: any columns beside the key and the time.
        key: the columns that identify the entity.
        time: column with the time at which the label was asked for; text without an offset is UTC.
        source: what messages call them.

    Raises:
        UsageError: for missing columns, columns of another kind, and labels without a key or a time, all counted.
    """
    _check_columns(frame, (*key.names, time), time, source)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    values = {f.name: _key(f, kinds[f.name], source) for f in key.fields} | {time: _time(time, kinds[time], source)}
    unread = F.col(UNREAD).isNotNull() if UNREAD in frame.columns else F.lit(False)
    reasons = {"with other fields than the header": unread} | _reasons(key, values, time, unread)
    wrong = F.when(F.col(time).isNotNull() & values[time].isNull() & ~unread, F.col(time).cast("string"))
    told = _looked_at(frame, [*reasons.values()], wrong, values[time], source)
    bad = [f"{told[f'_{n}']:,} {reason}" for n, reason in enumerate(reasons) if told[f"_{n}"]]
    if bad:
        such = f" ({told['_wrong']!r} is one)" if told["_wrong"] is not None else ""
        raise UsageError(
            f"{source}: of {counted(told['_rows'], 'label')}, {', '.join(bad)}{such}. Fix or remove them: a label "
            "left out in silence would change what a model learns. A time is such as 2011-09-01T00:00:00Z."
        )
    kept = [name for name in frame.columns if name != UNREAD]
    return Labels(
        frame.select(*[values.get(c, F.col(quoted(c))).alias(c) for c in kept]), tuple(told["_days"]), told["_rows"]
    )


def _check_columns(frame: DataFrame, wanted: tuple[str, ...], time: str, source: str) -> None:
    if lacking := [name for name in wanted if name not in frame.columns]:
        listed = ", ".join(each for each in frame.columns if each != UNREAD)
        more = "; name it with --time" if time in lacking else ""
        raise UsageError(f"{source}: expected the columns {', '.join(lacking)}{more}; got {listed}.")


def _reasons(key: T.StructType, values: Mapping[str, Column], time: str, unread: Column) -> dict[str, Column]:
    """What can be wrong with a label that was read, and when it is."""
    reasons = {}
    for name, value in values.items():
        given = F.col(quoted(name)).isNotNull()
        what = "time" if name == time else key[name].dataType.simpleString()
        reasons[f"without {name}"] = ~unread & ~given
        reasons[f"whose {name} is no {what}"] = ~unread & given & value.isNull()
    return reasons


def _looked_at(frame: DataFrame, reasons: list[Column], wrong: Column, time: Column, source: str) -> Row:
    """The one job: labels by each reason, one of the times that are none, the days, and how many labels there are."""
    counts = [F.count_if(holds).alias(f"_{n}") for n, holds in enumerate(reasons)]
    days = F.array_sort(F.collect_set(F.to_date(time)))  # as many as days, however many labels
    try:
        found = frame.agg(*counts, F.min(wrong).alias("_wrong"), days.alias("_days"), F.count("*").alias("_rows"))
        told = found.first()
    except PySparkException as error:
        raise UsageError(f"{source} cannot be read: {str(error).strip().splitlines()[0]}") from None
    if told is None or not told["_rows"]:
        raise UsageError(f"{source}: there is no label in it.")
    return told


def _key(field: T.StructField, kind: T.DataType, source: str) -> Column:
    name, wanted = field.name, field.dataType
    if kind == wanted:
        return F.col(name)
    # A fraction as text would be "17841.0", which is nobody: all would be missing.
    if isinstance(kind, T.IntegralType | T.StringType) and isinstance(wanted, T.IntegralType | T.StringType):
        return F.col(name).try_cast(wanted)
    if isinstance(kind, T.StringType) and (pattern := _as_text(wanted)):  # all that a CSV has
        return F.when(F.col(name).rlike(pattern), F.col(name).try_cast(wanted))
    raise UsageError(
        f"{source}: expected {name} as {wanted.simpleString()}, got {kind.simpleString()}. Write it as the table does."
    )


def _as_text(wanted: T.DataType) -> str:
    """How a value of a type looks as text that says no more and no less than the value; empty: it is not read."""
    if isinstance(wanted, T.DecimalType):  # what has more places would be rounded to another entity
        return rf"^[+-]?\d+(\.\d{{0,{wanted.scale}}}0*)?$"
    if isinstance(wanted, T.BooleanType):
        return "(?i)^(true|false)$"
    return DAY if isinstance(wanted, T.DateType) else ""


def _time(name: str, kind: T.DataType, source: str) -> Column:
    if isinstance(kind, T.StringType):
        return F.when(F.col(name).rlike(TIME), F.col(name).try_cast("timestamp"))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType):
        return F.col(name).cast("timestamp")
    raise UsageError(f"{source}: expected times in {name}, got {kind.simpleString()}. Name another column with --time.")
