"""Statistics and partition values: Spark and delta-rs find the same rows, with and without skipping files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pandera.pyspark as pa
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.route import write_routed
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.staged import CONTENT, FAILED_RULES, read_staged
from lakehouse.delta.target import Commit, Target
from lakehouse.read.targets import provenance
from lakehouse_tests.fixtures.making import model, stage_rows, table

DAY = date(2026, 3, 2)
STAGED_TOO = (FAILED_RULES, CONTENT, *provenance().names)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


VALUES: dict[str, tuple[T.DataType, list[Any]]] = {
    "at": (
        T.TimestampType(),
        [
            *[NOON + timedelta(microseconds=n) for n in (-1, 0, 1, 999, 1000, 1001)],
            _at("0001-01-01"), _at("0999-12-31T23:59:59.000001"), _at("1582-10-15"), _at("1899-12-31T23:59:59.999999"),
            _at("1969-12-31T23:59:59.999999"), _at("9999-12-31T23:59:59.999999"),
        ],
    ),
    "d": (T.DateType(), [date(1, 1, 1), date(1582, 10, 15), date(1899, 12, 31), DAY, date(9999, 12, 31)]),
    "money": (
        T.DecimalType(18, 2),
        [Decimal(t) for t in ("-9999999999999999.99", "-0.01", "0.00", "0.10", "12.50", "9999999999999999.99")],
    ),
    "wide": (
        T.DecimalType(38, 18),
        [Decimal(t) for t in ("-0.000000000000000001", "0.1", "0.100000000000000001", "12345678901234567890.5")],
    ),
    "n": (T.LongType(), [-(2**63), -(2**53) - 1, -1, 0, 2**53, 2**53 + 1, 2**63 - 1]),
    "i": (T.IntegerType(), [-(2**31), 0, 2**31 - 1]),
    "x": (T.DoubleType(), [float("-inf"), -0.0, 5e-324, 0.1, 1e308, float("inf"), float("nan")]),
    "s": (
        T.StringType(),
        ["", " ", "A", "Z", "a", "a" * 63, "a" * 64, "a" * 65, "a" * 64 + "\uffff", "z" * 5000, "é", "日本", "\uffff", "😀", "\U0010ffff" * 70, '"\\\x01'],
    ),
    "b": (T.BooleanType(), [False, True]),
    "none": (T.LongType(), []),
}  # fmt: skip


class Awkward(NamedTuple):
    """A committed table of awkward values, what was put in, and its snapshot."""

    path: Path
    rows: list[dict[str, Any]]
    snapshot: Snapshot


@pytest.fixture(scope="module")
def awkward(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Awkward:
    """Each value in a file of its own, neighbours in files of two, and all of them with nulls in one."""
    rows: list[dict[str, Any]] = []
    for column, (_, values) in VALUES.items():
        for number, value in enumerate(values):
            rows.append({"part": f"{column}{number}", column: value})
            rows.append({"part": f"{column}{number}-pair", column: value})
            rows.append({"part": f"{column}{number}-pair", column: values[number - 1]})
            rows.append({"part": "all", column: value})
    rows.append({"part": "null"})
    rows = [{"id": n, "day": DAY, **dict.fromkeys(VALUES), **row} for n, row in enumerate(rows)]
    contract = model(
        id=(T.LongType(), pa.Field()),
        day=(T.DateType(), pa.Field()),
        part=(T.StringType(), pa.Field()),
        **{name: (dtype, pa.Field(nullable=True)) for name, (dtype, _) in VALUES.items()},
    )
    made = table("gold.awkward", contract, lambda: None, {}, partition_by=("day", "part"))
    schema = T.StructType([T.StructField(f.name, f.dataType) for f in made.schema.fields])
    frame = spark.createDataFrame([tuple(row[c] for c in schema.names) for row in rows], schema).repartition(2, "part")
    target = Target(tmp_path_factory.mktemp("awkward") / "t", made.schema, made.partition_by, extra_columns=STAGED_TOO)
    base = ensure_table(target)
    write_routed(made, frame, target.path / "staged" / "one")
    files = read_staged(target.path / "staged" / "one", made.partition_by)
    replace_days(target, base, files, [DAY], Commit())
    return Awkward(target.path, rows, open_snapshot(target.path))


def _wanted(rows: list[dict[str, Any]], column: str, op: str, value: Any) -> set[int]:
    # In Spark, NaN equals itself and is larger than any number; in Arrow and DataFusion it is unequal to all.
    test = {"=": lambda v: v == value, "<": lambda v: v < value, ">=": lambda v: v >= value}[op]
    return {row["id"] for row in rows if row[column] is not None and test(row[column])}


def _probes() -> Iterator[tuple[str, str, Any]]:
    for column, (_, values) in VALUES.items():
        for value in values:
            for op in ("=", "<", ">="):
                if value == value and column != "b":  # noqa: PLR0124 - leaves out NaN
                    yield column, op, value


def _sql(column: str, value: Any) -> str:
    """A value as DataFusion writes it."""
    match value:
        case datetime():
            micros = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
            return f"""arrow_cast({micros}, 'Timestamp(Microsecond, Some("UTC"))')"""
        case date():
            return f"arrow_cast({(value - date(1970, 1, 1)).days}, 'Date32')"
        case Decimal():
            kind = VALUES[column][0]
            return f"CAST('{value:f}' AS {kind.simpleString()})"
        case int():
            return f"CAST('{value}' AS BIGINT)"
        case str():
            return "'" + value.replace("'", "''") + "'"
    return f"CAST('{value}' AS DOUBLE)"


def test_delta_rs_finds_the_same_rows_with_skipping(awkward: Awkward) -> None:
    """Without it, a bound that is cut or rounded the wrong way would hide rows from readers that trust it."""
    engine = QueryBuilder().register("t", DeltaTable(str(awkward.path)))

    def ids(where: str) -> set[int]:
        return set(pyarrow.table(engine.execute(f"SELECT id FROM t WHERE {where}").read_all())["id"].to_pylist())

    for column, op, value in _probes():
        if column != "x" or op == "=":  # NaN is larger than all in Spark, and unequal to all here
            found = ids(f"{column} {op} {_sql(column, value)}")
            assert found == _wanted(awkward.rows, column, op, value), (column, op, value)
    for column in VALUES:
        assert ids(f"{column} IS NULL") == {row["id"] for row in awkward.rows if row[column] is None}, column


def test_arrow_datasets_find_the_same_rows_where_bounds_are_complete(awkward: Awkward) -> None:
    """Without it, Arrow, which takes the bounds of the log for guarantees, could leave out rows.

    A column without a bound in some file cannot be filtered this way at all: deltalake 1.6.6 hands Arrow the condition
    `column >= null` for it, which nothing meets.
    """
    dataset = DeltaTable(str(awkward.path)).to_pyarrow_dataset()
    for column, op, value in _probes():
        if column in {"d", "n", "i"}:
            field, limit = pc.field(column), pyarrow.scalar(value, dataset.schema.field(column).type)
            condition = {"=": field == limit, "<": field < limit, ">=": field >= limit}[op]
            found = set(dataset.to_table(filter=condition, columns=["id"])["id"].to_pylist())
            assert found == _wanted(awkward.rows, column, op, value), (column, op, value)


def test_spark_finds_the_same_rows_with_skipping(awkward: Awkward, spark: SparkSession) -> None:
    """Without it, a query with a filter could give other rows than the same query without statistics."""
    frame = spark.read.format("delta").load(str(awkward.path))
    # Each query of the union is planned, and its files skipped, on its own: the awkward ones suffice.
    picked = {("at", 0), ("at", 2), ("at", 3), ("at", 7), ("at", 8), ("at", 9), ("at", 11), ("d", 1), ("money", 0)}
    picked |= {("money", 3), ("wide", 0), ("wide", 2), ("n", 1), ("n", 6), ("s", 7), ("s", 8), ("s", 12), ("s", 14)}
    chosen = [(column, "<" if column == "at" and n > 9 else "=", VALUES[column][1][n]) for column, n in sorted(picked)]
    queries: list[tuple[str, set[int], Column]] = []
    for column, op, value in chosen:
        limit = F.lit(value.isoformat() if isinstance(value, date) else value).cast(VALUES[column][0])
        condition = F.col(column) == limit if op == "=" else F.col(column) < limit
        queries.append((f"{column} {op} {value!r:.40}", _wanted(awkward.rows, column, op, value), condition))
    nulls = {row["id"] for row in awkward.rows if row["at"] is None}
    everything = {row["id"] for row in awkward.rows}
    queries += [("at null", nulls, F.col("at").isNull()), ("none not null", set(), F.col("none").isNotNull())]
    queries += [("none null", everything, F.col("none").isNull())]
    parts: list[DataFrame] = [
        frame.where(c).select(F.lit(n).alias("query"), "id") for n, (_, _, c) in enumerate(queries)
    ]
    found: dict[int, set[int]] = {n: set() for n in range(len(queries))}
    for row in reduce(DataFrame.unionAll, parts).collect():
        found[row["query"]].add(row["id"])
    wrong = [(name, found[n] ^ wanted) for n, (name, wanted, _) in enumerate(queries) if found[n] != wanted]
    assert not wrong


def test_statistics_do_skip_files(awkward: Awkward, spark: SparkSession) -> None:
    """Without it, the two tests above would also pass if there were no statistics at all."""
    files = len(awkward.snapshot.files)
    frame = spark.read.format("delta").load(str(awkward.path))
    for condition in (F.col("at") == F.lit(NOON), F.col("n") == 0, F.col("s") == "Z", F.col("d") == F.lit(DAY)):
        read = frame.where(condition).select("id").inputFiles()
        assert 0 < len(read) < files / 4, condition
    assert len(frame.where(F.col("none").isNotNull()).inputFiles()) == 0


def test_both_engines_read_the_same_table(awkward: Awkward, spark: SparkSession) -> None:
    """Without it, one of them could rebase old dates, or lose microseconds."""
    columns = [
        "id",
        "unix_micros(at) at",
        "unix_date(d) d",
        "string(money) money",
        "string(wide) wide",
        "n",
        "i",
        "s",
        "b",
    ]
    ours = spark.read.format("delta").load(str(awkward.path)).selectExpr(*columns).collect()
    theirs = DeltaTable(str(awkward.path)).to_pyarrow_table()
    theirs = theirs.set_column(theirs.column_names.index("at"), "at", theirs["at"].cast("int64"))
    theirs = theirs.set_column(theirs.column_names.index("d"), "d", theirs["d"].cast("int32"))
    for name in ("money", "wide"):
        theirs = theirs.set_column(theirs.column_names.index(name), name, theirs[name].cast("string"))
    left = {row["id"]: row.asDict() for row in ours}
    right = {row["id"]: row for row in theirs.to_pylist()}
    assert len(left) == len(right) == len(awkward.rows)
    for number, row in left.items():
        for name, value in row.items():
            other = right[number][name]
            if value is not None and name in ("money", "wide"):
                assert Decimal(value) == Decimal(other)
            else:
                assert value == other, (number, name)


def test_row_groups_without_statistics_leave_nothing_claimed(tmp_path: Path) -> None:
    """Without it, a column with statistics in some row groups only would count its nulls too low, and be skipped."""
    schema = T.StructType([T.StructField("day", T.DateType()), T.StructField("n", T.LongType())])
    target = Target(tmp_path / "t", schema, ("day",))
    path = target.path / "staged" / "a" / "valid" / f"day={DAY}" / "part.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pyarrow.table({"n": [1, None, 3]}), path, write_statistics=False)
    base = ensure_table(target)
    version = replace_days(target, base, read_staged(target.path / "staged" / "a", ("day",)), [DAY], Commit())
    log = (target.path / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    (stats,) = [json.loads(json.loads(line)["add"]["stats"]) for line in log if '"add"' in line]
    assert stats == {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {}}


ODD = [
    None, "", "plain", "/", "a/b", "..", ".", "%", "%2F", "%25", "=", "a=b", " ", " a ", "é", "日本", "😀", "+", "a+b", "#", "?",
    "&", ";", ",", ":", "\\", "'", '"', "{x}", "[y]", "*", "^", "|", "~", "null", "0x7f\x7f", "x" * 150,
]  # fmt: skip


def test_odd_partition_values_come_back_from_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, a country written with a slash would be two folders, or a file that only one engine finds."""
    contract = model(
        id=(T.LongType(), pa.Field()),
        day=(T.DateType(), pa.Field()),
        land=(T.StringType(), pa.Field(nullable=True)),
    )
    made = table("gold.lands", contract, lambda: None, {}, partition_by=("day", "land"))
    schema = T.StructType([T.StructField(f.name, f.dataType) for f in made.schema.fields])
    target = Target(tmp_path / "root ü+ #&=" / "t", made.schema, made.partition_by, extra_columns=STAGED_TOO)
    frame = spark.createDataFrame([(n, DAY, land) for n, land in enumerate(ODD)], schema).coalesce(1)
    # The layout has one folder for null and the empty text, so both come back as null.
    wanted = {n: land or None for n, land in enumerate(ODD)}
    for stage_name, days in (("one", [DAY]), ("two", [DAY, DAY + timedelta(days=1)])):
        base = ensure_table(target)
        write_routed(made, frame, target.path / "staged" / stage_name)
        files = read_staged(target.path / "staged" / stage_name, made.partition_by)
        replace_days(target, base, files, days, Commit())
        snapshot = open_snapshot(target.path)
        assert {f.partition for f in snapshot.files} == {(DAY.isoformat(), land) for land in wanted.values()}
        assert snapshot.rows_by_day("day") == {DAY: len(ODD)}
        assert all((target.path / f.path).exists() for f in snapshot.files)
        _same_lands(spark, target.path, wanted)
    removed = DeltaTable(str(target.path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert removed
    _same_lands(spark, target.path, wanted)


def _same_lands(spark: SparkSession, path: Path, wanted: dict[int, str | None]) -> None:
    rows = spark.read.format("delta").load(str(path)).collect()
    assert {row["id"]: row["land"] for row in rows} == wanted
    assert len(rows) == len(wanted)
    assert {row["id"]: row["land"] for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist()} == wanted
    frame = spark.read.format("delta").load(str(path))
    parts = [
        frame.where(F.col("land") == land).select(F.lit(land).alias("q"), "land") for land in ("a/b", "%2F", " a ")
    ]
    assert [(row["q"], row["land"]) for row in reduce(DataFrame.unionAll, parts).collect()] == [
        (land, land) for land in ("a/b", "%2F", " a ")
    ]


def test_dates_of_any_year_are_days(tmp_path: Path) -> None:
    """Without it, a day far away could be stored under a text that is read as another, or as none."""
    schema = T.StructType([T.StructField("day", T.DateType()), T.StructField("n", T.LongType())])
    target = Target(tmp_path / "t", schema, ("day",))
    days = [date(1, 1, 1), date(999, 12, 31), date(1582, 10, 10), DAY, date(9999, 12, 31)]
    replace_days(
        target, ensure_table(target), stage_rows(target, [{"day": d, "n": d.year} for d in days]), days, Commit()
    )
    assert open_snapshot(target.path).rows_by_day("day") == dict.fromkeys(days, 1)
    replace_days(target, open_snapshot(target.path), [], days[:2], Commit())
    assert sorted(open_snapshot(target.path).by_day("day")) == days[2:]
    found = DeltaTable(str(target.path)).to_pyarrow_table().to_pylist()
    assert sorted((row["day"], row["n"]) for row in found) == [(d, d.year) for d in days[2:]]


def test_values_that_python_cannot_hold_have_no_bounds(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, one timestamp of the year 12000, or one broken text, would fail the build of all its days."""
    schema = T.StructType(
        [T.StructField("day", T.DateType()), T.StructField("at", T.TimestampType()), T.StructField("s", T.StringType())]
    )
    target = Target(tmp_path / "t", schema, ("day",))
    frame = spark.range(2).selectExpr(
        f"DATE'{DAY}' AS day",
        "timestamp_seconds(316516204800 + id) AS at",
        "string(unhex('ff')) AS s",
        "'valid' AS route",
    )
    frame.write.partitionBy("route", "day").parquet(str(target.path / "staged" / "a"))
    files = read_staged(target.path / "staged" / "a", ("day",))
    assert sum(file.rows for file in files) == 2
    replace_days(target, ensure_table(target), files, [DAY], Commit())
    assert spark.read.format("delta").load(str(target.path)).where("at > TIMESTAMP'2026-01-01'").count() == 2
