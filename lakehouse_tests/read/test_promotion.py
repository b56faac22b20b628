"""An unknown field becomes a column by changing contracts alone, and history has it: in every reader that matters."""

from __future__ import annotations

import gzip
import json
import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.result import FAILED, PUBLISHED, BuildResult
from lakehouse.build.stale import stale_days
from lakehouse.contracts import BronzeModel, Input, Landing, MessageModel, Table, Topic, schema_versions
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.errors import SchemaMismatchError
from lakehouse.lineage.provenance import Tracer
from lakehouse.lineage.reconcile import differing_lines, reconcile
from lakehouse.read.lake import Lake
from lakehouse.read.promote import promoted_columns
from lakehouse.transforms.columns import with_event_date
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, rows_of, spark_rows, table

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(3)]
ORIGIN = ("_arrival_date", "_source_file", "_source_row")
TEXT, DAY, LONG = T.StringType(), T.DateType(), T.LongType()
NULL = pa.Field(nullable=True)


class Raw(BronzeModel):
    """Lines of a shop."""

    id: T.StringType = pa.Field(nullable=True)
    at: T.StringType = pa.Field(nullable=True)


class RawWithCoupon(Raw):
    """The same, since coupons are known."""

    coupon: T.StringType = pa.Field(nullable=True)


class Clicks(MessageModel):
    """Messages of a shop."""

    id: T.StringType = pa.Field(nullable=True)


class ClicksWithCoupon(Clicks):
    """The same, since coupons are known."""

    coupon: T.StringType = pa.Field(nullable=True)


def shops(version: int, kind: str = "jsonl") -> tuple[Table, Table, Table]:
    """bronze.sales, silver.sales (typed, with rules) and silver.buyers (an upsert) before and after the promotion."""
    later = ("coupon",) if version > 1 else ()
    policy: dict[str, Any] = {"schema_version": version, "code": f"v{version}"}

    def raw(lines: DataFrame) -> DataFrame:
        return with_event_date(lines, "at")

    def typed(lines: DataFrame) -> DataFrame:
        return lines.select(
            "id", F.substring("id", 1, 1).alias("buyer"), F.col("_event_date").alias("day"), *later, *ORIGIN
        )

    def buyers(sales: DataFrame) -> DataFrame:
        days = F.array_sort(F.collect_set("day")).alias("_event_days")
        used = [F.max("coupon").alias("coupon")] if later else []
        return sales.groupBy("buyer").agg(F.min("day").alias("day"), *used, days)

    added = {name: (TEXT, pa.Field(nullable=True, str_matches="[A-Z]+")) for name in later}
    sales = model("Sales", id=(TEXT, pa.Field(ne="bad")), buyer=(TEXT, NULL), day=(DAY, pa.Field()), **added)
    homes: dict[str, Any] = {"buyer": (TEXT, pa.Field(ne="x")), "day": (DAY, pa.Field()), **added}
    homes["_event_days"] = (T.ArrayType(DAY), NULL)
    landing = Landing("events" if kind == "jsonl" else "online_retail", kind, ("id", "at", *later))
    return (
        table(
            "bronze.sales", RawWithCoupon if later else Raw, raw, {"lines": landing},
            partition_by=("_arrival_date", "_event_date"), **policy,
        ),
        table(
            "silver.sales", sales, typed, {"lines": Input("bronze.sales")}, key=("id",), keep_first_by=ORIGIN,
            conserves_rows=True, max_quarantined=1.0, **policy,
        ),
        table(
            "silver.buyers", model("Buyers", **homes), buyers, {"sales": Input("silver.sales")}, key=("buyer",),
            upsert=True, max_quarantined=1.0, **policy,
        ),
    )  # fmt: skip


def land(lake: Lake, day: date, *lines: dict[str, Any]) -> Path:
    """A file of JSON lines."""
    path = lake.settings.root / "landing" / "events" / day.isoformat() / "a.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"at": f"{day}T10:00:00Z", **line}) + "\n" for line in lines))
    return path


def run(lake: Lake, name: str, days: list[date] | None = None) -> BuildResult:
    """Build the stale days of a table, or those given; none may fail."""
    contract = lake.table(name)
    result = build(lake, contract, stale_days(lake, contract) if days is None else days, run_id="run")
    assert not result.with_status(FAILED), [each.reason for each in result.days.values()]
    return result


def column(lake: Lake, name: str, wanted: str = "coupon", key: str = "id") -> dict[str, Any]:
    """A column of a table's published rows by key, as Delta's readers see it."""
    path = lake.path(name)
    found = {row[key]: row[wanted] for row in rows_of(path)}
    assert found == {row[key]: row[wanted] for row in spark_rows(lake, path)}
    return found


def test_a_field_is_promoted_by_the_contracts_alone(lake: LakeFactory) -> None:
    """Without it, a new field would need its history landed again, or start on the day somebody noticed it."""
    shop = lake(*shops(1))
    first = land(shop, DAYS[0], {"id": "a0", "coupon": "OLD"}, {"id": "b0"}, {"id": "x0", "coupon": "X"}, {"id": "bad"})
    land(shop, DAYS[1], {"id": "a1", "coupon": "lower"}, {"id": "b1", "coupon": None})
    results = {name: run(shop, name, DAYS[:2]).days for name in shop.tables}
    drift = {
        (name, day): outcome
        for name, days in results.items()
        for day, each in days.items()
        for outcome in each.outcomes
        if outcome.check == "schema_drift"
    }
    assert set(drift) == {("bronze.sales", day) for day in DAYS[:2]}
    told = drift["bronze.sales", DAYS[0]]
    assert (told.passed, told.blocking) == (False, False)
    assert told.message == "fields without a column, kept in _rescued: coupon (2 rows)"
    newest = DeltaTable(str(shop.path("bronze.sales"))).history(1)[0]
    figures = json.loads(newest["lakehouse.metrics"])
    assert [figures[str(day)]["unknown_fields"] for day in DAYS[:2]] == [{"coupon": 2}, {"coupon": 2}]
    assert "OLD" not in json.dumps(newest)

    # The field becomes a column. The first day's file is gone from the landing zone, the third is new.
    first.unlink()
    shop = lake(*shops(2))
    land(shop, DAYS[2], {"id": "a2", "coupon": "NEW"}, {"id": "c2", "weight": 1.50})
    result = run(shop, "bronze.sales")
    assert result.with_status(PUBLISHED) == DAYS[1:]
    assert {day: each.metrics.unknown_fields for day, each in result.days.items()} == {
        DAYS[1]: {},
        DAYS[2]: {"weight": 1},
    }
    assert column(shop, "bronze.sales") == {
        "a0": None, "b0": None, "x0": None, "bad": None, "a1": "lower", "b1": None, "a2": "NEW", "c2": None,
    }, "built again from its file, a day has it in the column; the first still keeps it in _rescued"  # fmt: skip

    assert run(shop, "silver.sales").with_status(PUBLISHED) == DAYS
    assert column(shop, "silver.sales") == {"a0": "OLD", "b0": None, "x0": "X", "b1": None, "a2": "NEW", "c2": None}
    # The rule on the new column judges old rows too.
    assert column(shop, "silver.sales_quarantine") == {"bad": None, "a1": "lower"}

    assert run(shop, "silver.buyers").with_status(PUBLISHED) == DAYS
    assert column(shop, "silver.buyers", key="buyer") == {"a": "OLD", "b": None, "c": None}
    assert column(shop, "silver.buyers_quarantine", key="buyer") == {"x": "X"}
    for name in ("silver.sales", "silver.buyers"):
        assert stale_days(shop, shop.table(name)) == []


def test_old_files_are_read_beside_new_ones(lake: LakeFactory) -> None:
    """Without it, a run over a few days would need all others rebuilt.

    Upserts carry rows of old files, compaction merges them, and quarantines hold both.
    """
    shop = lake(*shops(1))
    for n, day in enumerate(DAYS[:2]):
        land(shop, day, {"id": f"a{n}", "coupon": "OLD"}, {"id": f"x{n}"}, {"id": f"{n}only"}, {"id": "bad"})
    for name in shop.tables:
        run(shop, name, DAYS[:2])
    shop = lake(*shops(2))
    land(shop, DAYS[2], {"id": "a2", "coupon": "NEW"}, {"id": "x2", "coupon": "XX"}, {"id": "bad", "coupon": "B"})
    for name in shop.tables:
        run(shop, name, DAYS[2:])
    # Keys a and x have events on all days and live on the first; what else lives there was carried over.
    assert column(shop, "silver.buyers", key="buyer") == {"a": "NEW", "0": None, "1": None}
    assert {(r["day"], r["id"], r["coupon"]) for r in rows_of(shop.path("silver.sales_quarantine"))} == {
        (DAYS[0], "bad", None), (DAYS[1], "bad", None), (DAYS[2], "bad", "B"),
    }  # fmt: skip
    whole = {name: rows_of(shop.path(name)) for name in shop.tables}
    for name, contract in shop.tables.items():
        compact(Compactable(shop.path(name), contract.schema))
    assert {name: rows_of(shop.path(name)) for name in shop.tables} == whole
    assert run(shop, "silver.sales", DAYS).with_status(PUBLISHED) == DAYS[:2], "and now the old days, from bronze"
    assert column(shop, "silver.sales") == {
        "a0": "OLD", "a1": "OLD", "a2": "NEW", "x0": None, "x1": None, "x2": "XX", "0only": None, "1only": None,
    }  # fmt: skip


VALUES = {
    "text": ("SPRING", "SPRING"),
    "quotes": ('a "b" \\ c', 'a "b" \\ c'),
    "number": (12345678901234567890.0, "1.2345678901234567e+19"),
    "integer": (7, "7"),
    "nested": ({"a": [1, 2.5]}, '{"a":[1,2.5]}'),
    "true": (True, "true"),
    "empty": ("", ""),
    "unicode": ("größe 😀", "größe 😀"),
    "null": (None, None),
}


def test_the_promoted_value_is_the_one_a_rebuilt_day_has(lake: LakeFactory) -> None:
    """Without it, a row would say one thing before its file was read again and another one after."""
    shop = lake(shops(1)[0])
    land(shop, DAYS[0], *[{"id": name, "coupon": value} for name, (value, _) in VALUES.items()], {"id": "absent"})
    run(shop, "bronze.sales", DAYS[:1])
    shop = lake(shops(2)[0])
    wanted = {name: text for name, (_, text) in VALUES.items()} | {"absent": None}

    def read() -> dict[str, Any]:
        bronze = shop.table("bronze.sales")
        rows = shop.read(bronze, DAYS, shop.snapshot(bronze.id)).collect()
        assert all(list(row.asDict()) == list(bronze.columns) for row in rows)
        return {row["id"]: row["coupon"] for row in rows}

    assert read() == wanted, "the table has no such column yet, and reading adds none"
    assert "coupon" not in DeltaTable(str(shop.path("bronze.sales"))).schema().to_json()
    run(shop, "bronze.sales")
    assert column(shop, "bronze.sales") == wanted
    assert read() == wanted


def test_a_personal_field_has_no_history(lake: LakeFactory) -> None:
    """Without it, the words that stand where a person's data were left out would be taken for the data."""
    personal = table(
        "bronze.sales", RawWithCoupon, lambda lines: with_event_date(lines, "at"),
        {"lines": Landing("events", "jsonl", ("id", "at", "coupon"), personal=("coupon",))},
        partition_by=("_arrival_date", "_event_date"), schema_version=2,
    )  # fmt: skip
    shop = lake(personal)
    put(shop, shops(1)[0], DAYS[0], [_bronze(DAYS[0], "a", '{"coupon":"<personal>"}')])
    (row,) = shop.read(personal, DAYS, shop.snapshot(personal.id)).collect()
    assert row["coupon"] is None


def _bronze(day: date, key: str, rescued: str | None = None, **cells: Any) -> dict[str, Any]:
    where = {"_arrival_date": day, "_event_date": day, "_source_file": "landing/x"}
    return {"id": key, "_rescued": rescued, **where, **cells}


def test_rescued_fields_are_looked_at_only_where_there_can_be_any(lake: LakeFactory) -> None:
    """Without it, each read of bronze would parse JSON for years after a promotion."""
    old, new = shops(1)[0], shops(2)[0]
    shop = lake(new)
    put(shop, old, DAYS[0], [_bronze(DAYS[0], "a", '{"coupon":"OLD"}')])
    put(shop, new, DAYS[1], [_bronze(DAYS[1], "b", '{"weight":"1"}', coupon="NEW")])
    put(shop, new, DAYS[2], [_bronze(DAYS[2], "c")])
    snapshot = shop.snapshot(new.id)
    by_day = snapshot.by_day("_arrival_date")
    assert [promoted_columns(new, snapshot, by_day[day]) for day in DAYS] == [("coupon",), (), ()]
    assert promoted_columns(old, snapshot, snapshot.files) == ()
    put(shop, new, DAYS[0], [_bronze(DAYS[0], "a", '{"coupon":"OLD"}'), _bronze(DAYS[0], "a2")])
    assert promoted_columns(new, shop.snapshot(new.id), shop.snapshot(new.id).files) == ()


def test_messages_are_read_with_a_promoted_field(lake: LakeFactory) -> None:
    """Without it, what came before a field was a column would be lost: messages are never taken again."""

    def clicks(version: int) -> Table:
        later = ("coupon",) if version > 1 else ()
        return table(
            "bronze.clicks", ClicksWithCoupon if later else Clicks, lambda messages: messages,
            {"messages": Topic("clicks", ("clicks",), ("id", *later), time="id")},
            partition_by=("_arrival_date", "_event_date"), schema_version=version,
        )  # fmt: skip

    old, new = clicks(1), clicks(2)
    shop = lake(new)
    put(shop, old, DAYS[0], [_bronze(DAYS[0], "a", '{"coupon":"OLD"}')])
    # As a stream merges the files of a day.
    put(shop, new, DAYS[1], [_bronze(DAYS[1], "b", '{"coupon":"OLDER"}'), _bronze(DAYS[1], "c", coupon="NEW")])
    put(shop, new, DAYS[2], [_bronze(DAYS[2], "d", '{"weight":"1"}', coupon="NEWER")])
    snapshot = shop.snapshot(new.id)
    read = {row["id"]: row["coupon"] for row in shop.read(new, DAYS, snapshot).collect()}
    assert read == {"a": "OLD", "b": "OLDER", "c": "NEW", "d": "NEWER"}
    by_day = snapshot.by_day("_arrival_date")
    assert [promoted_columns(new, snapshot, by_day[day]) for day in DAYS] == [("coupon",), ("coupon",), ()]


def test_partitions_that_only_the_log_spells_are_promoted_too(lake: LakeFactory, monkeypatch: Any) -> None:
    """Without it, the other way of reading files would lack the column, or its history."""
    shop = lake(shops(2)[0])
    put(shop, shops(1)[0], DAYS[0], [_bronze(DAYS[0], "a", '{"coupon":"OLD"}')])
    monkeypatch.setattr("lakehouse.read.lake._spelled", lambda *_: False)
    bronze = shop.table("bronze.sales")
    (row,) = shop.read(bronze, DAYS, shop.snapshot(bronze.id)).collect()
    assert (row["coupon"], list(row.asDict())) == ("OLD", list(bronze.columns))


def test_a_csv_column_is_promoted_and_older_files_lack_it(lake: LakeFactory, monkeypatch: Any, tmp_path: Path) -> None:
    """Without it, the first column added to an export would make every older export unreadable."""

    def export(lake: Lake, day: date, header: str, *lines: str) -> Path:
        path = lake.settings.root / "landing" / "online_retail" / f"{day}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(("\n".join([header, *lines]) + "\n").encode()))
        os.utime(path, ns=(10**18 + len(header),) * 2)
        return path

    monkeypatch.setattr(schema_versions, "lock_file", lambda: tmp_path / "schemas.json")
    schema_versions.write_lock(schema_versions.locked(shops(1, "csv"), {}))
    shop = lake(*shops(1, "csv")[:2])
    export(shop, DAYS[0], "id,at", f"a0,{DAYS[0]}T10:00:00Z", f"b0,{DAYS[0]}T10:00:00Z")
    gone = export(shop, DAYS[1], "id,at,coupon", f"a1,{DAYS[1]}T10:00:00Z,OLD", f"b1,{DAYS[1]}T10:00:00Z,")
    assert run(shop, "bronze.sales", DAYS[:2]).days[DAYS[1]].metrics.unknown_fields == {"coupon": 1}
    gone.unlink()
    shop = lake(*shops(2, "csv")[:2])
    export(shop, DAYS[2], "coupon,id,at", f"NEW,a2,{DAYS[2]}T10:00:00Z")
    assert run(shop, "bronze.sales").with_status(PUBLISHED) == [DAYS[0], DAYS[2]]
    run(shop, "silver.sales")
    assert column(shop, "silver.sales") == {"a0": None, "b0": None, "a1": "OLD", "b1": None, "a2": "NEW"}
    landed, *_ = reconcile(shop, shop.tables.values())
    assert {day: balance.incoming for day, balance in landed.days.items()} == {DAYS[0]: 2, DAYS[2]: 1}
    assert (landed.differing, differing_lines(shop, shop.table("bronze.sales"), DAYS[0])) == ({}, [])
    (row,) = [row for row in rows_of(shop.path("bronze.sales")) if row["id"] == "a0"]
    assert Tracer(shop).trace(shop.table("bronze.sales"), [row]).differences == []
    export(shop, DAYS[2], "coupon,at", f"NEW,{DAYS[2]}T10:00:00Z")
    result = build(shop, shop.table("bronze.sales"), DAYS[2:], run_id="run")
    assert "lacks the column(s) id" in result.days[DAYS[2]].reason


def test_a_table_of_other_types_is_not_read(lake: LakeFactory) -> None:
    """Without it, a table over a retyped one would fail inside the engine, or read numbers that were never written."""

    def contract(kind: T.DataType) -> Table:
        return table(
            "silver.numbers", model(day=(DAY, pa.Field()), n=(kind, NULL)), lambda rows: rows, {"rows": Input("x.y")}
        )

    shop = lake(contract(T.DecimalType(18, 2)))
    put(shop, contract(LONG), DAYS[0], [{"n": 5}])
    with pytest.raises(SchemaMismatchError, match=r"n is long in the table and decimal\(18,2\) in the contract"):
        shop.read(shop.table("silver.numbers"), DAYS, shop.snapshot("silver.numbers"))
