"""`lakehouse sql` and `connect` without an engine: answers, files, the shell, and what other tools are told."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from lakehouse.commands.inspect import rows
from lakehouse.commands.inspect.connect import Tool, snippet
from lakehouse.commands.inspect.rows import Format, write_file, write_rows
from lakehouse.settings import Settings, get_settings
from lakehouse.spark.config import jars_dir
from lakehouse.spark.jars import ensure_jars
from lakehouse.spark.options import REMOTE
from lakehouse_tests.commands.conftest import Cli
from lakehouse_tests.conftest import ALONE

ROWS = [
    {"order_id": "a", "day": date(2011, 3, 1), "amount": Decimal("1.10"), "at": datetime(2011, 3, 1, 10, tzinfo=UTC), "tags": ["x", None]},
    {"order_id": "", "day": date(2011, 3, 2), "amount": None, "at": None, "tags": []},
    {"order_id": 'b,"c"\n', "day": date(2011, 3, 2), "amount": Decimal("-2.00"), "at": None, "tags": None},
]  # fmt: skip
SCHEMA = pa.schema(
    {"order_id": pa.string(), "day": pa.date32(), "amount": pa.decimal128(18, 2), "at": pa.timestamp("us", "UTC"), "tags": pa.list_(pa.string())}
)  # fmt: skip
SILENCE = 5.0  # seconds
QUERY = "SELECT order_id, day, amount, at, tags FROM silver.orders ORDER BY day, amount"


@pytest.fixture(autouse=True)
def orders(root: Path) -> None:
    """`silver.orders` of three rows; whoever asks for Spark is refused."""
    path = root / "tables" / "silver" / "orders"
    write_deltalake(path, pa.Table.from_pylist(ROWS, SCHEMA), partition_by=["day"])


def program(root: Path, *arguments: str) -> list[str]:
    """The command in a process of its own, which says at its end which libraries it has loaded."""
    lines = (
        "import sys, atexit",
        "heavy = {'pyspark', 'dagster', 'pandas', 'pandera', 'prompt_toolkit'}",
        "atexit.register(lambda: print('loaded', sorted(heavy & set(sys.modules)), file=sys.stderr))",
        f"sys.argv = ['lakehouse', *{list(arguments)!r}]",
        "from lakehouse.cli import main",
        "main()",
    )
    assert root.exists()
    return [sys.executable, "-c", "\n".join(lines)]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("sql", QUERY), ("sql", QUERY, "--out", "rows.csv"), ("connect",), ("--help",)])
def test_reading_loads_no_engine(root: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Without it, one import would bring back the seconds that a query took."""
    done = subprocess.run(
        program(root, *arguments), capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "LAKEHOUSE_ROOT": str(root)},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "loaded []"


def test_forms(cli: Cli) -> None:
    assert cli("sql", QUERY).out.splitlines()[1].split() == [
        "a",
        "2011-03-01",
        "1.10",
        "2011-03-01T10:00:00Z",
        '["x",',
        "null]",
    ]
    assert cli("sql", QUERY, "--json").json == cli("sql", QUERY, "--format", "json").json
    assert [row["amount"] for row in cli("sql", QUERY, "--json").json] == ["1.10", None, "-2.00"]
    found = list(csv.reader(io.StringIO(cli("sql", QUERY, "--format", "csv").out, newline="")))
    assert found == [
        ["order_id", "day", "amount", "at", "tags"],
        ["a", "2011-03-01", "1.10", "2011-03-01T10:00:00Z", '["x", null]'],
        ["", "2011-03-02", "", "", "[]"],
        ['b,"c"\n', "2011-03-02", "-2.00", "", ""],
    ]


@pytest.mark.parametrize("form", [Format.TABLE, Format.JSON, Format.CSV])
def test_what_has_parts_is_json_in_every_form(capsys: pytest.CaptureFixture[str], form: Format) -> None:
    """Without it, tables showed Python's own words: None, single quotes, datetime.datetime(2011, 3, 1, 10, 0)."""
    at, none = datetime(2011, 3, 1, 10, tzinfo=UTC), None
    several = [[{"at": at, "amount": Decimal("1.10"), "ok": True}, none]]
    write_rows(pa.table({"parts": pa.array(several), "bytes": pa.array([b"\x00\xff"])}), form)
    said = capsys.readouterr().out.replace('""', '"')
    assert '[{"at": "2011-03-01T10:00:00Z", "amount": "1.10", "ok": true}, null]' in said
    assert "00ff" in said


@pytest.mark.parametrize("form", [Format.TABLE, Format.JSON, Format.CSV])
def test_what_is_no_number_is_text_wherever_it_is(capsys: pytest.CaptureFixture[str], form: Format) -> None:
    """Without it, a map with a NaN or an infinity in it, as `ops.partition_metrics` may have, ends the command."""
    kind = pa.struct({"m": pa.map_(pa.string(), pa.float64()), "l": pa.list_(pa.float64())})
    write_rows(pa.table({"x": pa.array([{"m": [("a", math.nan)], "l": [-math.inf, 0.5]}], kind)}), form)
    said = capsys.readouterr().out.replace('""', '"')
    assert '{"m": [["a", "nan"]], "l": ["-inf", 0.5]}' in said


@pytest.mark.parametrize("form", [Format.TABLE, Format.JSON, Format.CSV])
def test_a_time_beyond_those_of_python_is_shown(capsys: pytest.CaptureFixture[str], form: Format) -> None:
    """Without it, one such time in a table that somebody else writes would end every look at it."""
    write_rows(pa.table({"at": pa.array([0, 317353593600000000], pa.timestamp("us", "UTC"))}), form)
    said = capsys.readouterr().out
    assert "1970-01-01T00:00:00Z" in said
    assert "12026-07-15" in said


def test_files(cli: Cli, tmp_path: Path) -> None:
    for name in ("rows.parquet", "rows.csv", "rows.json"):
        said = cli("sql", QUERY, "--out", str(tmp_path / name))
        assert (said.code, said.out) == (0, ""), said.err
        assert f"3 rows in {tmp_path / name}" in said.err.replace("\n", "")
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == ROWS
    assert json.loads((tmp_path / "rows.json").read_text()) == cli("sql", QUERY, "--json").json
    assert (tmp_path / "rows.csv").read_text() == cli("sql", QUERY, "--format", "csv").out.replace("\r\n", "\n")
    assert not list(tmp_path.glob(".rows*"))


@pytest.mark.parametrize("form", [Format.PARQUET, Format.CSV, Format.JSON])
def test_rows_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Format) -> None:
    """Without it, a result that is larger than the memory could go into no file."""
    monkeypatch.setattr(rows, "_GROUP", 5_000)
    schema = pa.schema([("text", pa.string())])
    before, held, each = pa.total_allocated_bytes(), 0, "x" * 1_000

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal held
        for number in range(60):
            yield pa.record_batch([[f"{number}{each}"] * 1_000], schema)
            held = max(held, pa.total_allocated_bytes() - before)

    file, found = tmp_path / f"rows.{form}", pa.RecordBatchReader.from_batches(schema, batches())
    assert write_file(found, form, file, Settings(root=tmp_path / "root")) == 60_000
    assert file.stat().st_size > 10_000
    assert held < 60 * 1_000 * len(each) / 3


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "embedded"])
def test_a_file_has_each_row_once_where_spark_has_to_answer_half_way(
    cli: Cli, root: Path, tmp_path: Path, spark: SparkSession, engine: str
) -> None:
    """Without it, rows that had come before would be there twice, or a part of them would be the whole answer."""
    texts = pa.array(["1"] * 250_000 + [" 1"] + ["1"] * 50_000)
    write_deltalake(root / "tables" / "silver" / "transactions", pa.table({"text": texts}))
    file = tmp_path / "rows.csv"
    said = cli("sql", "SELECT cast(text AS int) FROM silver.transactions", "--out", str(file), "--engine", engine)
    assert "a value whose meaning it decides" in said.err.replace("\n", " ")
    if engine == "auto":
        assert (said.code, file.read_text().count("1\n")) == (0, 300_001), said.err
    else:
        assert said.code == 2
        assert not [each for each in tmp_path.iterdir() if "rows" in each.name]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--out", "{root}/tables/silver/orders/x.parquet"), "is inside the lakehouse"),
        (("--out", "{root}/x.csv"), "is inside the lakehouse"),
        (("--out", "/nowhere/x.csv"), "cannot be written: No such file or directory"),
        (("--out", "x.txt"), "say with --format"),
        (("--out", "x.csv", "--format", "table"), "a file is csv, json or parquet"),
        (("--json", "--format", "csv"), "choose one"),
        (("--engine", "embedded", "--as-of", "2011-01-01"), "its log begins"),
    ],
)
def test_what_cannot_be_written_is_said(cli: Cli, root: Path, arguments: tuple[str, ...], told: str) -> None:
    said = cli("sql", QUERY, *[each.format(root=root) for each in arguments])
    assert said.code == 2
    assert told in said.err.replace("\n", "")


def test_only_embedded_means_no_spark(cli: Cli) -> None:
    said = cli("sql", "SELECT collect_list(order_id) FROM silver.orders", "--engine", "embedded")
    assert said.code == 2
    assert "Only Spark answers this query: the function collect_list" in said.err


def test_a_broken_table_file_does_not_end_reading(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a mistake in one table's file would keep everybody from reading any table."""
    monkeypatch.setattr("lakehouse.catalog.tables", lambda: pytest.fail("no table file is needed"))
    assert cli("sql", "SELECT count(*) n FROM silver.orders", "--json").json == [{"n": 3}]


@pytest.mark.slow
def test_the_shell(root: Path) -> None:
    """In a real terminal: several lines, an error that does not end it, descriptions, history, completion."""
    steps = (
        (b"typed.\r\nlake> ", b"select count(*) as number,\n"),
        (b"   ...> ", b" 'a;' as semi\n"),
        (b"   ...> ", b"from silver.ord\t;\n"),
        (b"1 row.\r\nlake> ", b"select nope from silver.orders;\n"),
        (b"tags.\r\nlake> ", b"\\d\n"),
        (b"3\r\nlake> ", b"\\d silver.orders\n"),
        (b"describe silver.orders\r\nlake> ", b"\\x\n"),
        (b"running\r\nlake> ", b"select 1\n"),
        (b"select 1\r\n   ...> ", b"\x03"),
        (b"\r\nlake> ", b"select 2 as two;\n"),
        (b"1 row.\r\nlake> ", b"\\q\n"),
    )
    keyboard, terminal = pty.openpty()
    with subprocess.Popen(
        program(root, "sql"), stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        env={**os.environ, "LAKEHOUSE_ROOT": str(root), "TERM": "dumb"},
        preexec_fn=_controlling,  # noqa: PLW1509  # so that the terminal's Ctrl-C reaches it
    ) as running:  # fmt: skip
        os.close(terminal)
        said, typed = b"", b""
        try:
            for asked, then in steps:
                # Python's readline misses a Ctrl-C of the moment between its prompt and its wait for keys.
                said += _until(keyboard, asked, again=typed if typed == b"\x03" else b"")
                typed = then
                os.write(keyboard, typed)
            said += _until(keyboard, b"loaded []")
            assert running.wait() == 0
        finally:
            running.kill()  # a shell that has said nothing for so long would be waited for
    os.close(keyboard)
    text = said.decode().replace("\r", "")
    assert re.search(r"number\s+semi", text)
    assert re.search(r"3\s+a;", text)
    assert "There is no column nope" in text
    assert re.search(r"silver\.orders\s+0\s+3", text)
    assert re.search(r"day\s+date\s+partition", text)
    assert r"There is no command \x" in text
    assert re.search(r"two\s+2\s", text)
    history = root / "sql_history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert "from silver.orders" in history.read_text(), "the tab key has completed the name"


def _controlling() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _until(keyboard: int, end: bytes, *, again: bytes = b"") -> bytes:
    """What the program says until it waits for the next line, or ends; where it says nothing, keys are typed again."""
    said, silent = b"", 0
    while not said.endswith(end):
        if not select.select([keyboard], [], [], SILENCE)[0]:
            silent += 1
            assert silent < 12, f"{end!r} was waited for after: {said.decode()}"
            os.write(keyboard, again)
            continue
        part = os.read(keyboard, 1)
        assert part, said.decode()
        said += part
    return said


# Of Spark, which would read a log of one entry in fifty tasks.
SMALL = {
    "PYSPARK_SUBMIT_ARGS": "--conf spark.databricks.delta.snapshotPartitions=1 --conf spark.ui.enabled=false pyspark-shell"
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["duckdb", "polars", "pandas", "spark"])
def test_what_is_printed_for_other_tools_opens_the_table(cli: Cli, tool: str) -> None:
    said = cli("connect", "silver.orders", "--for", tool)
    assert said.code == 0, said.err
    # What Spark would fetch is here already.
    jars = f'"spark.jars", "{",".join(str(each) for each in ensure_jars(jars_dir(get_settings())))}"'
    code = re.sub(r'"spark.jars.packages", "[^"]*"', jars, said.out)
    environment = {name: value for name, value in (os.environ | ALONE | SMALL).items() if name != REMOTE}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "3" in done.stdout
    assert tool == "duckdb" or "order_id" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "route"),
    [
        ("duckdb", "valid"),
        ("polars", "valid"),
        ("pandas", "valid"),
        ("polars", "route=valid"),
        ("duckdb", "route=valid"),
    ],
)
def test_what_is_printed_opens_files_where_a_publish_leaves_them(tmp_path: Path, tool: str, route: str) -> None:
    """Without it, a folder above the partitions' own, such as `route=valid`, is taken for one of them."""
    path, staged = tmp_path / "orders", f"staged/one/{route}/"
    write_deltalake(path, pa.Table.from_pylist(ROWS, SCHEMA), partition_by=["day"])
    log = path / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"path":"day=', f'"path":"{staged}day='))
    (path / staged).mkdir(parents=True)
    for folder in path.glob("day=*"):
        folder.rename(path / staged / folder.name)
    said = snippet(Tool(tool), "silver.orders", path, route != "valid")
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3" in done.stdout


def test_other_tools_are_told_versions_that_fit(cli: Cli, root: Path) -> None:
    import pyspark

    import lakehouse.spark

    said = cli("connect").out
    ivy = Path(str(lakehouse.spark.__file__)).with_name("ivy.xml").read_text()
    name, revision = re.findall(r'org="io.delta" name="(delta-spark[^"]*)" rev="([^"]*)"', ivy)[0]
    assert f"io.delta:{name}:{revision}" in said
    assert ".".join(pyspark.__version__.split(".")[:2]) in name
    assert f"local://{root}/tables/silver/orders" in said
    assert "There is no table silver.order to open. Did you mean silver.orders" in cli("connect", "silver.order").err
