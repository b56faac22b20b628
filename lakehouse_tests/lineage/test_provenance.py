"""Rows are followed back to file and line, and what is told of them is proven by computing them again."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.catalog import tables
from lakehouse.commands.inspect.explain import _the_row
from lakehouse.contracts import Input
from lakehouse.contracts.landing import FileNames
from lakehouse.errors import UsageError
from lakehouse.lineage.provenance import Step, Tracer
from lakehouse.read.lake import Lake
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.fixtures.making import model, put, rows_of, table

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DAYS = [date(2011, 3, n) for n in range(1, 6)]
HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"


def line(invoice: str, quantity: int, price: str, user: str = "17841.0", day: int = 1) -> str:
    return f"{invoice},A,THING,{quantity},2011-03-{day:02d} 10:00:00,{price},{user},France"


def event(name: str, order: str, day: int, amount: str, user: str | None = "17841") -> dict[str, Any]:
    kind = "cancellation" if amount.startswith("-") else "purchase"
    return {
        "event_id": name, "schema_version": "1", "user_id": user, "event_type": kind, "order_id": order,
        "event_time": f"2011-03-{day:02d}T12:00:00Z", "amount": amount, "currency": "GBP", "country": "France",
        "email": "someone@example.com",
    }  # fmt: skip


def land_events(root: Path, arrival: int, *rows: dict[str, Any]) -> None:
    folder = root / "landing" / "events" / f"2011-03-{arrival:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.iterdir()))
    (folder / f"part-{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def land_all(root: Path) -> None:
    """A repeated line, one with no price, a broken line, a guest's cancellation of a customer's order, a late event."""
    retail = root / "landing" / "online_retail"
    retail.mkdir(parents=True)
    bought = line("536365", 2, "2.50")
    lines = [HEADER, bought, line("536365", 1, "4.00"), bought, line("536366", 5, "0.0"), line("536370", 9, "1", "9.0")]
    (retail / "2011-03-01.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    land_events(root, 1, event("w1", "W1", 1, "10.00"), event("x1", "X1", 1, "7.00", "u2"))
    land_events(root, 3, event("w1-back", "W1", 3, "-10.00", None))
    (root / "landing" / "events" / "2011-03-03" / "broken.jsonl").write_text("{}\nnothing at all\n")
    land_events(root, 5, event("w2-late", "W2", 2, "3.00"))


def build_all(lake: Lake, *names: str, days: list[date] = DAYS, run_id: str = "run-1") -> None:
    for name in names or lake.tables:
        build(lake, lake.table(name), days, run_id=run_id)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """Every table of five days; to look at only."""
    root = tmp_path_factory.mktemp("provenance") / "root"
    land_all(root)
    lake = Lake(engine_settings(root), tables(), lambda: spark)
    build_all(lake)
    return lake


@pytest.fixture
def own(whole: Lake, tmp_path: Path, spark: SparkSession) -> Lake:
    """A copy of it, to change."""
    shutil.copytree(whole.settings.root, tmp_path / "root")
    return Lake(engine_settings(tmp_path / "root"), tables(), lambda: spark)


def row_of(lake: Lake, name: str, **wanted: Any) -> dict[str, Any]:
    (found,) = [r for r in rows_of(lake.path(name)) if all(r[k] == v for k, v in wanted.items())]
    return found


def explain(lake: Lake, name: str, **wanted: Any) -> Step:
    contract = lake.table(name.removesuffix("_quarantine"))
    return Tracer(lake).trace(contract, [row_of(lake, name, **wanted)], quarantined=name.endswith("_quarantine"))


def input_of(step: Step, name: str) -> Step:
    (found,) = [each for each in step.inputs if each.name == name]
    return found


def test_a_feature_is_followed_to_its_lines(whole: Lake) -> None:
    """Somebody who doubts a feature must be shown exactly its lines: none of others', none missing, nothing guessed."""
    step = explain(whole, "gold.user_features", user_id="17841", feature_date=DAYS[4])
    assert step.differences == []
    assert [(each.run_id, each.version) for each in step.commits.values()] == [("run-1", 1)]
    silver = input_of(step, "silver.transactions")
    assert silver.differences == []
    amounts = sorted(row["amount"] for row in silver.rows)
    assert amounts == [Decimal(text) for text in ("-10.00", "3.00", "4.00", "5.00", "10.00")]
    assert sum(amounts) + 10 == step.rows[0]["rolling_7d_amount"]
    # W1 was cancelled by a guest: that row decides the count of orders and has none of the user's key.
    assert step.notes == ["1 of these rows only share order_id; they decide user_7d_order_count"]
    assert step.rows[0]["user_7d_order_count"] == 2
    assert silver.repeats == ["landing/online_retail/2011-03-01.csv.gz:4"]
    by_name = dict(zip([row["event_id"] for row in silver.rows], silver.places, strict=True))
    assert by_name["w1"] == "landing/events/2011-03-01/part-0.jsonl:1"
    assert by_name["w2-late"] == "landing/events/2011-03-05/part-0.jsonl:1"
    retail, web = (input_of(silver, f"bronze.{name}") for name in ("online_retail", "events"))
    assert sorted(retail.places) == [f"landing/online_retail/2011-03-01.csv.gz:{n}" for n in (2, 3)]
    assert (retail.differences, web.differences) == ([], [])
    # The arrival days say which commits of bronze it was, not the days of the events.
    assert set(web.commits) == {DAYS[0], DAYS[2], DAYS[4]}


def test_an_order_is_followed_over_all_its_days(whole: Lake) -> None:
    """The row lives in the day of its first event, and is made of rows of others."""
    step = explain(whole, "silver.orders", order_id="W1")
    assert (step.rows[0]["status"], step.differences) == ("cancelled", [])
    assert sorted(row["event_id"] for row in input_of(step, "silver.transactions").rows) == ["w1", "w1-back"]


def _of_whom(transactions: DataFrame) -> DataFrame:
    return transactions.groupBy(
        F.upper(F.trim("country")).alias("country"),
        F.coalesce("user_id", F.lit("guest")).alias("user_id"),
        "event_date",
    ).agg(F.sum("amount").cast("decimal(18,2)").alias("amount"))


def _hours(transactions: DataFrame) -> DataFrame:
    hour = F.date_trunc("hour", "event_time").alias("event_time")
    return transactions.groupBy(hour, "event_date").agg(F.sum("amount").cast("decimal(18,2)").alias("amount"))


def with_table(lake: Lake, name: str, transform: Callable[[DataFrame], DataFrame], **keys: T.DataType) -> Lake:
    """The lake with a table of sums by some keys of silver.transactions."""
    columns = {key: (kind, pa.Field()) for key, kind in {"event_date": T.DateType(), **keys}.items()}
    contract = model(**columns, amount=(T.DecimalType(18, 2), pa.Field()))
    read = {"transactions": Input("silver.transactions")}
    made = table(name, contract, transform, read, key=tuple(columns), partition_by="event_date")
    return Lake(lake.settings, {**lake.tables, name: made}, lambda: lake.spark)


def test_a_key_that_was_changed_on_its_way_is_followed(own: Lake) -> None:
    """No row of the input has such a value: a right row was said to differ, and scripts ended with 1."""
    names = ["france", " FRANCE ", "Chile", "France", "Ghana"]
    users = [None, None, None, "17841", "u3"]
    events = [
        event(f"n{n}", f"N{n}", 4, f"{n + 1}.00", user) | {"country": name}
        for n, (name, user) in enumerate(zip(names, users, strict=True))
    ]
    land_events(own.settings.root, 4, *events)
    lake = with_table(own, "gold.of_whom", _of_whom, country=T.StringType(), user_id=T.StringType())
    build_all(lake, "bronze.events", "silver.transactions", "gold.of_whom")
    step = explain(lake, "gold.of_whom", event_date=DAYS[3], country="FRANCE", user_id="guest")
    assert step.differences == []
    assert sorted(row["event_id"] for row in input_of(step, "silver.transactions").rows) == ["n0", "n1"]
    changed = [note.split(" as it stands")[0] for note in step.notes]
    assert changed == [f"{key} is not silver.transactions.{key}" for key in ("country", "user_id")]
    # A value that came as it is is not looked for.
    step = explain(lake, "gold.of_whom", event_date=DAYS[3], country="FRANCE", user_id="17841")
    assert [row["event_id"] for row in input_of(step, "silver.transactions").rows] == ["n3"]
    assert len(step.notes) == 1
    wrong = {"country": "FRANCE", "user_id": "guest", "amount": Decimal("1.00")}
    put(lake, lake.table("gold.of_whom"), DAYS[3], [wrong])
    (told,) = explain(lake, "gold.of_whom", event_date=DAYS[3]).differences or [""]
    assert told.endswith("no such row comes out"), "a row that is not right is not made so"


def test_an_hour_is_followed_to_the_events_in_it(own: Lake) -> None:
    """Its key is a time that none of its events need have; the hours beside it are not in it."""
    times = ["10:59:59.999999", "11:00:01", "11:59:59.999999", "12:00:00"]
    events = [event(f"n{n}", f"N{n}", 4, "1.00") | {"event_time": f"2011-03-04T{t}Z"} for n, t in enumerate(times)]
    land_events(own.settings.root, 4, *events)
    lake = with_table(own, "gold.hours", _hours, event_time=T.TimestampType())
    build_all(lake, "bronze.events", "silver.transactions", "gold.hours")
    hour = datetime(2011, 3, 4, 11, tzinfo=UTC)
    step = explain(lake, "gold.hours", event_date=DAYS[3], event_time=hour)
    assert step.differences == []
    assert sorted(row["event_id"] for row in input_of(step, "silver.transactions").rows) == ["n1", "n2"]


def test_sums_of_a_day_are_followed(whole: Lake) -> None:
    """A key of several columns, all of which choose rows."""
    step = explain(whole, "gold.daily_revenue", event_date=DAYS[0], country="France")
    assert step.differences == []
    assert len(input_of(step, "silver.transactions").rows) == 5


def test_a_quarantined_row_tells_rule_and_line(whole: Lake) -> None:
    """Whoever fixes the source has to find the line."""
    step = explain(whole, "silver.transactions_quarantine", order_id="536366")
    assert step.rows[0]["_failed_rules"] == ["purchase_amount_positive"]
    assert step.places == ["landing/online_retail/2011-03-01.csv.gz:5"]
    assert step.differences == []
    assert step.commits[DAYS[0]].run_id == "run-1"
    assert input_of(step, "bronze.online_retail").rows[0]["UnitPrice"] == "0.0"
    broken = explain(whole, "bronze.events_quarantine", _source_row=2)
    assert broken.places == ["landing/events/2011-03-03/broken.jsonl:2"]
    assert broken.differences == []


def test_inputs_are_read_as_they_were(own: Lake) -> None:
    """Rows that came later must not be told as the origin of a row that was computed before."""
    land_events(own.settings.root, 5, event("later", "Y1", 1, "99.00"))
    build_all(own, "bronze.events", "silver.transactions", run_id="run-2")
    step = explain(own, "gold.user_features", user_id="17841", feature_date=DAYS[4])
    silver = input_of(step, "silver.transactions")
    assert (silver.version, step.differences) == (1, [])
    assert "later" not in {row["event_id"] for row in silver.rows}
    build_all(own, "gold.user_features", run_id="run-3")
    again = explain(own, "gold.user_features", user_id="17841", feature_date=DAYS[4])
    silver = input_of(again, "silver.transactions")
    assert (silver.version, again.differences, again.commits[DAYS[4]].run_id) == (2, [], "run-3")
    assert "later" in {row["event_id"] for row in silver.rows}
    assert {day: each.run_id for day, each in silver.commits.items()}[DAYS[0]] == "run-2"


def test_a_row_that_an_upsert_carried_over_is_older_than_its_commit(own: Lake) -> None:
    """The newest commit of its day read newer inputs, of which this row knows nothing yet."""
    land_events(own.settings.root, 4, event("x1-more", "X1", 1, "1.00", "u2"), event("w1-more", "W1", 3, "1.00"))
    build_all(own, "bronze.events", "silver.transactions", run_id="run-2")
    build_all(own, "silver.orders", days=[DAYS[2]], run_id="run-2")  # replaces the first day too, for W1's sake
    carried = explain(own, "silver.orders", order_id="X1")
    assert carried.commits[DAYS[0]].run_id == "run-2"
    assert (carried.rows[0]["amount"], carried.differences) == (Decimal("7.00"), [])
    assert input_of(carried, "silver.transactions").version == 1
    touched = explain(own, "silver.orders", order_id="W1")
    assert (touched.rows[0]["lines"], touched.differences) == (3, [])
    assert input_of(touched, "silver.transactions").version == 2


def test_a_restored_row_is_that_of_its_first_commit(own: Lake) -> None:
    """A restore computes nothing: the row is made of what the older version was made of."""
    land_events(own.settings.root, 5, event("later", "Y1", 1, "99.00"))
    build_all(own, "bronze.events", "silver.transactions", "gold.daily_revenue", run_id="run-2")
    restore(own, plan_restore(own, own.table("gold.daily_revenue"), 1), by="somebody")
    step = explain(own, "gold.daily_revenue", event_date=DAYS[0])
    assert (step.commits[DAYS[0]].operation, step.differences) == ("restore", [])
    assert input_of(step, "silver.transactions").version == 1
    # Also where both versions of the input give the row, and after a restore of what was restored.
    for version in (1, 3):
        build_all(own, "gold.user_features", run_id="run-3")
        restore(own, plan_restore(own, own.table("gold.user_features"), version), by="somebody")
        step = explain(own, "gold.user_features", user_id="u2", feature_date=DAYS[0])
        assert (step.commits[DAYS[0]].operation, step.differences) == ("restore", [])
        assert input_of(step, "silver.transactions").version == 1


def test_a_row_that_does_not_come_out_again_is_told(own: Lake) -> None:
    """A proof that cannot fail proves nothing."""
    good = row_of(own, "gold.daily_revenue", event_date=DAYS[0])
    put(own, own.table("gold.daily_revenue"), DAYS[0], [{**good, "net_revenue": Decimal("1.00")}])
    step = explain(own, "gold.daily_revenue", event_date=DAYS[0])
    assert [each.split(": ", 1)[1] for each in step.differences or ()] == [
        f"net_revenue: published 1.00, computed again {good['net_revenue']}"
    ]
    user = row_of(own, "gold.user_features", user_id="u2", feature_date=DAYS[0])
    put(own, own.table("gold.user_features"), DAYS[0], [{**user, "user_id": "nobody"}])
    told = explain(own, "gold.user_features", user_id="nobody").differences or [""]
    assert "no such row comes out" in told[0]
    assert "nobody" not in told[0]


def _lose_files(lake: Lake) -> None:
    for file in lake.snapshot("silver.transactions", 1).files:
        (lake.path("silver.transactions") / file.path).unlink()


def _lose_log(lake: Lake) -> None:
    for number in (0, 1):
        (lake.path("silver.transactions") / "_delta_log" / f"{number:020}.json").unlink()


@pytest.mark.parametrize(("lose", "told"), [(_lose_files, "were vacuumed"), (_lose_log, "is no longer in its log")])
def test_a_version_that_is_gone_is_said(own: Lake, lose: Callable[[Lake], None], told: str) -> None:
    """Reading another version in its place without a word would be a guess."""
    from lakehouse.delta.opening import open_snapshot

    put(own, own.table("gold.daily_revenue"), date(2011, 4, 1), [])  # a day apart
    for day in DAYS:  # a second version, with files of its own
        rows = [r for r in rows_of(own.path("silver.transactions"), 1) if r["event_date"] == day]
        put(own, own.table("silver.transactions"), day, rows)
    delta = open_snapshot(own.path("silver.transactions")).delta
    assert delta is not None
    delta.create_checkpoint()
    lose(own)
    step = explain(own, "gold.daily_revenue", event_date=DAYS[0])
    assert any(told in note and "the newest is taken" in note for note in step.notes)
    assert step.differences == []


def test_a_landed_file_that_is_gone_or_changed_is_said(own: Lake) -> None:
    """The line is then known by its bronze row alone, or is not the line that was read."""
    file = own.settings.root / "landing" / "online_retail" / "2011-03-01.csv.gz"
    file.write_bytes(gzip.compress("\n".join([HEADER, line("536365", 3, "2.50")]).encode()))
    changed = explain(own, "bronze.online_retail", _source_row=2)
    assert any("Quantity: published 2, computed again 3" in each for each in changed.differences or ())
    landing = own.table("bronze.online_retail").landing
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(landing), "names", (FileNames("{day}.txt"),))
        unread = explain(own, "bronze.online_retail", _source_row=2)
        told = ["no longer read by this table's Landing: landing/online_retail/2011-03-01.csv.gz"]
        assert (unread.differences, unread.notes) == (None, told)
    file.unlink()
    gone = explain(own, "bronze.online_retail", _source_row=2)
    assert gone.differences is None
    assert gone.notes == ["no longer in the landing zone: landing/online_retail/2011-03-01.csv.gz"]


def test_a_repeat_of_another_day_is_named_and_leads_to_the_row_that_came_first(own: Lake) -> None:
    """Without it, a landed line that is in no table could be explained by nobody."""
    land_events(own.settings.root, 4, event("w1", "W1", 2, "99.00"))
    build_all(own, "bronze.events", "silver.transactions", days=DAYS, run_id="run-2")
    assert not [
        r for r in rows_of(own.path("silver.transactions")) if (r["event_id"], r["event_date"].day) == ("w1", 2)
    ]
    assert explain(own, "silver.transactions", event_id="w1").repeats == [], "it came after that row was published"
    build(own, own.table("silver.transactions"), DAYS[:1], run_id="run-3", force=True)
    step = explain(own, "silver.transactions", event_id="w1")
    assert step.repeats == ["landing/events/2011-03-04/part-0.jsonl:1 (of 2011-03-02)"]
    assert step.differences == []
    assert step.places == ["landing/events/2011-03-01/part-0.jsonl:1"]
    asked = ["event_id=w1", "event_date=2011-03-02"]
    told = "A row of 2011-03-01 has its key and came first.* silver.transactions event_id=w1 event_date=2011-03-01"
    with pytest.raises(UsageError, match=told):
        _the_row(own.settings, own.table("silver.transactions"), False, asked)
