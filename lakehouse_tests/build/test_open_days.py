"""Days that are not over: open only where a stream feeds them, and only until they are."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from lakehouse.build import open_days
from lakehouse.build.intake.ends import Ends
from lakehouse.build.open_days import open_until
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.streaming import streamed

DAY = date(2026, 3, 1)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        (datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 2, 0, 5, tzinfo=UTC)),
        (datetime(2026, 3, 2, 0, 4, tzinfo=UTC), datetime(2026, 3, 2, 0, 5, tzinfo=UTC)),
        (datetime(2026, 3, 2, 0, 5, tzinfo=UTC), None),
        (datetime(2026, 3, 9, tzinfo=UTC), None),
    ],
    ids=["at noon", "messages may be on their way", "over", "long over"],
)
@pytest.mark.parametrize("name", ["bronze.visits", "silver.visits", "gold.by_day"])
def test_a_day_closes_by_itself(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, name: str, now: datetime, until: datetime | None
) -> None:
    """Without it, today would pass for whole, or yesterday never be."""
    monkeypatch.setattr(open_days, "ends_of", lambda *_: Ends(batch=1))
    made = lake(*streamed())
    assert open_until(made, made.table(name), DAY, now) == until


def test_where_no_message_was_ever_taken_no_day_is_open(lake: LakeFactory) -> None:
    """Without it, whoever has no stream would never have a whole day before it is over."""
    made = lake(*streamed())
    assert open_until(made, made.table("gold.by_day"), DAY, datetime(2026, 3, 1, 12, tzinfo=UTC)) is None
