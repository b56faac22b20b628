"""Personal data that was landed in every place it could be is in nothing that a run leaves behind, but the landing zone.

A real run through Dagster over generated events, among them lines with a canary: one day passes, one fails its audit,
so that reasons, previews and failures are written too.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakehouse.bronze.events import COLUMNS as EVENT_COLUMNS
from lakehouse.bronze.online_retail import COLUMNS as RETAIL_COLUMNS
from lakehouse.read.lake import table_path
from lakehouse.sample.events import land_events
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import get_settings
from lakehouse_tests.commands.conftest import run as cli
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.tally import tally
from lakehouse_tests.sample.test_end_to_end import Lakehouse

pytestmark = [pytest.mark.slow, pytest.mark.crash]
TOKEN = re.compile(r"[0-9a-f]{8}:[0-9a-f]{64}")
GOOD, BAD = date(2026, 3, 2), date(2026, 3, 3)
NAME = "canary.person"
ADDRESS = f"{NAME}@leak.example"
SECRET = "Zanzibar Canary"  # personal as well, but nothing tells it: kept in `_rescued`, shown nowhere
NEEDLES = [NAME.encode(), b"leak.example"]
SPELLED = (ADDRESS, ADDRESS.upper(), f"tag+{ADDRESS}", ADDRESS.replace("@", "%40"), ADDRESS.replace("@", "＠"),
           f'"quoted {NAME}"@leak.example', f"for {ADDRESS}, please", json.dumps({"deep": [ADDRESS]}))  # fmt: skip


def _row(key: str, day: date, **cells: Any) -> dict[str, Any]:
    return {
        "event_id": f"canary-{key}", "schema_version": 1, "user_id": "u-1", "event_type": "purchase", "event_time": f"{day}T10:00:00Z",
        "order_id": f"o-{key}", "amount": "1.00", "currency": "EUR", "payment_method": "card", "country": "DE", **cells,
    }  # fmt: skip


def lines(day: date) -> list[str]:
    """A canary in each place that is not a column in clear by its contract, in lines that pass, break a rule, or are broken."""
    rows = [
        _row("field", day, email=ADDRESS),
        _row("upper", day, email=f"  {ADDRESS.upper()} "),
        _row("listed", day, email=[ADDRESS, {"work": ADDRESS}]),
        _row("rule", day, email=ADDRESS, amount="-5"),
        _row("currency", day, email=ADDRESS, currency="???"),
        _row("unknown", day, contact=ADDRESS),
        _row("nested", day, profile={"deep": [{"mail": ADDRESS, ADDRESS: 1}]}),
        _row("named", day) | {ADDRESS: 1},
        _row("text", day, note=f"write to <{ADDRESS}>, or mailto:{ADDRESS}?subject=x"),
        _row("future", day, email=ADDRESS, event_time="2999-01-01T00:00:00Z"),
    ]
    # A distinct address in every column, and every spelling in one.
    rows += [_row(f"in-{name}", day) | {name: f"{name}.{ADDRESS}"} for name in EVENT_COLUMNS]
    rows += [_row(f"spelled-{n}", day, country=text, order_id=text) for n, text in enumerate(SPELLED)]
    rows += [_row("twice", day, event_id=f"id.{ADDRESS}", payment_method=ADDRESS)] * 2
    rows += [_row("late", day, event_time="2025-01-01T00:00:00Z", currency=ADDRESS)]
    rows += [_row("secret", day, remark=SECRET)]
    texts = [json.dumps(row) for row in rows]
    texts += [json.dumps(_row("escaped", day, more=ADDRESS)).replace("@", "\\u0040")]
    whole = json.dumps(_row("cut", day, email=ADDRESS))
    texts += [
        whole[: whole.index(ADDRESS) + len(ADDRESS)],
        whole + whole,
        ADDRESS,
        f"{ADDRESS},{ADDRESS}",
        f"[{whole}]",
    ]
    texts += [whole.replace('"email"', '"email": 1, "email"'), f"{whole} // {ADDRESS}", f"\x00{ADDRESS}"]
    return texts


def exports(day: date) -> str:
    """A retail export with an address in each column, in an unknown one, and in lines that are none."""
    sound = dict(
        zip(
            RETAIL_COLUMNS, ("536365", "85123A", "HOLDER", "6", f"{day} 08:26:00", "2.55", "17850.0", "UK"), strict=True
        )
    )
    rows = [sound | {name: f"{name}.{ADDRESS}"} for name in RETAIL_COLUMNS]
    rows += [sound | {"Description": text} for text in SPELLED] + [sound | {"Description": f"for {ADDRESS}"}] * 2
    rows += [sound | {"note": ADDRESS}, sound | {"note": SECRET}]
    text = io.StringIO()
    written = csv.DictWriter(text, [*RETAIL_COLUMNS, "note", ADDRESS])
    written.writeheader()
    written.writerows(rows)
    return text.getvalue() + f'{ADDRESS}\n"{ADDRESS},1,2\n'


class Left:
    """Everything that a lakehouse's runs left on disk, or (`landing`) what had been landed."""

    def __init__(self, root: Path, *, landing: bool = False) -> None:
        self.files = [p for p in root.rglob("*") if p.is_file() and ("landing" in p.relative_to(root).parts) == landing]

    def leaks(self) -> Iterator[str]:
        """Files that hold a canary: in their bytes, or in their rows, statistics and metadata where they are packed."""
        for path in self.files:
            data = path.read_bytes().lower()
            if path.suffix == ".parquet" and data:
                with pq.ParquetFile(path) as parquet:
                    whole = (parquet.read().to_pylist(), parquet.metadata.to_dict(), parquet.metadata.metadata)
                    data += repr(whole).lower().encode()
            elif path.suffix == ".gz":
                data += gzip.decompress(path.read_bytes()).lower()
            data += path.name.lower().encode()
            if any(needle in data for needle in NEEDLES):
                yield str(path)


@pytest.fixture(scope="module")
def lakehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakehouse]:
    """Two days of events, and of orders: the second day is mostly broken lines."""
    root = tmp_path_factory.mktemp("canaries")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_ROOT", str(root))
        get_settings.cache_clear()
        land_events(root, GOOD, 2, rows=300, seed=3)
        land_sample_online_retail(root, GOOD, 2, rows=50, seed=3)
        for day, times in ((GOOD, 1), (BAD, 40)):
            path = root / "landing" / "events" / day.isoformat() / "canaries.jsonl"
            path.write_text("\n".join(lines(day) * times))
        (root / "landing" / "online_retail" / f"{GOOD}.csv.gz").write_bytes(gzip.compress(exports(GOOD).encode()))
        (root / "landing" / "events" / str(BAD) / f"{ADDRESS}.jsonl").write_text("{}")
        yield Lakehouse(root, GOOD, BAD)
    get_settings.cache_clear()


def test_no_canary_outlives_a_run(
    lakehouse: Lakehouse, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without it, an address could stand in a log, an event, a statistic, a preview or a quarantine, where nobody looks."""
    caplog.set_level(logging.DEBUG)
    run = lakehouse.run(GOOD, BAD)
    assert not run.success, "the bad day fails, so that failures are looked at too"
    assert ("bronze.events", BAD.isoformat()) not in run.materialized
    assert ("silver.transactions", GOOD.isoformat()) in run.materialized
    row = ("bronze.events", "event_id=canary-secret", f"_arrival_date={GOOD}")
    commands = [
        ("quarantine", "show", "bronze.events"),
        ("quarantine", "show", "bronze.online_retail", "--json"),
        ("quarantine", "show", "silver.transactions", "--json", "--limit", "500"),
        ("explain-row", *row),
        ("explain-row", *row, "--json"),
        ("status", "--json"),
        ("quarantine", "list"),
        ("quarantine", "discard", "bronze.events", "--day", str(GOOD), "--reason", "broken"),
        ("reconcile",),
        ("history", "bronze.events"),
        ("compact",),
        ("restore", "bronze.events", "--version", "1", "--reason", "a test"),
        ("vacuum",),
    ]
    printed = {" ".join(command): cli(lakehouse.root, *command) for command in commands}
    assert printed["quarantine list"].code == printed["history bronze.events"].code == 0
    assert "1 field(s): remark" in "".join(each.out for each in printed.values()), "the row is shown, its text is not"
    assert SECRET not in "".join(each.out + each.err for each in printed.values())
    said = capfd.readouterr()
    shown = [
        said.out,
        said.err,
        *[each.out + each.err for each in printed.values()],
        caplog.text,
        run.errors,
        repr(run.materialized),
    ]
    assert "not a JSON object" in printed["quarantine show bronze.events"].out
    left = Left(lakehouse.root)
    leaks = sorted(left.leaks()) + [text for text in shown if any(n.decode() in text.lower() for n in NEEDLES)]
    tally(
        "canaries",
        "{places} files and outputs searched, {leaks} with personal data",
        places=len(left.files) + len(shown),
        leaks=len(leaks),
    )
    assert not leaks[:10], [leak[:3000] for leak in leaks[:10]]
    kinds = {path.suffix for path in left.files}
    assert {".parquet", ".json", ".db"} <= kinds, kinds
    assert any(path.suffix == ".db" and b"ASSET_MATERIALIZATION" in path.read_bytes() for path in left.files)
    # The lines did come in, and the search does find what is there.
    assert len(list(Left(lakehouse.root, landing=True).leaks())) == 4
    published = rows_of(table_path(lakehouse.root, "bronze.events"))
    tokens = {row["event_id"]: row["email_token"] for row in published if str(row["event_id"]).startswith("canary-")}
    assert tokens["canary-field"] == tokens["canary-upper"] != None  # noqa: E711
    refused = rows_of(table_path(lakehouse.root, "bronze.events_quarantine"))
    assert {row["_arrival_date"] for row in refused} == {GOOD, BAD}
    ids = {row["event_id"] for row in published if row["payment_method"] not in ("card", None)}
    assert any(":" in str(each) for each in ids), "an id that was an address is a token"
    retail = [
        row for row in rows_of(table_path(lakehouse.root, "bronze.online_retail")) if row["_arrival_date"] == GOOD
    ]
    assert {name for name in RETAIL_COLUMNS for row in retail if TOKEN.fullmatch(str(row[name]))} >= {
        "Country",
        "InvoiceNo",
    }


def test_the_search_finds_a_canary_in_every_kind_of_place(tmp_path: Path) -> None:
    """Without it, the search above could pass over a kind of file, and its silence would mean nothing."""
    table = pa.table({"a": [ADDRESS] * 3, "b": [[ADDRESS]] * 3})
    bounds = pa.table({"a": [ADDRESS, "x"]})
    pq.write_table(table, tmp_path / "page.parquet", compression="zstd")
    pq.write_table(bounds.slice(1), tmp_path / "clean.parquet")
    pq.write_table(bounds.slice(1).replace_schema_metadata({"note": ADDRESS}), tmp_path / "metadata.parquet")
    pq.write_table(pa.table({ADDRESS: [1]}), tmp_path / "column.parquet")
    (tmp_path / f"{ADDRESS}.txt").write_text("a name")
    (tmp_path / "entry.json").write_text(json.dumps({"add": {"stats": json.dumps({"minValues": {"a": ADDRESS}})}}))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(ADDRESS.encode()))
    (tmp_path / "engine.log").write_text(ADDRESS.upper())
    (tmp_path / ".hidden").write_text(ADDRESS)
    with sqlite3.connect(tmp_path / "events.db") as database:
        database.execute("CREATE TABLE events (body TEXT)")
        database.execute("INSERT INTO events VALUES (?)", (ADDRESS,))
    database.close()
    found = {Path(each).name for each in Left(tmp_path).leaks()}
    assert found == {each.name for each in tmp_path.iterdir()} - {"clean.parquet"}
