"""Daily partitions, shared by every table, and how a backfill groups them into runs."""

from __future__ import annotations

from datetime import timedelta

from dagster import BackfillPolicy, DailyPartitionsDefinition

from lakehouse.settings import get_settings


def daily_partitions() -> DailyPartitionsDefinition:
    """One partition a UTC day, from the first day of the settings up to the last one, or to yesterday."""
    settings = get_settings()
    end = (settings.last_day + timedelta(days=1)).isoformat() if settings.last_day else None
    return DailyPartitionsDefinition(start_date=settings.first_day.isoformat(), end_date=end, timezone="UTC")


def backfill_policy() -> BackfillPolicy:
    """A gapless range of a backfill as one run, or as runs of at most `LAKEHOUSE_BACKFILL_DAYS` days."""
    days = get_settings().backfill_days
    return BackfillPolicy.multi_run(days) if days else BackfillPolicy.single_run()
