"""gold.daily_revenue: what was sold and cancelled, by day, country and currency."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Input, Sum, table


class DailyRevenue(pa.DataFrameModel):
    """Revenue by event day; a cancellation counts in the day it happened."""

    event_date: T.DateType() = pa.Field(description="UTC date")
    country: T.StringType() = pa.Field(nullable=True, description="Customer's country")
    currency: T.StringType() = pa.Field(description="ISO 4217; amounts are never added across currencies")
    purchases: T.LongType() = pa.Field(ge=0, description="Purchase events")
    cancellations: T.LongType() = pa.Field(ge=0, description="Cancellation events")
    gross_revenue: T.DecimalType(18, 2) = pa.Field(ge=0, description="Sum of purchases")
    cancelled_amount: T.DecimalType(18, 2) = pa.Field(le=0, description="Sum of cancellations")
    net_revenue: T.DecimalType(18, 2) = pa.Field(description="Gross plus cancelled")


@table(
    model=DailyRevenue,
    inputs={"transactions": Input("silver.transactions")},
    partition_by="event_date",
    key=("event_date", "country", "currency"),
    owner="team:finance",
    grain="day × country × currency",
    figures={"revenue": Sum("net_revenue", by="currency"), "purchases": Sum("purchases")},
    reconciles={"net_revenue": "amount"},
    lineage={"net_revenue": "amount"},  # whatever the event: it is in one of the two sums
)
def daily_revenue(transactions: DataFrame) -> DataFrame:
    """Counts and sums a day, country and currency."""
    purchase = F.col("event_type") == "purchase"
    zero = F.lit(0).cast("decimal(18,2)")
    return (
        transactions.groupBy("event_date", "country", "currency")
        .agg(
            F.count_if(purchase).alias("purchases"),
            F.count_if(~purchase).alias("cancellations"),
            F.sum(F.when(purchase, F.col("amount")).otherwise(zero)).cast("decimal(18,2)").alias("gross_revenue"),
            F.sum(F.when(~purchase, F.col("amount")).otherwise(zero)).cast("decimal(18,2)").alias("cancelled_amount"),
        )
        .withColumn("net_revenue", (F.col("gross_revenue") + F.col("cancelled_amount")).cast("decimal(18,2)"))
    )
