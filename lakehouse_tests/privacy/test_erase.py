"""A person's rows leave Delta tables by commits, and files and log entries that remember them leave the disk."""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path

import pandera.pyspark as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from lakehouse.contracts import Input, Table
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import LakehouseError
from lakehouse.privacy.erase import delta_tables, erase_rows, other_columns, purge, rows_by_day, table_at
from lakehouse.privacy.forget import Built, Days, Forgotten, Runs, forget, subject
from lakehouse.privacy.scan import clean_rest, scan
from lakehouse.privacy.traces import TraceError, files_under, names_person, without_person
from lakehouse.read.lake import Lake, table_path
from lakehouse.read.targets import targets
from lakehouse.records.erasures import BEGUN, DONE, Erasure, erasures, forgotten, note
from lakehouse.sources.people import FORGOTTEN, Person
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import having, model, put, rows_of, stage_rows, table

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
TEXT = T.StringType()
AT = datetime(2026, 3, 2, 10, 0, 0, 123456, tzinfo=UTC)
COLUMNS = {
    "user_id": (TEXT, pa.Field(nullable=True)),
    "day": (T.DateType(), pa.Field()),
    "product": (TEXT, pa.Field(nullable=True)),
    "amount": (T.DecimalType(18, 2), pa.Field(nullable=True)),
    "at": (T.TimestampType(), pa.Field(nullable=True)),
    "_rescued": (TEXT, pa.Field(nullable=True)),
    "_days": (T.ArrayType(T.DateType()), pa.Field(nullable=True)),
}
SALES: Table = table(
    "silver.sales", model("Sales", **COLUMNS), lambda x: x, {"x": Input("bronze.x")}, pii=("user_id",),
    person=("user_id",), profile=("amount",),
)  # fmt: skip
BEFORE = having(SALES, pii=(), person=())  # as it was before ids counted as personal data


def row(user: str | None, product: str = "22423", rescued: str | None = None) -> dict[str, object]:
    return {
        "user_id": user, "product": product, "amount": Decimal("12.50"), "at": AT, "_rescued": rescued,
        "_days": [MONDAY],
    }  # fmt: skip


MONDAYS = [
    row("17841"), row("17841.0"), row("9", "17841"), row("8", rescued='{"friend":"17841"}'), row(None), row("99999")
]  # fmt: skip


@pytest.fixture
def sales(lake: LakeFactory) -> Lake:
    """Two days with the person in the first, and a log of before ids were personal data: bounds name people."""
    made = lake(SALES)
    put(made, BEFORE, MONDAY, [row("17841")])
    put(made, BEFORE, MONDAY, MONDAYS)
    put(made, BEFORE, TUESDAY, [row("9")], mark=5)
    return made


@pytest.fixture
def person() -> Person:
    return Person("17841", others=other_columns({SALES.id: SALES}))


def test_rows_go_and_everything_else_stays_as_it_is(sales: Lake, person: Person) -> None:
    """Without it, days whose landed files are gone would keep the person, or lose or change other people's rows."""
    path = sales.path(SALES.id)
    others = [each for each in rows_of(path) if each["user_id"] not in ("17841", "17841.0")]
    assert rows_by_day(path, SALES, person) == {MONDAY: 2}
    mark = sales.snapshot(SALES.id).transaction(day_transaction(MONDAY))
    assert erase_rows(sales.settings.root, path, SALES, person, "e1") == 3
    edited = [{**each, "_rescued": json.dumps({"friend": FORGOTTEN})} if each["_rescued"] else each for each in others]
    assert rows_of(path) == edited
    now = sales.snapshot(SALES.id)
    assert now.transaction(day_transaction(MONDAY)) != mark, "what reads the day would not be built again"
    assert now.transaction(day_transaction(TUESDAY)) == 5
    version = now.version
    assert erase_rows(sales.settings.root, path, SALES, person, "e1") == 0
    assert sales.snapshot(SALES.id).version == version


@pytest.mark.parametrize("known", ["", "silver.sales", "silver.sales__candidate"])
@pytest.mark.parametrize("kind", [T.LongType(), T.IntegerType()])
def test_an_id_that_is_a_number_is_found_and_erased(lake: LakeFactory, kind: T.DataType, known: str) -> None:
    """Without it, rows whose landed files are gone, and old files of all others, would keep the person unsaid."""
    columns = {**COLUMNS, "user_id": (kind, pa.Field(nullable=True))}
    numbered = table("silver.sales", model("Sales", **columns), lambda x: x, SALES.inputs, person=("user_id",))
    made = lake(numbered)
    put(made, numbered, MONDAY, [{**row(None), "user_id": user} for user in (17841, 9, 178410, None)])
    path, who = made.path(numbered.id), subject(made.settings, made.tables, "17841", []).person
    root = made.settings.root
    of = table_at(root, table_path(root, known), made.tables) if known else None  # of a table that has no file any more
    assert (of is numbered) == bool(known)
    assert rows_by_day(path, of, who) == {MONDAY: 1}
    assert erase_rows(root, path, of, who, "e1") == 1
    assert {each["user_id"] for each in rows_of(path)} == {9, 178410, None}
    assert purge(path, who, time.time() + 60)[0] == 1
    assert not any(names_person(file, who) for file in files_under(path))


def test_rows_of_a_table_that_has_no_file_any_more_go(lake: LakeFactory) -> None:
    """Without it, only the id would go, and the person's other values stay, where ids have a name of one's own."""
    columns = {("buyer" if name == "user_id" else name): kind for name, kind in COLUMNS.items()}
    renamed = table("silver.sales", model("Sales", **columns), lambda x: x, SALES.inputs, person=("buyer",))
    made = lake(renamed)
    users = ("u17841", "u9", None)
    put(made, renamed, MONDAY, [{**{n: v for n, v in row(None).items() if n in columns}, "buyer": u} for u in users])
    path, root = made.path(renamed.id), made.settings.root
    for still_named in (made.tables, {}):  # by the contract of another table, or by none
        who = subject(made.settings, still_named, "u17841", []).person
        assert rows_by_day(path, None, who) == {MONDAY: 1}
    assert erase_rows(root, path, None, who, "e1") == 1
    assert [each["buyer"] for each in rows_of(path)] == ["u9", None]


def test_a_person_whom_a_build_brings_back_is_not_forgotten(sales: Lake) -> None:
    """Without it, an erasure says that all is done, and the next build of the day has the person in it again."""

    def built(_: object, *rows: dict[str, object]) -> Built:
        put(sales, SALES, MONDAY, [row("9"), *rows])
        return Built(frozenset(), frozenset())

    def forgotten_by(build: Callable[[Days], Built]) -> Forgotten:
        who = subject(sales.settings, sales.tables, "17841", [])
        return forget(sales.settings, sales.tables, who, Runs(build, lambda: None))

    # What the tables read knows her by another name, which the transform turns into this one.
    found = forgotten_by(lambda days: built(days, row("17841")))
    assert (found.back, found.hits) == ({SALES.id: 1}, [])
    assert DONE not in {each.state for each in erasures(sales.settings.root)}
    assert forgotten_by(built).back == {}
    assert DONE in {each.state for each in erasures(sales.settings.root)}


def test_figures_follow_the_rows(sales: Lake, person: Person) -> None:
    """Without it, the history would count rows that are gone, and baselines and reconciliation be off."""
    path = sales.path(SALES.id)
    erase_rows(sales.settings.root, path, SALES, person, "e1")
    (entry,) = DeltaTable(str(path)).history(1)
    figures = json.loads(entry["lakehouse.metrics"])[MONDAY.isoformat()]
    assert entry["lakehouse.operation"] == "forget"
    assert (figures["rows"], figures["profile"]["amount"]["sum"]) == (4, "50.00")


def test_old_files_and_log_entries_that_name_the_person_are_removed(sales: Lake, person: Person) -> None:
    """Without it, time travel and the bounds in old log entries would bring the person back."""
    path = sales.path(SALES.id)
    erase_rows(sales.settings.root, path, SALES, person, "e1")
    rows, transactions = rows_of(path), sales.snapshot(SALES.id).transaction(day_transaction(TUESDAY))
    assert any(names_person(file, person) for file in files_under(path))
    removed, entries = purge(path, person, time.time() + 1)
    assert removed == 2
    assert entries > 0
    assert not [file for file in files_under(path) if names_person(file, person)]
    assert rows_of(path) == rows
    assert sales.snapshot(SALES.id).transaction(day_transaction(TUESDAY)) == transactions == 5
    assert purge(path, person, time.time() + 1) == (0, 0)
    put(sales, SALES, TUESDAY, [row("9"), row("10")])
    assert len(rows_of(path)) == len(rows) + 1, "the table can be written on"


def test_a_file_that_may_be_a_running_jobs_stays(sales: Lake, person: Person) -> None:
    """Without it, a run that began meanwhile would lose its staged files."""
    path = sales.path(SALES.id)
    erase_rows(sales.settings.root, path, SALES, person, "e1")
    assert purge(path, person, time.time() - 3600)[0] == 0


@pytest.mark.parametrize("user", ["null", "true", "visitor"])
def test_a_word_of_the_lakehouse_itself_may_be_an_id(lake: LakeFactory, user: str) -> None:
    """Without it, an erasure would never be done, since the columns of a table are described in its log, or break Dagster."""
    columns = {**COLUMNS, "user_id": (TEXT, pa.Field(nullable=True, description="User; null for a visitor"))}
    described = having(BEFORE, model=model("Sales", **columns))
    made, person = lake(described), Person(user, ids=frozenset({"user_id"}))
    root, path = made.settings.root, made.path(described.id)
    put(made, described, MONDAY, [row(user), row("9")])
    config = root / "dagster.yaml"
    config.write_text("run_retries:\n  enabled: true\n  tags: null\n")
    assert erase_rows(root, path, described, person, "e1") == 1
    assert purge(path, person, time.time() + 1)[0] == 1
    assert clean_rest(root, {described.id: described}, person) == 0
    assert scan(root, {described.id: described}, person)[1] == []
    assert [each["user_id"] for each in rows_of(path)] == ["9"]
    assert DeltaTable(str(path)).schema().fields[0].metadata == {"comment": "User; null for a visitor"}


@pytest.mark.parametrize("user", ["enabled", "description", "i"])
def test_no_word_of_a_configuration_or_of_dagster_is_struck_out(tmp_path: Path, user: str) -> None:
    """Without it, to forget somebody with such an id would leave a lakehouse that does not start, or is never clean."""
    told = {"__class__": "Asset", "description": f"asked for by {user}, once", "tags": {"team": "i"}}
    (tmp_path / "dagster.yaml").write_text("run_retries:\n  enabled: true\n")
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "appendonly.aof.manifest").write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        database.execute("CREATE TABLE event_logs (event TEXT)")
        database.execute("INSERT INTO event_logs VALUES (?)", (json.dumps(told),))
        database.commit()
    assert clean_rest(tmp_path, {}, Person(user)) == 1
    assert scan(tmp_path, {}, Person(user))[1] == []
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        ((left,),) = database.execute("SELECT event FROM event_logs").fetchall()
    assert json.loads(left) | {"tags": {}} == told | {"description": f"asked for by {FORGOTTEN}, once", "tags": {}}
    assert (tmp_path / "dagster.yaml").read_text() == "run_retries:\n  enabled: true\n"


def test_what_dagster_packed_is_unpacked_before_it_is_searched(tmp_path: Path) -> None:
    """Without it, an erasure of a short id would never be done, since it is in packed bytes by chance; nor be true."""
    u3, store = Person("u3"), tmp_path / "runs.db"
    texts = (" ".join(str(n * n) for n in range(start, start + 500)).encode() for start in count())
    by_chance = next(packed for text in texts if u3.in_bytes(packed := zlib.compress(text)))
    with closing(sqlite3.connect(store)) as database:
        database.execute("CREATE TABLE snapshots (body BLOB)")
        database.execute("INSERT INTO snapshots VALUES (?)", (by_chance,))
        database.commit()
        assert not names_person(store, u3)
        database.execute("INSERT INTO snapshots VALUES (?)", (zlib.compress(b"of user u3, " * 9),))
        database.commit()
    assert names_person(store, u3)


def test_a_history_without_the_person_is_kept(sales: Lake) -> None:
    """Without it, every erasure would end time travel and undo for all tables."""
    path = sales.path(SALES.id)
    assert purge(path, Person("55555"), time.time() + 1) == (0, 0)
    assert [len(rows_of(path, version)) for version in (1, 2, 3)] == [1, 6, 7]


def test_what_is_no_layers_table_is_edited_in_place(lake: LakeFactory, person: Person) -> None:
    """Without it, what is written down for ever about a table would lose entries, or name the person."""
    columns = {"day": (T.DateType(), pa.Field()), "reason": (TEXT, pa.Field()), "n": (T.LongType(), pa.Field())}
    ledger = replace(
        table("silver.ledger", model("Ledger", **columns), lambda x: x, {"x": Input("bronze.x")}), layer="ops"
    )
    made = lake(ledger)
    put(made, ledger, MONDAY, [{"reason": "asked for by 17841", "n": 17841}, {"reason": "none", "n": 2}])
    (path,) = delta_tables(made.settings.root)
    assert table_at(made.settings.root, path, {}) is None
    assert erase_rows(made.settings.root, path, None, person, "e1") == 1
    assert {(each["reason"], each["n"]) for each in rows_of(path)} == {
        ("none", 2),
        (f"asked for by {FORGOTTEN}", 17841),
    }


def test_what_a_kill_left_before_the_first_commit_is_found(lake: LakeFactory, person: Person) -> None:
    """Without it, a table that never came to be would keep its people, and the scan could not be satisfied."""
    made = lake(SALES)
    target, _ = targets(made, SALES)
    (file,) = stage_rows(target, [row("17841")])
    (target.path / "_delta_log").mkdir()
    assert delta_tables(made.settings.root) == [target.path]
    assert rows_by_day(target.path, SALES, person) == {}
    assert erase_rows(made.settings.root, target.path, SALES, person, "e1") == 0
    assert names_person(file.path, person)
    assert purge(target.path, person, time.time() + 1) == (1, 0)
    assert not file.path.exists()


def test_event_stores_and_logs_are_edited(tmp_path: Path, person: Person) -> None:
    """Without it, previews of before, or an error text, would go on naming the person; free pages would too."""
    store, log, free = tmp_path / "event_log.db", tmp_path / "engine.log", tmp_path / "runs.db"
    event = {"step": "s", "size": 17841, "metadata": {"preview": "| user_id | n |\n|---|---|\n| 17841 | 3 |"}}
    with sqlite3.connect(store) as database:
        database.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, event TEXT)")
        database.executemany("INSERT INTO events (event) VALUES (?)", [(json.dumps(event),), ("other",)])
    database.close()
    log.write_text("first\nuser 17841 failed\nlast")
    ann = replace(person, emails=frozenset({"ann@example.com"}))
    with sqlite3.connect(free) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("CREATE TABLE t (x TEXT)")
        database.execute("INSERT INTO t VALUES (?)", ("ann@example.com" * 3 + " ann@example.com",))
        database.commit()
        database.execute("DELETE FROM t")
    database.close()
    assert names_person(free, ann), "a deleted row is still in the file"
    for path in (store, log, free):
        assert without_person(path, ann)
        assert not names_person(path, ann)
        assert not without_person(path, ann)
    with sqlite3.connect(store) as database:
        ((text,), (other,)) = database.execute("SELECT event FROM events ORDER BY id").fetchall()
    database.close()
    assert (json.loads(text)["size"], other) == (17841, "other")
    assert json.loads(text)["metadata"]["preview"].endswith(f"| {FORGOTTEN} | 3 |")
    assert log.read_text() == f"first\nuser {FORGOTTEN} failed\nlast"


def test_a_short_id_is_not_found_in_the_bytes_between_cells(tmp_path: Path) -> None:
    """Without it, an erasure of a short id would never be done: lengths and pages of an event store look like it."""
    store, u1 = tmp_path / "runs.db", Person("u1")
    with sqlite3.connect(store) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("CREATE TABLE runs (body TEXT, status TEXT)")
        database.execute("CREATE INDEX by_status ON runs (body, status)")
        # SQLite writes the lengths of two texts as the bytes `u` and `1`, here.
        database.executemany("INSERT INTO runs VALUES (?, ?)", [("{" + "x" * 51, "y" * 18)] * 200)
    database.close()
    assert b"u1{" in store.read_bytes()
    without_person(store, u1)  # what the pages' growth left in them is gone
    assert b"u1{" in store.read_bytes()
    assert not names_person(store, u1)
    assert not without_person(store, u1)
    with sqlite3.connect(store) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("INSERT INTO runs VALUES ('user u1 failed', '')")
        database.commit()
        assert names_person(store, u1)
        database.execute("DELETE FROM runs WHERE status = ''")
    database.close()
    assert names_person(store, u1), "a deleted row is still in the file"
    assert without_person(store, u1)
    assert not names_person(store, u1)
    with sqlite3.connect(store) as database:
        database.execute("INSERT INTO runs VALUES (?, '')", (b"\x00 user u1",))
    database.close()
    assert names_person(store, u1), "a cell of bytes names them"


def test_the_journal_of_an_event_store_is_edited_with_it(tmp_path: Path, person: Person) -> None:
    """Without it, a journal that somebody has open would be written over: what it holds for the store would be lost."""
    store = tmp_path / "event_log.db"
    open_by_another = sqlite3.connect(store, isolation_level=None)
    for text in ("PRAGMA journal_mode = WAL", "CREATE TABLE events (event TEXT)"):
        open_by_another.execute(text).close()
    open_by_another.execute("INSERT INTO events VALUES ('of 17841'), ('of nobody')").close()
    journal = tmp_path / "event_log.db-wal"
    assert names_person(journal, person)
    assert without_person(journal, person)
    assert not any(names_person(each, person) for each in files_under(tmp_path))
    open_by_another.execute("INSERT INTO events VALUES ('later')").close()
    open_by_another.close()
    with sqlite3.connect(store) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = [text for (text,) in database.execute("SELECT event FROM events")]
    assert len(found) == 3
    assert found[1:] == ["of nobody", "later"]


def test_deleted_rows_are_found_wherever_they_are(tmp_path: Path) -> None:
    """Without it, a person could stay in a free page, in the room of a deleted row, or behind a long text."""
    for number, (rows, kept) in enumerate([(1, 0), (3, 2), (4000, 0), (4000, 3990), (4000, 1)]):
        for long in (1, 900):
            store = tmp_path / f"{number}-{long}.db"
            with sqlite3.connect(store, isolation_level=None) as database:
                database.execute("PRAGMA secure_delete = OFF")
                database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT)")
                database.execute("BEGIN")  # else each row waits for the disk
                texts = [
                    (f"row {n} of u777 " + "x" * long if n >= kept else "other " + "y" * long,) for n in range(rows)
                ]
                database.executemany("INSERT INTO t (x) VALUES (?)", texts)
                database.execute("COMMIT")
                database.execute("CREATE INDEX by_x ON t (x)")
                database.execute("DELETE FROM t WHERE x LIKE 'row%'")
            database.close()
            assert b"u777" in store.read_bytes()
            assert names_person(store, Person("u777")), store.name
            assert without_person(store, Person("u777"))
            assert not names_person(store, Person("u777"))
            assert b"u777" not in store.read_bytes()


def test_a_brokers_files_are_named_and_left_alone(tmp_path: Path, person: Person) -> None:
    """Without it, erasing a person would break the topics of the broker under the root, or pass them over unseen."""
    messages = tmp_path / "kafka" / "data" / "visits-0" / "00000000000000000000.log"
    messages.parent.mkdir(parents=True)
    messages.write_bytes(b'\x00\x01{"user_id":"17841"}\x02\n')
    before = messages.read_bytes()
    assert clean_rest(tmp_path, {}, person) == 0
    assert messages.read_bytes() == before
    assert scan(tmp_path, {}, person) == (1, [str(messages.relative_to(tmp_path))])


def test_an_event_store_in_use_is_said(tmp_path: Path, person: Person) -> None:
    """Without it, the erasure would end in a traceback of the database's."""
    store = tmp_path / "event_log.db"
    with sqlite3.connect(store, isolation_level=None) as database:
        database.execute("CREATE TABLE events (event TEXT)")
        database.execute("INSERT INTO events VALUES ('user 17841')")
        database.execute("BEGIN IMMEDIATE")
        with pytest.raises(TraceError, match=r"event_log\.db is in use.*lakehouse dev"):
            without_person(store, person, patience=0.05)
        database.execute("ROLLBACK")
    database.close()
    assert issubclass(TraceError, LakehouseError)


def test_the_ledger_knows_people_by_marks_and_a_repeat_once(tmp_path: Path) -> None:
    """Without it, a killed erasure that is run again would be two, and the filter would begin only at its end."""
    begun = Erasure("id-0", BEGUN, ("aa", "bb"))
    note(tmp_path, begun)
    note(tmp_path, begun)
    assert forgotten(tmp_path) == {"aa", "bb"}
    note(tmp_path, Erasure("id-0", DONE, ("aa", "bb"), {"landed_lines": 3}))
    assert [(each.state, dict(each.counts)) for each in erasures(tmp_path)] == [
        (BEGUN, {}),
        (DONE, {"landed_lines": 3}),
    ]
    assert all(each.who and each.at for each in erasures(tmp_path))
