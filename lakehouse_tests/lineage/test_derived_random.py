"""Transforms made at random: whatever changes with an input column, derived lineage names that column.

Each transform runs on many versions of its inputs at once, in each of which one column of one input is another; the
number of the version is a column that every group, window and join keeps apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakehouse.lineage.recording import recorded
from lakehouse.lineage.values import Frame

Step = tuple[str, tuple[int, ...]]
Try = tuple[str, str]  # input and the column of it that is another

TABLES: Mapping[str, Mapping[str, list[int | None]]] = {
    "a": {
        "k": [1, 1, 2, 2, 3, 4, None, 5],
        "g": [7, 7, 7, 8, 8, 9, 9, 9],
        "x": [10, 11, 12, 13, None, 15, 16, 18],
        "y": [3, 3, 4, 5, 6, 7, 8, None],
    },
    "b": {"bk": [1, 1, 2, 6, 13], "bz": [20, 21, 24, 26, 27], "bw": [5, 6, None, 8, 10]},
}
NUMBER = "version"
AGGREGATES: Sequence[Callable[[str], Column]] = (
    F.sum,
    F.max,
    F.min,
    F.count,
    F.count_distinct,
    lambda c: F.count(F.lit(1)),
    lambda c: F.count_if(F.col(c) % 2 == 0),
    lambda c: F.size(F.collect_set(c)).cast("bigint"),
)


def transform(steps: Sequence[Step], a: DataFrame, b: DataFrame, apart: tuple[str, ...]) -> tuple[DataFrame, list[str]]:
    """A frame after some steps, with the names of its columns; numbers choose among those there are.

    Args:
        steps: what is done, one after the other.
        a: the frame that it is done to.
        b: the one that it is joined with.
        apart: columns by which rows are kept apart, in every step.
    """
    frame, names, fresh = a, [*TABLES["a"]], count()
    for kind, numbers in steps:
        new = f"n{next(fresh)}"
        one, two, three = (names[number % len(names)] for number in numbers[:3])
        some = list(dict.fromkeys(names[number % len(names)] for number in numbers[: 1 + numbers[3] % 3]))
        match kind:
            case "compute":
                frame, names = frame.withColumn(new, F.coalesce(F.col(one), F.lit(0)) * 3 + F.col(two)), [*names, new]
            case "hash":
                frame, names = frame.withColumn(new, F.hash(one, two).cast("bigint")), [*names, new]
            case "replace":
                frame = frame.withColumn(one, F.hash(F.col(one), F.col(two)).cast("bigint"))
            case "pick":
                frame, names = frame.select(*apart, *some), some
            case "rename":
                frame, names = frame.withColumnRenamed(one, new), [new if each == one else each for each in names]
            case "case":
                chosen = F.when(F.col(one) % 2 == 0, F.col(two)).otherwise(F.col(three))
                frame, names = frame.select(*apart, *names, chosen.alias(new)), [*names, new]
            case "filter":
                frame = frame.where(F.col(one) % 3 != 0)
            case "group":
                made = {
                    f"{new}_{n}": AGGREGATES[n % len(AGGREGATES)](each)
                    for n, each in zip(numbers[3:], (two, three), strict=False)
                }
                frame = frame.groupBy(*apart, *some).agg(*(value.alias(name) for name, value in made.items()))
                names = [*some, *made]
            case "window":
                over = Window.partitionBy(*apart, *some)
                value = (
                    F.sum(one).over(over),
                    F.max(F.struct(F.col(one).alias("p"), F.col(two).alias("q"))).over(over)["q"],
                    F.rank().over(over.orderBy(one)),
                )
                frame, names = frame.withColumn(new, value[numbers[4] % 3].cast("bigint")), [*names, new]
            case "join":
                how = ("inner", "left", "left_semi", "left_anti")[numbers[3] % 4]
                other = b.select(*(F.col(each).alias(f"{new}_{each}") for each in (*apart, *TABLES["b"])))
                on = F.col(one) == F.col(f"{new}_bk")
                for each in apart:
                    on &= F.col(each) == F.col(f"{new}_{each}")
                frame = frame.join(other, on, how).drop(*(f"{new}_{each}" for each in apart))
                names += [] if how.startswith("left_") else [f"{new}_{each}" for each in TABLES["b"]]
            case "union":
                frame = frame.select(*apart, *names).union(frame.select(*apart, *reversed(names)))
            case "explode":
                frame, names = frame.withColumn(new, F.explode(F.array(one, two))), [*names, new]
            case "struct":
                row = F.when(F.col(one) % 2 == 0, F.struct(F.col(two).alias("p"), F.col(three).alias("q")))
                frame, names = frame.withColumn(new, row).withColumn(new, F.col(new)["q"]), [*names, new]
            case "distinct":
                frame, names = frame.select(*apart, *some).distinct(), some
            case "duplicates":
                frame, names = frame.dropDuplicates([*apart, *some]).select(*apart, *some), some
    return frame.select(*apart, *names), names


OF_ROWS = ["compute", "hash", "replace", "pick", "rename", "case", "struct"]
ALL = [*OF_ROWS, "filter", "group", "window", "join", "union", "explode", "distinct", "duplicates", "group"]
NUMBERS = st.tuples(*[st.integers(0, 11)] * 5)


def versions(spark: SparkSession) -> tuple[list[Try], dict[str, DataFrame]]:
    """The inputs as they are, version 0, and with one column changed in each of several ways."""
    ways: list[Callable[[list[Any]], list[Any]]] = [
        lambda values: values[1:] + values[:1],
        lambda values: [None if n % 2 else value for n, value in enumerate(values)],
        lambda values: [value and value * 5 + 1 for value in values],
        lambda values: [1000 + n for n in range(len(values))],
    ]
    tries: list[Try] = [("", "")]
    changed: list[dict[str, Mapping[str, list[Any]]]] = [dict(TABLES)]
    for table, columns in TABLES.items():
        for column in columns:
            for way in ways:
                tries.append((table, column))
                changed.append({**TABLES, table: {**columns, column: way(columns[column])}})
    frames = {}
    for table, columns in TABLES.items():
        rows = [(n, *row) for n, each in enumerate(changed) for row in zip(*each[table].values(), strict=True)]
        schema = ", ".join(f"`{each}` bigint" for each in (NUMBER, *columns))
        frames[table] = spark.createDataFrame(rows, schema)
    return tries, frames


def observed(spark: SparkSession, steps: Sequence[Step]) -> dict[str, set[Try]]:
    """With which input columns the values of each column change, taken all together."""
    tries, inputs = versions(spark)
    frame, names = transform(steps, inputs["a"], inputs["b"], (NUMBER,))
    values: dict[tuple[int, str], Counter[Any]] = {(n, name): Counter() for n in range(len(tries)) for name in names}
    for row in frame.collect():
        for name in names:
            values[row[NUMBER], name][row[name]] += 1
    return {
        name: {each for n, each in enumerate(tries) if values[n, name] != values[0, name]} for name in names
    }  # fmt: skip


def derived(steps: Sequence[Step]) -> Frame:
    inputs = {table: [(column, (table, column)) for column in columns] for table, columns in TABLES.items()}
    return recorded(lambda a, b: transform(steps, a, b, ())[0], inputs)


@pytest.mark.spark
@settings(max_examples=12, database=None)
@given(steps=st.lists(st.tuples(st.sampled_from(ALL), NUMBERS), min_size=1, max_size=4))
@example(steps=[("group", (0, 1, 2, 1, 0)), ("group", (0, 2, 2, 0, 0))])
@example(steps=[("group", (0, 1, 2, 1, 5)), ("explode", (0, 1, 0, 0, 0)), ("group", (0, 2, 2, 0, 0))])
@example(steps=[("join", (0, 0, 0, 1, 0)), ("group", (1, 5, 6, 0, 5)), ("filter", (1, 0, 0, 0, 0))])
@example(steps=[("group", (0, 2, 3, 1, 0)), ("join", (0, 0, 0, 0, 0)), ("group", (0, 2, 2, 0, 0))])
@example(steps=[("window", (2, 3, 0, 0, 1)), ("duplicates", (4, 0, 0, 0, 0)), ("group", (0, 0, 0, 0, 5))])
def test_derived_lineage_names_whatever_changes_a_column(spark: SparkSession, steps: list[Step]) -> None:
    """A source that is left out is one that impact and provenance do not know of."""
    frame = derived(steps)
    for name, found in observed(spark, steps).items():
        said = frame.find(name).all | frame.rows | frame.split
        assert found <= said, f"{name} changes with {found - said}"


@pytest.mark.spark
@settings(max_examples=6, database=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["hash", "replace", "pick", "rename"]), NUMBERS), min_size=1, max_size=5)
)
def test_of_single_rows_derived_lineage_is_exact(spark: SparkSession, steps: list[Step]) -> None:
    """Where nothing is lost on the way, what is said is what changes: no more."""
    frame, found = derived(steps), observed(spark, steps)
    assert not frame.rows | frame.split
    assert {name: set(frame.find(name).all) for name in found} == found
