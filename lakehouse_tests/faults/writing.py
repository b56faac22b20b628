"""What writing files asks of the system, as the engine's process counts it: orders of the laboratory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def on_order(order: dict[str, Any], engine: SparkSession) -> int | None:
    """Write 40 files in 40 folders; returns the page faults of processes that this started: each has some.

    None where the system does not count them.
    """
    began = _faults_of_children(engine)
    rows = engine.range(40).selectExpr("id", "id AS day").coalesce(1)
    rows.write.partitionBy("day").parquet(order["root"])
    ended = _faults_of_children(engine)
    return None if began is None or ended is None else ended - began


def _faults_of_children(engine: SparkSession) -> int | None:
    stat = Path(f"/proc/{engine._jvm.java.lang.ProcessHandle.current().pid()}/stat")  # type: ignore[union-attr]
    return int(stat.read_text().rpartition(")")[2].split()[8]) if stat.exists() else None
