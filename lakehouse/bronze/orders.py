"""bronze.orders: every version of the shop's orders that was seen in its database, batch by batch."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.contracts import Extract, Privacy, table
from lakehouse.transforms.columns import with_event_date

COLUMNS = ("order_id", "user_id", "status", "amount", "currency", "created_at", "updated_at")
DAYS_BACK = 36_500  # a first batch brings orders of any age


class Orders(pa.DataFrameModel):
    """Rows of the table `orders` as text, each time they changed, and a tombstone for each that was deleted."""

    order_id: T.StringType() = pa.Field(nullable=True, description="Order")
    user_id: T.StringType() = pa.Field(nullable=True, description="Customer; null for guests")
    status: T.StringType() = pa.Field(nullable=True, description="What has become of the order")
    amount: T.StringType() = pa.Field(nullable=True, description="Amount in `currency`")
    currency: T.StringType() = pa.Field(nullable=True, description="ISO 4217")
    created_at: T.StringType() = pa.Field(nullable=True, description="When the order was placed, ISO 8601, UTC")
    updated_at: T.StringType() = pa.Field(nullable=True, description="When the row was changed, ISO 8601, UTC")
    deleted_at: T.StringType() = pa.Field(nullable=True, description="When the row was deleted; null while it is there")
    arrival_date: T.DateType() = pa.Field(alias="_arrival_date", description="Day of the batch")
    event_date: T.DateType() = pa.Field(alias="_event_date", description="UTC date of created_at, else the arrival day")
    batch: T.LongType() = pa.Field(nullable=True, alias="_batch", description="Number of the batch, from 1")
    xid: T.LongType() = pa.Field(
        nullable=True, alias="_xid", description="Transaction that wrote this version of the row, without wrap-around"
    )
    tombstone: T.BooleanType() = pa.Field(
        nullable=True, alias="_tombstone", description="The row says only that, and when, the order was deleted"
    )
    ingested_run: T.StringType() = pa.Field(nullable=True, alias="_ingested_run", description="Run that took the batch")
    code: T.StringType() = pa.Field(nullable=True, alias="_code_version", description="Code version of that run")


@table(
    model=Orders,
    inputs={
        "rows": Extract(
            "orders",
            "orders",
            columns=COLUMNS,
            times=("created_at", "updated_at"),
            key=("order_id",),
            tombstones="orders_deleted",
            carried=("created_at",),
        )
    },
    partition_by=("_arrival_date", "_event_date"),
    owner="team:web-shop",
    grain="one version of an order that a batch found",
    privacy=Privacy(person=("user_id",)),
)
def orders(rows: DataFrame) -> DataFrame:
    """Each version with the day it is processed in: that of its order."""
    return with_event_date(rows, "created_at", days_back=DAYS_BACK)
