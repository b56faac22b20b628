"""What a bronze table of messages holds beside its source's columns."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import types as T


class MessageModel(pa.DataFrameModel):
    """Messages of topics with how each came; everything of the source is text. Of a message that is no row only that.

    There are no row rules: what was taken cannot be taken again, so what reads the table judges.
    """

    rescued: T.StringType() = pa.Field(nullable=True, alias="_rescued", description="JSON of what fits no column")
    arrival_date: T.DateType() = pa.Field(alias="_arrival_date", description="UTC date of _arrived_at")
    event_date: T.DateType() = pa.Field(
        alias="_event_date", description="Day the row is processed in: its event date where plausible, else arrival"
    )
    event_at: T.TimestampType() = pa.Field(
        nullable=True, alias="_event_at", description="Event time where plausible: what the watermark goes by"
    )
    arrived_at: T.TimestampType() = pa.Field(nullable=True, alias="_arrived_at", description="When it was stored, UTC")
    source_file: T.StringType() = pa.Field(nullable=True, alias="_source_file", description="Topic and partition")
    source_row: T.LongType() = pa.Field(nullable=True, alias="_source_row", description="Offset in the partition")
    topic: T.StringType() = pa.Field(nullable=True, alias="_topic", description="Topic")
    topic_id: T.StringType() = pa.Field(nullable=True, alias="_topic_id", description="Id of the topic, made once")
    partition: T.IntegerType() = pa.Field(nullable=True, alias="_partition", description="Partition of the topic")
    offset: T.LongType() = pa.Field(nullable=True, alias="_offset", description="Offset in the partition")
    key: T.StringType() = pa.Field(nullable=True, alias="_key", description="Key of the message")
    headers: T.StringType() = pa.Field(nullable=True, alias="_headers", description="Headers, as JSON")
    raw: T.StringType() = pa.Field(nullable=True, alias="_raw", description="The message, where it is no row")
    error: T.StringType() = pa.Field(nullable=True, alias="_error", description="Why the message is no row")
    ingested_run: T.StringType() = pa.Field(nullable=True, alias="_ingested_run", description="Run that took the batch")
    code: T.StringType() = pa.Field(nullable=True, alias="_code_version", description="Code version of that run")
