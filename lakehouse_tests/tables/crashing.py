"""A process that builds a small lake and is killed at a point of it. Run as a module; orders come by standard input.

One engine is started and warmed, without touching delta-rs. For each order the process forks: the child builds, with
the failpoint of the order set, while the parent waits. At a failpoint the engine is idle, so killing the child there is
what killing process and engine would be. The order `whole` is not forked: it ends only when the process group is killed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import BronzeModel, Input, Landing, Table
from lakehouse.spark.session import start
from lakehouse.tables.build import build
from lakehouse.tables.lake import Lake
from lakehouse.transforms.columns import with_event_date
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.making import model, table

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(3)]
LIMIT = 1000  # the largest total that passes
ORIGIN = ("_arrival_date", "_source_file", "_source_row")
Rows = frozenset[tuple[Any, ...]]


class Readings(BronzeModel):
    """Lines of sensors."""

    id: T.StringType = pa.Field(nullable=True)
    sensor: T.StringType = pa.Field(nullable=True)
    at: T.StringType = pa.Field(nullable=True)
    value: T.StringType = pa.Field(nullable=True)


def tables() -> dict[str, Table]:
    """One of each kind: landed lines, typed rows once each, and an upsert; each quarantines something every day."""
    text, long = T.StringType(), T.LongType()

    def typed(lines: DataFrame) -> DataFrame:
        value = F.col("value").try_cast("bigint").alias("value")
        return lines.select("id", "sensor", F.col("_event_date").alias("day"), value, *ORIGIN)

    def totals(readings: DataFrame) -> DataFrame:
        days = F.array_sort(F.collect_set("day")).alias("_event_days")
        return readings.groupBy("sensor").agg(F.min("day").alias("day"), F.sum("value").alias("total"), days)

    day = {"day": (T.DateType(), pa.Field())}
    names = {"id": (text, pa.Field()), "sensor": (text, pa.Field()), **day, "value": (long, pa.Field(ge=0))}
    sums = {"sensor": (text, pa.Field()), **day, "total": (long, pa.Field(le=LIMIT))}
    sums["_event_days"] = (T.ArrayType(T.DateType()), pa.Field(nullable=True))
    landing = Landing("events", "jsonl", ("id", "sensor", "at", "value"))
    made = [
        table(
            "bronze.readings", Readings, lambda lines: with_event_date(lines, "at"), {"lines": landing},
            partition_by=("_arrival_date", "_event_date"), max_quarantined=1.0,
        ),
        table(
            "silver.readings", model("Typed", **names), typed, {"lines": Input("bronze.readings")}, key=("id",),
            keep_first_by=ORIGIN, conserves_rows=True, max_quarantined=1.0,
        ),
        table(
            "silver.totals", model("Totals", **sums), totals, {"readings": Input("silver.readings")}, key=("sensor",),
            upsert=True, max_quarantined=1.0,
        ),
    ]  # fmt: skip
    return {each.id: each for each in made}


def land(root: Path, generation: int, extra: int = 0) -> None:
    """Land every day's lines of a generation: sound, repeated, rule-breaking and broken ones, and `extra` more."""
    for n, day in enumerate(DAYS):
        at = f"{day}T10:00:00Z"
        rows = [
            {"id": f"{n}-{k}", "sensor": f"s{(n + k) % 4}", "at": at, "value": generation + k} for k in range(4 + extra)
        ]
        rows += [rows[0], {"id": f"{n}-bad", "sensor": "s0", "at": at, "value": -generation}]
        rows += [{"id": f"{n}-large", "sensor": f"large {n}", "at": at, "value": LIMIT + generation}]
        lines = [json.dumps(row) for row in rows] + [f"no json, generation {generation}"]
        folder = root / "landing" / "events" / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".new").write_text("\n".join(lines))
        os.utime(folder / ".new", (1_700_000_000 + generation,) * 2)
        (folder / ".new").rename(folder / "a.jsonl")


def expected(generation: int) -> dict[str, Rows]:
    """What each table and quarantine holds once a generation is built, in the columns of `COLUMNS`."""
    silver, bad, broken = set(), set(), set()
    totals: dict[str, int] = {}
    homes: dict[str, date] = {}
    for n, day in enumerate(DAYS):
        sound = [(f"{n}-{k}", f"s{(n + k) % 4}", day, generation + k) for k in range(4)]
        sound.append((f"{n}-large", f"large {n}", day, LIMIT + generation))
        silver |= set(sound)
        bad.add((f"{n}-bad", "s0", day, -generation))
        broken.add((f"no json, generation {generation}", day))
        for _, sensor, _, value in sound:
            totals[sensor] = totals.get(sensor, 0) + value
            homes.setdefault(sensor, day)
    sums = {(sensor, homes[sensor], total) for sensor, total in totals.items()}
    return {
        "bronze.readings_quarantine": frozenset(broken),
        "silver.readings": frozenset(silver),
        "silver.readings_quarantine": frozenset(bad),
        "silver.totals": frozenset(row for row in sums if row[2] <= LIMIT),
        "silver.totals_quarantine": frozenset(row for row in sums if row[2] > LIMIT),
    }


COLUMNS: Mapping[str, tuple[str, ...]] = {
    "bronze.readings_quarantine": ("_raw", "_arrival_date"),
    "silver.readings": ("id", "sensor", "day", "value"),
    "silver.readings_quarantine": ("id", "sensor", "day", "value"),
    "silver.totals": ("sensor", "day", "total"),
    "silver.totals_quarantine": ("sensor", "day", "total"),
}


def run(root: Path, engine: SparkSession) -> dict[str, list[str]]:
    """Build every table for all days; returns the statuses of the days."""
    lake = Lake(engine_settings(root), tables(), lambda: engine)
    found = {}
    for name, each in lake.tables.items():
        result = build(lake, each, DAYS, run_id="run")
        found[name] = [result.days[day].status for day in DAYS]
    return found


def _child(order: dict[str, Any], engine: SparkSession) -> None:
    os.environ["LAKEHOUSE_FAILPOINT"] = order["failpoint"]
    code = 1
    try:
        Path(order["answer"]).write_text(json.dumps(run(Path(order["root"]), engine)))
        code = 0
    finally:
        os._exit(code)


def main() -> None:
    """Serve orders until the input ends."""
    engine = start(engine_settings(Path(sys.argv[1])))
    engine.sparkContext.setLogLevel("OFF")
    engine.range(10).selectExpr("id", "1 AS day").write.partitionBy("day").parquet(f"{sys.argv[1]}/warm")
    print("ready", flush=True)  # noqa: T201 - the protocol
    for line in sys.stdin:
        order = json.loads(line)
        if order["failpoint"] == "whole":
            run(Path(order["root"]), engine)
            continue
        child = os.fork()
        if child == 0:
            _child(order, engine)
        _, status = os.waitpid(child, 0)
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps({"signal": killed_by, "code": status >> 8}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
