"""A process that takes batches from a shop, builds silver, and is killed at a point of it. See `laboratory`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakehouse.build.build import build
from lakehouse.build.stale import stale_days
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.fixtures.shop.bronze.orders import orders
from lakehouse_tests.fixtures.shop.silver.order_status import order_status


def on_order(order: dict[str, Any], engine: SparkSession) -> dict[str, Any]:
    """Take a batch and build what it touched; returns rows taken and days built."""
    url = SecretStr(order["url"])
    settings = engine_settings(Path(order["root"])).model_copy(update={"source_urls": {"orders": url}})
    lake = Lake(settings, {orders.id: orders, order_status.id: order_status}, lambda: engine)
    taken = build(lake, orders, [], run_id="run")
    days = stale_days(lake, order_status)
    built = build(lake, order_status, days, run_id="run") if days else None
    return {"rows": taken.facts["batch/rows"], "days": len(built.with_status("published")) if built else 0}
