"""How an engine plans what it runs: once beforehand, or anew after every stage."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from lakehouse.settings import Settings

ADAPTIVE = "spark.sql.adaptive.enabled"
MOST = 32 << 20  # bytes; from more, what a stage was found to give is worth another look at the plan

_set: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def plan_for(session: SparkSession, settings: Settings, size: int | None) -> None:
    """Have the engine plan what it runs next by how much it reads; it decides about time alone.

    Spark plans anew after every stage (adaptive execution), each of which is then a job of its own. Of a small build
    that is a quarter of the time. An engine of one machine has few partitions to shuffle into, so that nothing is to be
    merged; others keep what they have, and whoever has set it keeps that.

    Args:
        session: which runs it.
        settings: of the lakehouse.
        size: bytes that are read; None: unknown.
    """
    if not settings.is_local or ADAPTIVE in settings.spark_config:
        return
    adaptive = size is None or size > MOST
    if _set.get(session) is not adaptive:
        session.conf.set(ADAPTIVE, str(adaptive).lower())
        _set[session] = adaptive
