"""How an engine plans what it runs: once beforehand, or anew after every stage; and into how many tasks it shuffles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakehouse.settings import Settings
from lakehouse.spark.config import SHUFFLES, shuffle_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADAPTIVE = "spark.sql.adaptive.enabled"
MOST = 32 << 20  # bytes; from more, what a stage was found to give is worth another look at the plan
A_TASK = 2 << 20  # bytes; of less, what a task costs by itself is more than what it does

_set: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()


def plan_for(session: SparkSession, settings: Settings, size: int | None) -> None:
    """Have the engine plan what it runs next by how much it reads; it decides about time alone.

    It stays so in the session until the next call: whatever shuffles much calls this before.

    Spark plans anew after every stage (adaptive execution), each of which is then a job of its own: of a small build
    that is a quarter of the time. And each stage after a shuffle has the same number of tasks, however little there is
    for them: with one in place of four, a turn of a stream takes three quarters of the time. An engine of one machine
    has few partitions to shuffle into, so that nothing is to be merged; others keep what they have, and whoever has set
    it keeps that.

    Args:
        session: which runs it.
        settings: of the lakehouse.
        size: bytes that are read; None: unknown.
    """
    if not settings.is_local:
        return
    known = _set.setdefault(session, {})
    for name, value in _wanted(settings, size).items():
        if name not in settings.spark_config and known.get(name) != value:
            session.conf.set(name, value)
            known[name] = value


def _wanted(settings: Settings, size: int | None) -> Mapping[str, str]:
    most = shuffle_partitions(settings)
    if size is None or size > MOST:
        return {ADAPTIVE: "true", SHUFFLES: str(most)}
    return {ADAPTIVE: "false", SHUFFLES: str(min(most, 1 + size // A_TASK))}
