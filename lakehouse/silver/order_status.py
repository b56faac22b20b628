"""silver.order_status: the shop's orders as its database has them, one row each."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Input, Privacy, table
from lakehouse.transforms.columns import money, utc_timestamp


class OrderStatus(pa.DataFrameModel):
    """The newest version of each order; one that was deleted stays, as it last was, with the time of its deletion."""

    order_id: T.StringType() = pa.Field(description="Order")
    user_id: T.StringType() = pa.Field(nullable=True, description="Customer; null for guests")
    status: T.StringType() = pa.Field(description="What has become of the order")
    amount: T.DecimalType(18, 2) = pa.Field(description="In currency")
    currency: T.StringType() = pa.Field(str_matches="^[A-Z]{3}$", description="ISO 4217")
    created_at: T.TimestampType() = pa.Field(description="When the order was placed, UTC")
    updated_at: T.TimestampType() = pa.Field(description="When it was last changed, UTC")
    deleted_at: T.TimestampType() = pa.Field(nullable=True, description="When it was deleted; null while it is there")
    order_date: T.DateType() = pa.Field(description="UTC date of created_at")
    event_days: T.ArrayType(T.DateType()) = pa.Field(
        nullable=True, alias="_event_days", description="Days in which versions of the order are"
    )


@table(
    model=OrderStatus,
    inputs={"versions": Input("bronze.orders")},
    partition_by="order_date",
    key=("order_id",),
    upsert=True,
    owner="team:web-shop",
    grain="one order",
    privacy=Privacy(person=("user_id",)),
    lineage={"updated_at": ("updated_at", "_tombstone")},  # batch and transaction decide between equal times only
)
def order_status(versions: DataFrame) -> DataFrame:
    """Of each order its newest version by `updated_at`, then by batch and transaction, whatever came in which order.

    Where the time of the last one taken cannot be read, that one is it: the order is set aside until a later one is
    taken, since an older one would be told as what the order is now.

    A batch is read in one snapshot: an order that is in it lives, whatever tombstones there are beside. It is deleted
    where its last tombstone came in a later batch than its last version.
    """
    alive = ~F.col("_tombstone")
    newest = F.struct(utc_timestamp(F.col("updated_at")).alias("at"), "_batch", "_xid")
    taken = F.struct("_batch", "_xid")
    row = F.struct(
        "user_id", "status", "amount", "currency", "created_at", "updated_at", "deleted_at", "_event_date"
    )  # fmt: skip
    found = versions.groupBy("order_id").agg(
        F.max_by(F.when(alive, row), F.when(alive, newest)).alias("newest"),
        F.max_by(F.when(alive, row), F.when(alive, taken)).alias("last"),
        F.max(F.when(alive, F.col("_batch"))).alias("seen"),
        F.max(F.when(~alive, F.col("_batch"))).alias("gone"),
        F.max(F.when(~alive, F.col("deleted_at"))).alias("buried"),
        F.array_sort(F.collect_set("_event_date")).alias("_event_days"),
    )
    unread = utc_timestamp(F.col("last.updated_at")).isNull()
    found = found.withColumn("row", F.when(unread, F.col("last")).otherwise(F.col("newest")))
    deleted_at = F.when(F.col("gone") > F.col("seen"), F.col("buried")).otherwise(F.col("row.deleted_at"))
    # An order that came and went between two batches left only its tombstone: nothing is known of it.
    return found.where(F.col("row").isNotNull()).select(
        "order_id",
        "row.user_id",
        "row.status",
        money(F.col("row.amount")).alias("amount"),
        "row.currency",
        utc_timestamp(F.col("row.created_at")).alias("created_at"),
        utc_timestamp(F.col("row.updated_at")).alias("updated_at"),
        utc_timestamp(deleted_at).alias("deleted_at"),
        F.col("row._event_date").alias("order_date"),
        "_event_days",
    )
