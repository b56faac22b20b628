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
    # Rows without an order are not of one order: by user, so that they do not all meet in one task.
    order = [*ORDER, "_orderless"]
    daily = (
        transactions.withColumn("_orderless", F.when(F.col("order_id").isNull(), F.col("user_id")))
        .groupBy("user_id", *order, "event_date")
        .agg(
            F.count_if(purchase).alias("purchases"),
            F.sum(F.when(purchase, F.col("amount"))).alias("amount"),
            F.max(~purchase).alias("cancelled"),
            F.max("event_time").alias("last_event_time"),
        )
    )
    # What is to be known of an order is found before its days are spread over seven dates each, which multiplies rows:
    # on which days it was cancelled, whoever bought in it, and when the user next bought in it, from when that counts.
    later = (
        Window.partitionBy(*order, "user_id").orderBy(F.desc("event_date")).rowsBetween(Window.unboundedPreceding, -1)
    )
    bought = F.when(F.col("purchases") > 0, F.col("event_date"))
    cancelled = F.collect_set(F.when(F.col("cancelled"), F.col("event_date")))
    spread = F.sequence("event_date", F.date_add("event_date", WINDOW_DAYS - 1))
    dated = (
        daily.withColumn("_bought_again", F.min(bought).over(later))
        .withColumn("_cancelled_on", cancelled.over(Window.partitionBy(*order)))
        .where(F.col("user_id").isNotNull())
        .withColumn("feature_date", F.explode(spread))
    )
    newest = F.col("_bought_again").isNull() | (F.col("feature_date") < F.col("_bought_again"))
    window = F.sequence(F.date_sub("feature_date", WINDOW_DAYS - 1), "feature_date")
    stands = (F.size("_cancelled_on") == 0) | ~F.arrays_overlap("_cancelled_on", window)
    counted = (F.col("purchases") > 0) & F.col("order_id").isNotNull() & newest & stands
    return (
        dated.groupBy("user_id", "feature_date")
        .agg(
            F.sum("purchases").alias("rolling_7d_transaction_count"),
            F.sum("amount").cast("decimal(18,2)").alias("rolling_7d_amount"),
            F.count_if(counted).alias("user_7d_order_count"),
            F.max("last_event_time").alias("last_event_time"),
        )
        .where(F.col("rolling_7d_transaction_count") > 0)
    )
