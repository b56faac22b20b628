"""What steps of a build cost in a table with few and with many files, on logs that are made up; one process a size.

Table, quarantine and input have that many files each, ten a day, and the quarantine's past is projected. Only the days
that are then built one by one hold rows: their seconds are what history adds to a day, beside the engine's own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
from deltalake import DeltaTable
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.plan import make_plan
from lakehouse.build.stale import changed_days, days_of_older_code
from lakehouse.contracts import Input, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.read.targets import targets
from lakehouse.records import day_record, quarantined
from lakehouse.records.history import HISTORY
from lakehouse.records.ops import TABLE_ID, add_rows, ops_target, position_name
from lakehouse.records.quarantined import FAILURES
from lakehouse.settings import Settings
from lakehouse.spark.session import start
from lakehouse_tests.benchmarks import PeakMemory, usage
from lakehouse_tests.fixtures.making import model, put, stage_rows, table

LAST = date(2026, 6, 30)
FILES_A_DAY = 10
QUARANTINED_A_DAY = 20
WARM_UP = 3
COUNTED = 7


def main(sizes: list[int]) -> int:
    """Measure each size; JSON to standard output, progress to standard error."""
    found: dict[int, dict[str, Any]] = {}
    for files in sizes:
        command = [sys.executable, "-W", "ignore", "-m", __name__, "--files", str(files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr[-3000:])
        found[files] = json.loads(done.stdout.splitlines()[-1])
        sys.stderr.write(f"{files} files: {json.dumps(found[files])}\n")
    few, many = found[min(sizes)], found[max(sizes)]
    ratios = {
        name: {kind: round(many[name][kind] / few[name][kind], 2) for kind in ("wall", "cpu") if few[name][kind]}
        for name in few
        if isinstance(few[name], dict)
    }
    sys.stdout.write(json.dumps({"by_files": found, "ratio": ratios}, indent=2) + "\n")
    return 0


def _measure(root: Path, files: int) -> dict[str, Any]:
    session = start(settings := Settings(root=root, spark_url="local[2]", spark_memory="1500m"))
    session.sparkContext.setLogLevel("ERROR")
    lines, sales = _tables()
    lake = Lake(settings, {each.id: each for each in (lines, sales)}, lambda: session)
    _history(lake, lines, sales, files)
    seconds: dict[str, list[tuple[float, float]]] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), usage().cpu_seconds
        made = step()
        seconds.setdefault(name, []).append((time.perf_counter() - wall, usage().cpu_seconds - cpu))
        return made

    target, _ = targets(lake, sales)
    for _ in range(3):
        timed("open", lambda: fresh_snapshot(target.path))
    open_snapshot(target.path)
    for number in range(WARM_UP + COUNTED):
        day = LAST + timedelta(days=1 + number)
        staged = stage_rows(target, [{"id": "x", "day": day, "amount": 1}])
        base = timed("ensure", lambda: ensure_table(target))
        timed("commit", lambda: replace_days(target, base, staged, [day], Commit({})))  # noqa: B023 - called at once
        put(lake, lines, day, [{"id": f"{day} {n}", "amount": n - 1} for n in range(100)])
        timed("plan", lambda: make_plan(lake, sales, [day]))  # noqa: B023 - called at once
        timed("day", lambda: _one_day(lake, sales, day))  # noqa: B023 - called at once
    counted = {name: each if name == "open" else each[WARM_UP:] for name, each in seconds.items()}
    return {
        name: {kind: round(statistics.median(pair[n] for pair in each), 4) for n, kind in enumerate(("wall", "cpu"))}
        for name, each in counted.items()
    }


def _one_day(lake: Lake, sales: Table, day: date) -> None:
    """As a step of Dagster's: plan, build, publish, then what is shown of it."""
    result = build(lake, sales, [day], run_id=uuid.uuid4().hex)
    assert result.days[day].metrics.rows == 99, result.days[day].reason
    assert result.quarantine is not None
    assert changed_days(PinnedLake(lake.settings, lake.tables), sales, [day]) == []
    days_of_older_code(lake, sales)
    assert lake.snapshot(sales.id).live.rows


def _tables() -> tuple[Table, Table]:
    columns = {
        "id": (T.StringType(), pa.Field()),
        "day": (T.DateType(), pa.Field()),
        "amount": (T.LongType(), pa.Field(nullable=True)),
    }
    lines = table("bronze.lines", model("Lines", **columns), lambda raw: raw, {"raw": Input("bronze.raw")})
    columns["amount"] = (T.LongType(), pa.Field(ge=0, nullable=True))
    sales = table(
        "silver.sales", model("Sales", **columns), lambda lines: lines, {"lines": Input("bronze.lines")}, key=("id",)
    )
    return lines, sales


def _history(lake: Lake, lines: Table, sales: Table, files: int) -> None:
    days = [LAST - timedelta(days=n) for n in range(files // FILES_A_DAY)]
    target, side = targets(lake, sales)
    assert side is not None
    for each in (targets(lake, lines)[0], target, side):
        ensure_table(each)
        _made_up_log(each.path, each.day_column, days)
    root, now = lake.settings.root, datetime.now(UTC)
    rules = ("amount_at_least_minimum",)
    set_aside = [
        quarantined.QuarantineRecord(
            day, 1, now, "r", "v1", True, {rules: range(n * 1000, n * 1000 + QUARANTINED_A_DAY)}
        )
        for n, day in enumerate(days)
    ]
    main, aside = open_snapshot(target.path), open_snapshot(side.path)
    rows = [{**quarantined._row(each), TABLE_ID: aside.table_id} for each in set_aside]
    up_to = {position_name(sales.id, aside): 1}
    add_rows(ops_target(root, FAILURES, quarantined.schema(), ""), sales.id, rows, up_to)
    kept = [day_record.DayRecord(sales.id, day, 1, now, "r", "v1", "publish", {}, {"rows": 1000}) for day in days]
    rows = [day_record.row_of(each, main.table_id) for each in kept]
    up_to = {position_name(sales.id, main): 1}
    add_rows(ops_target(root, HISTORY, day_record.schema(), ""), sales.id, rows, up_to)


def _made_up_log(path: Path, column: str, days: list[date]) -> None:
    stats = json.dumps({"numRecords": 1000, "minValues": {"id": "a"}, "maxValues": {"id": "z"}, "nullCount": {"id": 0}})
    with (path / "_delta_log" / f"{1:020}.json").open("w") as log:
        log.write(json.dumps({"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "WRITE"}}) + "\n")
        for number, day in enumerate(days):
            log.write(json.dumps({"txn": {"appId": day_transaction(day), "version": number + 1}}) + "\n")
            for part in range(FILES_A_DAY):
                name = f"staged/{uuid.uuid4().hex}/valid/{column}={day}/part-{part}-{uuid.uuid4()}.parquet"
                add = {
                    "path": name, "partitionValues": {column: day.isoformat()}, "size": 20_000,
                    "modificationTime": 1_700_000_000_000, "dataChange": True, "stats": stats,
                }  # fmt: skip
                log.write(json.dumps({"add": add}) + "\n")
    DeltaTable(str(path)).create_checkpoint()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, required=True)
    folder = Path(tempfile.mkdtemp(prefix="lakehouse-growth-"))
    try:
        with PeakMemory() as memory:
            figures = _measure(folder / "root", parser.parse_args().files)
        sys.stdout.write(json.dumps(figures | {"peak_mb": memory.peak_mb}) + "\n")
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)
