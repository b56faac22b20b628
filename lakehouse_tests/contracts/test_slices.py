"""What a table may declare of its slices, and what is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.catalog import declared as all_tables
from lakehouse.contracts import Input, Landing, SliceBy, Table
from lakehouse.contracts.slices import check_slices
from lakehouse.errors import ContractError
from lakehouse_tests.contracts.test_table import sales
from lakehouse_tests.making import model, table

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
        ({"slice_by": SliceBy(("shop",))}, "slice_by names shop; it must be columns of the key (id, share)"),
        ({"slice_by": SliceBy(("day",))}, "slice_by names day; it must be columns of the key (id, share)"),
        ({"slice_by": SliceBy(())}, "slice_by names no column; it must be"),
        ({"slice_by": SliceBy(("id",)), "key": ()}, "slice_by names id; it must be columns of the key (none)"),
        ({"slice_by": SliceBy(("share",))}, "slice_by must not name fractions"),
        ({"slice_by": SliceBy(("id",), {"lines": "false"})}, "slice_by reads what is no input"),
        ({"slice_by": SliceBy(("id",)), "upsert": True}, "tables that read tables and are no upserts"),
        (
            {"slice_by": SliceBy(("id",)), "inputs": {"rows": Landing("sales", "csv", ("id",))}},
            "tables that read tables and are no upserts",
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
    with pytest.raises(
        ContractError,
        match=re.escape(f"cuts its input rows (silver.rows) by id: expected string, as in silver.sales, {found}."),
    ):
        check_slices(cut, {"silver.rows": rows})
    check_slices(declared(slice_by=SliceBy(("id",))), {"silver.rows": rows})


def test_the_heavy_tables_can_be_sliced() -> None:
    """Without it, a slip in the policy would take the slices away, and a backfill would say so only when it is late."""
    assert {name for name, each in all_tables().items() if each.layout.slice_by} == {
        "silver.transactions",
        "gold.user_features",
    }
