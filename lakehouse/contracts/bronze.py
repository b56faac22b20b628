"""What every bronze table holds beside its source's columns."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts.rules import rule


class BronzeModel(pa.DataFrameModel):
    """Raw rows with their origin; everything of the source is text."""

    rescued: T.StringType() = pa.Field(nullable=True, alias="_rescued", description="JSON of what fits no column")
    arrival_date: T.DateType() = pa.Field(alias="_arrival_date", description="Date of the landed file")
    event_date: T.DateType() = pa.Field(
        alias="_event_date", description="Day the row is processed in: its event date where plausible, else arrival"
    )
    source_file: T.StringType() = pa.Field(alias="_source_file", description="Landed file, relative to the root")
    source_row: T.LongType() = pa.Field(nullable=True, alias="_source_row", description="Line of the file, from 1")
    ingested_run: T.StringType() = pa.Field(nullable=True, alias="_ingested_run", description="Run that read the file")
    code: T.StringType() = pa.Field(nullable=True, alias="_code_version", description="Code version of that run")

    @rule
    def line_well_formed(cls) -> Column:
        """The line could be parsed, and the file it is from could be read."""
        return F.col("_error").isNull()
