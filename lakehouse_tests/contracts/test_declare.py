"""What a model must not have, whatever the policy beside it says."""

from __future__ import annotations

from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.contracts import BronzeModel, Landing, Privacy, Quality
from lakehouse.errors import ContractError
from lakehouse_tests.contracts.test_table import SALES, declared
from lakehouse_tests.fixtures.making import table


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"amount": (T.DecimalType(40, 2), pa.Field())}, ("amount: expected a decimal of at most 38 digits, got "
         "decimal(40,2). Write T.DecimalType(18, 2).")),
        ({"Shop": (T.StringType(), pa.Field())}, ("model: expected names that differ by more than case, got shop, Shop. "
         "Rename one of them in Sales.")),
        ({"net.amount": (T.StringType(), pa.Field())}, ("model: expected column names without a point, a backtick or a "
         "line break, got 'net.amount'. Rename them in Sales and in the transform: F.col(\"`a.b`\").alias(\"a_b\").")),
    ],
)  # fmt: skip
def test_columns_that_no_table_can_have_are_refused_by_name(columns: dict[str, Any], message: str) -> None:
    """Without it, the first build would end in an error of the storage that names neither file nor column."""
    with pytest.raises(ContractError) as caught:
        declared(columns={**SALES, **columns})
    assert str(caught.value) == f"silver/sales.py: {message}"


@pytest.mark.parametrize("kind", [T.BinaryType(), T.ArrayType(T.LongType()), T.MapType(T.StringType(), T.LongType())])
def test_what_has_no_distribution_is_not_profiled(kind: T.DataType) -> None:
    """Without it, the first build would end in an error of Arrow, of bytes only where they are no text."""
    with pytest.raises(
        ContractError, match=r"quality.profile: expected columns of numbers, .* got raw \(.*Take it out"
    ):
        declared(columns={**SALES, "raw": (kind, pa.Field(nullable=True))}, quality=Quality(profile=("amount", "raw")))


def test_a_type_that_pandera_does_not_know_is_refused_with_its_column() -> None:
    """Without it, the message would show a type and leave the reader to find whose it is."""
    kind = T.StructType([T.StructField("a", T.LongType())])
    with pytest.raises(ContractError, match=r"^Sales.place: no column can be of the type StructType.* an array of"):
        declared(columns={**SALES, "place": (kind, pa.Field(nullable=True))})


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        (bytes, r"bytes, .* Write T.BinaryType\(\)"),
        (T.TimestampNTZType, r"TimestampNTZType, .* Write T.TimestampType\(\)"),
        (T.TimestampNTZType(), r"TimestampNTZType, .* Write T.TimestampType\(\)"),
    ],
)
def test_a_type_that_pandera_takes_for_another_is_refused(kind: Any, instead: str) -> None:
    """Without it, the column would be a tinyint, or a moment in UTC, and nobody would have said so."""
    with pytest.raises(ContractError, match=rf"^Sales.raw: no column can be of the type {instead}"):
        declared(columns={**SALES, "raw": (kind, pa.Field(nullable=True))})


@pytest.mark.parametrize("kind", [T.DecimalType(18, 0), T.DoubleType(), T.BinaryType(), T.DateType()])
def test_people_are_known_by_what_an_erasure_finds(kind: T.DataType) -> None:
    """Without it, `lakehouse forget` would look past the column, and say that nothing names the person."""
    columns = {**SALES, "card": (kind, pa.Field(nullable=True))}
    with pytest.raises(ContractError, match=r"privacy.person: expected texts or whole numbers, .* got card \("):
        declared(columns=columns, privacy=Privacy(person=("card",)))
    with pytest.raises(ContractError, match=r"privacy.tokens: expected texts, which .* got card \("):
        declared(columns=columns, privacy=Privacy(tokens=("card",)))


def test_a_bronze_table_is_first_by_the_day_of_arrival() -> None:
    """Without it, a row of another day than its file's fails both days for ever, or is lost where two days swap rows."""

    class Raw(BronzeModel):
        """Lines."""

        a: T.StringType = pa.Field(nullable=True)

    landed = {"rows": Landing("sales", "csv", ("a",))}
    with pytest.raises(ContractError) as caught:
        table("bronze.sales", Raw, lambda rows: rows, landed, partition_by=("_event_date", "_arrival_date"))
    assert "partition_by: expected _arrival_date as the first column of a bronze table" in str(caught.value)
    for by in ("_arrival_date", ("_arrival_date", "_event_date")):
        assert table("bronze.sales", Raw, lambda rows: rows, landed, partition_by=by).day_column == "_arrival_date"
