"""Personal data that was landed in every place it could be is in nothing that a run leaves behind, but the landing zone.

A real run through Dagster over generated events, among them lines with a canary: one day passes, one fails its audit,
so that reasons, previews and failures are written too.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakehouse.settings import get_settings
from lakehouse.sources.landing import land_events, land_sample_online_retail
from lakehouse.tables.lake import table_path
from lakehouse_tests.commands.conftest import run as cli
from lakehouse_tests.making import rows_of
from lakehouse_tests.tally import tally
from lakehouse_tests.test_end_to_end import Lakehouse

pytestmark = [pytest.mark.slow, pytest.mark.crash]
GOOD, BAD = date(2026, 3, 2), date(2026, 3, 3)
NAME = "canary.person"
ADDRESS = f"{NAME}@leak.example"
NEEDLES = [NAME.encode(), b"leak.example"]


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
                    data += repr((parquet.read().to_pylist(), parquet.metadata.to_dict())).lower().encode()
            elif path.suffix == ".gz":
                data += gzip.decompress(path.read_bytes()).lower()
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
    commands = [
        ("quarantine", "show", "bronze.events"),
        ("status",),
        ("quarantine", "list"),
        ("history", "bronze.events"),
    ]
    printed = [cli(lakehouse.root, *command) for command in commands]
    assert [each.code for each in printed[2:]] == [0, 0]
    said = capfd.readouterr()
    shown = [
        said.out,
        said.err,
        *[each.out + each.err for each in printed],
        caplog.text,
        run.errors,
        repr(run.materialized),
    ]
    assert "not a JSON object" in printed[0].out
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
    assert len(list(Left(lakehouse.root, landing=True).leaks())) == 2
    published = rows_of(table_path(lakehouse.root, "bronze.events"))
    tokens = {row["event_id"]: row["email_token"] for row in published if str(row["event_id"]).startswith("canary-")}
    assert tokens["canary-field"] == tokens["canary-upper"] != None  # noqa: E711
    refused = rows_of(table_path(lakehouse.root, "bronze.events_quarantine"))
    assert {row["_arrival_date"] for row in refused} == {GOOD, BAD}
