"""The one pass: repeats, rules and routes of an awkward table, each of whose rows is there for a reason."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.route import routed, write_routed
from lakehouse.checks.metrics import DayMetrics, measure
from lakehouse.contracts import Input, Table
from lakehouse.delta.staged import QUARANTINED, VALID, read_staged
from lakehouse.errors import ContractError, SchemaMismatchError, StagedFileError
from lakehouse.pairs import in_pairs
from lakehouse.read.targets import quarantine_schema
from lakehouse_tests.fixtures.engines import configured
from lakehouse_tests.fixtures.groups import assert_shared, share
from lakehouse_tests.fixtures.making import model, table

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
SALES = {
    "id": (T.StringType(), pa.Field()),
    "day": (T.DateType(), pa.Field()),
    "kind": (T.StringType(), pa.Field(isin=["sale", "return"])),
    "amount": (T.DecimalType(18, 2), pa.Field(nullable=True, ge=0)),
    "note": (T.StringType(), pa.Field(nullable=True)),
}
# id, day, kind, amount, note, _arrival_date, _source_file, _source_row, _raw, _error
COLUMNS = [*SALES, "_arrival_date", "_source_file", "_source_row", "_raw", "_error"]
ONE, TWO = Decimal("1.00"), Decimal("2.00")
AWKWARD: list[tuple[Any, ...]] = [
    # A sound row. What a line looked like is of no interest once it has passed.
    ("plain", MONDAY, "sale", ONE, "kept", MONDAY, "a.csv", 2, "a raw line", None),
    # Three copies, not in order: the earliest arrival is kept, then the first file and row; null comes last.
    ("copied", MONDAY, "sale", ONE, "second file", MONDAY, "b.csv", 1, None, None),
    ("copied", MONDAY, "sale", ONE, "the one", MONDAY, "a.csv", 3, None, None),
    ("copied", MONDAY, "sale", ONE, "no arrival", None, "a.csv", 1, None, None),
    ("copied", MONDAY, "sale", ONE, "next day", TUESDAY, "a.csv", 1, None, None),
    # The same key on another day is another row: days are built apart, so none may depend on another.
    ("copied", TUESDAY, "sale", ONE, "other day", TUESDAY, "a.csv", 1, None, None),
    # The first copy fails a rule. It is the one that counts; a sound copy does not take its place.
    ("first fails", MONDAY, "gift", ONE, "quarantined", MONDAY, "a.csv", 4, "raw", None),
    ("first fails", MONDAY, "sale", ONE, "dropped", MONDAY, "a.csv", 5, None, None),
    # The first copy is sound: the copy that would fail is a repeat, and fails nothing.
    ("second fails", MONDAY, "sale", ONE, "kept", MONDAY, "a.csv", 6, None, None),
    ("second fails", MONDAY, "gift", -ONE, "dropped", MONDAY, "a.csv", 7, None, None),
    # Without a key, rows are not each other's repeats: each is judged.
    (None, MONDAY, "sale", ONE, "keyless 1", MONDAY, "a.csv", 8, None, None),
    (None, MONDAY, "sale", ONE, "keyless 1", MONDAY, "a.csv", 8, None, None),
    # An empty text is a key as any other.
    ("", MONDAY, "sale", ONE, "kept", MONDAY, "a.csv", 9, None, None),
    ("", MONDAY, "sale", ONE, "dropped", MONDAY, "a.csv", 10, None, None),
    # Every rule a row breaks is named, once, in the contract's order.
    ("all wrong", MONDAY, None, -ONE, "unlucky", MONDAY, "a.csv", 11, '{"raw"', "not a JSON object"),
    # A nullable column passes where it is null; a rule that knows nothing does not.
    ("no amount", MONDAY, "return", None, "kept", MONDAY, "a.csv", 12, None, None),
    ("no note", MONDAY, "sale", ONE, None, MONDAY, "a.csv", 13, None, None),
    # Letters, spaces and signs that a file format could trip over.
    ('q"uo,te\n\\', MONDAY, "sale", ONE, "日本 😀", MONDAY, "ü ?.csv", 14, None, None),
]


def sales(**policy: Any) -> Table:
    """The table of this module."""
    contract = model("Sales", {"lucky": lambda: F.col("note") != "unlucky"}, **SALES)
    policy = {"key": ("id",), "keep_first_by": ("_arrival_date", "_source_file", "_source_row"), **policy}
    return table("silver.sales", contract, lambda rows: rows, {"rows": Input("bronze.rows")}, **policy)


def frame_of(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    """Rows as a transform would give them, over several tasks."""
    types = {**{n: t for n, (t, _) in SALES.items()}, "_arrival_date": T.DateType(), "_source_row": T.LongType()}
    schema = T.StructType([T.StructField(n, types.get(n, T.StringType())) for n in COLUMNS])
    return spark.createDataFrame(rows, schema)


def staged(
    made: Table, frame: DataFrame, folder: Path
) -> tuple[dict[str, list[dict[str, Any]]], dict[date, DayMetrics]]:
    """Staged rows by route, and figures by day."""
    files = read_staged(folder, made.partition_by, write_routed(made, frame, folder))
    rows: dict[str, list[dict[str, Any]]] = {VALID: [], QUARANTINED: []}
    for file in files:
        day = date.fromisoformat(str(file.partition["day"]))
        rows[file.route] += [{"day": day, **row} for row in pq.ParquetFile(file.path).read().to_pylist()]
    return rows, measure(made, files, [MONDAY, TUESDAY])


def test_rows_without_what_orders_them_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, which of two rows is kept would be left to chance, or Spark would say so with a plan."""
    frame = frame_of(spark, AWKWARD).drop("_source_row")
    with pytest.raises(
        SchemaMismatchError, match=r"silver.sales does not give _source_row, by which its rows come first"
    ):
        write_routed(sales(), frame, tmp_path / "stage")


def test_each_awkward_row_takes_its_one_route(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, a row could be lost, published in two forms, or quarantined for what another row did."""
    rows, figures = staged(sales(), frame_of(spark, AWKWARD), tmp_path / "stage")
    valid = sorted((row["id"], row["day"], row["note"]) for row in rows[VALID] if row["note"])
    assert valid == [
        ("", MONDAY, "kept"),
        ("copied", MONDAY, "the one"),
        ("copied", TUESDAY, "other day"),
        ("no amount", MONDAY, "kept"),
        ("plain", MONDAY, "kept"),
        ('q"uo,te\n\\', MONDAY, "日本 😀"),
        ("second fails", MONDAY, "kept"),
    ]
    failed = sorted((str(row["id"]), row["_failed_rules"]) for row in rows[QUARANTINED])
    assert failed == [
        ("None", ["id_present"]),
        ("None", ["id_present"]),
        ("all wrong", ["kind_known", "amount_at_least_minimum", "lucky"]),
        ("first fails", ["kind_known"]),
        ("no note", ["lucky"]),
    ]
    monday, tuesday = figures[MONDAY], figures[TUESDAY]
    assert (monday.rows, monday.quarantined, monday.duplicates) == (6, 5, 6)
    assert (tuesday.rows, tuesday.quarantined, tuesday.duplicates) == (1, 0, 0)
    assert monday.staged + tuesday.staged == len(AWKWARD)
    assert monday.failures == {"id_present": 2, "kind_known": 2, "amount_at_least_minimum": 1, "lucky": 2}
    assert {name: n for name, n in monday.nulls.items() if n} == {"amount": 1}


def test_quarantined_rows_say_where_they_came_from_and_valid_ones_carry_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without it, a rejected row could not be found in its file; or raw lines would lie in files that readers open."""
    made = sales()
    rows, _ = staged(made, frame_of(spark, AWKWARD), tmp_path / "stage")
    (wrong,) = [row for row in rows[QUARANTINED] if row["id"] == "all wrong"]
    assert (wrong["_source_file"], wrong["_source_row"], wrong["_arrival_date"]) == ("a.csv", 11, MONDAY)
    assert (wrong["_raw"], wrong["_error"]) == ('{"raw"', "not a JSON object")
    for row in rows[VALID]:
        assert {row[name] for name in ("_failed_rules", "_source_file", "_source_row", "_raw", "_error")} == {None}
    assert quarantine_schema(made).names == [*SALES, "_failed_rules", *COLUMNS[len(SALES) :]]


@pytest.fixture
def many_tasks(spark: SparkSession) -> Iterator[None]:
    """Small shuffles are not merged into one task, as those of large days would not be."""
    changed = {"spark.sql.adaptive.coalescePartitions.enabled": "false", "spark.sql.shuffle.partitions": "16"}
    with configured(spark, changed):
        yield


def test_a_day_in_several_files_is_still_each_key_once(spark: SparkSession, many_tasks: None, tmp_path: Path) -> None:
    """Without it, copies of a key could meet in different tasks of a large day, and both be published."""
    rows = [
        (f"k{n % 100}", MONDAY, "sale" if n % 100 < 90 else "gift", ONE, f"copy {n // 100}", MONDAY, "f", n, None, None)
        for n in range(300)
    ]
    made = sales(files_per_day=3, max_quarantined=1)
    frame = frame_of(spark, rows).repartition(5, F.col("_source_row"))
    found, figures = staged(made, frame, tmp_path / "stage")
    files = Counter(file.route for file in read_staged(tmp_path / "stage", made.partition_by))
    assert files[VALID] == 3
    assert Counter(row["id"] for row in found[VALID]) == {f"k{n}": 1 for n in range(90)}
    assert {row["note"] for row in found[VALID]} == {"copy 0"}
    assert (figures[MONDAY].rows, figures[MONDAY].quarantined, figures[MONDAY].duplicates) == (90, 10, 200)


def test_rows_without_a_part_of_their_key_are_judged_each(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, two rows that lack a required part of the key would pass for repeats, and fail the day as such."""
    contract = model("Sales", **{**SALES, "kind": (T.StringType(), pa.Field()), "amount": SALES["amount"]})
    made = table("gold.sums", contract, lambda rows: rows, {"rows": Input("silver.sales")}, key=("id", "note"))
    rows = [
        (None, MONDAY, "sale", ONE, "x", None, None, None, None, None),
        (None, MONDAY, "sale", ONE, "x", None, None, None, None, None),
        # Null in a nullable part is a value: day × country × currency has one row without a country.
        ("a", MONDAY, "sale", ONE, None, None, None, None, None, None),
        ("a", MONDAY, "sale", TWO, None, None, None, None, None, None),
        ("b", MONDAY, "sale", ONE, None, None, None, None, None, None),
    ]
    _, figures = staged(made, frame_of(spark, rows), tmp_path / "stage")
    assert (figures[MONDAY].rows, figures[MONDAY].quarantined, figures[MONDAY].duplicates) == (2, 2, 1)
    assert figures[MONDAY].failures == {"id_present": 2}


def test_a_table_without_key_or_rules_keeps_every_row(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, exact repeats of raw lines would vanish in bronze, where nothing may."""
    contract = model("Sales", **{n: (t, pa.Field(nullable=n != "day")) for n, (t, _) in SALES.items()})
    made = table("bronze.sales", contract, lambda rows: rows, {"rows": Input("bronze.rows")})
    assert made.rules == ()
    rows, figures = staged(made, frame_of(spark, AWKWARD), tmp_path / "stage")
    assert len(rows[VALID]) == len(AWKWARD)
    assert (figures[MONDAY].duplicates, figures[MONDAY].quarantined, rows[QUARANTINED]) == (0, 0, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"amount": "CAST(amount AS DECIMAL(20,2))"}, r"amount: expected decimal\(18,2\), got decimal\(20,2\)"),
        ({"day": "CAST(day AS STRING)"}, "day: expected date, got string"),
        ({"kind": None}, "kind: expected string, got no such column"),
        ({"Kind": "kind", "kind": None}, "kind: expected string, got no such column; not in the contract: Kind"),
        ({"discount": "0"}, "not in the contract: discount"),
        ({"id": "CAST(1 AS BIGINT)", "note": None}, "id: expected string, got bigint; note: expected string, got no"),
    ],
)
def test_a_transform_of_other_columns_is_refused_by_column(
    spark: SparkSession, change: dict[str, str | None], message: str
) -> None:
    """Without it, a silent cast would turn bad values into nulls, or a new column would never be stored."""
    columns = {name: name for name in COLUMNS} | change
    frame = frame_of(spark, []).selectExpr(*[f"{text} AS {name}" for name, text in columns.items() if text])
    with pytest.raises(SchemaMismatchError, match=rf"transform of silver\.sales does not .* of Sales: {message}"):
        routed(sales(), frame)


def test_of_many_columns_that_are_wrong_the_first_are_told(spark: SparkSession) -> None:
    """Without it, a mistake in a loop over a wide table would fill the terminal, and its end say what to do."""
    wide = {f"n_{n:02}": (T.LongType(), pa.Field(nullable=True)) for n in range(30)}
    made = table("silver.sales", model("Sales", **SALES, **wide), lambda rows: rows, {"rows": Input("bronze.rows")})
    with pytest.raises(SchemaMismatchError, match=r"; n_09: expected bigint, got no such column; and 20 more\. Change"):
        routed(made, frame_of(spark, []))


def test_in_a_shared_root_rows_belong_to_its_group(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, only who built a day could read it: Hadoop takes the bit from folders by which they hand on a group."""
    group = share(tmp_path)
    write_routed(sales(), frame_of(spark, AWKWARD), tmp_path / "staged" / "one")
    assert_shared(tmp_path, group)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        pytest.param(lambda: F.col("amount") + 1, "DATATYPE_MISMATCH", id="a number"),
        pytest.param(lambda: F.col("note"), "DATATYPE_MISMATCH.*BOOLEAN", id="a text"),
        pytest.param(lambda: F.lit("amount > 0"), "DATATYPE_MISMATCH.*BOOLEAN", id="an expression in quotes"),
        pytest.param(lambda: F.col("ammount") > 0, "UNRESOLVED_COLUMN.*`ammount`", id="an unknown column"),
    ],
)
def test_a_rule_that_cannot_be_judged_is_named(
    spark: SparkSession, tmp_path: Path, broken: Callable[[], Column], why: str
) -> None:
    """Without it, a run ended in the engine's words about an expression that nobody had written like that."""
    contract = model("Sales", {"lucky": lambda: F.col("note") != "unlucky", "broken": broken}, **SALES)
    made = replace(sales(), model=contract)
    with pytest.raises(
        ContractError, match=rf"^The rule broken of silver\.sales cannot be judged: \[{why}.*[^.]\. A rule.*published\."
    ):
        write_routed(made, frame_of(spark, AWKWARD), tmp_path / "stage")


def test_fifty_rules_are_methods_that_java_compiles(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Java compiles no method of more than 8,000 bytes; and a chain of so many would not reach a warm engine at all."""
    rules = {f"under_{n}": partial(lambda n: F.col("amount") < n, 1000 + n) for n in range(50)}
    made = table("silver.sales", model("Sales", rules, **SALES), lambda rows: rows, {"rows": Input("bronze.rows")})
    usual = {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.codegen.hugeMethodLimit": "65535",  # else the engine would give up, and run other, slower code
    }
    with configured(spark, usual):
        routed(made, frame_of(spark, AWKWARD).repartition(2)).explain("codegen")  # else no code is made of so few rows
    sizes = [int(found) for found in re.findall(r"maxMethodCodeSize:(\d+)", capsys.readouterr().out)]
    assert sizes
    assert max(sizes) < 8000


def test_a_column_that_is_nested_too_deep_says_how_it_is_made_flat(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, a sum over many columns would end with words of the wire, and only where the engine is warm."""
    made = table("silver.sales", model("Sales", **SALES), lambda rows: rows, {"rows": Input("bronze.rows")})
    ones = [F.lit(1)] * 100
    if not type(spark).__module__.startswith("pyspark.sql.connect."):
        pytest.skip("an engine in this process is sent nothing")
    rows = {name: F.col(name) for name in COLUMNS}
    chain, tree = (rows | {"note": total.cast("string")} for total in (reduce(add, ones), in_pairs(add, ones)))
    frame = frame_of(spark, AWKWARD)
    with pytest.raises(ContractError, match=r"The transform of silver\.sales, or a rule, nests a column .* in_pairs"):
        write_routed(made, frame.select(*[value.alias(name) for name, value in chain.items()]), tmp_path / "deep")
    flat = frame.select(*[value.alias(name) for name, value in tree.items()])
    assert write_routed(made, flat, tmp_path / "flat") == len(AWKWARD)


def test_technical_columns_of_a_transform_are_dropped(spark: SparkSession) -> None:
    """Without it, an order or hash column that a transform needs for itself would fail the contract."""
    frame = frame_of(spark, AWKWARD).withColumn("_mine", F.lit(1))
    assert set(routed(sales(), frame).columns) & {"_mine", "_sound", "_first"} == set()


def test_columns_of_frames_that_are_made_alike_are_asked_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, each turn of a stream would analyse its plans twice; or other code would pass unseen."""
    frame, table = frame_of(spark, AWKWARD), sales()
    known, asked = frame.schema, []
    monkeypatch.setattr(type(frame), "schema", property(lambda _: asked.append(1) or known))
    for _ in range(2):
        routed(table, frame)
    assert len(asked) == 2
    for _ in range(3):
        routed(table, frame, made_as="alike")
    assert len(asked) == 3
    routed(table, frame, made_as="in another way")
    routed(replace(table, key=("id", "kind")), frame, made_as="alike")
    assert len(asked) == 5


def test_what_a_task_leaves_that_died_is_staged_by_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, of a task that died and of the one that took its place both could be published.

    Also on an engine that was told to let tasks write where they are read.
    """
    unkeyed = sales(key=(), keep_first_by=())
    rows = spark.range(0, 6_000_000, numPartitions=2).where("id = 0 OR id > 5900000").drop("note")
    # One task is done with its row long before the other dies.
    dies = F.when(F.col("id") == 5_999_999, F.raise_error(F.lit("a task died"))).otherwise(F.lit("x"))
    given = {"id": F.col("id").cast("string"), "day": F.lit(MONDAY), "kind": F.lit("sale"), "amount": F.lit(ONE)}
    frame = rows.select(*[each.cast(SALES[name][0]).alias(name) for name, each in {**given, "note": dies}.items()])
    spark.conf.set("mapreduce.fileoutputcommitter.algorithm.version", "2")
    try:
        with pytest.raises(Exception, match="a task died"):
            write_routed(unkeyed, frame, tmp_path / "stage")
    finally:
        spark.conf.unset("mapreduce.fileoutputcommitter.algorithm.version")
    assert read_staged(tmp_path / "stage", ["day"]) == []


def test_an_attempt_that_goes_on_after_the_job_is_nobodys(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, an executor that was taken for dead, and was not, would add its rows once more, or end the run."""
    folder = tmp_path / "stage"
    given = write_routed(sales(), frame_of(spark, AWKWARD), folder)
    files = read_staged(folder, ["day"], given)
    late = folder / "_temporary" / "0" / "_temporary" / "attempt_1" / files[0].path.relative_to(folder)
    late.parent.mkdir(parents=True)
    shutil.copyfile(files[0].path, late)
    assert read_staged(folder, ["day"], given) == files
    files[0].path.unlink()  # as where an executor wrote into a folder of its own machine
    with pytest.raises(StagedFileError, match=rf"wrote {given} row\(s\) .* Nothing was published"):
        read_staged(folder, ["day"], given)
    with pytest.raises(FileNotFoundError):
        read_staged(tmp_path / "not there", ["day"])


def test_an_empty_frame_is_staged(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, a day on which nothing came would fail for having no rows to count."""
    folder = tmp_path / "stage"
    assert write_routed(sales(), frame_of(spark, []), folder) == 0
    assert write_routed(sales(), frame_of(spark, []), folder, counted=False) is None
    assert read_staged(folder, ["day"], 0) == []
