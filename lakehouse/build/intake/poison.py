"""Messages on which the table's own code fails: found one by one, so that one of them does not stop the stream.

They become rows like other messages that are none: with `_error` and `_raw`, and nothing in the table's own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.contracts import Table, Topic
from lakehouse.sources.spans import Span

MOST = 10  # of a batch; where the code fails on more, it is the code that has to be mended
Poison = Mapping[Span, str]
"""By message, what the code failed of."""


def poison_in(spans: Sequence[Span], rows: Callable[[Sequence[Span]], DataFrame], error: PySparkException) -> Poison:
    """The messages on which code fails, found by halves.

    Args:
        spans: messages on which it fails, all together.
        rows: what the code makes of some of them, not computed yet.
        error: of all of them, which is raised again where the code fails on too many, or on none alone.
    """
    if isinstance(error, AnalysisException):  # it fails whatever the messages are
        raise error
    found: dict[Span, str] = {}
    left = list(spans)
    while left:
        span = left.pop()
        why = _failure(rows([span]))
        if why and span.end - span.start > 1:
            middle = (span.start + span.end) // 2
            left += [
                Span(span.topic, span.partition, span.start, middle),
                Span(span.topic, span.partition, middle, span.end),
            ]
        elif why:
            found[span] = why
            if len(found) > MOST:
                raise error
    if not found:
        raise error
    return found


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


def _failure(rows: DataFrame) -> str:
    """What computing rows fails of, without the values that Spark's message quotes; empty where it does not."""
    try:
        rows.write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        return " ".join(filter(None, (type(error).__name__, error.getCondition())))
    return ""
