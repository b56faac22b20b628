"""bronze.event_stream: the web shop's events as its topic brings them, personal data tokenised."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Privacy, Topic, table
from lakehouse.transforms.columns import token, with_event_date

COLUMNS = (
    "event_id", "schema_version", "user_id", "event_type", "event_time", "order_id", "amount", "currency",
    "payment_method", "email", "country",
)  # fmt: skip


class EventStream(pa.DataFrameModel):
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
    rescued: T.StringType() = pa.Field(nullable=True, alias="_rescued", description="JSON of what fits no column")
    arrival_date: T.DateType() = pa.Field(alias="_arrival_date", description="UTC date of _arrived_at")
    event_date: T.DateType() = pa.Field(
        alias="_event_date", description="Day the row is processed in: its event date where plausible, else arrival"
    )
    event_at: T.TimestampType() = pa.Field(
        nullable=True, alias="_event_at", description="event_time where plausible: what the watermark goes by"
    )
    arrived_at: T.TimestampType() = pa.Field(nullable=True, alias="_arrived_at", description="When it was stored, UTC")
    source_file: T.StringType() = pa.Field(nullable=True, alias="_source_file", description="Topic and partition")
    source_row: T.LongType() = pa.Field(nullable=True, alias="_source_row", description="Offset in the partition")
    topic: T.StringType() = pa.Field(nullable=True, alias="_topic", description="Topic")
    topic_id: T.StringType() = pa.Field(
        nullable=True, alias="_topic_id", description="Id of the topic, which is made once"
    )
    partition: T.IntegerType() = pa.Field(nullable=True, alias="_partition", description="Partition of the topic")
    offset: T.LongType() = pa.Field(nullable=True, alias="_offset", description="Offset in the partition")
    key: T.StringType() = pa.Field(nullable=True, alias="_key", description="Key of the message")
    headers: T.StringType() = pa.Field(nullable=True, alias="_headers", description="Headers, as JSON")
    raw: T.StringType() = pa.Field(nullable=True, alias="_raw", description="The message, where it is no row")
    error: T.StringType() = pa.Field(nullable=True, alias="_error", description="Why the message is no row")
    ingested_run: T.StringType() = pa.Field(nullable=True, alias="_ingested_run", description="Run that took the batch")
    code: T.StringType() = pa.Field(nullable=True, alias="_code_version", description="Code version of that run")


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
