"""One definition serves files and messages: the same events, landed or streamed, give the same silver and gold.

The stream is cut into random batches and killed at random points; the files are built in one range. Rows that no row
can be made of stay in bronze's quarantine where they were landed, and go to silver's where they were streamed; what is
published is compared. When hours of gold.event_windows were closed, and what corrected them since, only a stream has: of
that the same has to come out where it is computed again from the same lake.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse.build.build import build
from lakehouse.build.stale import stale_days
from lakehouse.catalog import declared
from lakehouse.contracts import Table
from lakehouse.delta.failpoints import POINTS
from lakehouse.read.lake import table_path
from lakehouse.sample.events import land_events
from lakehouse.sample.faults import Faults
from lakehouse.settings import get_settings
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.laboratory import KILLED, EngineProcess, Laboratory
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PARTITIONS, MOST, KILLS = 3, 150, 3
DAYS = [datetime.now(UTC).date() - timedelta(days=n) for n in (4, 3, 2)]
MOST_LATE = timedelta(days=9)  # beyond the windows of the first day; each day more is built
ROWS = int(os.environ.get("LAKEHOUSE_TEST_STREAM_ROWS", "120"))
# Not `future`: a landed event has arrived at the end of its file's day, a streamed one when its broker stored it.
FAULTS = Faults(
    duplicates=0.05, nulls=0.02, late=0.05, malformed=0.02, unknown_fields=0.02, wrong_types=0.02, negative_amounts=0.02,
    positive_cancellations=0.005, unknown_currency=0.02, unknown_event_type=0.02,
)  # fmt: skip
OF_A_RUN = {"_ingested_run", "_code_version"}
OF_A_STREAM = {"closed_at_watermark", "corrections"}


@pytest.fixture(scope="module")
def shop_tables() -> list[Table]:
    """The sample's own tables that web events reach."""
    return list(declared("lakehouse").values())


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """Tokens depend on the key alone, which is the same for every root."""
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def content(root: Path, tables: list[Table], without: set[str] = OF_A_RUN | OF_A_STREAM) -> dict[str, list[str]]:
    """Published rows behind bronze as texts, sorted, of days up to the last one."""
    found = {}
    for table in tables:
        if table.layer != "bronze" and table.day_column and table.id != "silver.order_status":
            rows = [row for row in rows_of(table_path(root, table.id)) if row[table.day_column] <= DAYS[-1]]
            found[table.id] = sorted(repr(sorted((k, v) for k, v in r.items() if k not in without)) for r in rows)
    return found


def lines(root: Path) -> list[bytes]:
    """Every landed line in the order of its arrival: by day, file and row."""
    files = sorted((root / "landing/events").rglob("*.jsonl*"))
    return [
        line
        for file in files
        for line in (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).splitlines()
    ]


def partition_of(line: bytes) -> int:
    """By the event's id, as a producer with keys does: what is sent twice comes in order."""
    try:
        key = str(json.loads(line).get("event_id"))
    except (ValueError, AttributeError):
        key = ""
    return zlib.crc32(key.encode()) % PARTITIONS


def test_files_and_stream_give_the_same(  # fixtures
    lake: LakeFactory, engine_process: EngineProcess, kafka: Kafka, tmp_path: Path, shop_tables: list[Table], seed: int
) -> None:
    """Without it, a lake that is fed by a stream could differ from one that is backfilled from files."""
    chance, landed = random.Random(seed), tmp_path / "files"
    earliest = DAYS[0] - MOST_LATE
    land_events(landed, DAYS[0], len(DAYS), rows=ROWS, seed=seed, faults=FAULTS, files_per_day=2, earliest=earliest)
    by_files = lake(*shop_tables, root=landed)
    for table in shop_tables:
        late = [day for day in stale_days(by_files, table) if day <= DAYS[-1]]  # of before, where late events belong to
        build(by_files, table, {*DAYS, *late}, run_id="files")

    topic, root, kills = kafka.topic(PARTITIONS, "web-events"), tmp_path / "stream", 0
    laboratory = Laboratory(engine_process, "streaming")
    order: dict[str, Any] = {"url": kafka.url, "topic": topic, "most": MOST, "sample": True}
    left = lines(landed)
    while left:
        now, left = left[: (n := chance.randint(1, len(lines(landed)) // 2))], left[n:]
        for partition in range(PARTITIONS):
            kafka.send(topic, [line for line in now if partition_of(line) == partition], partition)
        point = (
            f"{chance.choice(['bronze.event_stream', 'silver.transactions', 'silver.orders'])}:{chance.choice(POINTS)}"
        )
        kills += laboratory.run(root, point if kills < KILLS else "", **order) == KILLED
    laboratory.run(root, **order)
    kafka.delete(topic)

    wanted, streamed = content(landed, shop_tables), content(root, shop_tables)
    assert all(wanted.values()), {name: len(rows) for name, rows in wanted.items()}
    assert streamed == wanted

    whole = content(root, shop_tables, OF_A_RUN)
    windows = next(each for each in shop_tables if each.id == "gold.event_windows")
    closed = [row for row in rows_of(table_path(root, windows.id)) if row["closed_at_watermark"]]
    assert len({row["closed_at_watermark"] for row in closed}) > 2
    build(lake(*shop_tables, root=root), windows, DAYS, run_id="again", force=True)
    assert content(root, shop_tables, OF_A_RUN) == whole
