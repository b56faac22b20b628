"""How an engine plans what it runs: once beforehand, or anew after every stage; and in how many tasks it runs that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakehouse.settings import Settings
from lakehouse.spark.config import SHUFFLES, cores, shuffle_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADAPTIVE = "spark.sql.adaptive.enabled"
MOST = 32 << 20  # bytes; from more, what a stage was found to give is worth another look at the plan
READS = "spark.sql.files.minPartitionNum"
A_TASK = 512 << 10  # bytes; of less, what a task costs by itself is more than what it does
MOST_A_TASK = 8 << 20  # bytes; of more, rows are a multiple of it in memory, and what is sorted goes by way of the disk

_set: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()


def plan_for(session: SparkSession, settings: Settings, size: int | None) -> None:
    """Have the engine plan what it runs next by how much it reads; it decides about time alone.

    It stays so in the session until the next call: whatever shuffles much calls this before.

    Spark plans anew after every stage (adaptive execution), each of which is then a job of its own: of a small build
    that is a quarter of the time. And files are read in a task for each core, and each stage after a shuffle has twice
    as many, however little there is for them: with one in place of four, a turn of a stream takes three quarters of the
    time. Of much, more partitions keep the sorting of each in memory: two million rows of `silver.transactions` took
    five sixths of the time. An engine of one machine has few partitions to shuffle into, so that nothing is to be
    merged; others keep what they have, and whoever has set it keeps that.

    Args:
        session: which runs it.
        settings: of the lakehouse.
        size: bytes that are read; None: unknown.
    """
    if not settings.is_local:
        return
    wanted = {name: value for name, value in _wanted(settings, size).items() if name not in settings.spark_config}
    if not wanted:
        return
    known = _set.setdefault(session, {})
    for name, value in wanted.items():
        if known.get(name) != value:
            session.conf.set(name, value)
            known[name] = value


def _wanted(settings: Settings, size: int | None) -> Mapping[str, str]:
    is_large = size is None or size > MOST
    most = shuffle_partitions(settings)
    tasks = most if size is None else max(min(most, 1 + size // A_TASK), size // MOST_A_TASK)
    return {ADAPTIVE: str(is_large).lower(), SHUFFLES: str(tasks), READS: str(min(tasks, cores(settings.spark_url)))}
