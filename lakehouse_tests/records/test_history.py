"""The history of metrics: complete, never doubled, and read instead of tables."""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.contracts import Anomalies, Input, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.read.lake import Lake, table_path
from lakehouse.records import day_record, ops
from lakehouse.records import history as module
from lakehouse.records.history import (
    CHECKS_ONLY,
    HISTORY,
    UNPUBLISHED_CHECKS,
    all_records,
    judged_by,
    judgements,
    latest_records,
    project_history,
    records,
)
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.jobs import counted_jobs
from lakehouse_tests.fixtures.making import model, put, rows_of, stage_rows, table

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(42)]
TEXT, DAY = T.StringType(), T.DateType()
COLUMNS = {"id": (TEXT, pa.Field()), "day": (DAY, pa.Field()), "amount": (T.DecimalType(18, 2), pa.Field())}


def raw() -> Table:
    """What the others read."""
    columns = {name: (kind, pa.Field(nullable=name != "day")) for name, (kind, _) in COLUMNS.items()}
    return table("bronze.raw", model(**columns), lambda rows: rows, {"rows": Input("bronze.none")})


def sales(**policy: Any) -> Table:
    """Published as it is read."""
    given = {"profile": ("amount",), **policy}
    return table("silver.sales", model(**COLUMNS), lambda raw: raw, {"raw": Input("bronze.raw")}, **given)


def totals(wrong: str = "0") -> Table:
    """Sums of the sales, off by something."""
    columns = {"day": (DAY, pa.Field()), "total": (T.DecimalType(18, 2), pa.Field())}

    def summed(sales: Any) -> Any:
        total = F.sum("amount") + F.lit(Decimal(wrong))
        return sales.groupBy("day").agg(total.cast("decimal(18,2)").alias("total"))

    agrees = {"total": "amount"}
    return table("gold.totals", model(**columns), summed, {"sales": Input("silver.sales")}, reconciles=agrees)


def commit(lake: Lake, day: date, rows: int, kind: str = "publish", told: dict[str, Any] | None = None) -> Target:
    """Publish a day with its figures, or restore or refuse it, without an engine and without projecting."""
    made = lake.table("silver.sales")
    target = Target(lake.path(made.id), made.schema, made.partition_by)
    files = stage_rows(target, [{"id": str(n), "day": day, "amount": Decimal(1)} for n in range(rows)])
    facts = {"lakehouse.run_id": "r", "lakehouse.code_version": "v1", "lakehouse.inputs": {"bronze.raw": 3}}
    facts |= {} if kind == "publish" else {"lakehouse.operation": kind}
    figures = {day.isoformat(): {"rows": rows, "nulls": {"id": 1}, **(told or {})}}
    facts[UNPUBLISHED_CHECKS if kind == CHECKS_ONLY else "lakehouse.metrics"] = figures
    replace_days(target, ensure_table(target), files, [day], Commit({}, facts))
    return target


def projected(lake: Lake) -> list[tuple[Any, ...]]:
    """What the table of figures holds."""
    path = table_path(lake.settings.root, HISTORY)
    return [(r["table"], r["day"], r["version"], r["rows"]) for r in rows_of(path)] if path.exists() else []


def test_the_history_is_complete_whatever_was_projected(lake: LakeFactory) -> None:
    """Without it, a run killed between its commit and the projection would leave a hole for ever, or a record twice."""
    shop = lake(sales())
    root = shop.settings.root
    target = commit(shop, DAYS[0], 5)
    assert [(r.day, r.version, r.rows) for r in records(root, "silver.sales")] == [(DAYS[0], 1, 5)]
    assert projected(shop) == []
    commit(shop, DAYS[1], 6)
    assert project_history(root, open_snapshot(target.path), "silver.sales") == 2
    assert project_history(root, open_snapshot(target.path), "silver.sales") == 0
    assert [each[1:] for each in projected(shop)] == [(DAYS[0], 1, 5), (DAYS[1], 2, 6)]
    commit(shop, DAYS[0], 7)
    now = latest_records(root, "silver.sales")
    assert {day: (r.version, r.rows) for day, r in now.items()} == {DAYS[0]: (3, 7), DAYS[1]: (2, 6)}
    assert now[DAYS[0]].figures["nulls"] == now[DAYS[1]].figures["nulls"] == {"id": 1}
    assert now[DAYS[1]].inputs == {"bronze.raw": 3}
    assert list(latest_records(root, "silver.sales", [DAYS[1]])) == [DAYS[1]]


def test_a_projection_that_lost_the_race_doubles_nothing(lake: LakeFactory) -> None:
    """Without it, two runs of neighbouring days would both write what the first one's commit said."""
    shop = lake(sales())
    root = shop.settings.root
    target = commit(shop, DAYS[0], 5)
    older = open_snapshot(target.path)
    commit(shop, DAYS[1], 6)
    project_history(root, open_snapshot(target.path), "silver.sales")
    assert project_history(root, older, "silver.sales") == 0
    assert len(projected(shop)) == 2


def test_two_processes_that_project_at_once_double_nothing(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the one that knows more would write again what the other one wrote between its look and its commit."""
    shop = lake(sales())
    root = shop.settings.root
    target = commit(shop, DAYS[0], 5)
    older = open_snapshot(target.path)
    commit(shop, DAYS[1], 6)
    real, raced = module.add_rows, list[bool]()

    def slow(*args: Any, **kwargs: Any) -> None:
        if not raced:
            raced.append(True)
            assert project_history(root, older, "silver.sales") == 1
        real(*args, **kwargs)

    monkeypatch.setattr(module, "add_rows", slow)
    assert project_history(root, open_snapshot(target.path), "silver.sales") == 1
    assert sorted(each[1:] for each in projected(shop)) == [(DAYS[0], 1, 5), (DAYS[1], 2, 6)]


@pytest.mark.parametrize("projecting", [False, True])
@pytest.mark.parametrize(
    "total", ["0.30000000000000004", "12345678901234567890.123456789012345678", "9" * 40 + ".5", "1E-18", "-0.01"]
)
def test_sums_of_any_digits_are_kept(lake: LakeFactory, total: str, projecting: bool) -> None:
    """Without it, a day of fractions, or of decimals of 18 digits behind the point, would end in an error of Arrow."""
    shop = lake(sales())
    kept = {"profile": {"amount": {"count": 5, "sum": total}}, "figures": {"revenue": total, "n": "5"}}
    target = commit(shop, DAYS[0], 5, told=kept)
    if projecting:
        assert project_history(shop.settings.root, open_snapshot(target.path), "silver.sales") == 1
    (found,) = latest_records(shop.settings.root, "silver.sales", figures=("rows", "figures", "profile")).values()
    assert found.total("amount") == Decimal(total)
    assert found.business == {"revenue": Decimal(total), "n": Decimal(5)}


def test_many_projections_are_merged(lake: LakeFactory) -> None:
    """Without it, reading the figures of a day would slow down with every run."""
    shop = lake(sales())
    for n in range(9):
        target = commit(shop, DAYS[n], n + 1)
        project_history(shop.settings.root, open_snapshot(target.path), "silver.sales", most_files=4)
    assert len(open_snapshot(table_path(shop.settings.root, HISTORY)).files) <= 5
    assert sorted(each[3] for each in projected(shop)) == list(range(1, 10))
    assert [r.rows for r in records(shop.settings.root, "silver.sales")] == list(range(1, 10))


def test_a_history_that_began_with_fewer_figures_goes_on(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a new kind of figure would end the history of every lake there is, at the first merge at latest."""
    shop = lake(sales())
    root = shop.settings.root
    with monkeypatch.context() as older:
        fields = [each for each in module.schema().fields if each.name != "unknown_fields"]
        older.setattr(module, "schema", lambda: T.StructType(fields))
        older.setattr(day_record, "_MAPS", ("nulls", "failures"))
        for n in range(2):
            project_history(root, open_snapshot(commit(shop, DAYS[n], n + 1).path), "silver.sales")
    for n in range(2, 5):
        target = commit(shop, DAYS[n], n + 1)
        project_history(root, open_snapshot(target.path), "silver.sales", most_files=3)
        assert len(latest_records(root, "silver.sales")) == n + 1
    assert sorted(f.rows for f in open_snapshot(table_path(root, HISTORY)).files) == [1, 4], "four were merged"
    assert {r.day: (r.rows, r.figures["nulls"]) for r in records(root, "silver.sales")} == {
        DAYS[n]: (n + 1, {"id": 1}) for n in range(5)
    }


def test_the_newest_records_are_those_of_all(lake: LakeFactory, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a stream would grow slower with each of its commits, or a day be judged by an older one.

    Publishes, restores and refusals of few days, projected now and then, merged now and then.
    """
    shop, chance = lake(sales()), random.Random(seed)
    root, name = shop.settings.root, "silver.sales"
    for _ in range(40):
        kind, day = chance.choice(["publish", "publish", "restore", CHECKS_ONLY]), chance.choice(DAYS[:4])
        target = commit(shop, day, chance.randint(1, 3), kind)
        if chance.random() < 0.8:
            project_history(root, open_snapshot(target.path), name, most_files=chance.choice([2, 5]))
        days = chance.choice([None, [day], DAYS[:2], []])
        everything = all_records(root, name, days)
        assert judgements(root, name, days).keys() == {each.day for each in everything}
        for day_of, each in judged_by(everything).items():
            found = judgements(root, name, days)[day_of]
            assert (found.version, found.operation) == (each.version, each.operation)
        up_to = chance.choice([None, chance.randint(0, 40)])
        known = [each for each in records(root, name, days) if up_to is None or each.version <= up_to]
        assert latest_records(root, name, days, up_to=up_to) == {each.day: each for each in known}
    project_history(root, open_snapshot(target.path), name, most_files=1)
    asked = {"rows": latest_records(root, name, DAYS, ("rows",)), "all": latest_records(root, name, DAYS)}
    with monkeypatch.context() as patch:
        patch.setattr(ops.parquet, "read", None)
        assert asked == {"rows": latest_records(root, name, DAYS, ("rows",)), "all": latest_records(root, name, DAYS)}


@pytest.mark.parametrize("projecting", [True, False])
def test_a_table_that_was_built_anew_has_a_history_of_its_own(lake: LakeFactory, projecting: bool) -> None:
    """Without it, checks, freshness and sums would be judged by figures of rows that nobody sees any more."""
    shop = lake(sales())
    root, name = shop.settings.root, "silver.sales"

    def published(rows: int) -> None:
        target = commit(shop, DAYS[0], rows)
        if projecting:
            project_history(root, open_snapshot(target.path), name)

    def seen() -> tuple[list[int], int]:
        newest = latest_records(root, name)[DAYS[0]]
        assert newest.version == judgements(root, name)[DAYS[0]].version
        assert newest == latest_records(root, name, up_to=newest.version)[DAYS[0]]
        return [each.rows for each in records(root, name)], newest.rows

    for rows in (1, 2, 3):
        published(rows)
    folder = shop.path(name)
    away = folder.with_name("moved_away")
    folder.rename(away)
    assert not records(root, name)
    published(7)
    assert seen() == ([7], 7)
    published(8)
    assert seen() == ([7, 8], 8)
    folder.rename(folder.with_name("second"))
    away.rename(folder)
    assert seen() == ([1, 2, 3], 3), "brought back, it is what it was"


def test_what_is_full_is_not_merged_again(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a stream would write all of its history anew every few seconds."""
    shop = lake(sales())
    root = shop.settings.root
    monkeypatch.setattr(ops, "FULL", 1)
    for n in range(9):
        project_history(root, open_snapshot(commit(shop, DAYS[n], n + 1).path), "silver.sales", most_files=4)
    assert len(open_snapshot(table_path(root, HISTORY)).files) == len(records(root, "silver.sales")) == 9


def day_rows(day: date, number: int = 20, amount: str = "10.00") -> list[dict[str, Any]]:
    """Sales of a day."""
    return [{"id": f"{day}-{n}", "day": day, "amount": Decimal(amount)} for n in range(number)]


def test_checks_on_history_run_no_job(lake: LakeFactory) -> None:
    """Without it, every check would scan what it compares with."""
    found = {}
    for name, made in {"judged": sales(anomalies=Anomalies()), "plain": sales(profile=())}.items():
        shop = lake(raw(), made, root=lake().settings.root.with_name(name))
        for day in DAYS:
            put(shop, raw(), day, day_rows(day, amount="500.00" if day == DAYS[-1] else "10.00"))
        build(shop, made, DAYS[:-1], run_id="history")
        with counted_jobs(shop.spark) as jobs:
            result = build(shop, made, DAYS[-1:], run_id="day")
        found[name] = jobs[0]
        failed = [o.check for o in result.days[DAYS[-1]].outcomes if not o.passed]
        assert failed == (["mean_shift"] if name == "judged" else [])
    assert found["judged"] == found["plain"] > 0


def test_a_range_is_judged_day_by_day(lake: LakeFactory) -> None:
    """Without it, a backfill of a year would judge its last day by nothing."""
    made = sales(anomalies=Anomalies(block=True))
    shop = lake(raw(), made)
    for day in DAYS:
        put(shop, raw(), day, day_rows(day, amount="500.00" if day == DAYS[-1] else "10.00"))
    result = build(shop, made, DAYS, run_id="all")
    assert result.with_status("failed") == DAYS[-1:]
    assert "mean_shift: values of amount have shifted" in result.days[DAYS[-1]].reason
    again = build(shop, made, DAYS, run_id="again", force=True)
    assert again.with_status("failed") == DAYS[-1:]


def test_sums_that_do_not_add_up_are_not_published(lake: LakeFactory) -> None:
    """Without it, gold could say another revenue than silver, and nobody would know."""
    right, wrong = totals(), totals("0.01")
    shop = lake(raw(), sales(), right)
    put(shop, raw(), DAYS[0], day_rows(DAYS[0]))
    build(shop, sales(), DAYS[:2], run_id="r")
    result = build(shop, wrong, DAYS[:1], run_id="r")
    assert result.with_status("failed") == DAYS[:1]
    assert "total is 200.01, but silver.sales.amount is 200.00: 0.01 apart" in result.days[DAYS[0]].reason
    result = build(shop, right, DAYS[:2], run_id="r", force=True)
    assert result.with_status("published") == DAYS[:2]
    (told,) = [o.message for o in result.days[DAYS[0]].outcomes if o.check == "reconciliation"]
    assert told == "total 200.00 on both sides"


def test_sums_are_compared_at_the_version_that_was_read(lake: LakeFactory) -> None:
    """Without it, a run beside a correction of its input would fail, or pass, for no reason of its own."""
    shop = lake(raw(), sales(), totals())
    put(shop, raw(), DAYS[0], day_rows(DAYS[0]))
    build(shop, sales(), DAYS[:1], run_id="r")
    pinned = shop.snapshot("silver.sales")
    put(shop, raw(), DAYS[0], day_rows(DAYS[0], amount="11.00"))
    build(shop, sales(), DAYS[:1], run_id="r")
    reads = shop.snapshot

    class Behind(Lake):
        """Still sees what was there when the run began."""

        def snapshot(self, name: str, version: int | None = None) -> Any:
            return pinned if name == "silver.sales" else reads(name, version)

    behind = Behind(shop.settings, shop.tables, lambda: shop.spark)
    assert build(behind, totals(), DAYS[:1], run_id="r").with_status("published") == DAYS[:1]
    assert build(shop, totals(), DAYS[:1], run_id="r").with_status("published") == DAYS[:1]
