"""Keys: what a contract must say so that rows of one key are recognized, on one day and beyond.

`unique_within` says how far apart two rows of one key are repeats of each other:

* "day" (default): on the same day.
* `timedelta(days=n)`: a row is a duplicate where another row of its key, on its own day or at most n days before or
  after it, comes first by `keep_first_by` (of equal rows, that of the earlier day).

What follows from that sentence:

* No key is published on two days that are at most n apart, and the first of all its rows always stays.
* A row whose predecessor is itself a duplicate is one too. So a day depends on n days to each side and no further, and
  a key that comes again every day for a year is published once.
* It is decided from the inputs alone, before any rule: the repeats of a row that goes to quarantine are duplicates all
  the same. What other days have published does not matter, so days may be built in any order, alone or together.
* A duplicate counts in its own day: there, rows in = published + quarantined + late + duplicates.
* A day is stale once a row beside it may come before one of its own. Where `keep_first_by` begins with the arrival day
  of landed tables, which the transform hands on as it is, a row that arrives later than all of a day's own cannot: an
  ordinary new day leaves the day before it alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import types as T

if TYPE_CHECKING:
    from lakehouse.contracts.table import Table


def key_conditions(made: Table, event_days: str) -> dict[str, bool]:
    """What must hold of a table's key and what is said about it, by what is wrong where it does not.

    Args:
        made: the table.
        event_days: the column in which an upsert table keeps the days of a key.
    """
    holds = {"keep_first_by needs a key": bool(made.key) or not made.keep_first_by}
    if made.unique_within != "day":
        holds |= _unique(made)
    if made.upsert:
        holds |= {
            "upsert needs a key": bool(made.key),
            "upsert needs exactly one input, a table without days_before": len(made.inputs) == 1
            and [each.days_before for each in made.upstream.values()] == [0],
            f"upsert needs a column {event_days}, the dates with events of the row's key": event_days in made.columns
            and made.schema[event_days].dataType == T.ArrayType(T.DateType()),
        }
    return holds


def _unique(made: Table) -> dict[str, bool]:
    within = made.unique_within
    if within == "all":
        # Which row of a key is the first is known only from the keys of all days, whenever one of them is built.
        return {
            'unique_within="all" is not offered: each day would have to read the keys of all others, and each late '
            "file would make all days stale. Give the longest time after which a row is sent again, as "
            "timedelta(days=n), or declare upsert, where a key has one row in all days": False
        }
    further = sorted(set(made.partition_by[1:]) - set(made.key))
    return {
        f'unique_within is "day" or a timedelta of whole days, 1 or more, not {within!r}': isinstance(within, timedelta)
        and within > timedelta(0)
        and within == timedelta(days=within.days),
        "unique_within beyond a day needs key and keep_first_by: what a repeat is, and which row is kept": bool(
            made.key and made.keep_first_by
        ),
        f"unique_within beyond a day says nothing where the key holds the day ({made.day_column})": made.day_column
        not in made.key,
        f"unique_within beyond a day needs further partition columns ({', '.join(further)}) to be part of the key, so "
        "that a day's rows of one key lie together": not further,
        "unique_within beyond a day is for tables that read tables and are no upserts": len(made.upstream)
        == len(made.inputs)
        and not made.upsert,
    }
