"""Upsert by key: which days hold the keys that a run touches, and which of their rows stay as they are.

A row's key may have events on several days, and the row lives in the first of them. A run over some days therefore
recomputes every key with events there, from all of that key's days, and replaces the days those keys live in. Each
row keeps its days in `_event_days`, so that finding them reads the table itself and not all of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import reduce
from operator import and_, or_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.build.plan import Plan
from lakehouse.contracts import Table
from lakehouse.contracts.keys import EVENT_DAYS
from lakehouse.contracts.schema_versions import added_later, read_lock
from lakehouse.delta.snapshot import Snapshot
from lakehouse.read.key_index import days_of_keys
from lakehouse.read.lake import Lake, joined, only
from lakehouse.records.history import older_code

BROADCAST_DAYS = 31  # keys of up to a month fit every executor; a long backfill's are shuffled


def upsert_frame(
    lake: Lake, plan: Plan, stores: Sequence[Snapshot], days: Sequence[date]
) -> tuple[DataFrame, list[date]]:
    """The full new content of every day that a run over `days` must replace, and those days.

    Args:
        lake: where the tables are.
        plan: the pinned inputs of the run.
        stores: the table itself before the run, and its quarantine: a key whose row broke a rule is as alive as any.
        days: the days asked for.
    """
    table = plan.table
    ((parameter, each),) = table.upstream.items()
    source, inputs = lake.table(each.table), plan.inputs[parameter]
    run = set(days)
    # The rows of the days asked for, before anything is known of where else their keys live.
    asked = lake.read(source, days, inputs)
    # A first build finds no key that lives elsewhere.
    stores = [store for store in stores if store.live.number]
    if not stores:
        return table.transformed(**{parameter: asked}), sorted(run)

    keys = list(table.key)
    touched = _with_key(table, asked.select(*keys)).distinct()
    # The days of the run are read too: a row that lives there may have events on days outside.
    living = reduce(DataFrame.unionByName, [days_of_keys(lake, table, store) for store in stores])
    of_run = F.arrays_overlap(EVENT_DAYS, F.array(*[F.lit(day) for day in sorted(run)]))
    marked = touched.withColumn("_hit", F.lit(True))
    # From the table's side: a key that is touched, and one that lived in the days of the run and may be gone now.
    marks = joined(living, F.broadcast(marked) if len(run) <= BROADCAST_DAYS else marked, keys, "left")

    def anew(old: set[date]) -> tuple[DataFrame, list[date]]:
        whole = sorted(run | old | _days(living))
        return table.transformed(**{parameter: lake.read(source, whole, inputs)}), whole

    if (old := _days_without_key(table, stores, living)) - run:
        return anew(old)
    extra = sorted(_days(marks.where(F.col("_hit") | of_run)) - run)
    if not extra:
        return table.transformed(**{parameter: asked}), sorted(run)

    # Whose keys are computed anew, from all of their days; the rest of those days is carried over as it is. What was
    # hit beside these has keys that are touched.
    all_touched = touched.unionByName(living.where(of_run).select(*keys))
    elsewhere = joined(lake.read(source, extra, inputs), all_touched, keys, "left_semi")
    recomputed = table.transformed(**{parameter: asked.unionByName(elsewhere)})
    carried = _carried(lake, table, stores, extra, all_touched)
    if _of_a_wider_key(lake, table, carried, extra):
        return anew(set(extra))
    return recomputed.unionByName(only(carried, recomputed.columns)), sorted(run | set(extra))


def _days_without_key(table: Table, stores: Sequence[Snapshot], living: DataFrame) -> set[date]:
    """Days with rows that were published before a column of the key was there.

    They have no key now, so no run finds them by it: all days are built again, once. Whether there are any is asked of
    the log's null counts first, so that no row is read for it as a rule.
    """
    young = sorted({*table.key} & {*(added_later(table, read_lock().get(table.id, ())) or ())})
    if not any(nulls != 0 for store in stores for key in young for nulls in store.nulls(key).values()):
        return set()
    return _days(living.where(reduce(or_, [F.col(key).isNull() for key in young])))


def _of_a_wider_key(lake: Lake, table: Table, carried: DataFrame, days: Sequence[date]) -> bool:
    """Whether rows that would be carried over repeat a key: older code, whose key had a further column, made them.

    What is one row now is several there, so no day beside them would pass its audit: all are built again, once.
    """
    if not older_code(lake.settings.root, table.id, table.code_version, days):
        return False
    rows = _with_key(table, carried).groupBy(*table.key).count()
    return not rows.where(F.col("count") > 1).isEmpty()


def _with_key(table: Table, rows: DataFrame) -> DataFrame:
    """The rows that have a key: of a column of it that may be null, null is a value like any other."""
    named = [F.col(key).isNotNull() for key in table.key if key in table.required]
    return rows.where(reduce(and_, named, F.lit(True)))


def _carried(
    lake: Lake, table: Table, stores: Sequence[Snapshot], days: Sequence[date], touched: DataFrame
) -> DataFrame:
    """The rows of some days whose keys the run does not touch: a day is replaced whole, so they are written again."""
    keys = list(table.key)
    carried = joined(lake.read(table, days, stores[0]), touched, keys, "left_anti")
    for quarantine in stores[1:]:
        # A day that failed its audit left the rows of its attempt here; those that are published come first.
        published = days_of_keys(lake, table, stores[0]).select(*keys)
        rows = joined(lake.read(table, days, quarantine), touched, keys, "left_anti")
        carried = carried.unionByName(joined(rows, published, keys, "left_anti"))
    return carried


def _days(living: DataFrame) -> set[date]:
    """A handful of dates: the days in which keys live or have events."""
    found = living.select(F.explode(EVENT_DAYS).alias("day")).agg(F.collect_set("day").alias("days")).first()
    return set(found["days"] if found else ())
