"""A process that takes batches from a shop and is killed at a point of it. Run as a module; orders come by standard input.

One engine is started without touching delta-rs. For each order the process forks: the child takes a batch and builds
silver, with the failpoint of the order set, while the parent waits. The order `whole` is not forked: it ends only when
the process group is killed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakehouse.bronze.orders import orders
from lakehouse.silver.order_status import order_status
from lakehouse.spark.session import start
from lakehouse.tables.build import build
from lakehouse.tables.lake import Lake
from lakehouse.tables.touched import stale_days
from lakehouse_tests.conftest import engine_settings


def run(root: Path, url: str, engine: SparkSession) -> dict[str, Any]:
    """Take a batch and build what it touched; returns rows taken and days built."""
    settings = engine_settings(root).model_copy(update={"orders_url": SecretStr(url)})
    lake = Lake(settings, {orders.id: orders, order_status.id: order_status}, lambda: engine)
    taken = build(lake, orders, [], run_id="run")
    days = stale_days(lake, order_status)
    built = build(lake, order_status, days, run_id="run") if days else None
    return {"rows": taken.facts["batch/rows"], "days": len(built.with_status("published")) if built else 0}


def main() -> None:
    """Serve orders until the input ends."""
    engine = start(engine_settings(Path(sys.argv[1])))
    engine.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)  # noqa: T201 - the protocol
    for line in sys.stdin:
        order = json.loads(line)
        if order["failpoint"] == "whole":
            run(Path(order["root"]), order["url"], engine)
            continue
        child = os.fork()
        if child == 0:
            os.environ["LAKEHOUSE_FAILPOINT"] = order["failpoint"]
            code = 1
            try:
                made = run(Path(order["root"]), order["url"], engine)
                Path(order["answer"]).write_text(json.dumps(made))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps({"signal": killed_by, "code": status >> 8}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
