"""bronze.probe: a few times of day, landed, published and read back by `lakehouse doctor` in a folder of its own."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.contracts import BronzeModel, Landing, table
from lakehouse.transforms.columns import with_event_date


class Probe(BronzeModel):
    """Times as text."""

    moment: T.StringType() = pa.Field(nullable=True, description="A time of the day")


@table(
    model=Probe,
    inputs={"lines": Landing("probe", "csv", ("moment",), time="moment")},
    partition_by=("_arrival_date", "_event_date"),
    owner="team:data-platform",
    grain="one line of the landed file",
)
def probe(lines: DataFrame) -> DataFrame:
    """Each line with its day."""
    return with_event_date(lines, "moment")
