"""Batches by `updated_at`: what comes later than the lag is told, and nothing is taken twice."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.build.result import BuildResult
from lakehouse.sources import postgres
from lakehouse.sources.postgres import Database, Moment
from lakehouse_tests.build.intake.taking import Taking, commit_lag, variant
from lakehouse_tests.commands.killing import until
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.postgres import Shop
from lakehouse_tests.fixtures.shop.bronze.orders import orders


def test_a_transaction_longer_than_the_lag(lake: LakeFactory, shop: Shop, spark: SparkSession, tmp_path: Any) -> None:
    """Without it, the lag mode would lose rows and say nothing; the exact mode must lose none."""
    assert spark is not None
    lag = timedelta(seconds=0.3)
    blind = variant(mode="lag", lag=lag, overlap=timedelta(0))
    wary = variant(mode="lag", lag=lag)
    takings = {
        name: Taking(lake, shop, bronze, root=tmp_path / name)
        for name, bronze in {"blind": blind, "wary": wary, "exact": orders}.items()
    }

    def take() -> dict[str, BuildResult]:
        time.sleep(lag.total_seconds() + 0.05)
        return {name: each.take() for name, each in takings.items()}

    shop.run("SELECT place('a', 'placed', 1)")
    assert all(commit_lag(each).passed for each in take().values())
    with shop.session() as slow:
        slow("BEGIN; SELECT place('late', 'placed', 1); UPDATE orders SET status = 'paid' WHERE order_id = 'a'")
        shop.run("SELECT place('quick', 'placed', 1)")
        meanwhile = take()
        for name in ("blind", "wary"):
            assert not commit_lag(meanwhile[name]).passed
            assert "has been open for" in commit_lag(meanwhile[name]).message
        takings["exact"].refresh()
        assert takings["exact"].silver() == shop.orders()
        slow("COMMIT")
    shop.run("SELECT place('b', 'placed', 1)")
    after = take()
    for each in takings.values():
        each.refresh()
    assert {name: each.silver() == shop.orders() for name, each in takings.items()} == {
        "blind": False, "wary": True, "exact": True,
    }  # fmt: skip
    assert {row[0] for row in shop.orders() - takings["blind"].silver()} == {"late", "a"}
    found = commit_lag(after["wary"])
    assert not found.passed
    assert not found.blocking, "the rows that were found must be published all the same"
    assert found.values["late_rows"] == 2
    assert float(found.values["late_by_seconds"]) > lag.total_seconds()
    assert "raise lag" in found.message
    assert commit_lag(after["exact"]).passed


def test_a_table_that_is_written_anew_as_a_batch_is_read_is_not_empty(
    taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a snapshot of before an ALTER TABLE the table has no rows: with a tombstone, the mode lag would go on."""
    shop, waiting = taking.shop, "SELECT count(*) FROM pg_locks WHERE NOT granted"
    taking.bronze = variant(mode="lag", lag=timedelta(0), overlap=timedelta(0))
    shop.run("CREATE TABLE gate (); SELECT place('a', 'placed', 1); SELECT place('b', 'placed', 1)")
    shop.run("DELETE FROM orders WHERE order_id = 'b'")
    time.sleep(0.05)
    monkeypatch.setattr(postgres, "_SESSION", f"{postgres._SESSION}; LOCK TABLE gate IN ACCESS SHARE MODE")
    with shop.session() as keeper, shop.session() as other, ThreadPoolExecutor() as beside:
        ask = Database.moment

        def moment(database: Database) -> Moment:
            found = ask(database)
            keeper("BEGIN; LOCK TABLE gate")  # from here on, who reads rows waits before its first statement
            return found

        monkeypatch.setattr(Database, "moment", moment)
        taken = beside.submit(taking.take)
        until(lambda: shop.run(waiting) == "1", "the reader at the gate")
        other("BEGIN; ALTER TABLE orders ALTER amount TYPE numeric(12,2)")
        keeper("COMMIT")
        until(lambda: "orders" in shop.run(waiting.replace("count(*)", "relation::regclass")), "it at the table")
        other("COMMIT")
        taken.result()
    assert {row[0] for row in taking.versions()} == {"a", "b"}


def test_a_change_of_mode_takes_nothing_twice(taking: Taking) -> None:
    """Without it, rows between the watermarks of the two modes would be missed, or all of them be here twice."""
    taking.shop.run("SELECT place('a', 'placed', 1)")
    taking.take()
    taking.shop.run("SELECT place('b', 'placed', 1)")
    time.sleep(0.05)
    taking.bronze = variant(mode="lag", lag=timedelta(0))
    result = taking.take()
    assert (result.facts["batch/whole"], result.facts["batch/rows"]) == ("the mode has changed", 1)
    assert set(taking.versions().values()) == {1}


def test_a_row_without_a_time_is_taken_once_in_the_mode_lag(taking: Taking) -> None:
    """Without it, a row that was never changed since it was made would be in no batch, and nothing would say so."""
    taking.bronze = variant(mode="lag", lag=timedelta(0), overlap=timedelta(0))
    made = "INSERT INTO orders VALUES ('{}', 'u', 'placed', 1, 'EUR', '2026-03-01Z', NULL)"
    taking.shop.run("ALTER TABLE orders ALTER updated_at DROP NOT NULL; SELECT place('a', 'placed', 1)")
    taking.shop.run(made.format("b"))
    time.sleep(0.05)
    rows = [taking.take().facts["batch/rows"]]
    taking.shop.run(f"SELECT place('c', 'placed', 1); {made.format('d')}")
    for _ in range(2):
        time.sleep(0.05)
        rows.append(taking.take().facts["batch/rows"])
    assert rows == [2, 2, 0]
    taking.shop.run("UPDATE orders SET status = 'paid' WHERE order_id = 'b'")
    time.sleep(0.05)
    assert taking.take().facts["batch/rows"] == 1
    assert set(taking.versions().values()) == {1}
