"""How each table stands, from its log."""

from __future__ import annotations

from datetime import UTC, date, datetime

from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit
from lakehouse.read.lake import PinnedLake
from lakehouse.read.targets import targets
from lakehouse.report import states
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
    found = states._state(looked_at, taken, days, None, datetime(2026, 3, 9, tzinfo=UTC))
    assert (found.days, found.rows, found.unbuilt_days) == (1, 1, [])
