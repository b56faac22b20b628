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

from lakehouse.catalog import declared
from lakehouse.settings import get_settings
from lakehouse.spark.session import start
from lakehouse.tables.build import build
from lakehouse.tables.lake import Lake
from lakehouse.tables.publish import BuildResult, Job, Publisher
from lakehouse.tables.slices import Slicing
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
    """Build the heavy tables; seconds, and what the engine spilled to disk and held in memory at most."""
    report: dict[str, Any] = {}
    with PeakMemory() as memory:
        for name in HEAVY:
            began, before = time.perf_counter(), _spilled(lake.spark)
            result = build(
                lake, lake.table(name), days, run_id="bench", slicing=Slicing(slices) if slices > 1 else None
            )
            assert result.with_status("published") == days, result.days
            after = _spilled(lake.spark)
            report[name] = {
                "seconds": round(time.perf_counter() - began, 1),
                "rows": sum(each.metrics.rows for each in result.days.values()),
                "spilled_mb": round((after - before) / 1e6),
                "slowest_slice_seconds": result.facts.get("slowest_slice_seconds"),
            }
    held = lake.spark.sparkContext._jsc.sc().statusStore().executorList(False).apply(0).peakMemoryMetrics()
    in_use = held.get().getMetricValue("OnHeapExecutionMemory") if held.isDefined() else 0
    return report | {"peak_execution_mb": round(in_use / 1e6), "peak_rss_mb": memory.peak_mb}


def _spilled(spark: SparkSession) -> int:
    # Bytes on disk over all stages so far; the public interface does not tell.
    store = spark.sparkContext._jsc.sc().statusStore()
    assert spark.sparkContext._jvm is not None
    empty = spark.sparkContext._jvm.java.util.ArrayList()
    stages = store.stageList(empty)
    return sum(int(stages.apply(n).diskBytesSpilled()) for n in range(stages.size()))


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
        settings = get_settings().model_copy(update={"spark_memory": given.memory, "spark_config": _CONFIG})
        lake = Lake(settings, declared(), lambda: start(settings))
        lake.spark.sparkContext.setLogLevel("ERROR")
        if given.step == "0":
            bronze = lake.table("bronze.online_retail")
            made = Job(lines(lake.spark, given.rows, given.days), days, (), dict.fromkeys(days, 1))
            Publisher(lake, bronze).publish(made, BuildResult(bronze, -1, {}), "bench")
        else:
            sys.stdout.write(json.dumps(measured(lake, days, int(given.step))) + "\n")
        lake.spark.stop()
        return 0
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as folder:
        _step(folder, "0", given)
        for _ in range(given.rounds):
            found = {}
            for slices in (1, given.slices):
                for name in HEAVY:
                    layer, table = name.split(".")
                    for path in (Path(folder) / "tables" / layer).glob(f"{table}*"):
                        shutil.rmtree(path)
                found["whole" if slices == 1 else f"{slices} slices"] = json.loads(_step(folder, str(slices), given))
            rounds.append(found)
    sys.stdout.write(json.dumps({"rows": given.rows, "days": given.days, "rounds": rounds}, indent=2) + "\n")
    return 0


_CONFIG = {"spark.ui.showConsoleProgress": "false", "spark.executor.heartbeatInterval": "500ms"}


def _step(folder: str, step: str, given: argparse.Namespace) -> str:
    asked = ["--rows", str(given.rows), "--days", str(given.days), "--memory", given.memory, "--step", step]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "lakehouse_tests.benchmarks.slices", *asked],
        stdout=subprocess.PIPE, check=True, env={**os.environ, "LAKEHOUSE_ROOT": folder}, text=True,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
