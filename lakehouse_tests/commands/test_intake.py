"""`lakehouse intake`, and the same batch through Dagster, on a real PostgreSQL."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from dagster import AssetKey
from pyspark.sql import SparkSession

from lakehouse.catalog import declared, get_table, tables
from lakehouse.errors import UnknownTableError
from lakehouse.orchestration.instance import opened_instance
from lakehouse.servers.ports import free_port
from lakehouse.settings import Settings
from lakehouse_tests.commands.conftest import Cli
from lakehouse_tests.conftest import ENGINES
from lakehouse_tests.fixtures.packages import tables_of
from lakehouse_tests.fixtures.postgres import Server, Shop

NAMES = {"bronze.orders", "silver.order_status"}


@pytest.fixture
def shop(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A database that the settings name."""
    made = server.shop()
    monkeypatch.setenv("LAKEHOUSE_ORDERS_URL", made.url)
    tables.cache_clear()
    yield made
    tables.cache_clear()


def places_of(text: str, folder: Path) -> list[str]:
    """Files below a folder that hold a text."""
    found = [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    return [path.relative_to(folder).as_posix() for path in found]


def test_who_has_no_database_has_no_such_tables(cli: Cli) -> None:
    """Without it, every demo and every daily run would show empty tables that nobody can fill."""
    assert set(declared()) - set(tables()) == NAMES
    with pytest.raises(UnknownTableError, match=r"silver\.order_status is not in use: set LAKEHOUSE_ORDERS_URL"):
        get_table("silver.order_status")
    told = cli("intake")
    assert (told.code, "none of their addresses is set" in told.err) == (2, True)
    assert not any(each["check"] == "databases" for each in cli("doctor", "--no-engine", "--json").json)


def test_the_doctor_looks_for_databases(server: Server, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a database that is down or an address that is another server's were found by the nightly run."""

    def looked(address: str) -> tuple[bool, str, str]:
        monkeypatch.setenv("LAKEHOUSE_ORDERS_URL", f"postgresql://reader:secret@{address}/shop")
        tables.cache_clear()
        (found,) = [e for e in cli("doctor", "--no-engine", "--json").json if e["check"] == "databases"]
        return found["ok"], found["found"], found["fix"]

    here, nobody, fix = f"127.0.0.1:{server.port}", f"127.0.0.1:{free_port()}", "Start the database, or correct "
    assert looked(here) == (True, f"{here} answers", "")
    assert looked(f"{nobody},{here}") == (True, f"{here} answers", "")
    ok, said, told = looked(nobody)
    assert (ok, said, told.startswith(f"{fix}LAKEHOUSE_ORDERS_URL")) == (
        False, f"{nobody} does not answer (Connection refused)", True,
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            with other.accept()[0] as asked:
                asked.sendall(b"HTTP/1.1 400")

        threading.Thread(target=answer, daemon=True).start()
        assert "answers, but not as a PostgreSQL does" in looked(f"127.0.0.1:{other.getsockname()[1]}")[1]
    monkeypatch.setenv("LAKEHOUSE_ORDERS_URL", "127.0.0.1/shop")
    tables.cache_clear()
    found = {each["check"]: each for each in cli("doctor", "--no-engine", "--json").json}
    assert "LAKEHOUSE_ORDERS_URL: is not an address such as" in found["databases"]["found"]
    assert found["folders"]["ok"], "one wrong address does not hide the rest"
    tables.cache_clear()


@pytest.mark.slow
def test_a_batch_by_command(shop: Shop, cli: Cli, root: Path, spark: SparkSession) -> None:
    """Without it, what is new could be had only once a day, and a failing check would end with success."""
    assert spark is not None
    shop.run("SELECT place('a', 'placed', 1, '2026-03-01Z')")
    (taken,) = cli("intake", "--downstream", "--json").json
    assert (taken["table"], taken["rows"], taken["event_days"]) == ("bronze.orders", 1, "2026-03-01")
    assert taken["built"] == {"silver.order_status": ["2026-03-01"]}
    assert cli("sql", "select order_id, status from silver.order_status", "--json").json == [
        {"order_id": "a", "status": "placed"}
    ]
    shop.run("UPDATE orders SET status = 'paid'")
    shown = cli("intake", "bronze.orders")
    assert shown.code == 0
    assert "Days downstream that this touched: 2026-03-01" in shown.err
    assert "check commit_lag" in shown.out
    shop.run("SELECT place('b', 'placed', 1, '1999-03-05Z')")
    follow = cli("intake").err.replace("\n", " ").partition("Next: ")[2]
    nothing = cli("backfill", "--stale", "--select", "bronze.orders").err.replace("\n", " ")
    assert "1 day before the lake's first day, 2010-12-01 (1999-03-05): no run builds them" in nothing
    assert "intake --downstream" in nothing
    assert cli(*follow[follow.index("intake") :].split()).code == 0, "what is said to come next builds it"
    assert len(cli("sql", "select * from silver.order_status", "--json").json) == 2
    assert "before the lake's first day" not in cli("backfill", "--stale", "--select", "bronze.orders").err
    wrong = cli("intake", "silver.order_status")
    assert (wrong.code, "not taken from a database" in wrong.err) == (2, True)
    assert "table orders of LAKEHOUSE_ORDERS_URL, mode exact" in cli("describe", "bronze.orders").out
    shop.run("DROP TABLE orders")
    broken = cli("intake")
    assert broken.code == 3
    assert 'relation "orders" does not exist' in broken.err
    assert shop.server.password not in broken.err + shown.out + shown.err
    assert not places_of(shop.server.password, root)


@pytest.mark.slow
def test_a_source_that_is_down_holds_up_no_other(
    shop: Shop, cli: Cli, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a broker that is down would leave the database of another table unread, for as long as it is."""
    assert spark is not None
    monkeypatch.setenv("LAKEHOUSE_EVENT_STREAM_URL", f"kafka://127.0.0.1:{free_port()}")
    shop.run("SELECT place('a', 'placed', 1, '2026-03-01Z')")
    with tables_of("lakehouse"):
        done = cli("intake", "bronze.event_stream", "bronze.orders", "--downstream", "--json")
        (taken,) = done.json
        assert (taken["table"], taken["rows"], taken["built"]) == (
            "bronze.orders", 1, {"silver.order_status": ["2026-03-01"]},
        )  # fmt: skip
        assert done.code == 3
        assert "Error: bronze.event_stream: web-events of the brokers in LAKEHOUSE_EVENT_STREAM_URL: " in done.err
        shop.run("DROP TABLE orders")
        neither = cli("intake")
        assert (neither.code, neither.out.strip()) == (3, "")
        assert "Error: bronze.event_stream: " in neither.err
        assert "Error: bronze.orders: " in neither.err


@pytest.mark.slow
@pytest.mark.spark
def test_a_batch_through_dagster(shop: Shop, root: Path, today: date) -> None:
    """Without it, the asset might not load, or a run leave the password in logs, events, plans or commits."""
    day = (today - timedelta(days=1)).isoformat()
    shop.run(f"SELECT place('a', 'placed', 1, '{day}Z')")
    select = "bronze.orders+"
    command = [sys.executable, "-m", "lakehouse.cli", "materialize", "--from", day, "--to", day, "--select", select]
    environment = os.environ | {"LAKEHOUSE_ROOT": str(root)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    with opened_instance(Settings(root=root)) as instance:
        event = instance.get_latest_materialization_event(AssetKey(["bronze", "orders"]))
    assert event is not None
    assert event.asset_materialization is not None
    shown = {name: each.value for name, each in event.asset_materialization.metadata.items()}
    assert (shown["batch/number"], shown["batch/rows"], shown["batch/event_days"]) == (1, 1, day)
    assert not places_of(shop.server.password, root)
    assert not places_of(shop.server.password, Path(os.environ[ENGINES]))
    assert shop.server.password not in done.stdout + done.stderr
