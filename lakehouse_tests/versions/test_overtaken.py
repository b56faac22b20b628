"""Which days of a candidate the live table has published since, and how they come to be of today again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse.build.result import UNCHANGED, BuildResult, DayResult
from lakehouse.checks.metrics import DayMetrics
from lakehouse.contracts import Table
from lakehouse.delta.log import versions
from lakehouse.errors import UndoRefusedError
from lakehouse.read.lake import Lake
from lakehouse.versions import candidate as module
from lakehouse.versions.candidate import build_candidate, open_candidate, swap
from lakehouse.versions.overtaken import overtaken_days
from lakehouse_tests.faults.undoing import DAYS, beside, publish, seen, two_days_beside_a_candidate

MON, TUE, *_ = DAYS
TABLE = "silver.things"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return two_days_beside_a_candidate(tmp_path)


def overtaken(lake: Lake) -> list[int]:
    """Days of the month."""
    return [day.day for day in overtaken_days(lake.snapshot(TABLE), open_candidate(lake, lake.table(TABLE)))]


def test_a_live_table_that_was_built_anew_is_not_replaced_unasked(lake: Lake) -> None:
    """Without it, a swap loses what was published: the new table has the version again that the candidate noted."""
    for name in (TABLE, f"{TABLE}_quarantine"):
        lake.path(name).rename(lake.path(name).with_name(f"{name} away"))
    publish(lake, {MON: "ab", TUE: "cl"}, {MON: "x"}, mark=2)
    assert lake.snapshot(TABLE).version == 1
    assert overtaken(lake) == [2, 3]
    with pytest.raises(UndoRefusedError, match=r"2 day\(s\) were published after the candidate's were built"):
        swap(lake, lake.table(TABLE), by="ann")
    beside(lake, {MON: "A", TUE: "CL"}, mark=10)
    swap(lake, lake.table(TABLE), by="ann")
    assert [key for _, key in seen(lake)[TABLE]] == ["A", "C", "L"]


def test_days_that_a_build_left_alone_are_of_today(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the build that a refused swap asks for changes nothing, and the swap is refused for good."""

    def building(_: Lake, table: Table, *__: object, **___: object) -> BuildResult:
        return BuildResult(table, 1, {}, {day: DayResult(UNCHANGED, DayMetrics(day)) for day in (MON, TUE)})

    monkeypatch.setattr(module, "build", building)
    publish(lake, {TUE: "l"}, mark=2)
    assert overtaken(lake) == [3]
    candidate = open_candidate(lake, lake.table(TABLE))
    for _ in range(2):
        build_candidate(lake, lake.table(TABLE), [MON, TUE], run_id="again")
        assert open_candidate(lake, lake.table(TABLE)).main.version == candidate.main.version + 1, "noted once"
    assert overtaken(lake) == []
    swap(lake, lake.table(TABLE), by="ann")
    assert [key for _, key in seen(lake)[TABLE]] == ["A", "C", "D"]
    facts = versions(lake.path(TABLE))[0].entry.facts
    assert (facts["lakehouse.run_id"], facts["lakehouse.code_version"]) == ("run 9", "v9"), "of what built the rows"
