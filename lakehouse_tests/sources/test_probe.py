"""Which columns an older export may lack."""

from __future__ import annotations

from pathlib import Path

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.contracts import BronzeModel, Landing, Table, schema_versions
from lakehouse.sources.landing import landing_files
from lakehouse.sources.probe import probe_of
from lakehouse_tests.fixtures.making import table


class Raw(BronzeModel):
    """Lines of a shop."""

    id: T.StringType = pa.Field(nullable=True)


class RawWithMore(Raw):
    """The same, since two more fields are known."""

    email_token: T.StringType = pa.Field(nullable=True)
    till: T.StringType = pa.Field(nullable=True)


def shop(version: int, **lineage: str | tuple[str, ...]) -> Table:
    """bronze.sales; its second version has two fields in columns of other names."""

    def raw(lines: DataFrame) -> DataFrame:
        return lines

    fields = ("id", *(("email", "Till No") if version > 1 else ()))
    return table(
        "bronze.sales", RawWithMore if version > 1 else Raw, raw, {"lines": Landing("shop", "csv", fields)},
        partition_by=("_arrival_date",), schema_version=version, lineage=lineage,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lineage", "lacking"),
    [
        ({"email_token": "email", "till": "Till No"}, ""),
        ({"email_token": ("id", "email"), "till": "Till No"}, ""),
        ({"email_token": "email", "till": ("id", "Till No"), "id": ("id", "Till No")}, "Till No"),
        ({"email_token": "email", "till": ()}, "Till No"),
    ],
)
def test_a_field_that_came_later_under_another_name_may_be_lacking(
    lineage: dict[str, str | tuple[str, ...]], lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, an address that became a token made every older export unreadable."""
    monkeypatch.setattr(schema_versions, "lock_file", lambda: tmp_path / "schemas.json")
    schema_versions.write_lock(schema_versions.locked([shop(1)], {}))
    made = shop(2, **lineage)
    assert made.landing
    folder = tmp_path / "landing" / "shop"
    folder.mkdir(parents=True)
    (folder / "2026-03-01.csv").write_text("id\n1\n")
    (found,) = probe_of(made, landing_files(tmp_path, made.landing))
    told = f"2026-03-01.csv lacks the column(s) {lacking}; its header holds id" if lacking else None
    assert found.problem == told
