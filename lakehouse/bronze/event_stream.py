"""bronze.event_stream: the web shop's events as its topic brings them, personal data tokenised."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import MessageModel, Privacy, Topic, table
from lakehouse.transforms.columns import token, with_event_date

COLUMNS = (
    "event_id", "schema_version", "user_id", "event_type", "event_time", "order_id", "amount", "currency",
    "payment_method", "email", "country",
)  # fmt: skip


class EventStream(MessageModel):
    """Messages of the web shop; the columns are those of bronze.events, and how each message came."""

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
    model=EventStream,
    inputs={
        "messages": Topic("event_stream", ("web-events",), COLUMNS, time="event_time", addresses=("email",)),
    },
    partition_by=("_arrival_date", "_event_date"),
    owner="team:web-shop",
    grain="one message",
    privacy=Privacy(person=("user_id", "_key"), tokens=("email_token",), further=("_raw",)),
)
def event_stream(messages: DataFrame) -> DataFrame:
    """Each message with the day it is processed in; no e-mail address leaves this function."""
    dated = with_event_date(messages, "event_time")
    return dated.withColumn("email_token", token(F.lower(F.trim("email")))).drop("email")
