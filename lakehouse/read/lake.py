"""Where tables live and how they are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

from lakehouse.contracts import Table
from lakehouse.delta.evolve import same_types
from lakehouse.delta.layout import table_path
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.delta.staged import HIVE_NULL, value_of_folder
from lakehouse.lazy import F, T
from lakehouse.pairs import in_pairs
from lakehouse.read.promote import promoted_columns, with_promoted
from lakehouse.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class IndexBounds:
    """When the index of an upsert table's keys (`lakehouse.read.key_index`) grows and is tidied.

    Attributes:
        most_files: data files that are read one by one; of more an entry is made first.
        most_entries: entries that are read; more are merged.
        kept_seconds: how long an entry stays that others have replaced: a run that reads it may still be on.
    """

    most_files: int = 64
    most_entries: int = 16
    kept_seconds: float = 86_400.0


class Lake:
    """A lakehouse root together with the engine that computes on it; the engine starts at first use.

    `facts` are written into every commit of a build on it, for the history.
    """

    facts: Mapping[str, str] = {}
    key_index = IndexBounds()

    def __init__(self, settings: Settings, tables: Mapping[str, Table], engine: Callable[[], SparkSession]) -> None:
        self.settings = settings
        self.tables = tables
        self._engine = engine
        self.engine_seconds = 0.0  # that its start took; 0 while there is none

    @cached_property
    def spark(self) -> SparkSession:
        """The one Spark session of the run."""
        began = time.perf_counter()
        session = self._engine()
        self.engine_seconds = time.perf_counter() - began
        return session

    def table(self, name: str) -> Table:
        """The contract of a table by `layer.name`."""
        return self.tables[name]

    def path(self, name: str) -> Path:
        """Folder of a table; location follows only from layer and name."""
        return table_path(self.settings.root, name)

    def snapshot(self, name: str, version: int | None = None) -> Snapshot:
        """What the table's log holds."""
        return open_snapshot(self.path(name), version)

    def read(
        self, table: Table, days: Collection[date], snapshot: Snapshot, paths: Collection[str] | None = None
    ) -> DataFrame:
        """The rows of some days of a table at one version, as downstream tables see days.

        Straight from the files that the log names: Delta's own reader runs four jobs to find them, which on a small day
        cost more than the day. Where a file's folders do not say its partition values, Delta's reader is used. A
        column that the files do not have yet is null, or what `_rescued` has of it.

        Args:
            table: the contract, which says the columns.
            days: of `content_day_column`; none: no rows.
            snapshot: the version.
            paths: only of these files; None: of all.

        Raises:
            SchemaMismatchError: for a column whose type in the table is not the contract's.
        """
        _ = self.spark  # columns can be named only once there is an engine
        column = table.content_day_column
        by_day = snapshot.by_day(column)
        files = [file for day in sorted(set(days)) for file in by_day.get(day, [])]
        if paths is not None:
            files = [file for file in files if file.path in paths]
        if not files:
            return self._nothing(table.schema)
        same_types(self.path(table.id), table.schema, snapshot)
        promoted = promoted_columns(table, snapshot, files)
        if paths is not None or all(_spelled(snapshot.partition_by, file) for file in files):
            rows = self.read_files(table, snapshot, files)
        else:  # written by somebody else, who names folders otherwise
            rows = self._delta(snapshot).where(in_days(column, days))
            absent = [f for f in table.schema.fields if f.name not in rows.columns]
            rows = rows.select("*", *[F.lit(None).cast(f.dataType).alias(f.name) for f in absent])
        return only(with_promoted(rows, promoted), table.columns)

    def read_files(self, table: Table, snapshot: Snapshot, files: Collection[DataFile]) -> DataFrame:
        """The rows of some files of a snapshot whose folders say their partition values.

        Args:
            table: the contract, which says the columns; one that a file lacks is null.
            snapshot: whose files they are.
            files: one at least.
        """
        from lakehouse.spark.session import literal_path

        stored = T.StructType([f for f in table.schema.fields if f.name not in table.partition_by])
        paths = [literal_path(Path(snapshot.uri) / file.path) for file in files]
        rows = self.spark.read.schema(stored).parquet(*paths)
        # Values are taken from the folders' names. Most are plain; in those of others special characters are escaped.
        values = {value for file in files for value in file.partition}
        plain = all(value is not None and value.isascii() and value.replace("-", "").isalnum() for value in values)
        types = {f.name: f.dataType for f in table.schema.fields}
        # By its place: a column's name may be escaped there as well, as `the day` is.
        values_of = {name: _value(place, plain) for place, name in enumerate(reversed(snapshot.partition_by), 1)}
        return rows.withColumns({name: value.cast(types[name]) for name, value in values_of.items()})

    def _delta(self, snapshot: Snapshot) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", snapshot.version).load(snapshot.uri)

    def _nothing(self, schema: T.StructType) -> DataFrame:
        """No rows, in a form that the optimizer removes from unions and joins."""
        columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields]
        return self.spark.range(1).where(F.lit(False)).select(*columns)


def quoted(name: str) -> str:
    """A column's name inside an expression of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def only(frame: DataFrame, columns: Iterable[str]) -> DataFrame:
    """`select` by names, in one call into the JVM: one for each column costs more than a small query does."""
    return frame.selectExpr(*map(quoted, columns))


def joined(rows: DataFrame, others: DataFrame, columns: Iterable[str], how: str) -> DataFrame:
    """A join by columns of both in which null equals null; what `others` have beside them comes with the rows.

    Args:
        rows: the left side.
        others: the right side; of these columns, none of it is in the result.
        columns: by which they are joined.
        how: as Spark's `join`.
    """
    # Under names of their own, so that the condition can tell the two sides apart.
    names = {name: f"_other_{name}" for name in columns}
    same = [F.col(name).eqNullSafe(F.col(other)) for name, other in names.items()]
    return rows.join(others.withColumnsRenamed(names), in_pairs(and_, same), how).drop(*names.values())


class PinnedLake(Lake):
    """A lake for reading logs: it opens each table once, so that it tells one state of it, and has no engine."""

    def __init__(self, settings: Settings, tables: Mapping[str, Table]) -> None:
        super().__init__(settings, tables, _no_engine)
        self._opened: dict[str, Snapshot] = {}

    def snapshot(self, name: str, version: int | None = None) -> Snapshot:
        """What the table's log held when it was first asked for, or at a version."""
        if version is not None:
            return super().snapshot(name, version)
        if name not in self._opened:
            self._opened[name] = super().snapshot(name)
        return self._opened[name]


def _no_engine() -> NoReturn:
    raise AssertionError("this reads logs only and starts no engine")


def _spelled(columns: Collection[str], file: DataFile) -> bool:
    """Whether the folders of a file say the partition values that the log says."""
    folders = file.path.split("/")[-len(columns) - 1 : -1]
    said = [(unquote(name), value_of_folder(text)) for name, _, text in (each.partition("=") for each in folders)]
    return said == list(zip(columns, file.partition, strict=True))


def _value(place: int, plain: bool) -> Column:
    """A partition value from the path of a row's file: a URL, in which a folder's name is escaped once more.

    Args:
        place: of the folder, from 1, the last one.
        plain: no value has a special character.
    """
    folder = F.substring_index(F.substring_index(F.col("_metadata.file_path"), "/", -place - 1), "/", 1)
    told = F.substring_index(folder, "=", -1)
    if plain:
        return told
    for _ in range(2):  # a plus sign is itself, which `url_decode` would take for a space
        told = F.url_decode(F.replace(told, F.lit("+"), F.lit("%2B")))
    return F.nullif(told, F.lit(HIVE_NULL))


def in_days(column: str, days: Collection[date]) -> Column:
    """A partition filter; a gapless range of days is two comparisons rather than a long list."""
    first, last = min(days), max(days)
    if (last - first).days + 1 == len(set(days)):
        return F.col(column).between(F.lit(first), F.lit(last))
    return F.col(column).isin(sorted(set(days)))
