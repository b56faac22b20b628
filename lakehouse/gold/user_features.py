"""gold.user_features: what was known of a user at the end of a day."""

from __future__ import annotations

from datetime import timedelta

import pandera.pyspark as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Count, Features, Input, Layout, Privacy, SliceBy, table

WINDOW_DAYS = 7
ORDER = ("source", "order_id")  # each shop numbers its own orders


class UserFeatures(pa.DataFrameModel):
    """Features of known users with a purchase in the seven days that end with `feature_date`.

    Point in time: nothing that happened after `feature_date` is in a row, so a later cancellation does not reach back.
    """

    user_id: T.StringType() = pa.Field(description="Customer")
    feature_date: T.DateType() = pa.Field(description="Last day of the window, UTC")
    rolling_7d_transaction_count: T.LongType() = pa.Field(ge=1, description="Purchase events in the window")
    rolling_7d_amount: T.DecimalType(18, 2) = pa.Field(ge=0, description="Sum of purchases in the window")
    user_7d_order_count: T.LongType() = pa.Field(
        ge=0, description="Orders bought in the window, not cancelled by its end"
    )
    last_event_time: T.TimestampType() = pa.Field(description="Latest event in the window, UTC")


@table(
    model=UserFeatures,
    inputs={"transactions": Input("silver.transactions", days_before=WINDOW_DAYS - 1)},
    partition_by="feature_date",
    key=("user_id", "feature_date"),
    # An order may be of several users, and is cancelled for all of them: each slice reads all cancellations.
    layout=Layout(slice_by=SliceBy(("user_id",), reads={"transactions": "event_type <> 'purchase'"})),
    owner="team:ml",
    grain="user × day",
    figures={"users": Count()},
    features=Features(entity="user", key=("user_id",), ttl=timedelta(days=7), while_open=True),
    privacy=Privacy(person=("user_id",)),
)
def user_features(transactions: DataFrame) -> DataFrame:
    """Each order's events count in the days from the event to six days later."""
    purchase = F.col("event_type") == "purchase"
    # First by order and day, so that the spread over seven days multiplies few rows.
    daily = transactions.groupBy("user_id", *ORDER, "event_date").agg(
        F.count_if(purchase).alias("purchases"),
        F.sum(F.when(purchase, F.col("amount"))).alias("amount"),
        F.max(~purchase).alias("cancelled"),
        F.max("event_time").alias("last_event_time"),
    )
    spread = F.sequence("event_date", F.date_add("event_date", WINDOW_DAYS - 1))
    # One shuffle by order and day serves both steps: an order is cancelled for all who bought in it.
    of_order = Window.partitionBy(*ORDER, "feature_date")
    by_order = (
        daily.withColumn("feature_date", F.explode(spread))
        .repartition(*ORDER, "feature_date")
        .groupBy("user_id", *ORDER, "feature_date")
        .agg(
            F.sum("purchases").alias("purchases"),
            F.sum("amount").alias("amount"),
            F.max("cancelled").alias("cancelled"),
            F.max("last_event_time").alias("last_event_time"),
        )
        .withColumn("cancelled", F.max("cancelled").over(of_order))
    )
    counted = (F.col("purchases") > 0) & ~F.col("cancelled") & F.col("order_id").isNotNull()
    return (
        by_order.where(F.col("user_id").isNotNull())
        .groupBy("user_id", "feature_date")
        .agg(
            F.sum("purchases").alias("rolling_7d_transaction_count"),
            F.sum("amount").cast("decimal(18,2)").alias("rolling_7d_amount"),
            F.count_if(counted).alias("user_7d_order_count"),
            F.max("last_event_time").alias("last_event_time"),
        )
        .where(F.col("rolling_7d_transaction_count") > 0)
    )
