"""How each table stands, from its log."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from lakehouse.build import open_days
from lakehouse.commands.inspect.status import _remarks
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import day_transaction
from lakehouse.orchestration.outcomes import Outcomes
from lakehouse.read.lake import PinnedLake
from lakehouse.read.targets import targets
from lakehouse.report import collect, states
from lakehouse.report.figures import Cell, State
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import stage_rows
from lakehouse_tests.fixtures.streaming import streamed

DAY = date(2026, 3, 1)


def test_the_days_of_batches_are_those_with_rows(lake: LakeFactory) -> None:
    """Without it, a table that takes messages has no day, and each day of it "has input and was never built"."""
    shop = lake(*streamed())
    taken = shop.table("bronze.visits")
    target = targets(shop, taken)[0]
    files = stage_rows(target, [{"id": "a", "_arrival_date": DAY, "_event_date": DAY}])
    replace_days(target, ensure_table(target), files, [DAY], Commit())
    looked_at = PinnedLake(shop.settings, shop.tables)
    days = states.days_by_table(looked_at, {})[taken.id]
    found = states._state(looked_at, taken, days, Outcomes(), datetime(2026, 3, 9, tzinfo=UTC))
    assert (found.days, found.rows, found.unbuilt_days) == (1, 1, [])


def test_what_is_open_and_what_is_empty_is_told(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, half of today would pass for a whole day, and the last day of a table would not be its last."""
    monkeypatch.setattr(open_days, "batch_of", lambda *_: 1)
    shop = lake(*streamed())
    gold = shop.table("gold.by_day")
    target, empty = targets(shop, gold)[0], DAY - timedelta(days=1)
    replace_days(target, ensure_table(target), [], [empty], Commit({day_transaction(empty): 1}))
    files = stage_rows(target, [{"day": DAY, "page": "a", "visits": 1}])
    replace_days(target, ensure_table(target), files, [DAY], Commit({day_transaction(DAY): 1}))
    looked_at, found = PinnedLake(shop.settings, shop.tables), list[states.Status]()
    for now in (datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 2, 1, tzinfo=UTC)):
        found.append(states._state(looked_at, gold, states.days_by_table(looked_at, {})[gold.id], Outcomes(), now))
    assert [(each.first_day, each.last_day, each.days) for each in found] == [(empty, DAY, 2)] * 2
    assert [each.open_days for each in found] == [[DAY], []]
    tomorrow = DAY + timedelta(days=1)
    replace_days(target, ensure_table(target), [], [tomorrow], Commit({day_transaction(tomorrow): 1}))
    looked_at = PinnedLake(shop.settings, shop.tables)
    days = states.days_by_table(looked_at, {})[gold.id]
    ahead = states._state(looked_at, gold, days, Outcomes(), datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert (ahead.last_day, ahead.days, ahead.open_days) == (DAY, 2, [DAY]), "all rows of tomorrow are in quarantine"
    remarks = [f"{DAY} is open: rows may still come" in _remarks(each) for each in found]
    assert remarks == [True, False]


def test_a_day_that_a_stopped_stream_holds_open_hides_nothing(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, all that a table lacks since the stream was stopped would look as if it were on its way."""
    shop, now = lake(*streamed()), datetime(2026, 3, 4, 12, tzinfo=UTC)
    monkeypatch.setattr(collect, "still_open", lambda _lake, _table, days, _now: set(days))
    signs = [State.PUBLISHED, State.EMPTY, State.STALE, State.NOT_BUILT, State.FAILED, State.STALE]
    days = [now.date() - timedelta(days=n) for n in reversed(range(len(signs)))]
    states = {day: Cell(sign) for day, sign in zip(days, signs, strict=True)}
    shown = collect._with_open(shop, shop.table("gold.by_day"), states, now)
    told = [State.OPEN, State.OPEN, State.STALE, State.NOT_BUILT, State.FAILED, State.OPEN]
    assert [each.sign for each in shown.values()] == told
