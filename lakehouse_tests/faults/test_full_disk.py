"""A full disk: said by name, nothing published by halves, and once there is space the next run ends the work."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.build import stage as staging
from lakehouse.delta.commit import append, ensure_table
from lakehouse.delta.target import Commit, Target
from lakehouse.errors import DiskFullError
from lakehouse.orchestration.instance import instance_to_read, opened_instance
from lakehouse.settings import Settings
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.crashing import DAYS, expected, land, run, tables
from lakehouse_tests.faults.disks import Disk, disk
from lakehouse_tests.faults.publisher import EXPECTED, MONDAY, Door, count, sales
from lakehouse_tests.faults.readers import judge, look
from lakehouse_tests.fixtures.making import rows_of, stage_rows

__all__ = ["disk"]

pytestmark = pytest.mark.crash


def test_a_full_disk_publishes_nothing_by_halves(
    disk: Disk, lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a full disk could look like a lost race, like a published day, or leave a log nobody can read."""
    door = Door(lake(sales(), root=disk.folder / "root"), monkeypatch)
    door.publish(1)
    real = door._stage
    failed = 0
    for generation in range(2, 26):
        pages = (generation - 2) % 12

        def stage_then_fill(*args: Any) -> None:
            real(*args)
            disk.leave(4 * pages)  # noqa: B023

        monkeypatch.setattr(staging, "write_routed", stage_then_fill)
        error: Exception | None = None
        try:
            door.publish(generation)
        except EXPECTED as caught:
            error = caught
        monkeypatch.setattr(staging, "write_routed", real)
        door.check(*([generation - 1, generation] if error else [generation]))
        if error:
            failed += 1
            assert isinstance(error, DiskFullError), error
            disk.widen()
            door.publish(generation)
            door.check(generation)
        disk.widen()
        assert door.done(generation)
        count(cases=1)
    assert failed > 3


def test_a_stream_that_meets_a_full_disk_goes_on_where_it_was(disk: Disk) -> None:
    """Without it, a batch could be doubled or lost when a stream is started again after its disk was full."""
    target = Target(disk.folder / "silver" / "stream", sales().schema, ("day",))
    ensure_table(target)
    for batch in range(1, 13):
        files = stage_rows(target, [{"id": str(batch), "day": MONDAY, "n": 0}])
        disk.leave(4 * (batch % 3))
        try:
            append(target, files, Commit({"stream": batch}))
        except EXPECTED:
            disk.widen()
            append(target, files, Commit({"stream": batch}))
        disk.widen()
        assert sorted(int(row["id"]) for row in rows_of(target.path)) == list(range(1, batch + 1))
        count(cases=1)


def test_a_disk_that_fills_up_during_a_build_is_said_and_harms_nothing(disk: Disk, spark: SparkSession) -> None:
    """Without it, people would meet a page of Java, and nobody would know whether yesterday's data is still whole."""
    root = disk.folder / "root"
    land(root, 1)
    assert run(root, spark) == {name: ["published"] * len(DAYS) for name in tables()}
    land(root, 2, extra=5000)
    for kib in (0, 64):
        disk.leave(kib)
        with pytest.raises(
            DiskFullError, match=r"bronze.readings: no space left on the disk of .*bronze/readings"
        ) as e:
            run(root, spark)
        assert "run the same days again" in str(e.value)
        assert len(str(e.value)) < 600
        for name, rows in look(root).items():
            assert not judge(rows, [expected(1)[name]]).total(), name
        count(cases=1)
    disk.widen()
    land(root, 2)
    assert run(root, spark) == {name: ["published"] * len(DAYS) for name in tables()}
    for name, rows in look(root).items():
        assert not judge(rows, [expected(2)[name]]).total(), name


def test_a_full_disk_can_be_looked_at(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, `status` and `backfills list` could tell nothing on the day that people need them most."""
    for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
        monkeypatch.setenv(name, "")  # what the instance sets is put back
    settings = Settings(root=disk.folder / "root")
    with opened_instance(settings):
        pass
    disk.leave(0)
    with instance_to_read(settings) as instance:
        assert instance.get_run_ids() == []
