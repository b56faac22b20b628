"""Rows are found by values of any column."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.commands.inspect.explain import _value
from lakehouse.contracts import Input
from lakehouse.read.rows import matching_rows
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, table

DAY = date(2026, 3, 2)
KINDS: dict[str, tuple[T.DataType, Any]] = {
    "paid": (T.BooleanType(), True),
    "byte": (T.ByteType(), 7),
    "short": (T.ShortType(), -300),
    "long": (T.LongType(), 2**62),
    "ratio": (T.DoubleType(), math.nan),
    "price": (T.DecimalType(38, 18), Decimal("12345678901234567890.123456789012345678")),
}


@pytest.mark.parametrize(
    ("column", "text", "found"),
    [
        ("paid", "true", 1), ("paid", "FALSE", 0), ("paid", "", 0), ("byte", "7", 1), ("byte", "300", 0),
        ("short", "-300", 1), ("long", str(2**62), 1), ("long", "9" * 30, 0), ("price", str(KINDS["price"][1]), 1),
        ("ratio", "NaN", 1), ("ratio", "1.5", 0), ("price", "0." + "1" * 30, 0), ("price", "1E60", 0),
    ],
)  # fmt: skip
def test_a_row_is_found_by_any_plain_value(lake: LakeFactory, column: str, text: str, found: int) -> None:
    """Without it, a row whose key has a boolean is not explained, and a number too long ends in an error of Arrow."""
    columns = {name: (kind, pa.Field(nullable=True)) for name, (kind, _) in KINDS.items()}
    of = table("silver.bills", model(**columns, day=(T.DateType(), pa.Field())), lambda x: x, {"x": Input("bronze.x")})
    made = lake(of)
    put(made, of, DAY, [{name: value for name, (_, value) in KINDS.items()}])
    wanted = {column: _value(column, text, KINDS[column][0])}
    assert len(matching_rows(made.path(of.id), wanted, None, 5)) == found
