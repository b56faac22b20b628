"""What slices cost and save: silver.transactions and gold.user_features of made-up lines, whole and in slices.

Each way is a process of its own on an engine with little memory, on the same files.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.build.build import build
from lakehouse.build.publish import BuildResult, Job, Publisher
from lakehouse.build.slices import Slicing
from lakehouse.catalog import declared
from lakehouse.read.lake import Lake
from lakehouse.settings import get_settings
from lakehouse.spark.session import start
from lakehouse_tests.benchmarks import PeakMemory

FIRST = date(2011, 1, 1)
HEAVY = ("silver.transactions", "gold.user_features")


def lines(spark: SparkSession, rows: int, days: int) -> DataFrame:
    """Lines of the retail system as bronze holds them, spread evenly; four of an order, every fiftieth cancels one."""
    number = F.col("id")
    order = (number / 4).cast("bigint")
    day = F.date_add(F.lit(FIRST), (order % days).cast("int"))
    cancels = order % 50 == 0
    return spark.range(rows).select(
        F.concat(F.when(cancels, "C").otherwise(""), (order - F.when(cancels, 50 * days).otherwise(0)).cast("string"))
        .alias("InvoiceNo"),
        (number % 4_001).cast("string").alias("StockCode"),
        F.concat(F.lit("a thing of the kind "), (number % 4_001).cast("string")).alias("Description"),
        F.when(cancels, "-3").otherwise((1 + number % 11).cast("string")).alias("Quantity"),
        F.concat(day.cast("string"), F.lit(" 10:"), F.lpad((number % 60).cast("string"), 2, "0"), F.lit(":00"))
        .alias("InvoiceDate"),
        F.concat((1 + number % 97).cast("string"), F.lit(".25")).alias("UnitPrice"),
        F.when(order % 5 != 0, F.concat((order % (rows // 40)).cast("string"), F.lit(".0"))).alias("CustomerID"),
        F.lit("United Kingdom").alias("Country"),
        F.lit(None).cast("string").alias("_rescued"),
        day.alias("_arrival_date"),
        day.alias("_event_date"),
        F.concat(day.cast("string"), F.lit(".csv.gz")).alias("_source_file"),
        number.alias("_source_row"),
        F.lit("bench").alias("_ingested_run"),
        F.lit("bench").alias("_code_version"),
    )  # fmt: skip


def measured(lake: Lake, days: list[date], slices: int) -> dict[str, Any]:
    """Build the heavy tables: seconds and rows of each, and the most memory that all processes held."""
    report: dict[str, Any] = {}
    slicing = Slicing(slices) if slices > 1 else None
    with PeakMemory() as memory:
        for name in HEAVY:
            began = time.perf_counter()
            result = build(lake, lake.table(name), days, run_id="bench", slicing=slicing)
            assert result.with_status("published") == days, result.days
            assert all(each.metrics.rows for each in result.days.values()), result.days
            report[name] = {
                "seconds": round(time.perf_counter() - began, 1),
                "rows": sum(each.metrics.rows for each in result.days.values()),
                "files": sum(each.metrics.files for each in result.days.values()),
                "slowest_slice_seconds": result.facts.get("slowest_slice_seconds"),
            }
    return report | {"peak_rss_mb": memory.peak_mb}


def told_by_tasks(log: Path) -> dict[str, float]:
    """What the engine's tasks held and did not have room for, from its event log."""
    held, spilled, sorted_rows = 0, 0, 0
    for path in log.rglob("events_*"):
        for line in path.read_text().splitlines():
            if '"SparkListenerTaskEnd"' in line:
                metrics = json.loads(line)["Task Metrics"]
                held = max(held, metrics["Peak Execution Memory"])
                spilled += metrics["Disk Bytes Spilled"]
                sorted_rows = max(sorted_rows, metrics["Shuffle Read Metrics"]["Total Records Read"])
    return {
        "largest_task_mb": round(held / 1e6, 1),
        "spilled_mb": round(spilled / 1e6, 1),
        "largest_task_rows": sorted_rows,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the lines once, then build whole and in slices in turns; JSON to standard output."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks.slices", description=main.__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--slices", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", default="1g", help="of the engine")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    days = [FIRST + timedelta(days=n) for n in range(given.days)]
    if given.step is not None:
        log = Path(tempfile.mkdtemp(prefix="events-", dir=get_settings().root))
        config = {"spark.ui.showConsoleProgress": "false", "spark.eventLog.enabled": "true"}
        config |= {"spark.eventLog.dir": log.as_uri(), "spark.eventLog.compress": "false"}
        settings = get_settings().model_copy(update={"spark_memory": given.memory, "spark_config": config})
        lake = Lake(settings, declared(), lambda: start(settings))
        lake.spark.sparkContext.setLogLevel("ERROR")
        if given.step == "0":
            bronze = lake.table("bronze.online_retail")
            each = given.rows // given.days // 4 * 4  # whole orders, as many on each day
            rows = lines(lake.spark, each * given.days, given.days)
            result = BuildResult(bronze, -1, {})
            job = Job(rows, days, (), dict.fromkeys(days, 1), dict.fromkeys(days, each))
            Publisher(lake, bronze).publish(job, result, "bench")
            assert result.with_status("published") == days, result.days
            lake.spark.stop()
            return 0
        found = measured(lake, days, int(given.step))
        lake.spark.stop()
        sys.stdout.write(json.dumps(found | told_by_tasks(log)) + "\n")
        return 0
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as folder:
        _step(folder, "0", given)
        for _ in range(given.rounds):
            ways = {}
            for slices in (1, given.slices):
                for name in HEAVY:
                    layer, table = name.split(".")
                    for path in (Path(folder) / "tables" / layer).glob(f"{table}*"):
                        shutil.rmtree(path)
                ways["whole" if slices == 1 else f"{slices} slices"] = json.loads(_step(folder, str(slices), given))
            rounds.append(ways)
    sys.stdout.write(json.dumps({"rows": given.rows, "days": given.days, "rounds": rounds}, indent=2) + "\n")
    return 0


def _step(folder: str, step: str, given: argparse.Namespace) -> str:
    asked = ["--rows", str(given.rows), "--days", str(given.days), "--memory", given.memory, "--step", step]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "lakehouse_tests.benchmarks.slices", *asked],
        stdout=subprocess.PIPE, check=True, env={**os.environ, "LAKEHOUSE_ROOT": folder}, text=True,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
