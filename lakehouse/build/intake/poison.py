"""Messages on which the table's own code fails: found one by one, so that one of them does not stop the stream.

They become rows like other messages that are none: with `_error` and `_raw`, and nothing in the table's own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.contracts import Table, Topic
from lakehouse.sources.spans import Span
from lakehouse.spark.transient import is_transient

MOST = 10  # of a batch; where the code fails on more, it is the code that has to be fixed
Poison = Mapping[Span, str]
"""By message, what the code failed of."""


def poison_in(spans: Sequence[Span], failure: Callable[[Span], str], error: PySparkException) -> Poison:
    """The messages on which code fails, one after the other: each is found by halving what is left.

    Args:
        spans: messages on which it fails, all together.
        failure: what the code fails of on some of them; empty where it does not.
        error: of all of them, which is raised again where the code fails on too many, or on none alone.
    """
    # One that fails whatever the messages are, or that may pass: neither is a message's.
    if isinstance(error, AnalysisException) or is_transient(error):
        raise error
    found: dict[Span, str] = {}
    for span in spans:
        left = span
        while left.start < left.end and failure(left):
            first = _first_in(left, failure)
            # Alone, once more: messages of which only many together are too much are none of them poison.
            if not (why := failure(first)):
                raise error
            found[first] = why
            if len(found) > MOST:
                raise error
            left = replace(left, start=first.end)
    if not found:
        raise error
    return found


def _first_in(span: Span, failure: Callable[[Span], str]) -> Span:
    """The first message of a span on which code fails, of which it is known that it fails on one."""
    while span.end - span.start > 1:
        middle = (span.start + span.end) // 2
        half = replace(span, end=middle)
        span = half if failure(half) else replace(span, start=middle)
    return span


def is_poison(poison: Poison) -> Column:
    """Whether a row is of one of the messages."""
    return reduce(or_, [_is_at(span) for span in poison])


def dead_rows(rows: DataFrame, table: Table, topic: Topic, poison: Poison) -> DataFrame:
    """The rows of the messages in the table's columns: how they came, what they were, and why they are no rows.

    Args:
        rows: the messages as they were read, these alone.
        table: what takes them.
        topic: how they are read.
        poison: the messages.
    """
    why = F.coalesce(
        *[F.when(_is_at(span), F.lit(f"the code of {table.id} fails on it: {text}")) for span, text in poison.items()]
    )
    # Not the columns that arrive as they are: the code that fails is what makes tokens of them.
    shown = [name for name in topic.columns if name not in topic.addresses]
    made = {"_error": why, "_raw": F.to_json(F.struct(*shown)), "_event_date": F.col("_arrival_date")}
    columns = []
    for field in table.schema.fields:
        kept = field.name.startswith("_") and field.name in rows.columns
        value = made.get(field.name, F.col(field.name) if kept else F.lit(None))
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*columns)


def _is_at(span: Span) -> Column:
    return (F.col("_topic") == span.topic) & (F.col("_partition") == span.partition) & (F.col("_offset") == span.start)
