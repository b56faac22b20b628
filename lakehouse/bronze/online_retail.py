"""bronze.online_retail: the retail system's daily CSV exports as they came."""

from __future__ import annotations

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.contracts import BronzeModel, Landing, Privacy, Quality, Volume, table
from lakehouse.transforms.columns import with_event_date

COLUMNS = ("InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "UnitPrice", "CustomerID", "Country")


class OnlineRetail(BronzeModel):
    """Lines of the UCI "Online Retail" export; every column is the text that was in the file."""

    InvoiceNo: T.StringType() = pa.Field(nullable=True, description="Invoice; C… cancels, A… adjusts bad debt")
    StockCode: T.StringType() = pa.Field(nullable=True, description="Product")
    Description: T.StringType() = pa.Field(nullable=True, description="Product's name")
    Quantity: T.StringType() = pa.Field(nullable=True, description="Pieces, negative on cancellations")
    InvoiceDate: T.StringType() = pa.Field(nullable=True, description="UTC, to the minute")
    UnitPrice: T.StringType() = pa.Field(nullable=True, description="GBP a piece")
    CustomerID: T.StringType() = pa.Field(nullable=True, description="Customer, a whole number as float text")
    Country: T.StringType() = pa.Field(nullable=True, description="Customer's country")


@table(
    model=OnlineRetail,
    inputs={
        "lines": Landing(
            "online_retail",
            "csv",
            COLUMNS,
            time="InvoiceDate",
            files=("{day}.csv.gz",),
            sample="lakehouse.sample.retail:land_sample_online_retail",
        )
    },
    partition_by=("_arrival_date", "_event_date"),
    owner="team:data-platform",
    grain="one line of a landed file",
    quality=Quality(
        # A key that is null throughout parses well and joins nothing: refuse the day before it goes live.
        max_null_rate={"InvoiceNo": 0.05, "StockCode": 0.05, "InvoiceDate": 0.05, "CustomerID": 0.95},
        volume=Volume(),
    ),
    privacy=Privacy(person=("CustomerID",)),
)
def online_retail(lines: DataFrame) -> DataFrame:
    """Each line with the day it is processed in."""
    return with_event_date(lines, "InvoiceDate")
