"""bronze.events keeps raw values, but no e-mail address."""

import hashlib
import hmac
from datetime import date
from pathlib import Path

import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.bronze.events import COLUMNS, events
from lakehouse.build.plan import make_plan
from lakehouse.catalog import tables
from lakehouse.read.lake import Lake
from lakehouse.sample.events import land_events
from lakehouse.settings import Settings, get_settings, key_id, token_of

SCHEMA = T.StructType(
    [
        *[T.StructField(c, T.StringType()) for c in (*COLUMNS, "_rescued", "_raw")],
        T.StructField("_arrival_date", T.DateType()),
    ]
)


@pytest.fixture
def rows(spark: SparkSession) -> list[dict[str, object]]:
    """Two events of one person, written differently, and a line that could not be parsed."""
    nothing: dict[str, object] = dict.fromkeys(SCHEMA.names)
    lines = [
        {"email": "Ann@Example.com ", "event_time": "2011-01-04T23:59:59.999999Z", "amount": "12.50"},
        {"email": "ann@example.com"},
        {"_raw": "{"},
    ]
    frame = spark.createDataFrame([{**nothing, **line, "_arrival_date": date(2011, 1, 5)} for line in lines], SCHEMA)
    return [row.asDict() for row in events.transform(frame).collect()]


def test_the_token_is_hmac_sha256_of_the_address(rows: list[dict[str, object]]) -> None:
    """A plain hash could be reversed by hashing known addresses; another form could not be matched elsewhere."""
    key = get_settings().pii_key_bytes()
    expected = f"{key_id(key)}:{hmac.new(key, b'ann@example.com', hashlib.sha256).hexdigest()}"
    assert token_of("ann@example.com", key) == expected
    assert [row["email_token"] for row in rows] == [expected, expected, None]


def test_no_address_is_left_anywhere(rows: list[dict[str, object]]) -> None:
    """Without it, the address itself would be stored beside its token."""
    assert not [value for row in rows for value in row.values() if "@" in str(value)]


def test_the_day_is_the_events(rows: list[dict[str, object]]) -> None:
    """An event of the evening before arrives in the next day's folder."""
    assert [row["_event_date"] for row in rows] == [date(2011, 1, 4), date(2011, 1, 5), date(2011, 1, 5)]


def test_raw_values_stay_as_written(rows: list[dict[str, object]]) -> None:
    """Rounding or casting in bronze could never be undone."""
    assert rows[0]["amount"] == "12.50"


def test_a_new_key_concerns_the_days_that_have_files(tmp_path: Path) -> None:
    """Without it, a rotation would build each empty day of the table anew."""
    days, found = [date(2011, 3, 1), date(2011, 3, 2)], []
    land_events(tmp_path, days[0], 1, rows=5, seed=1)
    for key in ("one", "another"):
        settings = Settings(root=tmp_path, pii_key=SecretStr(key * 16))
        lake = Lake(settings, tables(), lambda: pytest.fail("an engine"))
        found.append(make_plan(lake, lake.table("bronze.events"), days).fingerprints)
    assert [found[0][day] == found[1][day] for day in days] == [False, True]
