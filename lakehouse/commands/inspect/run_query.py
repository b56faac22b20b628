"""How commands ask a query: in this process where that gives Spark's answer, on Spark where it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

import pyarrow as pa

from lakehouse.commands.console import engine_output_aside, say
from lakehouse.errors import UsageError
from lakehouse.query.checked_query import CheckedQuery, check_query
from lakehouse.query.names import OPS, built_names, distinct_names
from lakehouse.query.pinning import Pinned, check_built, pinned
from lakehouse.query.sql_text import NotTranslatedError, QueryError
from lakehouse.settings import LAYERS, Settings

T = TypeVar("T")


class Engine(StrEnum):
    """What answers a query."""

    AUTO = "auto"
    EMBEDDED = "embedded"
    SPARK = "spark"


def ask(
    settings: Settings,
    statement: str,
    take: Callable[[pa.RecordBatchReader], T],
    *,
    as_of: Sequence[str] = (),
    limit: int | None = None,
    engine: Engine = Engine.AUTO,
) -> T:
    """What is made of the rows of a query, whose columns have names that differ.

    Args:
        settings: where the lakehouse and its engine are.
        statement: one query, in Spark's SQL.
        take: of the rows, which come batch by batch from the engine in this process; from the first again where it
            stops at one that it would not answer as Spark does.
        as_of: as `pinned` takes it.
        limit: most rows; None: all.
        engine: `auto` asks Spark what the engine in this process would not answer the same, and says so.

    Raises:
        UsageError: for what is no query that only reads, or that neither engine can answer.
    """
    query, known = _checked(settings, statement)
    if any(equals and name not in known for name, equals, _ in (each.partition("=") for each in as_of)):
        known = _all_names(settings)
    check_built(settings.root, query.uses)
    read = pinned(settings.root, query.uses, as_of, known)
    if engine is not Engine.SPARK:
        try:
            return _embedded(settings, query, read, limit, take)
        except NotTranslatedError as why:
            if engine is Engine.EMBEDDED:
                raise UsageError(f"Only Spark answers this query: {why}. Leave out --engine embedded.") from None
            say(f"Spark answers this query, which takes longer: {why}.")
    with engine_output_aside(settings):
        from lakehouse.query.on_spark import query_rows

        rows = query_rows(settings, query, read, limit)
    return take(rows.to_reader())


def _checked(settings: Settings, statement: str) -> tuple[CheckedQuery, list[str]]:
    """The query and the names it could use; where that is none, the catalog is asked what there could be."""
    layers = (*LAYERS, OPS)
    known = built_names(settings)
    try:
        return check_query(statement, known, layers), known
    except QueryError:
        known = _all_names(settings)
    try:
        return check_query(statement, known, layers), known
    except QueryError as error:
        raise UsageError(str(error)) from None


def _all_names(settings: Settings) -> list[str]:
    from lakehouse.catalog import tables
    from lakehouse.records.ops import ops_tables

    contracts = tables().values()
    known = [each.id for each in contracts] + [each.quarantine_id for each in contracts if each.rules]
    return known + ops_tables(settings.root)


def _embedded(
    settings: Settings, query: CheckedQuery, read: Pinned, limit: int | None, take: Callable[[pa.RecordBatchReader], T]
) -> T:
    from lakehouse.query.embedded import answer

    try:
        return answer(settings, query, read, limit, lambda rows: take(_distinct(rows)))
    except QueryError as error:
        raise UsageError(str(error)) from None


def _distinct(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    names = distinct_names(rows.schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
    return pa.RecordBatchReader.from_batches(schema, renamed)
