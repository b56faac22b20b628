"""Which columns an older export may lack."""

from __future__ import annotations

from pathlib import Path

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakehouse.contracts import BronzeModel, Landing, Table, schema_versions
from lakehouse.errors import ContractError
from lakehouse.sources.landing import landing_files
from lakehouse.sources.probe import probe, probe_of
from lakehouse.sources.reader import read_lines
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
    told = f"2026-03-01.csv lacks the column(s) {lacking}; its header holds id; if its files may lack that, write "
    told += f"optional={(lacking,)!r} in its Landing"
    assert found.problem == (told if lacking else None)


TILLS = Landing("tills", "csv", ("id", "till", "till_no"), optional=("till", "till_no"))


@pytest.mark.spark
def test_a_column_that_a_file_may_lack_is_null_there(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, no history could be built again once the source had renamed a column."""
    folder = tmp_path / "landing" / "tills"
    folder.mkdir(parents=True)
    (folder / "2026-03-01.csv").write_text("id,till\n1,a\n")
    (folder / "2026-03-02.csv").write_text("till_no,id\nb,2\n")
    (folder / "2026-03-03.csv").write_text("till_no,till\nb,a\n")
    *good, wrong = probe(landing_files(tmp_path, TILLS), TILLS)
    assert [each.problem for each in good] == [None, None]
    assert (wrong.problem or "").startswith("2026-03-03.csv lacks the column(s) id; its header holds till_no, till")
    rows = read_lines(spark, good, TILLS, tmp_path, "run", "code").orderBy("id").collect()
    assert [(row["id"], row["till"], row["till_no"]) for row in rows] == [("1", "a", None), ("2", None, "b")]


@pytest.mark.parametrize("text", ["", "1,T1\n2,T2\n", "id;till\n1;T1\n"])
def test_a_file_with_none_of_its_columns_is_not_told_to_lack_them(text: str, tmp_path: Path) -> None:
    """Beside optional columns it was: an empty file got `optional=('id',)`, which makes nothing right."""
    folder = tmp_path / "landing" / "tills"
    folder.mkdir(parents=True)
    (folder / "2026-03-01.csv").write_text(text)
    (found,) = probe(landing_files(tmp_path, TILLS), TILLS)
    problem = found.problem or ""
    assert problem.startswith("2026-03-01.csv lacks the column(s) id; its header holds ")
    assert "optional=" not in problem


@pytest.mark.parametrize(
    ("kind", "optional", "told"),
    [
        ("jsonl", ("a",), "Leave it out: a line of JSON may lack any field."),
        ("csv", ("a", "b"), "expected a column that each file has, got all of them in optional=('a', 'b')"),
        ("csv", ("c",), "expected a field of landing/tills (a, b), got 'c'"),
    ],
)
def test_what_cannot_be_optional_is_refused(kind: str, optional: tuple[str, ...], told: str) -> None:
    with pytest.raises(ContractError) as refused:
        Landing("tills", kind, ("a", "b"), optional=optional)
    assert told in str(refused.value)
