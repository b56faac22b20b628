"""What publishing costs: the one-pass door with 0, 10 and 50 row rules against Delta's own writer without any."""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pandera.pyspark as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.base import open_base
from lakehouse.build.build import carry_through
from lakehouse.build.plan import Plan
from lakehouse.build.work import Work
from lakehouse.contracts import Table, rule
from lakehouse.read.lake import Lake
from lakehouse_tests.benchmarks.jobs import spark_jobs

FIRST = date(2011, 1, 1)
PLAIN = "plain Delta write"
# The engine has another class for local files, from which the plain write profits too: a script of one's own has this.
AS_SPARK_COMES = {"fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem", "fs.file.impl.disable.cache": "true"}


def _holds(build: Callable[[int], Column], n: int) -> Callable[[object], Column]:
    return lambda _cls: build(n)


def contract(rules: int) -> type[pa.DataFrameModel]:
    """Events with that many row rules of the usual kinds: ranges, sets, patterns, two columns compared."""
    kinds: list[Callable[[int], Column]] = [
        lambda n: F.col("amount") <= 100_000 + n,
        lambda n: F.col("currency").isin("EUR", "GBP", "USD", f"X{n:02d}"),
        lambda n: F.length("event_id") <= 64 + n,
        lambda n: F.col("user_id").isNull() | (F.col("user_id") != f"forbidden-{n}"),
        lambda n: F.col("event_time") >= F.lit(f"2010-01-{1 + n % 28:02d}").cast("timestamp"),
    ]
    body: dict[str, object] = {
        "__annotations__": {
            "event_id": T.StringType(), "user_id": T.StringType(), "event_time": T.TimestampType(),
            "amount": T.DecimalType(18, 2), "currency": T.StringType(), "day": T.DateType(),
        },
        "event_id": pa.Field(nullable=True), "user_id": pa.Field(nullable=True), "event_time": pa.Field(nullable=True),
        "amount": pa.Field(nullable=True), "currency": pa.Field(nullable=True), "day": pa.Field(nullable=True),
    }  # fmt: skip
    for n in range(rules):
        body[f"rule_{n}"] = rule(_holds(kinds[n % len(kinds)], n))
    return type("Events", (pa.DataFrameModel,), body)


def events(lake: Lake, rows: int, days: int) -> DataFrame:
    """Synthetic events, spread evenly over the days; every ten-thousandth breaks a rule, where there is one."""
    number = F.col("id")
    offset = F.make_dt_interval(days=number % days, secs=number % 86_400)
    amount = F.when(number % 10_000 == 0, F.lit(1_000_000)).otherwise(number % 10_007 / 100)
    return lake.spark.range(rows).select(
        F.sha2(number.cast("string"), 256).alias("event_id"),
        F.when(number % 5 != 0, F.concat(F.lit("u"), (number % 50_021).cast("string"))).alias("user_id"),
        (F.lit("2011-01-01").cast("timestamp") + offset).alias("event_time"),
        amount.cast("decimal(18,2)").alias("amount"),
        F.element_at(F.array(F.lit("EUR"), F.lit("GBP"), F.lit("USD")), (number % 3 + 1).cast("int")).alias("currency"),
        F.date_add(F.lit(FIRST), (number % days).cast("int")).alias("day"),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the same frame in turn by each way; print seconds and ratios to the plain write as JSON."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks.publish", description=main.__doc__)
    parser.add_argument("--rows", type=int, default=3_400_000)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rules", type=int, nargs="*", default=[0, 10, 50])
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as folder:
        os.environ["LAKEHOUSE_ROOT"] = folder
        from lakehouse.settings import get_settings
        from lakehouse.spark.session import start

        # How both plan is fixed: a publish that reads no tables counts as small, and the engine would keep that way.
        config = {"spark.ui.showConsoleProgress": "false", "spark.sql.adaptive.enabled": "true"}
        settings = get_settings().model_copy(update={"spark_config": config})
        lake = Lake(settings, {}, lambda: start(settings))
        lake.spark.sparkContext.setLogLevel("ERROR")
        source = str(Path(folder) / "source")
        events(lake, given.rows, given.days).repartition(given.days, "day").write.parquet(source)
        frame = lake.spark.read.parquet(source).withColumn("day", F.col("day").cast("date"))
        days = [FIRST + timedelta(days=n) for n in range(given.days)]
        tables = {
            n: Table("bench", f"rules_{n}", contract(n), lambda: frame, {}, "team:bench", "one event", ("day",))
            for n in given.rules
        }
        for made in tables.values():
            made.__dict__["code_version"] = "bench"
        plain = Path(folder) / "plain"
        ways: dict[str, Callable[[], object]] = {
            PLAIN: lambda: _plain(frame, plain),
            f"{PLAIN}, with Hadoop's own local files": lambda: _plain(frame, plain, **AS_SPARK_COMES),
        }
        for n, made in tables.items():
            ways[f"publish, {n} rules"] = partial(_publish, lake, made, frame, days)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        jobs: dict[str, int] = {}
        for turn in range(given.rounds + 1):
            for name, way in ways.items():
                shutil.rmtree(Path(folder) / "tables", ignore_errors=True)
                shutil.rmtree(plain, ignore_errors=True)
                began, before = time.perf_counter(), spark_jobs(lake.spark)
                way()
                jobs[name] = spark_jobs(lake.spark) - before
                if turn:  # the first turn warms the engine
                    seconds[name].append(round(time.perf_counter() - began, 3))
        lake.spark.stop()
    report = {
        name: {
            "median_seconds": statistics.median(each),
            "ratio": round(statistics.median(a / b for a, b in zip(each, seconds[PLAIN], strict=True)), 3),
            "spark_jobs": jobs[name],
            "seconds": each,
        }
        for name, each in seconds.items()
    }
    sys.stdout.write(json.dumps({"rows": given.rows, "days": given.days, "ways": report}, indent=2) + "\n")
    return 0


def _publish(lake: Lake, table: Table, frame: DataFrame, days: list[date]) -> None:
    plan = Plan(table, {}, {}, {}, None, frozenset(days))
    carry_through(Work(open_base(lake, table), plan, days, "bench", frame))


def _plain(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("delta").mode("overwrite").options(**options).partitionBy("day").save(str(path))


if __name__ == "__main__":
    sys.exit(main())
