"""Keys that are unique beyond a day: which keys of a day another day's row comes before, decided from the inputs alone.

What other days have published says nothing here. A day can therefore be built before, after or without its neighbours,
and any order of builds gives the same tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from lakehouse.build.plan import neighbours
from lakehouse.build.route import BEATEN, needed
from lakehouse.contracts import Table
from lakehouse.read.lake import in_days


def with_neighbours(table: Table, days: Iterable[date]) -> list[date]:
    """Days and their neighbours, in order."""
    return sorted({each for day in days for each in [day, *neighbours(table, day)]})


def with_places(table: Table, rows: DataFrame, **told: bool) -> DataFrame:
    """Of rows with a key: key, partition columns and `_at`, by which they come one after the other.

    Only these need to go through a shuffle, not the rows.

    Args:
        table: whose `keep_first_by` is the order; of ties the earlier day comes first.
        rows: the transform's.
        told: further parts of `_at`, the same for all rows.
    """
    # A row without its whole key is no repeat of another.
    keyed = rows.where(reduce(and_, [F.col(c).isNotNull() for c in needed(table)], F.lit(True)))
    # In a struct nulls come first; by `keep_first_by` they come last.
    order = [each for c in table.keep_first_by for each in (F.col(c).isNull(), F.col(c))]
    parts = [each.alias(f"_{n}") for n, each in enumerate(order)] + [F.col(table.day_column).alias("day")]
    parts += [F.lit(value).alias(name) for name, value in told.items()]
    return keyed.select(*dict.fromkeys([*table.key, *table.partition_by]), F.struct(*parts).alias("_at"))


def reach(table: Table) -> WindowSpec:
    """All rows of a key, of the days in which it is unique."""
    # By the number of the day, so that a gap of days without rows does not widen the window.
    by_day = Window.partitionBy(*table.key).orderBy(F.unix_date(F.col(table.day_column)))
    return by_day.rangeBetween(-table.unique_days, table.unique_days)


def beaten(table: Table, rows: DataFrame, days: Iterable[date]) -> DataFrame:
    """Marks: key, partition columns and `_beaten` of the keys of some days that a row of another day comes before.

    A key is marked once for each of its rows. One shuffle, of the columns of key and order alone.

    Args:
        table: whose `unique_within` is beyond a day.
        rows: the transform's rows of these days and of all their neighbours.
        days: the days to decide.
    """
    day = F.col(table.day_column)
    columns = list(dict.fromkeys([*table.key, *table.partition_by]))
    slim = with_places(table, rows)
    # The first row of the key within reach, by the table's order and then by the day; of ties the earlier day wins, on
    # both days alike.
    first = slim.withColumn("_first_at", F.min("_at").over(reach(table)))
    marked = first.where(in_days(table.day_column, list(days)) & (F.col("_first_at.day") != day))
    return marked.select(*columns, F.lit(True).alias(BEATEN))


def with_marks(table: Table, rows: DataFrame, nearby: DataFrame, days: Iterable[date]) -> DataFrame:
    """The rows of some days together with their marks, for the pass that drops duplicates.

    Args:
        table: whose `unique_within` is beyond a day.
        rows: the transform's rows of these days.
        nearby: its rows of these days and of all their neighbours.
        days: the days.
    """
    return rows.withColumn(BEATEN, F.lit(False)).unionByName(beaten(table, nearby, days), allowMissingColumns=True)
