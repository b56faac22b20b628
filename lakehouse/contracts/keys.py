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
* A duplicate counts in its own day: there, rows in = published + quarantined + duplicates.
* A day is stale once a row beside it may come before one of its own. Where `keep_first_by` begins with the arrival day
  of landed tables, which the transform hands on as it is, a row that arrives later than all of a day's own cannot: an
  ordinary new day leaves the day before it alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakehouse.contracts.mistakes import Mistake, are_known, is_days, unless

if TYPE_CHECKING:
    from lakehouse.contracts.table import Table


EVENT_DAYS = "_event_days"  # of an upsert table: the days that hold events of the row's key


def key_mistakes(made: Table) -> list[Mistake]:
    """What is wrong with a table's key and what is said about it."""
    needs_key = "a key beside it"
    return [
        *unless(
            made.key or not made.keep_first_by, "keep_first_by", needs_key, "none", "Say what two rows have in common."
        ),
        *(_unique(made) if made.unique_within != "day" else ()),
        *(_upsert(made) if made.upsert else ()),
    ]


def upsert_mistakes(made: Table, sources: Mapping[str, Table]) -> list[Mistake]:
    """Columns of an upsert table's key that its input lacks: by them a run finds what else it has to compute.

    Args:
        made: the table.
        sources: tables by `layer.name`, its input among them.
    """
    if not made.upsert:
        return []
    (each,) = made.upstream.values()
    return are_known("key", made.key, sources[each.table].columns, f"a column of {each.table} too, as upsert needs,")


def _upsert(made: Table) -> list[Mistake]:
    sides = [(s, getattr(each, s)) for each in made.upstream.values() for s in ("days_before", "days_after")]
    windows = [f"{side}={days}" for side, days in sides if days]
    kind = made.schema[EVENT_DAYS].dataType.simpleString() if EVENT_DAYS in made.columns else "no such column"
    reads = ", ".join(made.inputs) + (f" with {windows[0]}" if windows else "")
    return [
        *unless(made.key, "upsert", "a key beside it", "none", "Say which rows are versions of one."),
        *unless(len(made.inputs) == len(made.upstream) == 1 and not windows, "upsert",
                "exactly one input, a table without days_before or days_after", reads,
                "Join the inputs in a table of their own."),
        *unless(kind == "array<date>", "model", f"a column {EVENT_DAYS} of type array<date>, as upsert needs",
                kind, "Add it: the dates with events of the row's key."),
    ]  # fmt: skip


def _unique(made: Table) -> list[Mistake]:
    within, word = made.unique_within, "unique_within"
    if within == "all":
        # Which row of a key is the first is known only from the keys of all days, whenever one of them is built.
        return unless(
            False, word, "a time after which no row is sent again", "'all'",
            "Each day would have to read the keys of all others, and each late file would make all days stale. Write "
            "timedelta(days=n), or declare upsert, where a key has one row in all days.",
        )  # fmt: skip
    further = sorted(set(made.partition_by[1:]) - set(made.key))
    reads_tables = len(made.upstream) == len(made.inputs) and not made.upsert
    return [
        *unless(is_days(within, 1), word, '"day" or a timedelta of whole days, 1 or more', repr(within),
                "Write timedelta(days=1)."),
        *unless(made.key and made.keep_first_by, word, "key and keep_first_by beside it", "none",
                "Say what a repeat is, and which row is kept."),
        *unless(made.day_column not in made.key, word, f"a key without the day ({made.day_column})",
                ", ".join(made.key), "Rows of different days are no repeats then: leave unique_within out."),
        *unless(not further, word, "a key with all further partition columns, so that a day's rows of it lie together",
                f"no {', '.join(further)}", "Add them to the key."),
        *unless(reads_tables, word, "a table that reads tables and is no upsert", made.id, "Leave it out."),
    ]  # fmt: skip
