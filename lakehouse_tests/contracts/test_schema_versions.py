"""Versions of a table's columns: the lock is kept, and a change that readers could not follow is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.catalog import declared
from lakehouse.contracts import Input, Table
from lakehouse.contracts.schema_versions import (
    Version,
    added_later,
    changes,
    lock_file,
    locked,
    problems,
    read_lock,
    unlocked,
    version_of,
    write_lock,
)
from lakehouse.errors import ContractError
from lakehouse_tests.fixtures.making import model, table

TEXT, LONG = T.StringType(), T.LongType()
FIRST = {"id": "string not null", "day": "date not null", "shop": "string", "n": "bigint not null"}
V1 = (Version(1, "backward", FIRST),)


def sales(version: int = 2, mode: str = "backward", **columns: Any) -> Table:
    """silver.sales with the columns of `FIRST`; others are added or replaced, None takes one out."""
    held = {
        "id": (TEXT, pa.Field()), "day": (T.DateType(), pa.Field()), "shop": (TEXT, pa.Field(nullable=True)),
        "n": (LONG, pa.Field()), **columns,
    }  # fmt: skip
    made = model(**{name: each for name, each in held.items() if each is not None})
    return table(
        "silver.sales",
        made,
        lambda rows: rows,
        {"rows": Input("bronze.rows")},
        schema_version=version,
        compatibility=mode,
    )


def test_every_contract_follows_from_its_locked_versions() -> None:
    """Without it, a renamed or retyped column would be found by those who read the table, after it went live."""
    held = read_lock()
    wrong = [text for each in declared().values() for text in problems(each, held.get(each.id, ()))]
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_version_is_locked() -> None:
    """Without it, the lock would stay behind the contracts, and the next change have nothing to be compared with."""
    missing = unlocked(declared().values(), read_lock())
    assert not missing, "\n" + "\n".join(missing)


def test_the_lock_is_as_the_command_writes_it(tmp_path: Path) -> None:
    """Without it, a lock fixed by hand would be rewritten by the next one who only adds a version."""
    write_lock(read_lock(), tmp_path / "schemas.json")
    assert (tmp_path / "schemas.json").read_text() == lock_file().read_text()


# What a change does, and the modes under which a new version may make it.
CHANGES: dict[str, tuple[dict[str, Any], str, set[str]]] = {
    "add nullable": (
        {"note": (TEXT, pa.Field(nullable=True))},
        "note is new (string)",
        {"backward", "forward", "full"},
    ),
    "add required": ({"note": (TEXT, pa.Field())}, "note is new (string not null)", {"forward"}),
    "leave out nullable": ({"shop": None}, "shop is gone (was string)", {"backward", "forward", "full"}),
    "leave out required": ({"n": None}, "n is gone (was bigint not null)", {"backward"}),
    "make required": ({"shop": (TEXT, pa.Field())}, "shop may no longer be null", {"forward"}),
    "make nullable": ({"n": (LONG, pa.Field(nullable=True))}, "n may now be null", {"backward"}),
    "retype": ({"n": (TEXT, pa.Field())}, "n was bigint not null, is string not null", set()),
    "widen": ({"n": (T.DecimalType(38, 0), pa.Field())}, "n was bigint not null, is decimal(38,0) not null", set()),
}


@pytest.mark.parametrize("mode", ["backward", "forward", "full", "none"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_each_mode_allows(change: str, mode: str) -> None:
    """Without it, a mode would be a word: new code that cannot read old rows, or old code that cannot read new ones."""
    columns, told, allowed = CHANGES[change]
    made = sales(2, mode, **columns)
    assert [str(each) for each in changes(FIRST, version_of(made).columns)] == [told]
    found = problems(made, V1)
    if mode in allowed or mode == "none":
        assert found == []
    else:
        (text,) = found
        assert f"silver.sales: column {told} since version 1, which is not {mode} compatible: " in text
        assert 'declare compatibility="none"' in text
        read_old, read_new = "could not read the rows that are there" in text, "could not read new rows" in text
        assert (read_old, read_new) == (
            mode != "forward" and "backward" not in allowed,
            mode != "backward" and "forward" not in allowed,
        )


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", ["backward", "none"])
def test_a_change_needs_a_new_version_in_every_mode(change: str, mode: str) -> None:
    """Without it, two tables of one version could have different columns, and nobody know which."""
    columns, told, _ = CHANGES[change]
    (text,) = problems(sales(1, mode, **columns), V1)
    assert text == (
        f"silver.sales: column {told}, but schema_version is still 1. Give @table schema_version=2 and run "
        "`lakehouse schema lock`, or undo the change."
    )
    assert problems(sales(1, mode), V1) == []


def test_versions_are_counted_without_gaps() -> None:
    """Without it, code older than the lock, or a bump made twice, would pass for a new version."""
    assert "schema_version is 3, but the last locked one is 1; the next is 2" in problems(sales(3), V1)[0]
    both = (*V1, Version(2, "backward", FIRST))
    assert "schema_version is 1, but the last locked one is 2" in problems(sales(1), both)[0]
    assert problems(sales(2), V1) == [], "a version may stand for a change that is in no column"


def test_a_column_that_comes_back_with_another_type_meets_its_old_rows() -> None:
    """Without it, each step would be compatible with the last, and the files of the first be unreadable."""
    gone = Version(2, "backward", {k: v for k, v in FIRST.items() if k != "shop"})
    back = sales(3, shop=(LONG, pa.Field(nullable=True)))
    (text,) = problems(back, (*V1, gone))
    assert "column shop was string, is bigint since version 1" in text
    anew = Version(2, "none", gone.columns)
    assert problems(back, (*V1, anew)) == [], "the table was built anew meanwhile"


def test_locking_adds_versions_and_refuses_what_does_not_follow(tmp_path: Path) -> None:
    """Without it, the command that fixes the lock would also hide the mistake."""
    path = tmp_path / "schemas.json"
    assert read_lock(path) == {}
    assert unlocked([sales(1)], {}) == [
        "silver.sales: version 1 is not locked. Run `lakehouse schema lock` and commit the file."
    ]
    write_lock(locked([sales(1)], {}), path)
    held = read_lock(path)
    assert held == {"silver.sales": V1}
    assert unlocked([sales(1)], held) == []
    with pytest.raises(ContractError, match=r"Nothing was locked.*\n.*n is gone.*schema_version is still 1"):
        locked([sales(1, n=None)], held)
    wider = sales(2, note=(TEXT, pa.Field(nullable=True)))
    assert unlocked([wider], held) != []
    write_lock(locked([wider], held), path)
    assert [each.number for each in read_lock(path)["silver.sales"]] == [1, 2]
    assert read_lock(path)["silver.sales"][0] == V1[0], "an old version stays as it was"
    assert unlocked([], read_lock(path)) == [
        "silver.sales: is locked, but no table. Run `lakehouse schema lock` to take it out."
    ]
    assert locked([], read_lock(path)) == {}
    assert json.loads(path.read_text())["silver.sales"][1]["columns"]["note"] == "string"
    assert [each.name for each in tmp_path.iterdir()] == ["schemas.json"]


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n{}", "[]", '{"silver.sales": [{"columns": {}}]}'])
def test_a_lock_that_cannot_be_read_says_what_to_do(tmp_path: Path, text: str) -> None:
    """Without it, a merge conflict in the lock would come out as an error of the JSON parser."""
    (tmp_path / "schemas.json").write_text(text)
    with pytest.raises(ContractError, match="written by `lakehouse schema lock`.*solve the merge conflict"):
        read_lock(tmp_path / "schemas.json")


def test_columns_that_were_added_later() -> None:
    """Without it, rows of old versions would not be asked for the fields that had no column then."""
    two = sales(2, note=(TEXT, pa.Field(nullable=True)))
    assert added_later(sales(1), ()) == ()
    assert added_later(two, V1) == ("note",)
    assert added_later(two, (*V1, version_of(two))) == ("note",)
    assert added_later(two, ()) is None, "nobody knows"
    back = sales(3)
    assert added_later(back, (*V1, Version(2, "backward", {"id": "string not null"}))) == ("day", "shop", "n")
