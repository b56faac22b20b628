"""A training set beside the join by hand: to each label the newest row of each table, in one engine and one run.

The plain side is what one would write: a join of the labels with each table by entity and by the time a row may be
used, and of what matches the newest row of each label. Both read the same Delta tables and write all rows to nowhere;
that they give the same is compared before anything is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.base import open_base
from lakehouse.build.build import carry_through
from lakehouse.build.plan import Plan
from lakehouse.build.work import Work
from lakehouse.contracts import Features, Input, Table
from lakehouse.features.training import training_set
from lakehouse.read.lake import Lake
from lakehouse_tests.fixtures.making import model, table

FIRST, TTL = date(2011, 1, 1), timedelta(days=7)
COLUMNS = {
    "user_id": (T.StringType(), pa.Field()),
    "day": (T.DateType(), pa.Field()),
    "orders": (T.LongType(), pa.Field()),
    "amount": (T.DecimalType(18, 2), pa.Field()),
}


def main(arguments: Sequence[str]) -> int:
    """Measure both in turns; JSON to standard output."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks training", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=60)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as folder:
        os.environ["LAKEHOUSE_ROOT"] = folder
        from lakehouse.settings import get_settings
        from lakehouse.spark.session import start

        settings = get_settings().model_copy(update={"spark_config": {"spark.ui.showConsoleProgress": "false"}})
        tables = [_features(name) for name in ("gold.orders_of_user", "gold.visits_of_user")]
        lake = Lake(settings, {each.id: each for each in tables}, lambda: start(settings))
        lake.spark.sparkContext.setLogLevel("ERROR")
        for seed, each in enumerate(tables):
            _publish(lake, each, given.users, given.days, seed)
        path = str(Path(folder) / "labels")
        _labels(lake, given.labels, given.users, given.days).write.parquet(path)
        report = _measured(lake, tables, lake.spark.read.parquet(path), given.rounds)
        lake.spark.stop()
    report |= {"labels": given.labels, "rows_of_features": len(tables) * given.users * given.days}
    report["labels_a_second"] = round(given.labels / report["seconds"]["ours"])
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def _features(name: str) -> Table:
    def transform(orders: DataFrame) -> DataFrame:
        return orders

    return table(
        name, model("OfUser", **COLUMNS), transform, {"orders": Input("silver.orders")}, key=("user_id", "day"),
        features=Features(entity="user", key=("user_id",), ttl=TTL),
    )  # fmt: skip


def _publish(lake: Lake, made: Table, users: int, days: int, seed: int) -> None:
    number = F.col("id")
    rows = lake.spark.range(users * days).select(
        F.concat(F.lit("u"), (number % users).cast("string")).alias("user_id"),
        F.date_add(F.lit(FIRST), F.floor(number / users).cast("int")).alias("day"),
        F.pmod(F.xxhash64(number, F.lit(seed)), F.lit(50)).alias("orders"),
        (F.pmod(F.xxhash64(number, F.lit(seed + 9)), F.lit(100_000)) / 100).cast("decimal(18,2)").alias("amount"),
    )
    wanted = [FIRST + timedelta(days=n) for n in range(days)]
    plan = Plan(made, {}, {}, {}, None, frozenset(wanted))
    carry_through(Work(open_base(lake, made), plan, wanted, "bench", rows))


def _labels(lake: Lake, labels: int, users: int, days: int) -> DataFrame:
    """Each of a user, some of whom have no features, at any time from the first day to a week after the last."""
    number, begin = F.col("id"), datetime.combine(FIRST, datetime.min.time())
    second = F.pmod(F.xxhash64(number), F.lit((days + 7) * 86_400)).cast("int")
    return lake.spark.range(labels).select(
        number.alias("label"),
        F.concat(F.lit("u"), F.pmod(F.xxhash64(number, F.lit(5)), F.lit(users + users // 50))).alias("user_id"),
        (F.lit(begin).cast("timestamp") + F.make_dt_interval(secs=second)).alias("event_time"),
    )


def _ours(lake: Lake, tables: Sequence[Table], labels: DataFrame) -> DataFrame:
    asked = [f"{each.id}:{name}" for each in tables for name in ("orders", "amount")]
    return training_set(lake, labels, asked).frame


def _plain(lake: Lake, tables: Sequence[Table], labels: DataFrame) -> DataFrame:
    found = labels
    for each in tables:
        rows = lake.spark.read.format("delta").load(str(lake.path(each.id)))
        begins = F.date_add("day", 1).cast("timestamp")
        rows = rows.select("user_id", begins.alias("_from"), *[
            F.col(name).alias(f"{each.name}__{name}") for name in ("orders", "amount")
        ])  # fmt: skip
        fits = (F.col("event_time") >= F.col("_from")) & (F.col("event_time") <= F.col("_from") + F.lit(TTL))
        joined = found.join(
            rows.withColumnRenamed("user_id", "_user"), (F.col("user_id") == F.col("_user")) & fits, "left"
        )
        kept = [name for name in found.columns if name != "label"]
        new = [name for name in rows.columns if name not in ("user_id", "_from")]
        found = (
            joined.groupBy("label")
            .agg(*[F.first(name).alias(name) for name in kept], F.max_by(F.struct(*new), "_from").alias("_newest"))
            .select("label", *kept, *[F.col("_newest")[name].alias(name) for name in new])
        )
    return found


def _measured(lake: Lake, tables: Sequence[Table], labels: DataFrame, rounds: int) -> dict[str, Any]:
    ways = {"ours": _ours, "plain": _plain}
    asked = [f"{each.name}__{name}" for each in tables for name in ("orders", "amount")]
    digests = {
        name: way(lake, tables, labels).agg(F.sum(F.xxhash64("label", *asked).cast("decimal(38,0)"))).first()
        for name, way in ways.items()
    }
    if digests["ours"] != digests["plain"]:
        sys.exit(f"the join by hand gives other rows: {digests}")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way(lake, tables, labels).write.format("noop").mode("overwrite").save()
            if turn:  # the first turn warms the engine
                seconds[name].append(round(time.perf_counter() - began, 2))
    ratios = [one / other for one, other in zip(seconds["ours"], seconds["plain"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "seconds": {name: statistics.median(each) for name, each in seconds.items()},
        "rounds": seconds,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
