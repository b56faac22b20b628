"""silver.transactions: purchases and cancellations of both shops, typed, once each, by event day."""

from __future__ import annotations

import math
from datetime import timedelta

import pandera.pyspark as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import (
    Anomalies,
    Clock,
    Input,
    Layout,
    Privacy,
    Quality,
    Quarantine,
    SliceBy,
    Volume,
    rule,
    table,
)
from lakehouse.transforms.columns import money, of_few_digits, unread_time, utc_timestamp

# ISO 4217 codes of the currencies that the shops sell in.
CURRENCIES = [
    "AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF", "ILS", "INR", "JPY", "KRW", "MXN",
    "NOK", "NZD", "PLN", "RON", "SEK", "SGD", "THB", "TRY", "USD", "ZAR",
]  # fmt: skip
RAW = ("InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "UnitPrice", "CustomerID", "Country")
ORIGIN = ("_arrival_date", "_source_file", "_source_row")


class Transactions(pa.DataFrameModel):
    """Events that changed what a customer owes: purchases and their cancellations."""

    event_id: T.StringType() = pa.Field(description="Identifies the event; for retail lines a hash of the line")
    source: T.StringType() = pa.Field(nullable=True, description="online_retail or events")
    order_id: T.StringType() = pa.Field(nullable=True, description="Order or invoice")
    user_id: T.StringType() = pa.Field(nullable=True, description="Customer; null for guests")
    event_type: T.StringType() = pa.Field(isin=["purchase", "cancellation"], description="What happened")
    event_time: T.TimestampType() = pa.Field(description="When it happened, UTC")
    event_date: T.DateType() = pa.Field(description="UTC date of event_time")
    amount: T.DecimalType(18, 2) = pa.Field(
        in_range={"min_value": -1_000_000, "max_value": 1_000_000}, description="In currency; negative on cancellations"
    )
    currency: T.StringType() = pa.Field(isin=CURRENCIES, description="ISO 4217")
    payment_method: T.StringType() = pa.Field(nullable=True, description="How it was paid; web shop only")
    country: T.StringType() = pa.Field(nullable=True, description="Customer's country")
    product_code: T.StringType() = pa.Field(nullable=True, description="Product; retail only")
    quantity: T.LongType() = pa.Field(nullable=True, description="Pieces; retail only")
    unit_price: T.DecimalType(18, 4) = pa.Field(nullable=True, description="Price a piece; retail only")
    email_token: T.StringType() = pa.Field(nullable=True, description="HMAC of the e-mail address; web shop only")

    @rule
    def message_readable(cls) -> Column:
        """The message of the topic is a JSON object; of one that is not, nothing else is known."""
        return F.col("_error").isNull()

    @rule
    def purchase_amount_positive(cls) -> Column:
        """A purchase has an amount above zero."""
        return F.coalesce(F.col("event_type") != "purchase", F.lit(True)) | (F.col("amount") > 0)

    @rule
    def cancellation_amount_negative(cls) -> Column:
        """A cancellation has an amount below zero."""
        return F.coalesce(F.col("event_type") != "cancellation", F.lit(True)) | (F.col("amount") < 0)


@table(
    model=Transactions,
    inputs={
        "online_retail": Input("bronze.online_retail"),
        "events": Input("bronze.events"),
        "event_stream": Input("bronze.event_stream"),
    },
    partition_by="event_date",
    key=("event_id",),
    keep_first_by=ORIGIN,
    # A web event that is sent again after midnight may be stamped anew, and is then dated a day later.
    unique_within=timedelta(days=1),
    conserves_rows=True,
    layout=Layout(slice_by=SliceBy(("event_id",))),
    owner="team:sales",
    grain="one event",
    clock=Clock("event_time", arrived_at="_arrived_at"),
    # Numbers of a closed month do not move by themselves; `lakehouse late apply` takes later rows in.
    allowed_lateness=timedelta(days=45),
    # The daily exports of nine months leave 1,800 rows.
    quarantine=Quarantine(
        max_share=0.4,
        max_rows=5_000,
        max_age=timedelta(days=30),
        # Dead letters of the stream: its topic forgets them, after a week as a rule.
        max_ages={"message_readable": timedelta(days=1)},
    ),
    quality=Quality(
        max_null_rate={"order_id": 0.05, "user_id": 0.95, "source": 0.0},
        # Warns only: a late event on a holiday makes a day of one row. Bronze refuses short files.
        volume=Volume(min_ratio=0.0, max_ratio=math.inf),
        profile=("amount", "quantity", "event_type", "source", "currency", "payment_method", "country"),
        anomalies=Anomalies(),
    ),
    privacy=Privacy(person=("user_id",), tokens=("email_token",)),
)
def transactions(online_retail: DataFrame, events: DataFrame, event_stream: DataFrame) -> DataFrame:
    """All sources in one form; every input row gives one output row. A web event is the same in a file or a message."""
    landed = _from_retail(online_retail).unionByName(_from_events(events))
    return landed.unionByName(_from_events(event_stream, "_error", "_arrived_at"), allowMissingColumns=True)


def _from_retail(lines: DataFrame) -> DataFrame:
    # Nulls are empty texts here, as in the file, so that the hash is over the eight raw texts.
    texts = F.concat_ws("|", *[F.coalesce(F.col(c), F.lit("")) for c in RAW])
    invoice = F.col("InvoiceNo")
    quantity = F.col("Quantity").try_cast("bigint")
    price = of_few_digits(F.col("UnitPrice")).try_cast("decimal(18,4)")
    return lines.select(
        F.substring(F.sha2(texts, 256), 1, 32).alias("event_id"),
        F.lit("online_retail").alias("source"),
        invoice.alias("order_id"),
        F.regexp_replace("CustomerID", r"\.0$", "").alias("user_id"),
        F.when(invoice.startswith("C"), "cancellation")
        .when(invoice.startswith("A"), "adjustment")
        .otherwise("purchase")
        .alias("event_type"),
        utc_timestamp(F.col("InvoiceDate")).alias("event_time"),
        F.col("_event_date").alias("event_date"),
        F.round(F.try_multiply(quantity, price), 2).try_cast("decimal(18,2)").alias("amount"),
        F.lit("GBP").alias("currency"),
        F.lit(None).cast("string").alias("payment_method"),
        F.col("Country").alias("country"),
        F.col("StockCode").alias("product_code"),
        quantity.alias("quantity"),
        price.alias("unit_price"),
        F.lit(None).cast("string").alias("email_token"),
        unread_time(F.col("InvoiceDate")).alias("_raw"),
        *ORIGIN,
    )


def _from_events(events: DataFrame, *beside: str) -> DataFrame:
    return events.select(
        "event_id",
        F.lit("events").alias("source"),
        "order_id",
        "user_id",
        "event_type",
        utc_timestamp(F.col("event_time")).alias("event_time"),
        F.col("_event_date").alias("event_date"),
        money(F.col("amount")).alias("amount"),
        "currency",
        "payment_method",
        "country",
        F.lit(None).cast("string").alias("product_code"),
        F.lit(None).cast("bigint").alias("quantity"),
        F.lit(None).cast("decimal(18,4)").alias("unit_price"),
        "email_token",
        unread_time(F.col("event_time")).alias("_raw"),
        *ORIGIN,
        *beside,
    )
