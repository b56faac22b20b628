"""Lineage is derived from transforms where that is exact, refused by name where it is not, and kept as it was derived."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Window, functions
from pyspark.sql import functions as F

from lakehouse.catalog import declared
from lakehouse.contracts import Table
from lakehouse.contracts.derived import Derived, read_lineage, write_lineage
from lakehouse.contracts.lineage import grouping, lineage_mistakes, sources
from lakehouse.errors import ContractError
from lakehouse.lineage.derive import broken_rules, derive, derived, inputs_of
from lakehouse.lineage.functions import AGGREGATES, GENERATORS, WINDOWED
from lakehouse.lineage.recording import recorded
from lakehouse.lineage.values import NotDerivedError
from lakehouse.spark.options import REMOTE
from lakehouse_tests.fixtures.packages import tables_of

INPUTS = {
    "a": [(c, ("silver.a", c)) for c in ("id", "day", "kind", "price", "pieces", "tags")],
    "b": [(c, ("silver.b", c)) for c in ("id", "name", "rank")],
}


def lineage(transform: Callable[..., Any]) -> dict[str, str]:
    """By column what it is computed from, then with a star what decides the rows together; behind `rows` and `split`."""
    names = transform.__code__.co_varnames[: transform.__code__.co_argcount]
    frame = recorded(transform, {name: INPUTS[name] for name in names})

    def told(found: Any) -> str:
        return " ".join(sorted(column for _, column in found))

    columns = {
        column.name: f"{told(column.value.whole)} *{told(column.value.around - column.value.whole)}".strip(" *")
        for column in frame.columns
    }
    return columns | {"rows": told(frame.rows), "split": told(frame.split)}


@pytest.mark.parametrize("home", ["lakehouse", "lakehouse_tests.fixtures.shop"])
def test_the_kept_lineage_is_what_the_transforms_do(home: str) -> None:
    """Pages show the file, and nobody would notice that it is of last year's code."""
    with tables_of(home):
        known = declared()
        found = derive(known.values(), known)
        assert set(found) == {name for name, each in known.items() if each.taken is None}
        for name, now in found.items():
            held = known[name].derived
            assert held is not None, f"{name}: run `lakehouse schema lock`"
            assert (held.columns, held.rows, held.refused) == (now.columns, now.rows, now.refused), name
            assert lineage_mistakes(known[name], known, now) == []


def test_columns_are_found_through_every_kind_of_step() -> None:
    assert lineage(lambda a: a.select("id", (F.col("price") * F.col("pieces")).alias("amount"), F.lit(1).alias("one"))) == {
        "id": "id", "amount": "pieces price", "one": "", "rows": "", "split": "",
    }  # fmt: skip
    assert lineage(lambda a: a.withColumn("price", F.col("PRICE") + 1).withColumnRenamed("price", "cost").drop("id", "day", "tags")) == {
        "kind": "kind", "cost": "price", "pieces": "pieces", "rows": "", "split": "",
    }  # fmt: skip
    assert lineage(lambda a: a.where(F.col("kind") == "x").select(F.explode("tags").alias("tag"))) == {
        "tag": "tags", "rows": "kind tags", "split": "",
    }  # fmt: skip
    assert lineage(lambda a, b: a.join(b, "id", "left").select("id", "name", a["price"])) == {
        "id": "id", "name": "name", "price": "price", "rows": "id id", "split": "",
    }  # fmt: skip
    assert lineage(lambda a, b: a.select("id").unionByName(b.select("id", "name"), allowMissingColumns=True)) == {
        "id": "id id", "name": "name", "rows": "", "split": "",
    }  # fmt: skip
    assert lineage(lambda a, b: a.select("id", "kind").union(b.select("name", "rank"))) == {
        "id": "id name", "kind": "kind rank", "rows": "", "split": "",
    }  # fmt: skip
    assert lineage(lambda a: a.select("id", F.row_number().over(Window.partitionBy("kind").orderBy("day")).alias("n"))) == {
        "id": "id", "n": "day *kind", "rows": "", "split": "",
    }  # fmt: skip
    assert lineage(lambda a: a.select("id", "kind").dropDuplicates(["kind"])) == {
        "id": "id *kind", "kind": "kind", "rows": "", "split": "kind",
    }  # fmt: skip
    assert lineage(lambda a: a.agg(F.sum("price").alias("sum"))) == {"sum": "price", "rows": "", "split": ""}
    assert lineage(lambda a: a.select(F.max("price").alias("most"))) == {"most": "price", "rows": "", "split": ""}
    assert lineage(lambda a: a.orderBy("day").limit(3).select("id")) == {"id": "id", "rows": "day", "split": ""}
    assert lineage(lambda a: a.select(F.transform("tags", lambda tag: F.concat(tag, "kind")).alias("t"))) == {
        "t": "kind tags", "rows": "", "split": "",
    }  # fmt: skip
    assert lineage(lambda a: a.select(*(c for c in a.columns if c.startswith("p")))) == {
        "price": "price", "pieces": "pieces", "rows": "", "split": "",
    }  # fmt: skip


def test_a_function_in_python_is_of_its_arguments() -> None:
    """Without it, a table with one would have to declare its lineage, and be told of a setting that it never named."""

    def transform(a: DataFrame) -> DataFrame:
        shout = F.udf(str.upper, "string")
        return a.select(
            "id", shout("kind").alias("loud"), F.udf(lambda x, y: x * y, "long")("price", "pieces").alias("n")
        )

    assert lineage(transform) == {"id": "id", "loud": "kind", "n": "pieces price", "rows": "", "split": ""}


def test_sums_of_sums_forget_the_groups_between() -> None:
    """Else every column of a table that is aggregated twice would be said to depend on all that the first groups by."""

    def twice(a: DataFrame) -> DataFrame:
        days = a.groupBy("kind", "day").agg(F.sum("price").alias("price"), F.max("pieces").alias("pieces"))
        return days.groupBy("kind").agg(
            F.sum("price").alias("sum"), F.max("price").alias("best_day"), F.count(F.lit(1)).alias("days")
        )

    assert lineage(twice) == {
        "kind": "kind", "sum": "price *kind", "best_day": "price *day kind", "days": "*day kind".strip("*"), "rows": "", "split": "kind",
    }  # fmt: skip


def test_fields_of_structs_are_told_apart() -> None:
    """The newest row of a key, the usual way: each of its columns comes from its own, and from what decides on the row."""

    def newest(a: DataFrame) -> DataFrame:
        row = F.when(F.col("kind") == "x", F.struct("price", F.col("pieces").alias("n")))
        found = a.groupBy("id").agg(F.max_by(row, "day").alias("row")).where(F.col("row").isNotNull())
        return found.select("id", "row.price", F.col("row.n").alias("pieces"), F.col("row")["price"].alias("again"))

    assert lineage(newest) == {
        "id": "id", "price": "day kind price *id", "pieces": "day kind pieces *id", "again": "day kind price *id",
        "rows": "day id kind", "split": "id",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("transform", "named"),
    [
        (lambda a: a.limit(3), "a limit of rows in no order"),
        (lambda a: a.sample(0.5), "a step of the kind sample"),
        (lambda a: a.mapInPandas(lambda rows: rows, "id string"), "map_partitions"),
        (lambda a: a.select(F.call_function("mine", "id").alias("x")), "an expression of the kind call_function"),
        (lambda a: a.where(F.col("id").cast(dict(a.dtypes)["id"]) == 1), "the type of a column"),
        (lambda a: a.select("nothing"), "the column nothing, which is in none of the columns before it (of silver.a)"),
        (lambda a: a.select("prise"), "in none of the columns before it (of silver.a; did you mean price?)"),
        (lambda a: a.join(a, "id").select("price"), "the column price, which may be one of several"),
        (lambda a: a.select(F.upper("kind")).select("upper(kind)"), "the column upper(kind)"),
        (lambda a: a.where("kind = 'x'"), 'SQL in a text (write it with columns: F.col("a") == "b")'),
        (lambda a: a.cube("id").count(), "rollup, cube"),
        (lambda a: a.sparkSession.sql("select 1 as id"), "sql of the session"),
        (lambda a: a.sparkSession.read.parquet("x"), "read of the session"),
        (lambda a: a.limit(a.count()), "the session"),
        (lambda a: a.unpivot("id", ["price"], "k", "v"), "a step of the kind unpivot"),
        (lambda a: a.select(F.upper(F.explode("tags")).alias("x")), "explode inside of another expression"),
        (lambda a: a.withColumn("at", F.current_timestamp()), "current_timestamp, which gives other values each time"),
        (lambda a: a.where(F.rand(seed=1) < 1), "rand, which gives other values each time"),
        (lambda a: a.withColumn("at", F.unix_timestamp()), "unix_timestamp, which gives other values each time"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(transform: Callable[..., Any], named: str) -> None:
    """A guess would be believed."""
    before = os.environ.get(REMOTE)
    with pytest.raises(NotDerivedError, match=re.escape(named)):
        lineage(transform)
    assert os.environ.get(REMOTE) == before, "the process is left as it was"


def _section(name: str) -> list[str]:
    """The functions under a heading in pyspark's list of them."""
    lines = Path(functions.__file__).read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.strip() == f"# {name} Functions") + 1
    end = next(n for n, line in enumerate(lines[start:], start) if line.strip().startswith(("#", "]")))
    return [line.strip().strip('",') for line in lines[start:end]]


@pytest.mark.parametrize(
    ("heading", "known"), [("Aggregate", AGGREGATES), ("Generator", GENERATORS), ("Window", WINDOWED)]
)
def test_spark_has_no_such_function_that_is_not_known(heading: str, known: frozenset[str]) -> None:
    """A new aggregate that is taken for a function of one row would lose what its groups are made of."""
    others = {"count_distinct", "sum_distinct", "listagg_distinct", "string_agg_distinct"}  # sent with `is_distinct`
    found = {*_section(heading)} - others
    assert len(found) > 5
    assert found <= known
    aggregated = {name for name in functions.__all__ if re.search(r"_agg(_|$)", name)}
    assert aggregated - others <= AGGREGATES


def test_the_file_gives_back_what_was_written(tmp_path: Path) -> None:
    found = {
        "gold.x": Derived("1a", {"n": (("silver.a", "id"), ("silver.a", "x.y")), "m": ()}, (("silver.a", "day"),)),
        "gold.y": Derived("2b", refused="a step of the kind sample"),
        "bronze.z": Derived("3c", {"net": (("landing.z", "Amount, net"), ("landing.z", "x"))}, (("landing.z", "a,"),)),
    }
    write_lineage(found, tmp_path / "lineage.json")
    assert read_lineage(tmp_path / "lineage.json") == found
    (tmp_path / "broken.json").write_text('{"gold.x": {"code": 1}}')
    with pytest.raises(ContractError, match="written by `lakehouse schema lock`"):
        read_lineage(tmp_path / "broken.json")


def test_less_may_be_declared_but_nothing_else() -> None:
    """A value may not depend on all that is looked at; it never depends on what is not."""
    known = declared()
    table = known["gold.daily_revenue"]
    assert table.derived is not None
    assert table.derived_now
    assert sources(table, known)["net_revenue"] == (("silver.transactions", "amount"),), "as it is declared"
    assert sources(table, known)["purchases"] == (("silver.transactions", "event_type"),), "as it is derived"
    told = replace(table, lineage={"purchases": (("silver.transactions", "user_id"),)})
    (mistake,) = lineage_mistakes(told, known, table.derived)
    assert str(mistake).startswith(
        "lineage: expected of purchases what the transform computes it from (silver.transactions.event_type), got silver.transactions.user_id. Leave it out"
    )


@pytest.mark.parametrize("by_name", [True, False], ids=["a new table", "changed code"])
def test_what_nobody_declared_is_not_held_against_a_table(monkeypatch: pytest.MonkeyPatch, by_name: bool) -> None:
    """Without it, a table whose inputs share a column's name, or whose code reads one less, could not be locked."""
    known = declared()
    table = known["gold.daily_revenue"]
    before = table.derived
    assert before is not None
    monkeypatch.setattr(Table, "derived", None if by_name else before)
    now = dict.fromkeys(table.columns, (("silver.transactions", "source"),))
    told = replace(table, lineage={}, key=("event_date",))
    assert lineage_mistakes(told, known, Derived(table.code.project, now)) == []


def test_what_is_refused_has_to_be_declared() -> None:
    known = declared()
    table = known["gold.daily_revenue"]
    refused = Derived(table.code.project, refused="a step of the kind sample")
    (mistake,) = lineage_mistakes(table, known, refused)
    assert str(mistake).startswith(
        "lineage: the transform has a step of the kind sample, so the sources of purchases, cancellations, gross_revenue, cancelled_amount are not derived. If it is right, declare them"
    )


@pytest.mark.parametrize(("made", "refused"), [(None, "nothing"), ([], "a list")])
def test_a_transform_without_return_is_told_to_have_one(made: Any, refused: str) -> None:
    """Without it, whoever forgot it was asked to declare the lineage of each column, if that was right."""
    known = declared()
    table = replace(known["gold.daily_revenue"], transform=lambda transactions: made)
    found = derived(table, inputs_of(table, known))
    assert found.refused == f"{refused} in place of a frame"
    (mistake,) = lineage_mistakes(table, known, found)
    assert str(mistake) == f"the transform has {refused} in place of a frame. End it with `return` and the frame."


def test_a_column_that_the_transform_does_not_give_is_named() -> None:
    """Without it, it was said to have the very column that it lacks."""
    known = declared()
    table = known["gold.daily_revenue"]
    lacking = replace(table, transform=lambda transactions: table.transform(transactions).drop("net_revenue"))
    assert derived(lacking, inputs_of(table, known)).refused == "no net_revenue in the columns that it gives"


def test_a_column_that_the_model_does_not_have_is_named() -> None:
    """Without it, the table was locked, and each of its builds broke."""
    known = declared()
    table = known["gold.daily_revenue"]

    def more(transactions: DataFrame) -> DataFrame:
        return table.transform(transactions).withColumns({"vat": F.lit(1), "_on_the_way": F.lit(1)})

    found = derived(replace(table, transform=more), inputs_of(table, known))
    (mistake,) = lineage_mistakes(table, known, found)
    assert str(mistake).startswith(
        "the transform has vat among the columns that it gives, and its model has not. Leave them out at its end"
    )


def test_a_rule_over_a_column_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a rule with a misspelt column was locked, and each build of the table broke."""
    monkeypatch.setenv(REMOTE, "1")  # as in the process that derives lineage
    known = declared()
    table = known["silver.transactions"]
    wrong = replace(table.rules[0], name="sound", holds=lambda: F.col("amuont") > 0)
    right = replace(table.rules[0], name="known", holds=lambda: F.col("_source_row") > F.length("_raw"))
    made = replace(table)
    made.__dict__["rules"] = (*table.rules, right, wrong)
    inputs = inputs_of(table, known)
    (said,) = broken_rules(made, inputs)
    assert said.startswith(
        "The rule sound reads the column amuont, which is in none of the columns before it (did you mean amount?)"
    )
    sound = [each for each in known.values() if each.taken is None]
    assert [said for each in sound for said in broken_rules(each, inputs_of(each, known))] == []


def test_a_transform_without_the_column_that_orders_its_rows_is_no_matter_of_lineage() -> None:
    """Without it, it was locked, and each build broke; of a column of the model, lineage was asked for in its place."""
    known = declared()
    table = known["silver.transactions"]
    lacking = replace(table, transform=lambda **inputs: table.transform(**inputs).drop("_source_row", "_arrival_date"))
    found = derived(lacking, inputs_of(table, known))
    (mistake,) = lineage_mistakes(table, known, found)
    assert "the transform has no _arrival_date, _source_row in the columns that it gives. Give them there" in str(
        mistake
    )


def test_filters_decide_rows() -> None:
    """A column in no row and no value of the table may still make its rows come and go."""
    known = declared()
    assert ("silver.transactions", "event_type") in grouping(known["gold.user_features"], known)
