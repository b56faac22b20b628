"""gold.event_windows: what happened in each hour, by shop and currency."""

from __future__ import annotations

from datetime import timedelta

import pandera.pyspark as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Count, Input, Quality, Sum, table

# From the end of an hour to where the watermark closes it.
ALLOWED_LATENESS = timedelta(hours=1)
STREAMED = "events"  # the source, in silver.transactions, of what the stream brings


class EventWindows(pa.DataFrameModel):
    """Hours with events, each from its start up to the start of the next, which is not in it.

    An open hour is published as it is. It is closed by the first batch of the stream whose watermark is one hour after
    its end, or later (`ALLOWED_LATENESS`). What comes after that corrects it: it is in all the sums, and is counted as
    a correction where the first message of the event arrived later than all messages that were taken when the hour was
    closed. Both follow from the rows and the log of bronze.event_stream, so whoever computes them again gets the same.

    Where the stream brought no message of the hour, as where files alone did, `closed_at_watermark` is null and
    `corrections` is 0. These two tell how one lake got its events; all other columns depend on the events of the hour
    only, in whatever order and by whatever way they came.
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
        nullable=True,
        description="Watermark of the stream that closed the hour, UTC; null where it is open, or of files alone",
    )
    corrections: T.LongType() = pa.Field(
        ge=0, description="Events whose first message arrived after the stream had closed the hour"
    )


@table(
    model=EventWindows,
    inputs={
        "transactions": Input("silver.transactions"),
        "event_stream": Input("bronze.event_stream", hours_close_after=ALLOWED_LATENESS),
    },
    partition_by="event_date",
    key=("window_start", "source", "currency"),
    owner="team:sales",
    grain="hour × source × currency",
    quality=Quality(max_shares={"corrections": ("events", 0.01)}),
    figures={
        "events": Sum("events"),
        "windows": Count(),
        "revenue": Sum("gross_revenue", by="currency"),
        "corrections": Sum("corrections"),
    },
)
def event_windows(transactions: DataFrame, event_stream: DataFrame) -> DataFrame:
    """Counts and sums an hour, source and currency."""
    messages = event_stream.select("event_id", _hour("_event_at"), "_closed_at", "_came_after")
    closed = messages.groupBy("window_start").agg(F.max("_closed_at").alias("closed_at_watermark"))
    closed = closed.withColumn("source", F.lit(STREAMED))
    purchase = F.col("event_type") == "purchase"
    amount = F.when(purchase, F.col("amount")).otherwise(F.lit(0).cast("decimal(18,2)"))
    return (
        transactions.withColumn("window_start", _hour("event_time"))
        .join(F.broadcast(_corrections(messages)), ["event_id", "window_start"], "left")
        .groupBy("window_start", "source", "currency", "event_date")
        .agg(
            F.count(F.lit(1)).alias("events"),
            F.count_if(purchase).alias("purchases"),
            F.count_if(~purchase).alias("cancellations"),
            F.sum(amount).cast("decimal(18,2)").alias("gross_revenue"),
            # A set in place of count_distinct, which would shuffle the events by user before it.
            F.size(F.collect_set("user_id")).cast("bigint").alias("users"),
            F.count("_correction").alias("corrections"),
        )
        .join(F.broadcast(closed), ["window_start", "source"], "left")
    )


def _hour(time: str) -> Column:
    return F.date_trunc("hour", time).alias("window_start")


def _corrections(messages: DataFrame) -> DataFrame:
    """The few events of an hour of which no message had arrived when it was closed."""
    event = ["event_id", "window_start"]
    late = messages.where(F.col("_came_after")).select(*event).distinct()
    # From the few to the many and back: the messages of a day are not shuffled for it.
    punctual = messages.where(~F.col("_came_after")).join(F.broadcast(late), event, "left_semi")
    return late.join(punctual, event, "left_anti").withColumn("_correction", F.lit(True))
