"""Labels of a CSV file: their text is the key of the entity that the table has, or it is counted as none."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.errors import UsageError
from lakehouse.features.labels import judged

KEY = T.StructType(
    [
        T.StructField("driver", T.LongType()),
        T.StructField("since", T.DateType()),
        T.StructField("price", T.DecimalType(10, 3)),
        T.StructField("paid", T.BooleanType()),
    ]
)
COLUMNS = "driver string, since string, price string, paid string, event_time string"
AT = "2026-03-01T00:00:00Z"


def test_keys_of_any_type_are_read_from_text(spark: SparkSession) -> None:
    """Without it, entities told by a date or a price could have no labels in a CSV, all of whose columns are text."""
    frame = spark.createDataFrame(
        [("-7", "2026-01-31", "1.5", "FALSE", AT), ("8", "2026-01-31", "2.50000", "true", AT)], COLUMNS
    )
    found = judged(frame, KEY, "event_time", source="labels.csv")
    rows = sorted(tuple(row)[:4] for row in found.frame.collect())
    assert rows == [(-7, date(2026, 1, 31), Decimal("1.500"), False), (8, date(2026, 1, 31), Decimal("2.500"), True)]


def test_text_that_says_less_or_more_than_a_key_is_counted(spark: SparkSession) -> None:
    """Without it, 2011 would be its first day, and 1.4999 the entity of 1.5: labels of somebody else."""
    bad = [("1", "2011", "1.5"), ("1", "2026-01-31", "1.49996"), ("1.0", "2026-01-31", "1.5"), ("1", "2026-02-30", "x")]
    frame = spark.createDataFrame([(*each, "yes", AT) for each in bad], COLUMNS)
    with pytest.raises(UsageError) as refused:
        judged(frame, KEY, "event_time", source="labels.csv")
    for reason in (
        "1 whose driver is no bigint",
        "2 whose since is no date",
        "2 whose price is no decimal(10,3)",
        "4 whose paid is no boolean",
    ):
        assert reason in str(refused.value)
