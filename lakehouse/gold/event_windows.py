"""gold.event_windows: what happened in each hour, by shop and currency."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Count, Input, Sum, table


class EventWindows(pa.DataFrameModel):
    """Hours with events, each from its start up to the start of the next, which is not in it.

    A day computes its hours at once, from all events that have arrived by then. So no watermark has closed them, and
    nothing has corrected them since: `closed_at_watermark` is null and `corrections` is 0. Both are of a stream alone,
    which publishes an hour once its watermark has passed it. All other columns depend on the events of the hour only,
    whatever the order in which they came.
    """

    window_start: T.TimestampType() = pa.Field(description="Start of the hour, UTC")
    source: T.StringType() = pa.Field(nullable=True, description="The shop: online_retail or events")
    currency: T.StringType() = pa.Field(description="ISO 4217; amounts are never added across currencies")
    event_date: T.DateType() = pa.Field(description="UTC date of the hour")
    events: T.LongType() = pa.Field(ge=1, description="Purchases and cancellations, those of guests included")
    purchases: T.LongType() = pa.Field(ge=0, description="Purchase events")
    cancellations: T.LongType() = pa.Field(ge=0, description="Cancellation events")
    gross_revenue: T.DecimalType(18, 2) = pa.Field(ge=0, description="Sum of purchases")
    users: T.LongType() = pa.Field(ge=0, description="Distinct known users with an event")
    closed_at_watermark: T.TimestampType() = pa.Field(
        nullable=True, description="Watermark of the stream that closed the hour, UTC; null where a batch computed it"
    )
    corrections: T.LongType() = pa.Field(
        ge=0, description="Events that a stream added after it had closed the hour; 0 where a batch computed it"
    )


@table(
    model=EventWindows,
    inputs={"transactions": Input("silver.transactions")},
    partition_by="event_date",
    key=("window_start", "source", "currency"),
    owner="team:sales",
    grain="hour × source × currency",
    figures={"events": Sum("events"), "windows": Count(), "revenue": Sum("gross_revenue", by="currency")},
)
def event_windows(transactions: DataFrame) -> DataFrame:
    """Counts and sums an hour, source and currency."""
    purchase = F.col("event_type") == "purchase"
    amount = F.when(purchase, F.col("amount")).otherwise(F.lit(0).cast("decimal(18,2)"))
    return (
        transactions.withColumn("window_start", F.date_trunc("hour", "event_time"))
        .groupBy("window_start", "source", "currency", "event_date")
        .agg(
            F.count(F.lit(1)).alias("events"),
            F.count_if(purchase).alias("purchases"),
            F.count_if(~purchase).alias("cancellations"),
            F.sum(amount).cast("decimal(18,2)").alias("gross_revenue"),
            # A set in place of count_distinct, which would shuffle the events by user before it.
            F.size(F.collect_set("user_id")).cast("bigint").alias("users"),
        )
        .withColumn("closed_at_watermark", F.lit(None).cast("timestamp"))
        .withColumn("corrections", F.lit(0).cast("bigint"))
    )
