"""What a table may declare of its slices, and what is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.catalog import declared as all_tables
from lakehouse.contracts import Input, Landing, SliceBy, Table
from lakehouse.contracts.fitting import slice_mistakes
from lakehouse.errors import ContractError
from lakehouse_tests.contracts.test_table import sales
from lakehouse_tests.fixtures.making import model, table

COLUMNS = {
    "id": (T.StringType(), pa.Field()),
    "day": (T.DateType(), pa.Field()),
    "share": (T.DoubleType(), pa.Field()),
    "_event_days": (T.ArrayType(T.DateType()), pa.Field(nullable=True)),
}


def declared(inputs: Any = None, columns: Any = None, **policy: Any) -> Table:
    """A sound table, but for the policy given."""
    policy = {"key": ("id", "share"), **policy}
    return table(
        "silver.sales",
        model("Sales", **(columns or COLUMNS)),
        sales,
        inputs or {"rows": Input("silver.rows")},
        **policy,
    )


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"slice_by": SliceBy(("shop",))},
            "layout.slice_by: expected columns of the key (id, share), got shop. Rows of one key must be in one slice",
        ),
        ({"slice_by": SliceBy(("day",))}, "layout.slice_by: expected columns of the key (id, share), got day."),
        ({"slice_by": SliceBy(())}, "layout.slice_by: expected columns of the key (id, share), got none."),
        ({"slice_by": SliceBy(("id",)), "key": ()}, "layout.slice_by: expected columns of the key (none), got id."),
        (
            {"slice_by": SliceBy(("share",))},
            "layout.slice_by: expected no fractions, of which equal ones can have different hashes, got share.",
        ),
        (
            {"slice_by": SliceBy(("id",), {"lines": "false"})},
            "layout.slice_by: expected an input of the transform (rows), got 'lines'. Write one of these.",
        ),
        (
            {"slice_by": SliceBy(("id",)), "upsert": True},
            "layout.slice_by: expected a table that reads tables and is no upsert, got silver.sales. Leave slice_by out.",
        ),
        (
            {"slice_by": SliceBy(("id",)), "inputs": {"rows": Landing("sales", "csv", ("id",))}},
            "layout.slice_by: expected a table that reads tables and is no upsert, got silver.sales. Leave slice_by out.",
        ),
    ],
)
def test_slices_that_would_not_add_up_are_refused(policy: dict[str, Any], message: str) -> None:
    """Without it, rows of one key could come from two slices, each of which takes its row for the only one."""
    with pytest.raises(ContractError, match=re.escape(message)) as caught:
        declared(**policy)
    assert str(caught.value).startswith("silver/sales.py: ")


@pytest.mark.parametrize(("kind", "found"), [(T.IntegerType(), "got int"), (None, "got no such column")])
def test_an_input_is_cut_by_the_same_column(kind: Any, found: str) -> None:
    """Without it, a number and its text, whose hashes differ, would leave rows out of every slice."""
    read = {name: each for name, each in COLUMNS.items() if name != "id"}
    if kind is not None:
        read["id"] = (kind, pa.Field())
    rows = table("silver.rows", model("Rows", **read), lambda lines: lines, {"lines": Landing("s", "csv", ("id",))})
    cut = declared(slice_by=SliceBy(("id",), {"rows": "false"}))
    (text,) = map(str, slice_mistakes(cut, {"silver.rows": rows}))
    assert text == (
        f"layout.slice_by: expected string for id in the input rows (silver.rows), {found}. Leave rows out of `reads`: "
        "each slice then reads what Spark cannot leave out by itself."
    )
    assert slice_mistakes(declared(slice_by=SliceBy(("id",))), {"silver.rows": rows}) == []


def test_the_heavy_tables_can_be_sliced() -> None:
    """Without it, a slip in the policy would take the slices away, and a backfill would say so only when it is late."""
    assert {name for name, each in all_tables().items() if each.layout.slice_by} == {
        "silver.transactions",
        "gold.user_features",
    }
