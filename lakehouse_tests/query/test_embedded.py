"""What answers queries in this process: what it may touch, what it hands on, and that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse import store
from lakehouse.query import embedded
from lakehouse.query.checked_query import check_query
from lakehouse.query.embedded import _spilling, _walled, answer
from lakehouse.query.names import built_names
from lakehouse.query.sql_text import NotTranslatedError, QueryError
from lakehouse.settings import Settings
from lakehouse.store.disk import private_umask
from lakehouse_tests.fixtures.groups import masked
from lakehouse_tests.query.awkward import KNOWN, ROWS, make_tables


def asked(settings: Settings, text: str, version: int | None = None, limit: int | None = None) -> pa.Table:
    query = check_query(text, KNOWN, ["silver"])
    return answer(settings, query, [(use, version) for use in query.uses], limit, pa.RecordBatchReader.read_all)


def test_a_version_is_read_from_its_own_files(settings: Settings) -> None:
    assert asked(settings, "select count(*) n from silver.o").to_pylist() == [{"n": 60}]
    assert asked(settings, "select count(*) n from silver.o", version=0).to_pylist() == [{"n": 30}]
    with pytest.raises(QueryError, match="There is no column price"):
        asked(settings, "select price from silver.o", version=0)


def test_a_column_that_came_later_is_null_before(settings: Settings) -> None:
    made = asked(settings, "select id, price from silver.o order by id").to_pylist()
    assert [row["price"] for row in made] == [None] * 30 + [row["price"] for row in ROWS[30:]]


def test_a_field_that_came_later_has_its_values(tmp_path: Path) -> None:
    """Without it, the first file's fields would be those of all: newer ones null, in rows that have them."""
    path, old, new = tmp_path / "tables" / "silver" / "o", {"a": 1}, {"a": 2, "b": 3}
    for some in (old, new):
        kind = pa.struct([(name, pa.int32()) for name in some])
        rows = pa.table({"s": pa.array([some], kind), "l": pa.array([[some]], pa.list_(kind))})
        write_deltalake(path, rows, mode="append", schema_mode="merge")
    made = asked(Settings(root=tmp_path), "select s.b, l[0].b x, s from silver.o order by s.a").to_pylist()
    assert made == [{"b": None, "x": None, "s": {"a": 1, "b": None}}, {"b": 3, "x": 3, "s": {"a": 2, "b": 3}}]


def test_partitions_come_from_the_log(settings: Settings) -> None:
    """Without it, the null day, whose folder has a name, would be a text or lost."""
    made = asked(settings, "select id, day from silver.o order by id").to_pylist()
    assert [row["day"] for row in made] == [row["day"] for row in ROWS]


def test_an_empty_table_has_columns(tmp_path: Path) -> None:
    make_tables(tmp_path)
    DeltaTable(tmp_path / "tables" / "silver" / "p").delete()
    made = asked(Settings(root=tmp_path), "select *, count(*) over () n from silver.p")
    assert made.num_rows == 0
    assert made.schema.names == ["name", "small", "rate", "n"]


def test_where_rows_are_not_taken_to_the_end_the_reading_ends(settings: Settings) -> None:
    """Without it, DuckDB printed a page of what it had leaked behind the one sentence of a disk that is full."""
    query = check_query("select * from silver.o", KNOWN, ["silver"])
    taken: list[pa.RecordBatchReader] = []

    def refuse(rows: pa.RecordBatchReader) -> None:
        taken.append(rows)
        assert rows.read_next_batch().num_rows
        raise KeyError

    with pytest.raises(KeyError):
        answer(settings, query, [(use, None) for use in query.uses], None, refuse)
    with pytest.raises(StopIteration):
        taken[0].read_next_batch()


def test_a_limit_ends_the_reading(settings: Settings) -> None:
    assert asked(settings, "select id from silver.o order by id desc", limit=2)["id"].to_pylist() == [59, 58]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("select approx_count_distinct(name) from silver.o", "the function approx_count_distinct"),
        ("select first(name) x from silver.o", "the function first"),
        ("select collect_list(name) x from silver.o", "the function collect_list"),
        ("select name rlike 'a' x from silver.o", "RLIKE"),
        ("select cast(x as string) y from silver.o", "a cast of double to string"),
        ("select small = name y from silver.o", "int beside string"),
        ("select x from silver.o group by x", "groups by double"),
        ("select count(*) n from silver.o group by rollup(name)", "ROLLUP"),
        ("select t from silver.o lateral view explode(tags) u as t", "LATERALS"),
        ("select null x, coalesce(null, null) y", "a column of nulls alone"),
        ("select rand() x from silver.o", "the function rand"),
        ("with recursive t(k) as (select 1 union all select k + 1 from t where k < 4) select * from t", "RECURSIVE"),
        ("select o.id from silver.o where exists (select 1 from silver.p where p.small = o.small)", "o.small"),
        ("select small + 1 as b, b * 2 as c from silver.o", "b, which is of the query around"),
        ("select name from silver.o natural join silver.p", "METHOD"),
        ("select * from silver.o tablesample (10 percent)", "SAMPLE"),
        ("select interval 1 day", "INTERVAL"),
        ("select amount * amount * amount x from silver.o", "a decimal of"),
        ("select upper(name) x from silver.o", "a value whose meaning it decides"),
        ("select small / 0 x from silver.o", "a value whose meaning it decides"),
        ("select n * n x from silver.o", "Overflow"),
        ("select -(12345678901234567890123456789012345) x", "a value whose meaning it decides"),
        ("select abs(cast('0.12345678901234567890123456789012345678' as decimal(38,38))) x", "a value whose meaning it decides"),
        ("select timestamp'2011-01-01 24:00:00' x", "a value whose meaning it decides"),
        ("select id from silver.o where at < '2011-01-01 24:00:00'", "'2011-01-01 24:00:00' beside a timestamp"),
        ("select cast(5e22 as decimal(38,0)) x", "a value whose meaning it decides"),
        ("select cast(5.684341886080802e-14 as decimal(38,30)) x", "a value whose meaning it decides"),
        ("select case when null then 1 else 2 end x", "null as a condition"),
        ("select cast(name as int) x from silver.o", "a value whose meaning it decides"),
        ("select small + 1, try_add(small, 1) x from silver.o", "the function try_add"),
        ("select window(at, '1 day') w from silver.o", "the function window"),
        ("select max(name) over (order by x range between 1 preceding and current row) y from silver.o", "frame"),
        ("select name, amount from silver.o group by name", "must appear in the GROUP BY"),
        ("select * from silver.o timestamp as of '2030-01-01'", "TIMESTAMP AS OF"),
        ("select flag = small between 1 and 2 x from silver.o", "no parentheses"),
        ("select flag = small < 3 x from silver.o", "no parentheses"),
        ("select name is null is true x from silver.o", "no parentheses"),
        ("select id from silver.o where flag = name in (select name from silver.p)", "no parentheses"),
        ("select id from silver.o where name is null in (select flag from silver.o)", "no parentheses"),
        ("select id, small from silver.o order by -1", "ORDER BY -1"),
        ("select id, small from silver.o order by (1.5)", "ORDER BY 1.5"),
        ("select id, small from silver.o order by 3", "ORDER BY 3"),
        ("select count(*) n from silver.o group by 1.5", "GROUP BY 1.5"),
        ("select count(*) n from silver.o group by (1e0)", "GROUP BY 1e0"),
        ("select name from silver.o group by (2)", "GROUP BY 2"),
        ("select * from (select name from silver.o) group by 1", "GROUP BY 1"),
        ("select id from silver.o limit 1.5", "LIMIT 1.5"),
        ("select id from silver.o limit '1'", "LIMIT '1'"),
        ("select name, (select max(small) from silver.p) m, count(*) n from silver.o group by all", "subqueries"),
        ("select row_number() over (partition by name) r from silver.o", "row_number without ORDER BY"),
        ("select ntile(2) over () r from silver.o", "ntile without ORDER BY"),
        ("select lag(id) over w r from silver.o window w as (partition by name)", "lag without ORDER BY"),
        ("select lead(id) over (order by id rows between 1 preceding and current row) r from silver.o", "or with a frame"),
        ("select count(*) over W c from silver.o window w as (partition by name)", "the window W"),
        ("select rank() over w r from silver.o window w as (order by id rows unbounded preceding)", "or with a frame"),
        ("select max(id) over (range unbounded preceding) y from silver.o", "frame"),
        ("select max(id) over (order by id rows between 2 following and 1 following) y from silver.o", "frame"),
        ("select max(id) over (order by id rows between 1 preceding and 2 preceding) y from silver.o", "frame"),
        ("select lag(id, 3000000000) over (order by id) y from silver.o", "lag OVER"),
        ("select id from silver.o limit 3000000000", "LIMIT 3000000000"),
        ("select left(name, 3000000000) x from silver.o", "no plain number"),
        ("select nvl(name) x from silver.o", "nvl with 1 arguments"),
        ("select ifnull(name, 'a', 'b') x from silver.o", "ifnull with 3 arguments"),
        ("select coalesce() x", "coalesce with 0 arguments"),
        ("select greatest(small) x from silver.o", "greatest with 1 arguments"),
    ],
)  # fmt: skip
def test_what_is_not_shown_to_be_the_same_is_named_and_left_to_spark(settings: Settings, text: str, told: str) -> None:
    """Without it, DuckDB would answer in its own sense of the word, and nobody would see it in the figures."""
    with pytest.raises(NotTranslatedError, match=told):
        asked(settings, text)


def test_whatever_a_part_of_a_query_says_is_read_or_refused(settings: Settings) -> None:
    """Without it, a word that the parser keeps beside a node, as it does NOT beside LIKE, would be lost."""
    query = check_query("select name not like 'a' n from silver.o", KNOWN, ["silver"])
    for node in list(query.tree.walk()):
        node.set("word", "unheard of")
        with pytest.raises(NotTranslatedError, match="WORD of"):
            answer(settings, query, [(use, None) for use in query.uses], None, pa.RecordBatchReader.read_all)
        node.set("word", None)
    assert (
        asked(settings, "select name from silver.o where name not like '%' or name not like 'a' and id = 0").num_rows
        == 0
    )


def test_an_unknown_column_is_told_at_once(settings: Settings) -> None:
    with pytest.raises(QueryError, match="There is no column amont. Did you mean amount"):
        asked(settings, "select sum(amont) from silver.o")


def test_odd_names_and_texts_are_only_that(tmp_path: Path) -> None:
    """Without it, a column's name or a literal could end a quoted part of the generated query."""
    odd = """a" FROM 'b' -- ` \\"""
    path = tmp_path / "tables" / "silver" / "o"
    write_deltalake(path, pa.table({odd: ["x' OR '1'='1", "y"], "part": ["it's", "b%/c"]}), partition_by=["part"])
    settings = Settings(root=tmp_path)
    assert asked(settings, "select * from silver.o where part = 'it\\'s'").to_pylist() == [
        {odd: "x' OR '1'='1", "part": "it's"}
    ]
    quoted = "`" + odd.replace("`", "``") + "`"
    assert asked(settings, f"select {quoted} c from silver.o where {quoted} = 'x\\' OR \\'1\\'=\\'1'").num_rows == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_parquet('{other}')",
        "SELECT * FROM '{other}'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_csv('/proc/self/environ')",
        "COPY (SELECT 1) TO '{other}.copy'",
        "ATTACH '{other}.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET allowed_paths = ['/etc/passwd']",
        "RESET allowed_paths",
        "EXPORT DATABASE '{other}.export'",
    ],
)
def test_the_wall_holds_alone(tmp_path: Path, text: str) -> None:
    """Without it, one fault of the translation would read any file of the machine or write one."""
    import pyarrow.parquet as pq

    allowed, other = tmp_path / "in.parquet", tmp_path / "other.parquet"
    for path in (allowed, other):
        pq.write_table(pa.table({"a": [1]}), path)
    with _walled([str(allowed)], None) as engine:
        assert engine.execute(f"SELECT a FROM read_parquet('{allowed}')").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error):
            engine.execute(text.format(other=other))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "other.parquet"]


def test_variables_of_this_program_are_no_tables() -> None:
    secret = pa.table({"a": [1]})
    with _walled([], None) as engine, pytest.raises(duckdb.Error):
        engine.execute("SELECT * FROM secret")
    assert secret.num_rows == 1


def test_what_does_not_fit_goes_to_a_private_folder_that_is_removed(tmp_path: Path) -> None:
    with _spilling(tmp_path) as folder:
        assert folder is not None
        assert (folder.stat().st_mode & 0o777) == 0o700
        with _walled([], folder) as engine:
            with pytest.raises(duckdb.Error):
                engine.execute("SET memory_limit = '1MB'")
            assert engine.execute("SELECT current_setting('temp_directory')").fetchone() == (str(folder),)
    assert not store.listed(tmp_path / "spill")


def test_who_shares_a_root_has_a_folder_for_what_does_not_fit(tmp_path: Path) -> None:
    """Without it, only who asked first would have one, and nobody else could search the root for a person."""
    tmp_path.chmod(0o770)
    with masked(private_umask(tmp_path)), _spilling(tmp_path) as folder:
        assert folder is not None
        assert (folder.stat().st_mode & 0o777) == 0o700
    assert ((tmp_path / "spill").stat().st_mode & 0o777) == 0o770


@pytest.mark.parametrize("step", ["make_folder", "lock"])
def test_who_may_not_write_beside_the_tables_is_answered(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Without it, a query of a reader would fail, wherever its owner's queries had made the folder before."""
    with _spilling(settings.root):
        pass

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store if step == "make_folder" else embedded.FileLock, step.replace("lock", "acquire"), refused)
    with _spilling(settings.root) as folder:
        assert folder is None
    assert asked(settings, "select count(*) n from silver.o").to_pylist() == [{"n": 60}]


@pytest.mark.slow
def test_rows_left_by_a_killed_query_are_removed_by_the_next(tmp_path: Path) -> None:
    """Without it, rows of a table, personal ones too, would stay beside the tables for ever."""
    program = (
        "import sys, time; from pathlib import Path; from lakehouse.query.embedded import _spilling\n"
        "with _spilling(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'rows').write_text('private'); print('there', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "there\n"
        with _spilling(tmp_path):
            left = list((tmp_path / "spill").rglob("rows"))
        assert len(left) == 1, "what a living query holds stays"
        os.kill(running.pid, signal.SIGKILL)
    with _spilling(tmp_path):
        assert not list((tmp_path / "spill").rglob("rows"))
    assert not store.listed(tmp_path / "spill")


def test_an_interrupt_ends_a_query_that_runs(settings: Settings) -> None:
    """Without it, Ctrl-C is heard when the query is done, which may be tomorrow."""
    many = ", ".join(f"silver.o {name}" for name in "abcdef")
    begun = time.monotonic()
    interrupt = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        asked(settings, f"select count(*) n from {many} where a.id + b.id + c.id + d.id + e.id > f.id")
    interrupt.join()
    assert time.monotonic() - begun < 10


def test_names_are_those_of_tables_on_the_disk(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path)
    assert built_names(settings) == []
    for name in (
        "silver/orders",
        "silver/orders_quarantine",
        "silver/orders__candidate",
        "silver/nothing",
        "ops/erasures",
    ):
        write_deltalake(tmp_path / "tables" / name, pa.table({"a": [1]}))
    assert built_names(settings) == ["silver.orders", "silver.orders_quarantine", "ops.erasures"]
