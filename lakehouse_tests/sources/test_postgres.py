"""The statements that read a PostgreSQL table, against a real server and without an engine."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakehouse.contracts import Extract
from lakehouse.days import iso, micros_of
from lakehouse.errors import ContractError, SettingsError, SourceDownError, SourceError
from lakehouse.settings import Settings
from lakehouse.sources import postgres
from lakehouse.sources.postgres import Database, Reading, moment_sql, rows_sql, whole_xid
from lakehouse_tests.commands.killing import until
from lakehouse_tests.fixtures.making import model, table
from lakehouse_tests.fixtures.postgres import Server, Shop, running, serving
from lakehouse_tests.fixtures.shop.bronze.orders import orders

assert orders.extract is not None
EXTRACT: Extract = orders.extract


@pytest.fixture
def shop(server: Server) -> Shop:
    """A database of the test's own."""
    return server.shop()


def read(shop: Shop, reading: Reading, extract: Extract = EXTRACT) -> dict[str, list[str]]:
    """The rows of a reading by order: status, `_tombstone`; `deleted` stands for a tombstone."""
    shown = f"SELECT order_id, coalesce(status, 'deleted') FROM ({rows_sql(extract, reading)}) read ORDER BY updated_at"
    found: dict[str, list[str]] = {}
    for line in shop.run(shown).splitlines():
        order, status = line.split("|")
        found.setdefault(order, []).append(status)
    return found


def low(shop: Shop) -> int:
    """The lowest transaction still running, as the next batch's reading begins: all before it is durable."""
    return int(shop.run(f"CHECKPOINT; SELECT low FROM ({moment_sql(EXTRACT)}) moment"))


@given(following=st.integers(2**33, 2**40), age=st.integers(1, 2**32))
def test_a_transaction_is_found_again_from_its_low_half(following: int, age: int) -> None:
    """Without it, rows written after a wrap-around would look older than any snapshot and never be read."""
    xid = following - age
    formula = whole_xid(str(xid & 0xFFFFFFFF), str(following))
    assert eval(formula) == xid  # noqa: S307  # the same arithmetic in both languages


@pytest.mark.slow
def test_numbers_that_a_crash_gives_out_again_are_read(tmp_path: Path) -> None:
    """Without it, rows would be missed that were written after the server was killed, below the last batch's end."""
    with serving(tmp_path) as server:
        shop, asked = server.shop(), f"SELECT low, high FROM ({moment_sql(EXTRACT)}) moment"
        # Else a busy machine leaves it the time to write down what was given out, which is then not given out again.
        shop.run("ALTER SYSTEM SET wal_writer_delay = '10s'; SELECT pg_reload_conf(); CHECKPOINT")
        with shop.session() as session:
            session("BEGIN; SELECT pg_current_xact_id(); ROLLBACK; " * 40)
            begin, high = map(int, shop.run(asked).split("|"))
            lock = server.data / "postmaster.pid"
            os.kill(int(lock.read_text().split()[0]), signal.SIGQUIT)
            until(lambda: not lock.exists(), "the end of the server")
        calm = {"cwd": server.data.parent, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}
        with running(server, calm):
            shop.run("".join(f"SELECT place('o{n}', 'placed', 1);\n" for n in range(45)))
            assert int(shop.run(f"SELECT min(_xid) FROM ({rows_sql(EXTRACT, Reading())}) r")) < high, "none came again"
            assert len(read(shop, Reading(xid=begin))) == 45


@pytest.mark.slow
def test_numbers_go_on_through_a_wrap_around(shop: Shop) -> None:
    """Without it, every row written after the wrap-around would be missed: `xmin` begins at 3 again."""
    before = low(shop)
    shop.run("".join(f"SELECT place('o{n}', 'placed', 1);\n" for n in range(260)))
    assert int(shop.run("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")) > 2**32
    assert len(read(shop, Reading(xid=before))) == 260
    halfway = shop.run(f"SELECT max(_xid) FROM ({rows_sql(EXTRACT, Reading())}) r WHERE order_id = 'o129'")
    assert set(read(shop, Reading(xid=int(halfway)))) == {f"o{n}" for n in range(129, 260)}


@pytest.mark.slow
def test_a_savepoint_of_a_running_transaction_is_read_next_time(shop: Shop) -> None:
    """Without it, rows below a savepoint would be missed: no snapshot lists the number that they carry."""
    with shop.session() as slow:
        slow("BEGIN; SELECT place('outer', 'placed', 1); SAVEPOINT s; SELECT place('inner', 'placed', 1); RELEASE s")
        shop.run("SELECT place('quick', 'placed', 1)")
        snapshot = shop.run("SELECT pg_current_snapshot()")
        begin = low(shop)
        assert set(read(shop, Reading())) == {"quick"}
        slow("COMMIT")
    assert set(read(shop, Reading(xid=begin))) >= {"outer", "inner"}
    # Why not the obvious way: by the snapshot, the inner row seemed visible all along.
    assert shop.run(
        f"SELECT pg_visible_in_snapshot(_xid::text::xid8, '{snapshot}') FROM ({rows_sql(EXTRACT, Reading())}) r "
        "WHERE order_id IN ('outer', 'inner') ORDER BY order_id"
    ).splitlines() == ["t", "f"]


@pytest.mark.slow
def test_a_rolled_back_change_is_never_read(shop: Shop) -> None:
    """Without it, an order that never was could be sold."""
    begin = low(shop)
    shop.run("BEGIN; SELECT place('never', 'placed', 1); ROLLBACK; SELECT place('ever', 'placed', 1)")
    assert read(shop, Reading(xid=begin)) == {"ever": ["placed"]}


@pytest.mark.slow
def test_a_deleted_row_is_read_as_its_tombstone(shop: Shop) -> None:
    """Without it, a deleted order would stay for ever."""
    shop.run("SELECT place('o', 'placed', 1)")
    begin = low(shop)
    shop.run("DELETE FROM orders WHERE order_id = 'o'; SELECT place('o', 'again', 1)")
    assert read(shop, Reading(xid=begin)) == {"o": ["deleted", "again"]}


@pytest.mark.slow
def test_rows_that_are_only_marked_as_deleted(shop: Shop) -> None:
    """Without it, a source without tombstones would need another way in."""
    shop.run("SELECT place('o', 'placed', 1); ALTER TABLE orders ADD COLUMN deleted_at timestamptz")
    shop.run("UPDATE orders SET deleted_at = '2026-01-02 03:04:05+05:30'")
    columns = (*EXTRACT.columns, "deleted_at")
    soft = replace(EXTRACT, columns=columns, times=(*EXTRACT.times, "deleted_at"), tombstones=None)
    found = shop.run(f"SELECT status, deleted_at, _tombstone FROM ({rows_sql(soft, Reading())}) r")
    assert found == "placed|2026-01-01T21:34:05.000000Z|f"


@pytest.mark.slow
def test_values_are_read_the_same_whatever_the_server_is_set_to(shop: Shop) -> None:
    """Without it, a server in another time zone or date style would move orders to other days."""
    shop.run("INSERT INTO orders VALUES ('o', NULL, 'a|b', 12.50, 'EUR', '2026-03-01 01:00+05:30', '2026-03-01Z')")
    shown = "amount, created_at, updated_at, user_id IS NULL, deleted_at IS NULL"
    found = shop.run(f"SET TIME ZONE 'Asia/Kolkata'; SELECT {shown} FROM ({rows_sql(EXTRACT, Reading())}) r")
    assert found == "12.50|2026-02-28T19:30:00.000000Z|2026-03-01T00:00:00.000000Z|t|t"


@pytest.mark.slow
def test_a_time_before_christ_is_not_told_as_one_after(shop: Shop) -> None:
    """Without it, a date of the year 44 BC, as a default that means nothing has it, would be one of 44 in every table."""
    for moment in ("0044-03-15 12:00Z BC", "0001-12-31 12:00Z BC", "0001-01-01 12:00Z", "-infinity", "infinity"):
        shop.run(f"SELECT place('{moment}', 'placed', 1, '{moment}')")
    made = shop.run(f"SELECT order_id, created_at FROM ({rows_sql(EXTRACT, Reading())}) read")
    assert dict(line.split("|") for line in made.splitlines()) == {
        "0044-03-15 12:00Z BC": "0044-03-15T12:00:00.000000Z BC",
        "0001-12-31 12:00Z BC": "0001-12-31T12:00:00.000000Z BC",
        "0001-01-01 12:00Z": "0001-01-01T12:00:00.000000Z",
        "-infinity": "",
        "infinity": "",
    }


def test_a_window_of_time_includes_its_beginning_only(shop: Shop) -> None:
    """Without it, a row on the edge would be read twice or never."""
    for n in range(3):
        shop.run(f"INSERT INTO orders VALUES ('o{n}', 'u', 's', 1, 'EUR', now(), '2026-03-01T00:00:00.00000{n}Z')")
    start = micros_of(datetime(2026, 3, 1, tzinfo=UTC))
    assert set(read(shop, Reading(since=start, until=start + 1))) == {"o0"}
    assert set(read(shop, Reading(since=start + 1, until=start + 3))) == {"o1", "o2"}


@given(st.integers(0, 253_402_300_799_999_999))
def test_instants_keep_their_microseconds(value: int) -> None:
    """Without it, watermarks would move by rounding."""
    assert micros_of(datetime.fromisoformat(iso(value))) == value


@pytest.mark.slow
def test_the_moment_says_who_still_writes(shop: Shop) -> None:
    """Without it, a lag could not be compared with the transactions that there are."""
    asked = f"SELECT coalesce(round(open_seconds::numeric, 1)::text, 'none'), sees_all FROM ({moment_sql(EXTRACT)}) m"
    with shop.session() as reader, shop.session() as writer:
        reader("BEGIN; SELECT count(*) FROM orders")  # may take as long as it likes
        assert shop.run(asked) == "none|t"
        writer("BEGIN; SELECT place('o', 'placed', 1); SELECT pg_sleep(0.2)")
        age, sees = shop.run(asked).split("|")
        assert float(age) >= 0.2
        writer("ROLLBACK")
    prepared = "BEGIN; SELECT place('p', 'placed', 1); PREPARE TRANSACTION 'two-phase'"
    shop.run(prepared)
    assert shop.run(asked) != "none|t"
    shop.run("ROLLBACK PREPARED 'two-phase'")
    shop.run("DROP ROLE IF EXISTS plain; CREATE ROLE plain; GRANT SELECT ON orders, orders_deleted TO plain")
    assert shop.run(f"SET ROLE plain; {asked}") == "none|f"
    shop.run("DROP OWNED BY plain; DROP ROLE plain")
    assert sees == "t"


@pytest.mark.slow
def test_another_table_or_database_is_noticed(server: Server, shop: Shop) -> None:
    """Without it, the transaction numbers of one cluster would be compared with those of another."""
    asked = f"SELECT identity FROM ({moment_sql(EXTRACT)}) moment"
    first = shop.run(asked)
    assert server.shop().run(asked) != first
    shop.run("CREATE TABLE copied (LIKE orders); DROP TABLE orders; ALTER TABLE copied RENAME TO orders")
    assert shop.run(asked) != first


@pytest.mark.parametrize("url", ["mysql://u:secret@h/d", "postgresql://u:secret@h", "u:secret@h/d"])
def test_an_address_of_another_form_is_refused_without_being_repeated(url: str) -> None:
    """Without it, the password would be in the first error of whoever mistypes the rest."""
    with pytest.raises(SettingsError, match="LAKEHOUSE_ORDERS_URL: is not an address such as") as caught:
        Settings(source_urls={"orders": SecretStr(url)}).source_url("orders")
    assert "secret" not in str(caught.value)


def test_any_source_has_a_setting_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a second database would need a line of the engine; a variable wins over `.env`, and that over JSON."""
    address = "postgresql://u:secret@h/{}".format
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(
        f"LAKEHOUSE_ORDERS_URL={address('file')}\nLAKEHOUSE_BILLS_URL={address('bills')}\nLAKEHOUSE_STOCK_URL=\n"
        f'LAKEHOUSE_SOURCE_URLS={{"bills": "{address("json")}", "till": "{address("till")}"}}\n'
    )
    monkeypatch.setenv("LAKEHOUSE_ORDERS_URL", address("variable"))
    found = Settings()
    told = {name: url.get_secret_value() for name in ("orders", "bills", "till") if (url := found.source_url(name))}
    assert told == {"orders": address("variable"), "bills": address("bills"), "till": address("till")}
    assert found.source_url("stock") is None
    assert found.source_url("report") is None
    assert "u:secret" not in repr(found)


@pytest.mark.spark
@pytest.mark.parametrize(("patience", "query"), [(1, ""), (3600, "?loginTimeout=1"), (1, "?ApplicationName=lake")])
def test_a_server_that_never_answers_is_not_waited_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, patience: int, query: str
) -> None:
    """Without it, an intake would hang for ever where a firewall or another program takes the connection."""
    monkeypatch.setattr(postgres, "PATIENCE", patience)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = SecretStr(f"postgresql://u:s3cret@127.0.0.1:{silent.getsockname()[1]}/d{query}")
        with pytest.raises(SourceDownError, match="Connection attempt timed out"):
            Database(spark, url, EXTRACT).moment()


@pytest.mark.spark
def test_a_table_that_somebody_has_locked_is_not_waited_for_for_ever(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, an intake hangs without a word behind a session that was left open after an ALTER TABLE."""
    monkeypatch.setattr(postgres, "LOCK_PATIENCE", 1)
    with shop.session() as other:
        other("BEGIN; LOCK TABLE orders_deleted IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceDownError, match=r"lock timeout\. Another session has it locked"):
            Database(spark, SecretStr(shop.url), EXTRACT).moment()
        other("COMMIT")
    assert Database(spark, SecretStr(shop.url), EXTRACT).moment().low > 0


@pytest.mark.spark
def test_a_server_that_falls_silent_is_not_waited_for_for_ever(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, an intake hangs without a word where the network has lost its connection in the middle."""
    with shop.session() as other:
        other("BEGIN; LOCK TABLE orders_deleted IN ACCESS EXCLUSIVE MODE")  # it has let us in, and says nothing
        for patience, query in ((1, ""), (3600, "?socketTimeout=1")):
            monkeypatch.setattr(postgres, "SILENCE", patience)
            with pytest.raises(SourceDownError, match="I/O error"):
                Database(spark, SecretStr(shop.url + query), EXTRACT).moment()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("org.postgresql.util.PSQLException: Connection to h:5432 refused. Check it", SourceDownError),
        ("Job aborted\nCaused by: org.postgresql.util.PSQLException: FATAL: sorry, too many clients", SourceDownError),
        ('x\n: org.postgresql.util.PSQLException: ERROR: relation "orders" does not exist', SourceError),
        ('(org.postgresql.util.PSQLException) ERROR: relation "orders" does not exist', SourceError),
        ("the URL was h?password=s3cret", SourceError),
    ],
)
def test_errors_say_what_happened_and_no_password(said: str, kind: type[Exception]) -> None:
    """Without it, what may pass would not be tried again, and logs would hold the password."""
    database = Database(None, SecretStr("postgresql://u:s3cret@h/d"), EXTRACT)  # type: ignore[arg-type]
    made = database.failed(RuntimeError(said))
    assert type(made) is kind
    assert "s3cret" not in str(made)
    assert "LAKEHOUSE_ORDERS_URL" in str(made)
    assert "Exception" not in str(made)
    assert "ERROR" not in str(made)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ('ERROR: column "xmin" does not exist\n  Position: 8', "name the tables that it is made of in the contract. N"),
        ('ERROR: cannot lock relation "orders"', "name the tables that it is made of in the contract. N"),
        ("ERROR: permission denied for table orders", "GRANT SELECT ON it. N"),
        ("ERROR: permission denied for schema shop", "GRANT USAGE ON the schema. N"),
    ],
)
def test_errors_say_what_to_do(said: str, advice: str) -> None:
    """Without it, who has named a view would read of a column that nobody has written."""
    database = Database(None, SecretStr("postgresql://u:s3cret@h/d"), EXTRACT)  # type: ignore[arg-type]
    assert advice in str(database.failed(RuntimeError(f"x\n: org.postgresql.util.PSQLException: {said}")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "fast"}, "mode: expected exact or lag, got 'fast'"),
        ({"key": ("nothing",)}, "expected a column of orders .*, got 'nothing'"),
        ({"times": ("created_at",)}, "updated_at: expected one of the times of orders"),
        ({"lag": timedelta(seconds=-1)}, "lag and overlap"),
        ({"carried": ("total",)}, "expected a column of orders .*, got 'total'"),
    ],
)
def test_an_extract_that_cannot_work_is_refused(change: dict[str, Any], message: str) -> None:
    """Without it, a misspelt column would be found by the first batch, in production."""
    transform: Callable[..., Any] = lambda rows: rows  # noqa: E731
    with pytest.raises(ContractError, match=message):
        table(
            "bronze.taken", orders.model, transform, {"rows": replace(EXTRACT, **change)},
            partition_by=("_arrival_date", "_event_date"),
        )  # fmt: skip


def test_a_table_of_taken_rows_says_how_they_were_taken() -> None:
    """Without it, rows that are read again could not be told from new ones."""
    import pandera.pyspark as pa
    from pyspark.sql import types as T

    columns = {"order_id": (T.StringType(), pa.Field(nullable=True)), "day": (T.DateType(), pa.Field())}
    with pytest.raises(
        ContractError, match="expected the columns _arrival_date, _batch, _xid, _tombstone of taken rows"
    ):
        table("bronze.taken", model(**columns), lambda rows: rows, {"rows": EXTRACT})
