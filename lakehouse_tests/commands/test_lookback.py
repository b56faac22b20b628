"""The comparison of the stale days with a fixed look-back, as it is printed."""

from __future__ import annotations

from datetime import date

import pytest

from lakehouse.build.lookback import LookBack, Rewritten
from lakehouse.commands.build.lookback import print_rewritten


def test_a_look_back_of_one_day_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, the tutorial's repair ended with a look-back of 1 days."""
    beside = [LookBack(1, 14, 300_000, 0), LookBack(2, 20, 500_000, 0)]
    print_rewritten(Rewritten(date(2026, 3, 5), 9, 200_000, beside), "rewritten")
    said = capsys.readouterr().out
    assert "a look-back of 1 day " in said
    assert "a look-back of 2 days" in said
