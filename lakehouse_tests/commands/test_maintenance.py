"""Vacuum and compaction: what is needed stays, what is not goes, and no row changes."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types as T

from lakehouse.delta import maintenance
from lakehouse.delta.maintenance import Compactable, RetentionError, compact, vacuum
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot, fresh_snapshot
from lakehouse.errors import LakehouseError, PublishConflictError
from lakehouse.store import disk
from lakehouse_tests.fixtures.groups import assert_shared, share

DAY, NEXT = date(2011, 3, 1), date(2011, 3, 2)
HOUR = 3600
SPARK_SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("day", T.DateType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("amount", T.DecimalType(18, 2)),
        T.StructField("token", T.StringType()),
    ]
)


def rows(first: int, number: int, day: date = DAY) -> pa.Table:
    """Rows with microseconds, cents and a token."""
    moment = datetime(2011, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC)
    return pa.table(
        {
            "id": pa.array(range(first, first + number), pa.int64()),
            "day": pa.array([day] * number, pa.date32()),
            "at": pa.array([moment] * number, pa.timestamp("us", tz="UTC")),
            "amount": pa.array([Decimal("1234567890123456.78")] * number, pa.decimal128(18, 2)),
            "token": pa.array([f"secret-{n}" for n in range(number)], pa.string()),
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table whose first day has three files and whose second has one."""
    folder = tmp_path / "silver" / "things"
    for first in (0, 10, 20):
        write_deltalake(folder, rows(first, 10), partition_by=["day"], mode="append")
    write_deltalake(folder, rows(100, 5, NEXT), mode="append")
    return folder


def layout(path: Path) -> Compactable:
    return Compactable(path, SPARK_SCHEMA, pii=("token",))


def content(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().sort_by("id").to_pylist()
    return found


def live(path: Path) -> set[Path]:
    return {path / file.path for file in open_snapshot(path).files}


def put(path: Path, hours: float) -> Path:
    """A file last changed so many hours ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 100)
    age(path, hours)
    return path


def age(path: Path, hours: float) -> None:
    moment = time.time() - hours * HOUR
    os.utime(path, (moment, moment))


def test_orphans_go_and_young_ones_stay(path: Path) -> None:
    """A crash leaves staged files; those of a run that is still on look the same, but are young."""
    old = put(path / "staged" / "dead" / "valid" / "day=2011-03-01" / "part-0.parquet", 100)
    marker = put(path / "staged" / "dead" / "_SUCCESS", 100)
    young = put(path / "staged" / "running" / "valid" / "day=2011-03-01" / "part-0.parquet", 23)
    rehearsed = vacuum(path, 24, dry_run=True)
    assert (len(rehearsed.files), rehearsed.size) == (2, 200)
    assert old.exists()
    done = vacuum(path, 24)
    assert sorted(done.files) == sorted(rehearsed.files)
    assert not old.exists()
    assert not marker.exists()
    assert not (path / "staged" / "dead").exists()
    assert young.exists()


def test_committed_files_stay_however_old(path: Path) -> None:
    before = content(path)
    for file in live(path):
        age(file, 5000)
    assert not vacuum(path, 24).files
    assert content(path) == before


def test_what_was_replaced_lately_stays_readable(path: Path) -> None:
    """The file may be old: what counts is when it was replaced."""
    version, before = open_snapshot(path).version, content(path)
    for file in live(path):
        age(file, 5000)
    write_deltalake(path, rows(500, 1), mode="overwrite", predicate="day = '2011-03-01'")
    assert not vacuum(path, 24).files
    assert DeltaTable(path, version=version).to_pyarrow_table().sort_by("id").to_pylist() == before


def test_a_vacuum_without_anything_to_do_commits_nothing(path: Path) -> None:
    version = open_snapshot(path).version
    assert not vacuum(path, 24).files
    assert open_snapshot(path).version == version


def test_what_a_killed_run_left_is_given_to_the_group(path: Path) -> None:
    """Without it, no other member of the team could vacuum the table: delta-rs ends where it may not look."""
    (path / "staged").mkdir(exist_ok=True)
    group = share(path)
    left = put(path / "staged" / "killed" / "route=valid" / "part-0.parquet", 1)
    for each in (left.parent, left.parent.parent):  # as Hadoop makes them: what is below is whose it is
        each.chmod(0o770)
    os.chown(left, -1, os.getegid())
    os.chown(left.parent, -1, os.getegid())
    vacuum(path, 24)
    assert_shared(path / "staged", group)


def test_what_anothers_killed_run_left_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a vacuum ended with an error of delta-rs and where this code failed, and nobody knew what to do."""
    (path / "staged").mkdir(exist_ok=True)
    share(path)
    closed = put(path / "staged" / "killed" / "route=valid" / "part-0.parquet", 1).parent
    closed.parent.chmod(0o770)

    def walk(_: Path, onerror: Callable[[OSError], object]) -> Iterator[None]:
        onerror(PermissionError(errno.EACCES, "Permission denied", str(closed)))
        yield None

    monkeypatch.setattr(disk.os, "walk", walk)
    monkeypatch.setattr(disk.os, "geteuid", lambda: 54_321)
    with pytest.raises(
        LakehouseError, match=rf"^silver.things: {closed} may not be read\. .* run `lakehouse vacuum`, which"
    ):
        vacuum(path, 24)


def test_other_tables_are_left_alone(path: Path) -> None:
    """A quarantine is the neighbour folder whose name begins alike."""
    neighbour = put(path.with_name("things_quarantine") / "staged" / "part-0.parquet", 5000)
    vacuum(path, 24)
    assert neighbour.exists()


@pytest.mark.parametrize("hours", [0, 1, 23.9, -5, float("nan")])
def test_a_short_retention_is_refused(path: Path, hours: float) -> None:
    orphan = put(path / "staged" / "a" / "part-0.parquet", 5000)
    with pytest.raises(RetentionError, match="at least 24 h"):
        vacuum(path, hours)
    assert orphan.exists()


def test_what_was_never_built_has_nothing_to_do(tmp_path: Path) -> None:
    assert not vacuum(tmp_path / "nothing", 24).files
    assert compact(layout(tmp_path / "nothing")).version == -1
    assert not (tmp_path / "nothing").exists()


def test_compaction_merges_files_and_changes_no_row(path: Path) -> None:
    before = content(path)
    rehearsed = compact(layout(path), dry_run=True)
    assert (rehearsed.files_before, rehearsed.files_after, rehearsed.partitions) == (3, 1, 1)
    assert len(live(path)) == 4
    done = compact(layout(path))
    assert (done.files_before, done.files_after, done.partitions) == (3, 1, 1)
    assert len(live(path)) == 2
    assert content(path) == before
    assert compact(layout(path)).version == done.version  # nothing left to do: no commit


def test_compaction_writes_no_bound_that_is_wrong_or_secret(path: Path) -> None:
    """delta-rs cuts time to milliseconds and money to floats: a reader would skip the very file it looks for."""
    version = compact(layout(path)).version
    entries = [json.loads(line) for line in (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]
    (added,) = [entry["add"] for entry in entries if "add" in entry]
    stats = json.loads(added["stats"])
    assert added["dataChange"] is False
    assert stats["numRecords"] == 30
    before, after = "2011-03-01T23:59:59.999Z", "2011-03-02T00:00:00.000Z"
    assert (stats["minValues"], stats["maxValues"]) == ({"id": 0, "at": before}, {"id": 29, "at": after})
    footer = pq.read_metadata(path / added["path"])
    columns = [footer.row_group(0).column(n) for n in range(footer.num_columns)]
    # In the file nulls are counted as the engine counts them, or a day that grows would seem to have fewer.
    assert all(each.is_stats_set for each in columns)
    assert "token" not in {*stats["minValues"], *stats["nullCount"]}
    assert "secret" not in (path / "_delta_log" / f"{version:020d}.json").read_text()
    assert not any(entry.get("txn") for entry in entries)


def test_compaction_loses_to_a_run_that_publishes_and_starts_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt works on a snapshot in which the day is still as it was."""
    stale = fresh_snapshot(path)
    write_deltalake(path, pa.concat_tables([rows(500, 3)]), mode="overwrite", predicate="day = '2011-03-01'")
    write_deltalake(path, rows(600, 3), mode="append")
    expected = content(path)
    snapshots = iter([stale])
    monkeypatch.setattr(maintenance, "fresh_snapshot", lambda folder: next(snapshots, None) or fresh_snapshot(folder))
    done = compact(layout(path))
    assert (done.attempts, done.files_before, done.files_after) == (2, 2, 1)
    assert content(path) == expected


def test_compaction_that_always_loses_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(folder: Path) -> Snapshot:
        found = fresh_snapshot(folder)
        write_deltalake(
            folder, rows(int(time.time() * 1e6) % 10**9, 1), mode="overwrite", predicate="day = '2011-03-01'"
        )
        write_deltalake(folder, rows(7, 1), mode="append")
        return found

    monkeypatch.setattr(maintenance, "fresh_snapshot", stale)
    with pytest.raises(PublishConflictError, match="Compact again"):
        compact(layout(path))


def test_retention_is_longer_than_the_longest_run() -> None:
    from lakehouse.orchestration.jobs import MAX_RUNTIME

    seconds = float(MAX_RUNTIME.get("dagster/max_runtime", 4 * HOUR))
    assert timedelta(hours=maintenance.SHORTEST_RETENTION_HOURS) >= 2 * timedelta(seconds=seconds)
