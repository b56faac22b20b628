"""silver.orders: one row an order, in the day of its first event, with what became of it."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Input, Privacy, table

FIRST = (
    "event_time",
    "event_id",
)  # what decides which event of an order is the first; the id between those of one instant


class Orders(pa.DataFrameModel):
    """Orders of both shops, which may use one id each. A cancellation on a later day changes the order's own day."""

    order_id: T.StringType() = pa.Field(description="Order or invoice; each shop numbers its own")
    source: T.StringType() = pa.Field(nullable=True, description="The shop: online_retail or events")
    user_id: T.StringType() = pa.Field(nullable=True, description="Customer; null for guests")
    order_date: T.DateType() = pa.Field(description="UTC date of the order's first event")
    ordered_at: T.TimestampType() = pa.Field(description="Time of the order's first event")
    status: T.StringType() = pa.Field(isin=["placed", "cancelled"], description="cancelled once a cancellation is seen")
    lines: T.LongType() = pa.Field(ge=1, description="Events of the order")
    amount: T.DecimalType(18, 2) = pa.Field(
        nullable=True, description="Sum over its events, in currency: what is left to pay"
    )
    currency: T.StringType() = pa.Field(nullable=True, description="ISO 4217")
    country: T.StringType() = pa.Field(nullable=True, description="Customer's country")
    event_days: T.ArrayType(T.DateType()) = pa.Field(
        nullable=True, alias="_event_days", description="Days with events of the order"
    )


@table(
    model=Orders,
    inputs={"transactions": Input("silver.transactions")},
    partition_by="order_date",
    key=("source", "order_id"),
    upsert=True,
    owner="team:sales",
    grain="one order of one shop",
    schema_version=2,
    privacy=Privacy(person=("user_id",)),
)
def orders(transactions: DataFrame) -> DataFrame:
    """Orders from all events given; who, where and which currency are those of an order's first event."""
    first = F.struct(*FIRST)
    cancelled = F.max(F.col("event_type") == "cancellation")
    return (
        transactions.where(F.col("order_id").isNotNull())
        .groupBy("order_id", "source")
        .agg(
            F.min_by("user_id", first).alias("user_id"),
            F.min("event_date").alias("order_date"),
            F.min("event_time").alias("ordered_at"),
            F.when(cancelled, "cancelled").otherwise("placed").alias("status"),
            F.count(F.lit(1)).alias("lines"),
            F.sum("amount").cast("decimal(18,2)").alias("amount"),
            F.min_by("currency", first).alias("currency"),
            F.min_by("country", first).alias("country"),
            F.array_sort(F.collect_set("event_date")).alias("_event_days"),
        )
    )
