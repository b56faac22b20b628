"""A table's versions as its log tells them, also where its oldest entries are gone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.delta.files import rows_in
from lakehouse.delta.layout import entry_path
from lakehouse.delta.log import read_entry, versions
from lakehouse.versions.upkeep import clean_up_log
from lakehouse_tests.fixtures.making import rewrite_entry

CHECKPOINT = 3


def rows(*values: int) -> pa.Table:
    return pa.table({"n": list(values), "day": ["2026-03-02"] * len(values)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of six versions: one row more in each, and all of them merged into one file in the last but one."""
    made = tmp_path / "t"
    for number in range(4):
        write_deltalake(made, rows(number), mode="append", partition_by=["day"])
    DeltaTable(made).create_checkpoint()
    DeltaTable(made).optimize.compact()
    write_deltalake(made, rows(5), mode="append", partition_by=["day"])
    return made


def told(path: Path, limit: int | None = None) -> list[tuple[int, int | None, int | None, int]]:
    return [(each.entry.version, each.rows_before, each.rows, each.gone) for each in versions(path, limit)]


ALL = [(5, 4, 5, 0), (4, 4, 4, 0), (3, 3, 4, 0), (2, 2, 3, 0), (1, 1, 2, 0), (0, 0, 1, 0)]


def test_each_version_has_its_rows_before_and_after(path: Path) -> None:
    """Without it, nobody could see which commit lost rows."""
    assert told(path) == ALL
    assert told(path, 2) == ALL[:2]
    assert told(path / "none") == []


def test_versions_of_a_log_that_was_cleaned_up_are_told_as_before(path: Path) -> None:
    """Without it, they would have only the rows of the entries that are left, and pass for readable without files."""
    assert clean_up_log(path, datetime.now(UTC)) == CHECKPOINT
    assert told(path) == ALL[:3]
    Path(DeltaTable(path, version=CHECKPOINT).file_uris()[0]).unlink()
    assert [gone for *_, gone in told(path)] == [0, 0, 1]


def test_rows_before_the_oldest_entry_are_known_by_the_files_that_it_removed(path: Path) -> None:
    """Without it, a merge at the beginning of a log would seem to add all rows of the table."""
    merged = DeltaTable(path, version=CHECKPOINT).file_uris()
    DeltaTable(path, version=4).create_checkpoint()
    clean_up_log(path, datetime.now(UTC))
    assert told(path) == ALL[:2]
    for uri in merged:
        Path(uri).unlink()
    rows_in.cache_clear()
    assert told(path) == [ALL[0], (4, None, 4, 0)], "nobody says it any more"


def test_entries_stay_before_a_checkpoint_whose_clock_was_behind(path: Path) -> None:
    """Without it, one commit of a machine that woke in 1970 would take the undo of all versions before it."""
    long_ago = datetime(1970, 1, 2, tzinfo=UTC)

    def stamp(kind: str, body: dict[str, Any]) -> None:
        if kind == "commitInfo":
            body["timestamp"] = long_ago.timestamp() * 1000

    rewrite_entry(path, CHECKPOINT, stamp)
    assert clean_up_log(path, long_ago) == 0
    assert told(path) == ALL


def test_entries_that_a_killed_clean_up_has_left_are_not_told(path: Path) -> None:
    """Without it, `lakehouse history` would end with an error until the next night finishes the clean-up."""
    for version in range(2):
        entry_path(path, version).unlink()
    assert told(path) == ALL[:3]


@pytest.mark.parametrize("version", range(6))
def test_who_and_when_is_told_without_the_files(path: Path, version: int) -> None:
    """Without it, `lakehouse status` would read thousands of files of each table to tell when it was published."""
    whole, short = read_entry(path, version, ("day",)), read_entry(path, version)
    assert whole.added
    assert not short.added
    assert not short.removed
    assert (short.time, short.facts, short.transactions) == (whole.time, whole.facts, whole.transactions)
