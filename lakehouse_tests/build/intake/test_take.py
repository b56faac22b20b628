"""Batches from a real PostgreSQL: what is taken, when it is taken again, and what the checks notice."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr

from lakehouse.build import build as building
from lakehouse.build.base import open_base
from lakehouse.build.intake.from_database import clock_apart
from lakehouse.checks.audit import audit_day, check_names
from lakehouse.checks.metrics import HIDDEN, DayMetrics
from lakehouse.days import micros_of
from lakehouse.delta.commit import append_batch
from lakehouse.delta.target import Commit
from lakehouse.errors import (
    ContractError,
    HistoryGoneError,
    PublishConflictError,
    SourceDownError,
    SourceError,
    UndoRefusedError,
)
from lakehouse.read.targets import targets
from lakehouse.records.erasures import Erasure, hmac_key, note
from lakehouse.sources.people import person_hmac
from lakehouse.sources.postgres import Database, Moment
from lakehouse.spark.transient import is_transient
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.build.intake.taking import ASKED, EXTRACT, Taking, commit_lag
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.postgres import Server, Shop
from lakehouse_tests.fixtures.shop.bronze.orders import orders


def test_a_transform_without_return_takes_no_row(
    lake: LakeFactory, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the batch would be committed without rows, and they never be taken again."""
    taking = Taking(lake, shop)
    shop.run("INSERT INTO orders VALUES ('o1', 'u', 's', 1, 'EUR', now(), now())")
    with monkeypatch.context() as patch:
        patch.setitem(vars(orders), "transform", lambda **_: None)
        with pytest.raises(ContractError, match=r"^The transform of bronze\.orders: expected a DataFrame, got nothing"):
            taking.take()
    taking.take()
    assert [order_id for order_id, *_ in taking.versions()] == ["o1"]


def test_no_address_of_a_database_is_stored_and_an_order_named_by_one_is_still_one(taking: Taking) -> None:
    """Without it, an address in any column but a personal one would be in tables, statistics and checks."""
    shop, path = taking.shop, taking.lake.path("bronze.orders")
    shop.run(
        "SELECT place('ann@leak.example', 'placed', 10, '2026-03-01Z');"
        "SELECT place('b', 'for Ann@Leak.example', 20, '2026-03-01Z');"
        "UPDATE orders SET currency = 'ann%40leak.example' WHERE order_id = 'b'"
    )
    taking.take()
    shop.run("UPDATE orders SET status = 'paid' WHERE order_id LIKE 'ann%'")
    taking.take()
    shop.run("DELETE FROM orders WHERE order_id LIKE 'ann%'")
    taking.take()
    rows = rows_of(path)
    (token,) = {row["order_id"] for row in rows if row["order_id"] != "b"}
    assert [row["_tombstone"] for row in rows if row["order_id"] == token].count(True) == 1
    assert {row["currency"] for row in rows if row["order_id"] == "b"} == {token}
    for file in path.rglob("*.*"):
        assert b"leak.example" not in file.read_bytes().lower(), file
    assert "leak.example" not in str(rows).lower()


def test_batches_follow_the_source(taking: Taking) -> None:
    """Without it, changes, corrected dates and deletions would not reach silver, or rows be taken twice."""
    shop = taking.shop
    shop.run(
        "SELECT place('a', 'placed', 10, '2026-03-01Z'); SELECT place('b', 'placed', 20.005, '2026-03-02Z');"
        "SELECT place('c', 'placed', 30, '2026-03-02Z'); CHECKPOINT"
    )
    first = taking.take()
    assert (first.facts["batch/number"], first.facts["batch/rows"]) == (1, 3)
    assert first.facts["batch/event_days"] == "2026-03-01, 2026-03-02"
    assert taking.refresh() == [date(2026, 3, 1), date(2026, 3, 2)]
    assert taking.silver() == shop.orders()

    entry = taking.log(first.version)
    marks = {action["appId"]: action["version"] for action in entry["txn"]}
    said = json.loads(entry["commitInfo"][0]["lakehouse.batch"])
    assert marks["intake/orders/batch"] == said["number"] == 1
    assert said["snapshot"].split(":")[0] == str(marks["intake/orders/xid"])
    assert sum(json.loads(action["stats"])["numRecords"] for action in entry["add"]) == said["rows"] == 3

    again = taking.take()
    assert (again.version, again.facts["batch/rows"]) == (first.version, 0), "nothing new must add no commit"

    shop.run("UPDATE orders SET status = 'paid' WHERE order_id = 'a'; DELETE FROM orders WHERE order_id = 'b'")
    shop.run("UPDATE orders SET created_at = '2026-03-05Z' WHERE order_id = 'c'; SELECT place('d', 'new', 1)")
    assert taking.take().facts["batch/rows"] == 4
    taking.refresh()
    assert taking.silver() == shop.orders()
    assert {row["order_id"] for row in rows_of(taking.lake.path("silver.order_status")) if row["deleted_at"]} == {"b"}
    assert taking.take(whole=True).facts["batch/rows"] == 0
    assert set(taking.versions().values()) == {1}


def test_one_read_only_snapshot(taking: Taking) -> None:
    """Without it, a transaction could be half in a batch, and the server's time zone move orders between days."""
    database = Database(taking.lake.spark, SecretStr(taking.shop.url), EXTRACT)
    names = ("transaction_isolation", "transaction_read_only", "TimeZone")
    row = database._query("SELECT " + ", ".join(f"current_setting('{n}') AS c{i}" for i, n in enumerate(names))).first()
    assert row is not None
    assert tuple(row) == ("repeatable read", "on", "UTC")


def test_an_older_version_that_comes_later_changes_nothing(taking: Taking) -> None:
    """Without it, a source that replays old changes would undo newer ones."""
    taking.shop.run("SELECT place('a', 'placed', 1); UPDATE orders SET status = 'paid'")
    taking.take()
    taking.refresh()
    before = taking.silver()
    taking.shop.run(
        "ALTER TABLE orders DISABLE TRIGGER touch; "
        "UPDATE orders SET status = 'placed', updated_at = updated_at - interval '1 hour'"
    )
    assert taking.take().facts["batch/rows"] == 1
    taking.refresh()
    assert taking.silver() == before


def test_a_time_beyond_the_year_9999_does_not_stop_the_intake(taking: Taking) -> None:
    """One row of a broken clock, say of milliseconds read as seconds, would keep every other row out."""
    taking.shop.run("SELECT place('a', 'placed', 1); SELECT place('b', 'placed', 1)")
    taking.take()
    taking.shop.run("ALTER TABLE orders DISABLE TRIGGER touch; UPDATE orders SET updated_at = '12026-01-01Z'")
    result = taking.take()
    assert result.facts["batch/rows"] == 2
    assert commit_lag(result).values["late_rows"] == 0


def test_a_second_intake_does_not_double(taking: Taking) -> None:
    """Without it, a batch that was overtaken would be added on top, or rows between the two be skipped."""
    taking.shop.run("SELECT place('a', 'placed', 1)")
    taking.take()
    early = open_base(taking.lake, orders)
    taking.shop.run("SELECT place('b', 'placed', 1)")
    taking.take()
    taking.shop.run("SELECT place('c', 'placed', 1)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "open_base", lambda *_: early)
        with pytest.raises(PublishConflictError, match=r"bronze\.orders"):
            taking.take()
    taking.take()
    taking.refresh()
    assert taking.silver() == taking.shop.orders()
    assert set(taking.versions().values()) == {1}


def test_another_database_is_read_from_its_beginning(taking: Taking, server: Server) -> None:
    """Without it, after a move to another cluster every row below the old watermark would be missed."""
    taking.shop.run("".join(f"SELECT place('o{n}', 'placed', 1);" for n in range(20)))
    taking.take()
    moved = server.shop()
    moved.run("SELECT place('o1', 'moved', 2); SELECT place('new', 'placed', 1)")
    taking.point_to(moved.url)
    result = taking.take()
    assert result.facts["batch/whole"].startswith("another database")
    assert result.facts["batch/rows"] == 2
    taking.refresh()
    assert moved.orders() <= taking.silver()


def test_a_database_that_was_put_back_is_read_from_its_beginning(taking: Taking) -> None:
    """Without it, transaction numbers that are given out a second time would pass for rows that are here already."""
    taking.shop.run("SELECT place('a', 'placed', 1)")
    taking.take()
    target, _ = targets(taking.lake, orders)
    ahead = {"intake/orders/high": 1 << 50, "intake/orders/xid": 1 << 50}  # as if the last batch were from the future
    append_batch(target, taking.lake.snapshot(orders.id), [], Commit(ahead))
    taking.shop.run("SELECT place('b', 'placed', 1)")
    result = taking.take()
    assert result.facts["batch/whole"].startswith("the database has been put back")
    assert result.facts["batch/rows"] == 2
    taking.refresh()
    assert taking.silver() == taking.shop.orders()
    assert taking.take().facts["batch/rows"] == 0


def test_the_checks_are_those_that_are_listed() -> None:
    """Without it, a check that Dagster lists but no batch reports would look passed for ever."""
    assert {each.check for each in audit_day(orders, DayMetrics(ASKED), {})} == set(check_names(orders))
    hidden = DayMetrics(ASKED, source={"open_seconds": None, "open_transactions": HIDDEN})
    (found,) = [each for each in audit_day(orders, hidden, {}) if each.check == "commit_lag"]
    assert "GRANT pg_read_all_stats" in found.message


def test_the_databases_clock_is_measured(taking: Taking) -> None:
    """Its times are those of every order; here both clocks are one, so the truth is within what is claimed."""
    taking.shop.run("SELECT place('a', 'placed', 1)")
    result = taking.take()
    ahead, within = (result.facts[f"batch/clock_{name}_seconds"] for name in ("ahead", "within"))
    assert 0 < within < 60
    assert abs(ahead) <= within
    (found,) = [each for each in result.outcomes if each.check == "database_clock"]
    assert found.passed


def test_a_database_whose_clock_is_wrong_is_named() -> None:
    """Unnamed, its orders would be of other days than the web shop's, and nobody would know why."""
    asked = datetime(2026, 3, 9, 10, 0, 0, tzinfo=UTC)
    answered = asked + timedelta(seconds=2)
    at = micros_of(datetime(2026, 3, 9, 10, 5, 1, tzinfo=UTC))
    apart = clock_apart(Moment(at, "1:1:", 1, 1, "", None, True), asked, answered)
    assert apart == {"clock_ahead_seconds": 300.0, "clock_within_seconds": 1.0}
    for ahead, passed in ((300.0, False), (61.1, False), (61.0, True), (-61.1, False), (-61.0, True), (0.0, True)):
        metrics = DayMetrics(ASKED, source=apart | {"clock_ahead_seconds": ahead})
        (found,) = [each for each in audit_day(orders, metrics, {}) if each.check == "database_clock"]
        assert (found.passed, found.blocking) == (passed, False), ahead
        assert ("have it set" in found.message) != passed


def test_a_restored_table_takes_again_what_it_lost(taking: Taking) -> None:
    """Without it, rows taken after the version that came back would never be taken again."""
    taking.shop.run("SELECT place('a', 'placed', 1)")
    first = taking.take().version
    taking.shop.run("SELECT place('b', 'placed', 1)")
    taking.take()
    with pytest.raises(UndoRefusedError, match="Restore the whole table"):  # of some days, nothing would be taken again
        plan_restore(taking.lake, orders, first, [ASKED])
    restore(taking.lake, plan_restore(taking.lake, orders, first), by="test")
    assert len(taking.versions()) == 1
    taking.take()
    taking.refresh()
    assert taking.silver() == taking.shop.orders()
    assert set(taking.versions().values()) == {1}


def test_no_build_is_advised_where_what_was_taken_comes_no_more(taking: Taking) -> None:
    """Without it, one would wait for a build that takes nothing, in place of a version whose files are there."""
    taking.shop.run("SELECT place('a', 'placed', 1)")
    first = taking.take().version
    taken = [taking.lake.path("bronze.orders") / file.path for file in taking.lake.snapshot("bronze.orders").files]
    restore(taking.lake, plan_restore(taking.lake, orders, first - 1), by="test")
    for file in taken:
        file.unlink()
    with pytest.raises(HistoryGoneError, match="No build makes its rows again") as told:
        plan_restore(taking.lake, orders, first)
    assert "backfill" not in str(told.value)


def test_a_forgotten_person_does_not_come_back(taking: Taking) -> None:
    """Without it, the next change of an order would bring back whom the lake has forgotten."""
    settings = taking.lake.settings
    note(settings.root, Erasure("e1", "done", (person_hmac("user", "ua", hmac_key(settings)),)))
    taking.shop.run("SELECT place('a', 'placed', 1); SELECT place('b', 'placed', 1)")
    assert taking.take().facts["batch/rows"] == 1
    folder = taking.lake.path("bronze.orders")
    assert [row["user_id"] for row in rows_of(folder)] == ["ub"]
    files = [path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert [user for path in files for user in pq.read_table(path)["user_id"].to_pylist()] == ["ub"]


def test_a_source_that_is_down_or_absent(taking: Taking) -> None:
    """Without it, an outage would fail for good or leak the password, and a lake without a database could not run."""
    password = taking.shop.server.password
    taking.point_to(f"postgresql://u:{password}@127.0.0.1:1/shop")
    with pytest.raises(SourceDownError, match="refused") as down:
        taking.take()
    assert is_transient(down.value)
    taking.point_to(taking.shop.url.replace("/shop_", "/no_such_"))
    with pytest.raises(SourceError, match="does not exist") as absent:
        taking.take()
    assert not is_transient(absent.value)
    for each in (down, absent):
        assert password not in str(each.value) + repr(each.value.__cause__)
    taking.point_to(None)
    result = taking.take()
    assert result.facts == {"batch/source": "not configured: set LAKEHOUSE_ORDERS_URL"}
    assert result.days[ASKED].status == "unchanged"


def test_an_order_is_in_the_day_of_the_batch_by_the_databases_clock(taking: Taking) -> None:
    """Without it, the clock of the machine that takes would decide where rows are."""
    taking.shop.run("SELECT place('a', 'placed', 1, '2026-03-01Z')")
    result = taking.take()
    (row,) = rows_of(taking.lake.path("bronze.orders"))
    at = datetime.fromisoformat(result.facts["batch/taken_at"])
    assert (row["_arrival_date"], row["_event_date"]) == (at.date(), date(2026, 3, 1))
