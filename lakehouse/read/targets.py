"""A contract's table and its quarantine, as a commit needs to know them."""

from __future__ import annotations

from functools import lru_cache

from lakehouse.contracts import Table
from lakehouse.delta.staged import (
    BESIDE,
    FAILED_RULES,
)
from lakehouse.delta.target import Target
from lakehouse.lazy import T
from lakehouse.read.lake import Lake


@lru_cache(maxsize=1)
def provenance() -> T.StructType:
    """What a quarantined row says beyond the contract's columns, where the transform provides it."""
    return T.StructType(
        [
            T.StructField("_arrival_date", T.DateType()),
            T.StructField("_source_file", T.StringType()),
            T.StructField("_source_row", T.LongType()),
            T.StructField("_raw", T.StringType()),
            T.StructField("_error", T.StringType()),
        ]
    )


def quarantine_schema(table: Table) -> T.StructType:
    """The contract's columns, every failed rule, and where the row came from, and when where that is known."""
    own = set(table.columns)
    moment = table.clock.arrived_at if table.clock else ""
    arrived = [T.StructField(moment, T.TimestampType())] if moment else []
    extra = [f for f in (*provenance().fields, *arrived) if f.name not in own]
    return T.StructType([*table.schema.fields, T.StructField(FAILED_RULES, T.ArrayType(T.StringType())), *extra])


def targets(lake: Lake, table: Table) -> tuple[Target, Target | None]:
    """A table and, where it has row rules, its quarantine as a commit needs to know them."""
    target = Target(
        lake.path(table.id),
        table.schema,
        table.partition_by,
        required=table.required,
        pii=table.pii,
        extra_columns=[*BESIDE, *quarantine_schema(table).names],
        description=table.description,
    )
    if not table.rules:
        return target, None
    side = Target(
        lake.path(table.quarantine_id),
        quarantine_schema(table),
        table.partition_by,
        pii=(*table.pii, "_raw", "_error"),
        extra_columns=BESIDE,
        description=f"Rows of {table.id} that broke a row rule",
    )
    return target, side
