"""bronze.events: the web shop's events, JSON lines as they came, personal data tokenised."""

from __future__ import annotations

from datetime import timedelta

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import BronzeModel, Landing, Privacy, Quality, Volume, table
from lakehouse.transforms.columns import token, with_event_date

COLUMNS = (
    "event_id", "schema_version", "user_id", "event_type", "event_time", "order_id", "amount", "currency",
    "payment_method", "email", "country",
)  # fmt: skip
# `web-shop-0001.jsonl` is from `web-shop`; `part-0000.jsonl` names nobody: then the source is one producer.
PRODUCER = r"(?!part-)(.+?)(?:-\d+)?\.jsonl(?:\.gz)?"


class Events(BronzeModel):
    """Web-shop events; every column is the text that was in the file, e-mail addresses are tokens."""

    event_id: T.StringType() = pa.Field(nullable=True, description="Producer's id of the event")
    schema_version: T.StringType() = pa.Field(nullable=True, description="Version of the event's form")
    user_id: T.StringType() = pa.Field(nullable=True, description="User; null for guests")
    event_type: T.StringType() = pa.Field(nullable=True, description="purchase or cancellation")
    event_time: T.StringType() = pa.Field(nullable=True, description="ISO 8601")
    order_id: T.StringType() = pa.Field(nullable=True, description="Order the event belongs to")
    amount: T.StringType() = pa.Field(nullable=True, description="Amount in `currency`")
    currency: T.StringType() = pa.Field(nullable=True, description="ISO 4217")
    payment_method: T.StringType() = pa.Field(nullable=True, description="How it was paid")
    email_token: T.StringType() = pa.Field(nullable=True, description="Key id and HMAC-SHA-256 of the e-mail address")
    country: T.StringType() = pa.Field(nullable=True, description="Customer's country")


@table(
    model=Events,
    inputs={
        "lines": Landing(
            "events",
            "jsonl",
            COLUMNS,
            addresses=("email",),
            time="event_time",
            producer=PRODUCER,
            files=("{day}/*.jsonl[.gz]",),
            sample="lakehouse.sample.events:sample_events",
        )
    },
    partition_by=("_arrival_date", "_event_date"),
    owner="team:web-shop",
    grain="one line of a landed file",
    quality=Quality(max_null_rate={"event_id": 0.05, "event_time": 0.05}, volume=Volume(max_ratio=10.0)),
    allowed_lateness=timedelta(days=45),
    privacy=Privacy(person=("user_id",), tokens=("email_token",)),
)
def events(lines: DataFrame) -> DataFrame:
    """Each line with the day it is processed in; no e-mail address leaves this function."""
    return with_event_date(lines, "event_time").withColumn("email_token", token(F.lower(F.trim("email")))).drop("email")
