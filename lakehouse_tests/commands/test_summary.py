"""What a backfill says at its end."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from lakehouse.commands.summary import MOST_REASONS, _reasons_of
from lakehouse.runs.reports import TableOutcome

DAYS = [date(2011, 3, 1) + timedelta(days=n) for n in range(30)]


def test_one_cause_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, one wrong rule fills the terminal with as many lines as there are days, and hides another cause."""
    failed = dict.fromkeys(DAYS[:16], "row_conservation: 2 rows less") | {DAYS[20]: "volume: 9 times the usual"}
    _reasons_of(
        TableOutcome("silver.sales", failed=failed, skipped=dict.fromkeys(DAYS[:2], "bronze")), interrupted=False
    )
    assert capsys.readouterr().err.splitlines() == [
        "silver.sales 2011-03-01 … 2011-03-16 failed: row_conservation: 2 rows less",
        "silver.sales 2011-03-21 failed: volume: 9 times the usual",
        "silver.sales 2011-03-01 … 2011-03-02 skipped: bronze",
    ]


def test_of_many_causes_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, the first lines would scroll away."""
    failed = {day: f"volume: {n} times the usual" for n, day in enumerate(DAYS)}
    _reasons_of(TableOutcome("silver.sales", failed=failed), interrupted=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_REASONS + 1
    assert lines[-1] == "silver.sales: 10 more days failed (2011-03-01 … 2011-03-30)"
