"""What a model must not have, whatever the policy beside it says."""

from __future__ import annotations

from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.errors import ContractError
from lakehouse_tests.contracts.test_table import SALES, declared


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"amount": (T.DecimalType(40, 2), pa.Field())}, ("amount: expected a decimal of at most 38 digits, got "
         "decimal(40,2). Write T.DecimalType(18, 2).")),
        ({"Shop": (T.StringType(), pa.Field())}, ("model: expected names that differ by more than case, got shop, Shop. "
         "Rename one of them in Sales.")),
    ],
)  # fmt: skip
def test_columns_that_no_table_can_have_are_refused_by_name(columns: dict[str, Any], message: str) -> None:
    """Without it, the first build would end in an error of the storage that names neither file nor column."""
    with pytest.raises(ContractError) as caught:
        declared(columns={**SALES, **columns})
    assert str(caught.value) == f"silver/sales.py: {message}"
