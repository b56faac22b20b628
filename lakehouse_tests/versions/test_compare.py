"""Comparing a candidate with the live table: every difference is counted, where it is, and no personal data is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as T

from lakehouse.contracts import Table
from lakehouse.contracts.figures import EXACT
from lakehouse.read.lake import Lake
from lakehouse.versions.candidate import CandidateLake, open_candidate
from lakehouse.versions.compare import Comparison, compare
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.undoing import DAYS, tables
from lakehouse_tests.fixtures.making import put

MON, TUE, WED, _ = DAYS
Rows = dict[date, list[dict[str, Any]]]


def row(key: str, n: Any, email: str = "t") -> dict[str, Any]:
    return {"id": key, "n": 0, "more": n, "token": email}


@pytest.fixture
def compared(lake: LakeFactory) -> Callable[[Rows, Rows], Comparison]:
    """Compares the rows of a live table with those of its candidate."""

    def run(
        live: Rows,
        other: Rows,
        *,
        keyed: bool = True,
        sample: int = 10,
        numbers: int = 0,
        more: T.DataType = T.LongType(),  # noqa: B008 - it is never changed
    ) -> Comparison:
        made: dict[str, Table] = tables(more=more, numbers=numbers)
        table = made["silver.things"]
        if not keyed:
            object.__setattr__(table, "key", ())
        where: Lake = lake(*made.values())
        for day, rows in live.items():
            put(where, table, day, rows)
        beside = CandidateLake(where, table)
        for day, rows in other.items():
            beside.facts = {"lakehouse.live_version": str(where.snapshot(table.id).version)}
            _put(beside, table, day, rows)
        return compare(where, open_candidate(where, table), sample=sample)

    return run


def _put(lake: Lake, table: Table, day: date, rows: list[dict[str, Any]]) -> None:
    from lakehouse.delta.commit import ensure_table, replace_days
    from lakehouse.delta.target import Commit
    from lakehouse.read.targets import targets
    from lakehouse_tests.fixtures.making import stage_rows

    main, side = targets(lake, table)
    assert side is not None
    ensure_table(side)
    files = stage_rows(main, [{**each, "day": day} for each in rows])
    replace_days(main, ensure_table(main), files, [day], Commit({f"day/{day}": 1}, lake.facts))


def test_every_kind_of_difference_is_counted(compared: Callable[..., Comparison]) -> None:
    """Without it, a candidate could be swapped in whose rows nobody expected, since only totals were looked at."""
    live = {MON: [row("a", 1), row("b", 2), row("c", None)], TUE: [row("d", 4)], WED: [row("not asked", 9)]}
    other = {MON: [row("a", 1), row("b", 3, "secret new"), row("e", 5)], TUE: [row("d", 4)]}
    found = compared(live, other)
    assert found.days == [MON, TUE]
    assert (found.rows, found.only_live, found.only_candidate, found.changed) == ((4, 4), 1, 1, 1)
    assert found.columns == {"more": 1, "token": 1}
    assert found.by_day == {MON: (1, 1, 1)}
    assert found.metrics["more"] == {"live_nulls": 1, "live_sum": 7, "candidate_nulls": 0, "candidate_sum": 13}
    assert not found.same
    shown = json.dumps(found.sample, default=str)
    assert "secret" not in shown
    assert "token" not in shown
    assert len(found.sample) in (1, 2, 3)
    for each in found.sample:
        assert each in (
            {"only": "live", "id": "c", "day": MON, "n": 0, "more": None},
            {"only": "candidate", "id": "e", "day": MON, "n": 0, "more": 5},
            {"id": "b", "day": MON, "n": 0, "more": {"live": 2, "candidate": 3}},
        )


def test_what_is_the_same_is_the_same(compared: Callable[..., Comparison]) -> None:
    """Without it, the order of rows or files could pass for a difference, and nobody would trust the comparison."""
    rows = [row("a", 1), row("b", None), row("c", 3)]
    found = compared({MON: rows, TUE: []}, {MON: rows[::-1], TUE: []})
    assert found.same
    assert (found.by_day, found.columns, found.sample) == ({}, {}, [])


def test_a_key_may_stand_on_several_days(compared: Callable[..., Comparison]) -> None:
    """Without it, any two rows of a key were compared: what is the same was told as changed, and sums lacked rows."""
    names = [f"row {n}" for n in range(20)]
    live = {day: [row(name, n) for name in names] for n, day in enumerate((MON, TUE, WED), 1)}
    found = compared(live, dict(reversed(live.items())))
    assert found.same
    assert (found.by_day, found.columns, found.metrics["more"]["live_sum"]) == ({}, {}, 20 * 6)
    found = compared(live, live | {TUE: [row(name, 2) for name in names[1:]], WED: [row(name, 7) for name in names]})
    assert (found.only_live, found.only_candidate, found.changed, found.columns) == (1, 0, 20, {"more": 20})
    assert found.by_day == {TUE: (1, 0, 0), WED: (0, 0, 20)}


def test_a_row_may_move_to_another_day(compared: Callable[..., Comparison]) -> None:
    """Without it, a candidate that dates rows anew would be told as one that has lost them all."""
    found = compared({MON: [row("a", 1)], TUE: []}, {MON: [], TUE: [row("a", 1)]})
    assert (found.only_live, found.only_candidate, found.changed, found.columns) == (0, 0, 1, {"day": 1})


def test_a_table_without_a_key_is_compared_by_whole_rows(compared: Callable[..., Comparison]) -> None:
    """Without it, repeats of a row would pass for one, and a lost repeat for nothing."""
    found = compared({MON: [row("a", 1), row("a", 1), row("b", 2)]}, {MON: [row("a", 1), row("b", 3)]}, keyed=False)
    assert (found.rows, found.only_live, found.only_candidate, found.changed) == ((3, 2), 2, 1, 0)
    assert found.metrics["more"]["live_sum"] == 4
    assert found.metrics["more"]["candidate_sum"] == 4


def test_a_table_may_have_a_hundred_columns(compared: Callable[..., Comparison]) -> None:
    """Without it, a wide table could be compared by an engine in the same process, and by no warm one."""
    found = compared({MON: [row("a", 1)]}, {MON: [row("a", 1) | {"number_99": 5}]}, numbers=100)
    assert (found.changed, found.columns) == (1, {"number_99": 1})
    assert list(found.sample[0])[:2] == ["id", "number_99"], "what differs stands before what is the same"


@pytest.mark.parametrize("keyed", [True, False])
def test_a_column_may_be_of_maps(compared: Callable[..., Comparison], keyed: bool) -> None:
    """Without it, a table with such a column could not be compared at all."""
    maps = T.ArrayType(T.StructType([T.StructField("m", T.MapType(T.StringType(), T.LongType()))]))
    live = [{"m": {"x": 1, "y": 2}}, None]
    same, other = [{"m": {"y": 2, "x": 1}}, None], [{"m": {"x": 1, "y": 3}}, None]
    rows = [row("a", live), row("b", None), row("c", live)]
    new = [row("a", same), row("b", None), row("c", other)]
    found = compared({MON: rows}, {MON: new}, keyed=keyed, more=maps)
    assert (found.only_live, found.only_candidate, found.changed, found.columns) == (0, 0, 1, {"more": 1})


def test_sums_have_all_their_digits(compared: Callable[..., Comparison]) -> None:
    """Without it, a difference in the last of 38 digits was none in the sums of both sides."""
    large, small = Decimal("9999999999999999999999999999.01"), Decimal("0.02")
    days = {MON: [row("a", large)], TUE: [row("b", small)]}
    found = compared(days, {MON: [row("a", large)], TUE: [row("b", small * 2)]}, more=T.DecimalType(38, 2))
    assert found.metrics["more"]["live_sum"] == EXACT.add(large, small)
    assert found.metrics["more"]["candidate_sum"] == EXACT.add(large, small * 2)


def test_the_sum_of_whole_numbers_may_be_larger_than_they_can(compared: Callable[..., Comparison]) -> None:
    """Without it, a column of hashes or of ids with nineteen digits ended the comparison."""
    most, names = 2**63 - 1, [f"row {n}" for n in range(40)]  # some of which are summed together
    live = [row(name, most) for name in names]
    found = compared({MON: live}, {MON: [*live[1:], row(names[0], most - 1)]})
    assert [found.metrics["more"][f"{side}_sum"] for side in ("live", "candidate")] == [40 * most, 40 * most - 1]
    assert isinstance(found.metrics["more"]["live_sum"], int)


def test_a_comparison_is_not_planned_as_the_small_build_before_it(
    compared: Callable[..., Comparison], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, all rows of a large table would go through one task, since the day built last was small."""
    sizes: list[int | None] = []
    monkeypatch.setattr("lakehouse.versions.compare.plan_for", lambda _session, _settings, size: sizes.append(size))
    compared({MON: [row("a", 1)]}, {MON: [row("a", 1)]})
    assert sizes == [None]
