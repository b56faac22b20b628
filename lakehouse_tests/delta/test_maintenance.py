"""Which files are merged; what comes of it is tested where people ask for it (`lakehouse_tests.commands`)."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any, cast

from lakehouse.delta.maintenance import _groups, _looked_back, mergeable
from lakehouse.delta.snapshot import DataFile

FULL, MOST = 1000, 8


def test_a_table_that_grows_by_small_files_writes_each_row_a_few_times(seed: int) -> None:
    """Without it, a stream would write all that it has written again and again, the more the longer it runs."""
    chance = random.Random(seed)
    files, came, written = dict[str, int](), 0, 0
    for number in range(3000):
        name, size = f"{chance.random()}", chance.randint(5, 60)
        files[name], came = size, came + size
        live = [DataFile(name, ("2026-03-02",), 1, size) for name, size in files.items()]
        if mergeable(live, FULL) < MOST:
            continue
        for group in _groups(cast("Any", SimpleNamespace(files=live)), None, FULL):
            assert all(file.size < FULL for file in group)
            for file in group:
                del files[file.path]
            merged = sum(file.size for file in group)
            files[f"merged {number} {len(files)}"], written = merged, written + merged
    assert sum(files.values()) == came
    assert max(files.values()) < 2 * FULL
    assert sum(size < FULL for size in files.values()) <= MOST
    assert written < 6 * came


def test_files_that_cannot_be_merged_do_not_count() -> None:
    """Without it, messages of forty event days would have each turn merge what the turn before has merged."""
    days = [DataFile(f"{n}", ("2026-03-02", f"2026-02-{n:02}"), 1, 9) for n in range(1, 29)]
    assert [mergeable(each, FULL) for each in (days, [], days[:1])] == [1, 0, 1]
    assert mergeable([*days, *days[:5], DataFile("full", days[0].partition, 1, FULL)], FULL) == 6


def test_of_a_long_log_few_entries_are_looked_at_for_a_clock_that_was_behind() -> None:
    """Without it, a vacuum would read a million entries of a stream's table each night."""
    assert [*_looked_back(3, 0)] == [2, 1, 0]
    assert [*_looked_back(3, 3)] == []
    looked_at = [*_looked_back(1_000_000, 0)]
    assert looked_at[:1000] == [*range(999_999, 998_999, -1)]
    assert 1000 < len(looked_at) < 1100
    assert all(1_000_000 - after < 2 * (1_000_000 - before) for before, after in itertools.pairwise(looked_at[1:]))
