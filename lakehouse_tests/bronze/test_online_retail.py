"""bronze.online_retail keeps raw text and decides the day a line is processed in."""

from datetime import date

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.bronze.online_retail import COLUMNS, online_retail

ARRIVAL = date(2011, 1, 5)


def _days(spark: SparkSession, *moments: str | None) -> list[date]:
    schema = T.StructType(
        [*[T.StructField(c, T.StringType()) for c in COLUMNS], T.StructField("_arrival_date", T.DateType())]
    )
    rows = [(None, None, None, None, moment, None, None, None, ARRIVAL) for moment in moments]
    frame = online_retail.transform(spark.createDataFrame(rows, schema))
    return [row["_event_date"] for row in frame.select("_event_date").collect()]


def test_a_line_belongs_to_the_day_of_its_invoice(spark: SparkSession) -> None:
    """A late line would else be counted in the day its file came."""
    assert _days(spark, "2011-01-05 09:30:00", "2011-01-03 23:59:00") == [date(2011, 1, 5), date(2011, 1, 3)]


def test_an_implausible_time_stays_with_the_arrival_day(spark: SparkSession) -> None:
    """A broken clock would else make partitions in 1970 and 2038, far from any run that looks at them."""
    assert _days(spark, "1970-01-01 00:00:00", "2038-01-19 03:14:07", "rubbish", "", None) == [ARRIVAL] * 5


def test_the_contract_keeps_every_source_column_as_text() -> None:
    """A typed bronze column would lose what the source really said."""
    types = {f.name: f.dataType for f in online_retail.schema.fields}
    assert [types[c] for c in COLUMNS] == [T.StringType()] * 8
