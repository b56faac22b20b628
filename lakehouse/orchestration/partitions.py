"""Daily partitions, shared by every table."""

from __future__ import annotations

from datetime import date, timedelta

from dagster import DailyPartitionsDefinition

from lakehouse.settings import get_settings


def daily_partitions() -> DailyPartitionsDefinition:
    """One partition a UTC day, from the first day of the settings up to yesterday."""
    return DailyPartitionsDefinition(start_date=get_settings().first_day.isoformat(), timezone="UTC")


def days_between(first: date, last: date) -> list[date]:
    """Every day from first to last, both included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]
