"""What a transform reads as it runs is what its version was computed from, or nothing is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import DataFrame

from lakehouse.catalog import declared
from lakehouse.contracts.table import Table
from lakehouse.errors import ContractError
from lakehouse_tests.fixtures.packages import written

TABLE = """
from pathlib import Path
import pandera.pyspark as pa
from pyspark.sql import DataFrame, types as T
from lakehouse.contracts import Landing, table

AT_ONCE = (Path(__file__).parent / "words.txt").read_text()
CODES = Path(__file__).parent / "codes.txt"

class Sales(pa.DataFrameModel):
    day: T.DateType() = pa.Field()

@table(
    model=Sales, inputs={"rows": Landing("s", "csv", ("day",))}, partition_by="day", owner="team:x", grain="a sale",
    reads=("rates/rates.txt",),
)
def sales(rows: DataFrame) -> DataFrame:
    from late_shop import helper
    rows.read(helper.WORD, CODES.read_text(), (Path(__file__).parent / "rates/rates.txt").read_text(), AT_ONCE)
    return rows
"""
FILES = {
    "bronze/sales.py": TABLE,
    "bronze/words.txt": "a",
    "bronze/codes.txt": "b",
    "bronze/rates/rates.txt": "c",
    "helper.py": "WORD = 'd'",
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A package with a table that reads a file as it is loaded, and two files and a module as its transform runs."""
    with written(tmp_path / "late_shop", FILES) as made:
        yield made


def read_by(table: Table) -> tuple[str, ...]:
    """What its transform has read."""
    rows = Mock(spec=DataFrame, read=Mock())
    table.transformed(rows=rows)
    return tuple(rows.read.call_args.args)


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("bronze/codes.txt", r"file bronze/codes\.txt"),
        ("bronze/rates/rates.txt", r"file rates/rates\.txt"),
        ("helper.py", r"late_shop\.helper"),
    ],
)
def test_what_has_changed_before_it_is_read_is_refused(home: Path, file: str, told: str) -> None:
    """Without it, rows of another version were published as those of this, and were never stale after the way back."""
    made = declared(home.name)["bronze.sales"]
    (home / file).write_text("WORD = 'other'")
    for _ in range(2):  # the second time, the module is not taken for loaded
        with pytest.raises(ContractError, match=rf"bronze\.sales: expected .*{told}.* as it was .* Run it again\."):
            read_by(made)
    (home / file).write_text(FILES[file])
    assert read_by(made) == ("d", "b", "c", "a")


def test_what_was_read_before_it_changed_is_gone_on_with(home: Path) -> None:
    """Without it, a stream would end at each edit of a file that it has in its memory."""
    made = declared(home.name)["bronze.sales"]
    assert read_by(made) == ("d", "b", "c", "a")
    for name in ("bronze/words.txt", "helper.py"):
        (home / name).write_text("WORD = 'another'")
    assert read_by(made) == ("d", "b", "c", "a")
