"""A process that builds a small lake and is killed at a point of it. See `laboratory`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.slices import Slicing
from lakehouse.contracts import BronzeModel, Input, Landing, SliceBy, Table
from lakehouse.read.lake import Lake
from lakehouse.transforms.columns import with_event_date
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.fixtures.making import model, table

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
    """One of each kind: landed lines, typed rows once each, an upsert, and a window of two days.

    Each quarantines something every day.
    """
    text, long = T.StringType(), T.LongType()

    def typed(lines: DataFrame) -> DataFrame:
        value = F.col("value").try_cast("bigint").alias("value")
        return lines.select("id", "sensor", F.col("_event_date").alias("day"), value, *ORIGIN)

    def totals(readings: DataFrame) -> DataFrame:
        days = F.array_sort(F.collect_set("day")).alias("_event_days")
        return readings.groupBy("sensor").agg(F.min("day").alias("day"), F.sum("value").alias("total"), days)

    def recent(readings: DataFrame) -> DataFrame:
        spread = F.explode(F.array("day", F.date_add("day", 1))).alias("day")
        return readings.select("sensor", "value", spread).groupBy("sensor", "day").agg(F.sum("value").alias("total"))

    day = {"day": (T.DateType(), pa.Field())}
    names = {"id": (text, pa.Field()), "sensor": (text, pa.Field()), **day, "value": (long, pa.Field(ge=0))}
    sums: dict[str, Any] = {"sensor": (text, pa.Field()), **day, "total": (long, pa.Field(le=LIMIT))}
    window = dict(sums)
    sums["_event_days"] = (T.ArrayType(T.DateType()), pa.Field(nullable=True))
    landing = Landing("events", "jsonl", ("id", "sensor", "at", "value"))
    made = [
        table(
            "bronze.readings", Readings, lambda lines: with_event_date(lines, "at"), {"lines": landing},
            partition_by=("_arrival_date", "_event_date"), max_quarantined=1.0,
        ),
        table(
            "silver.readings", model("Typed", **names), typed, {"lines": Input("bronze.readings")}, key=("id",),
            keep_first_by=ORIGIN, unique_within=timedelta(days=1), conserves_rows=True, max_quarantined=1.0,
            slice_by=SliceBy(("id",)),
        ),
        table(
            "silver.totals", model("Totals", **sums), totals, {"readings": Input("silver.readings")}, key=("sensor",),
            upsert=True, max_quarantined=1.0,
        ),
        table(
            "gold.recent", model("Recent", **window), recent, {"readings": Input("silver.readings", days_before=1)},
            key=("sensor", "day"), max_quarantined=1.0, slice_by=SliceBy(("sensor",)),
        ),
    ]  # fmt: skip
    return {each.id: each for each in made}


def land(root: Path, generation: int, extra: int = 0) -> None:
    """Land every day's lines of a generation: sound, repeated, rule-breaking and broken ones, and `extra` more.

    Repeated are a line of the same day and one of the day before.
    """
    for n, day in enumerate(DAYS):
        at = f"{day}T10:00:00Z"
        rows = [
            {"id": f"{n}-{k}", "sensor": f"s{(n + k) % 4}", "at": at, "value": generation + k} for k in range(4 + extra)
        ]
        rows += [rows[0], {"id": f"{n}-bad", "sensor": "s0", "at": at, "value": -generation}]
        rows += [{"id": f"{n}-large", "sensor": f"large {n}", "at": at, "value": LIMIT + generation}]
        rows += [{"id": f"{n - 1}-0", "sensor": "again", "at": at, "value": generation}] * (n > 0)
        lines = [json.dumps(row) for row in rows] + [f"no json, generation {generation}"]
        folder = root / "landing" / "events" / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".new").write_text("\n".join(lines))
        os.utime(folder / ".new", (1_700_000_000 + generation,) * 2)
        (folder / ".new").rename(folder / "a.jsonl")


def expected(generation: int) -> dict[str, Rows]:
    """What each table and quarantine holds once a generation is built, in the columns of `COLUMNS`."""
    raw, silver, bad, broken = set(), set(), set(), set()
    totals: dict[str, int] = {}
    homes: dict[str, date] = {}
    recent: dict[tuple[str, date], int] = {}
    for n, day in enumerate(DAYS):
        sound = [(f"{n}-{k}", f"s{(n + k) % 4}", day, generation + k) for k in range(4)]
        negative = (f"{n}-bad", "s0", day, -generation)
        large = (f"{n}-large", f"large {n}", day, LIMIT + generation)
        again = [(f"{n - 1}-0", "again", day, generation)] * (n > 0)
        lines = [*sound, sound[0], negative, large, *again]
        raw |= {(key, str(value), day, line) for line, (key, _, _, value) in enumerate(lines, 1)}
        silver |= {*sound, large}
        bad.add(negative)
        broken.add((f"no json, generation {generation}", day))
        for _, sensor, _, value in (*sound, large):
            totals[sensor] = totals.get(sensor, 0) + value
            homes.setdefault(sensor, day)
            for seen in {day, day + timedelta(days=1)} & set(DAYS):
                recent[sensor, seen] = recent.get((sensor, seen), 0) + value
    sums = {(sensor, homes[sensor], total) for sensor, total in totals.items()}
    window = {(sensor, day, total) for (sensor, day), total in recent.items()}
    return {
        "bronze.readings": frozenset(raw),
        "bronze.readings_quarantine": frozenset(broken),
        "silver.readings": frozenset(silver),
        "silver.readings_quarantine": frozenset(bad),
        "silver.totals": frozenset(row for row in sums if row[2] <= LIMIT),
        "silver.totals_quarantine": frozenset(row for row in sums if row[2] > LIMIT),
        "gold.recent": frozenset(row for row in window if row[2] <= LIMIT),
        "gold.recent_quarantine": frozenset(row for row in window if row[2] > LIMIT),
    }


COLUMNS: Mapping[str, tuple[str, ...]] = {
    "bronze.readings": ("id", "value", "_arrival_date", "_source_row"),
    "bronze.readings_quarantine": ("_raw", "_arrival_date"),
    "silver.readings": ("id", "sensor", "day", "value"),
    "silver.readings_quarantine": ("id", "sensor", "day", "value"),
    "silver.totals": ("sensor", "day", "total"),
    "silver.totals_quarantine": ("sensor", "day", "total"),
    "gold.recent": ("sensor", "day", "total"),
    "gold.recent_quarantine": ("sensor", "day", "total"),
}


def run(root: Path, engine: SparkSession, slices: int = 1) -> dict[str, list[str]]:
    """Build every table for all days, those that can be sliced in slices; returns the statuses of the days."""
    lake = Lake(engine_settings(root), tables(), lambda: engine)
    found = {}
    for name, each in lake.tables.items():
        result = build(lake, each, DAYS, run_id="run", slicing=Slicing(slices) if slices > 1 else None)
        found[name] = [result.days[day].status for day in DAYS]
    return found


def read(root: Path, engine: SparkSession) -> dict[str, list[list[str]]]:
    """Every table as downstream tables read it, through the engine; values as texts."""
    lake = Lake(engine_settings(root), tables(), lambda: engine)
    found = {}
    for name, each in lake.tables.items():
        rows = lake.read(each, DAYS, lake.snapshot(name)).select(*COLUMNS[name]).collect()
        found[name] = sorted([str(value) for value in row] for row in rows)
    return found


def on_order(order: Mapping[str, Any], engine: SparkSession) -> Any:
    """Build, or read what was built."""
    root = Path(order["root"])
    return read(root, engine) if order.get("do") == "read" else run(root, engine, order.get("slices", 1))
