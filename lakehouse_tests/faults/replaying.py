"""A process that replays a small lake's quarantine and is killed at a point of it. See `laboratory`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Table
from lakehouse.quarantine.replay import plan_replay, run_replay
from lakehouse.read.lake import Lake
from lakehouse.records.ledger import Wanted
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.faults import crashing
from lakehouse_tests.fixtures.making import model

REPLAYED = "silver.readings"


def tables(loose: bool) -> dict[str, Table]:
    """The tables of `crashing`; loosened, `silver.readings` takes negative values."""
    made = crashing.tables()
    if loose:
        text = T.StringType()
        names = {"id": (text, pa.Field()), "sensor": (text, pa.Field()), "day": (T.DateType(), pa.Field())}
        typed = model("Typed", **names, value=(T.LongType(), pa.Field(ge=-10_000)))
        made[REPLAYED] = replace(made[REPLAYED], model=typed)
        made[REPLAYED].__dict__["code_version"] = "loose"
    return made


def on_order(order: dict[str, Any], engine: SparkSession) -> Any:
    """Build everything, or replay the quarantine of one table; returns what is to be known of it."""
    lake = Lake(engine_settings(Path(order["root"])), tables(order["loose"]), lambda: engine)
    if order["do"] == "build":
        for name, each in lake.tables.items():
            if name.startswith(order.get("layer", "")):
                build(lake, each, crashing.DAYS, run_id="run")
        return None

    def execute(days: Collection[Any]) -> list[str]:
        below = False
        for name, each in lake.tables.items():
            wanted = days if name == REPLAYED else stale_days(lake, each) if below else ()
            below = below or name == REPLAYED
            if wanted:
                build(lake, each, wanted, run_id="replay")
        return ["replay"]

    wanted = Wanted(order.get("rule"), date.fromisoformat(order["day"]) if "day" in order else None, order.get("code"))
    plan = plan_replay(lake, lake.table(REPLAYED), wanted)
    if plan.nothing_to_do:
        return None
    ended = run_replay(lake, plan, execute, who="ann", now=lambda: datetime.now(UTC))
    return [{"rows": each.rows, "outcome": dict(each.outcome), "still": dict(each.still)} for each in ended]
