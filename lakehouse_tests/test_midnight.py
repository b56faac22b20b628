"""Tests that need a real clock see one day alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakehouse_tests.fixtures.midnight import seconds_near_midnight


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [("00:05:02", 0), ("12:00:00", 0), ("23:57:59", 0), ("23:58:00", 421), ("23:59:59", 302), ("00:00:00", 301)],
)
def test_a_test_waits_where_midnight_is_near(clock: str, seconds: float) -> None:
    """Without it, all tests of streams would fail where a run of them spans midnight."""
    now = datetime.fromisoformat(f"2026-03-10T{clock}Z")
    assert seconds_near_midnight(now) == seconds
    after = now + timedelta(seconds=seconds)
    assert after.tzinfo == UTC
    assert seconds_near_midnight(after) == 0
