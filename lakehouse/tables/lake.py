"""Where tables live and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.contracts import Table
from lakehouse.settings import Settings
from lakehouse.tables.snapshot import Snapshot, open_snapshot


class Lake:
    """A lakehouse root together with the engine that computes on it; the engine starts at first use."""

    def __init__(self, settings: Settings, tables: Mapping[str, Table], engine: Callable[[], SparkSession]) -> None:
        self.settings = settings
        self.tables = tables
        self._engine = engine

    @cached_property
    def spark(self) -> SparkSession:
        """The one Spark session of the run."""
        return self._engine()

    def table(self, name: str) -> Table:
        """The contract of a table by `layer.name`."""
        return self.tables[name]

    def path(self, name: str) -> Path:
        """Folder of a table; location follows only from layer and name."""
        return table_path(self.settings.root, name)

    def snapshot(self, name: str, version: int | None = None) -> Snapshot:
        """What the table's log holds."""
        return open_snapshot(self.path(name), version)

    def read(self, table: Table, days: Sequence[date], version: int) -> DataFrame:
        """The rows of some days of a table at one version, as downstream tables see them."""
        if version < 0:
            return self.spark.createDataFrame([], table.schema)
        frame = self.spark.read.format("delta").option("versionAsOf", version).load(str(self.path(table.id)))
        return frame.where(in_days(table.partition_by[-1], days))


def table_path(root: Path, name: str) -> Path:
    """Folder of `layer.table` under a lakehouse root."""
    layer, table = name.split(".", 1)
    return root / "tables" / layer / table


def in_days(column: str, days: Sequence[date]) -> Column:
    """A partition filter; a gapless range of days is two comparisons rather than a long list."""
    first, last = min(days), max(days)
    if (last - first).days + 1 == len(set(days)):
        return F.col(column).between(F.lit(first), F.lit(last))
    return F.col(column).isin(sorted(set(days)))
