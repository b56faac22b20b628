"""bronze.event_stream keeps what messages held, but no e-mail address, and has the columns of landed events."""

from datetime import date

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.bronze.event_stream import COLUMNS, event_stream
from lakehouse.bronze.events import COLUMNS as LANDED
from lakehouse.bronze.events import events
from lakehouse.settings import get_settings, token_of

SCHEMA = T.StructType(
    [*[T.StructField(c, T.StringType()) for c in COLUMNS], T.StructField("_arrival_date", T.DateType())]
)


@pytest.fixture
def rows(spark: SparkSession) -> list[dict[str, object]]:
    """An event of the evening before, and a message that is no row."""
    nothing: dict[str, object] = dict.fromkeys(SCHEMA.names)
    messages = [{"email": "Ann@Example.com ", "event_time": "2011-01-04T23:59:59Z", "amount": "12.50"}, {}]
    given = [{**nothing, **message, "_arrival_date": date(2011, 1, 5)} for message in messages]
    return [row.asDict() for row in event_stream.transform(spark.createDataFrame(given, SCHEMA)).collect()]


def test_addresses_are_tokens_as_in_landed_events(rows: list[dict[str, object]]) -> None:
    """Without it, one person would have two tokens, or the address would be stored."""
    key = get_settings().pii_key_bytes()
    assert [row["email_token"] for row in rows] == [token_of("ann@example.com", key), None]
    assert not [value for row in rows for value in row.values() if "@" in str(value)]


def test_the_day_is_the_events_or_that_of_its_arrival(rows: list[dict[str, object]]) -> None:
    """Without it, late events would be counted on the day they came, and broken messages on none."""
    assert [row["_event_date"] for row in rows] == [date(2011, 1, 4), date(2011, 1, 5)]


def test_it_has_what_landed_events_have() -> None:
    """Without it, a field could be known of files and be lost of messages."""
    assert COLUMNS == LANDED
    assert set(events.columns) <= set(event_stream.columns)
