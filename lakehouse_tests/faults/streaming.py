"""A process that takes batches from a topic, builds what they touch, and is killed at a point of it. See `laboratory`."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakehouse.catalog import declared
from lakehouse.contracts import Table
from lakehouse.read.lake import Lake
from lakehouse.runs.stream import Pace, turns
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.fixtures.streaming import streamed

# Here, before the process forks: it takes as long to declare them as to take a batch.
_SAMPLE = tuple(declared("lakehouse").values())


def on_order(order: dict[str, Any], engine: SparkSession) -> dict[str, Any]:
    """Run the stream until it is caught up; returns turns and messages."""
    url = SecretStr(order["url"])
    tables = _tables(order)
    source = next(each for each in tables if each.topic)
    assert source.topic is not None
    settings = engine_settings(Path(order["root"])).model_copy(update={"source_urls": {source.topic.source: url}})
    lake = Lake(settings, {table.id: table for table in tables}, lambda: engine)
    done = list(turns(lake, [source], "run", threading.Event(), pace=Pace(0, 0), until_caught_up=True))
    return {"turns": len(done), "messages": sum(turn.messages for turn in done)}


def _tables(order: dict[str, Any]) -> list[Table]:
    """Small ones, or the sample's, all or some of them; either with batches of so many messages."""
    if not order.get("sample"):
        return streamed(order["topic"], messages_per_batch=order["most"])
    found = []
    for table in _SAMPLE:
        if table.topic is None:
            found.append(table)
            continue
        ((parameter, _),) = table.inputs.items()
        words: dict[str, Any] = {"messages_per_batch": order["most"], "topics": (order["topic"],)}
        words |= {"idle_after": timedelta(seconds=order["idle"])} if "idle" in order else {}
        found.append(replace(table, inputs={parameter: replace(table.topic, **words)}))
    return [each for each in found if each.id in order.get("only", {each.id for each in found})]
