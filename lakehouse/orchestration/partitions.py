"""Daily partitions, shared by every table, and how a backfill groups them into runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from dagster import BackfillPolicy, DailyPartitionsDefinition

from lakehouse import store
from lakehouse.build.open_days import has_today
from lakehouse.catalog import tables
from lakehouse.errors import UsageError
from lakehouse.orchestration.instance import days_of_run
from lakehouse.settings import get_settings


def daily_partitions() -> DailyPartitionsDefinition:
    """One partition a UTC day, from the first day of the settings up to the last one, to yesterday, or to today.

    Today is one where rows of it come before it is over (`lakehouse.build.open_days`).
    """
    settings = get_settings()
    end = (settings.last_day + timedelta(days=1)).isoformat() if settings.last_day else None
    return DailyPartitionsDefinition(
        start_date=settings.first_day.isoformat(),
        end_date=end,
        timezone="UTC",
        # Of a lake that begins tomorrow, today is none either.
        end_offset=int(has_today(settings, tables()) and settings.first_day <= datetime.now(UTC).date()),
    )


def last_partition() -> date:
    """The newest day with a partition: yesterday or today, UTC, unless the lake ends before.

    Raises:
        UsageError: there is none.
    """
    key = daily_partitions().get_last_partition_key()
    if key is None:
        settings = get_settings()
        is_set = settings.last_day is not None and settings.last_day < datetime.now(UTC).date()
        newest = "today" if has_today(settings, tables()) else "yesterday"
        end = f"LAKEHOUSE_LAST_DAY, {settings.last_day}" if is_set else newest
        raise UsageError(f"There is no daily partition: LAKEHOUSE_FIRST_DAY, {settings.first_day}, is after {end}.")
    return date.fromisoformat(key)


def backfill_policy() -> BackfillPolicy:
    """A gapless range of a backfill as one run, or as runs of at most `LAKEHOUSE_BACKFILL_DAYS` days."""
    days = get_settings().backfill_days
    return BackfillPolicy.multi_run(days) if days else BackfillPolicy.single_run()


def asked_days(tags: Mapping[str, str]) -> list[date]:
    """The days that a run is to build: partitions, and the day that is on, of which a stream may have set rows aside.

    Args:
        tags: of the run.

    Raises:
        UsageError: there are none, or one is neither.
    """
    days = days_of_run(tags)
    if not days:
        raise UsageError("The run asks for no day, or its last day is before its first: choose partitions.")
    is_open = get_settings().last_day is None and days[-1] == datetime.now(UTC).date()
    if closed := days[:-1] if is_open else days:
        check_range(closed[0], closed[-1])
    return days


def check_range(first: date, last: date) -> None:
    """Refuse days that have no partition: Dagster itself takes any from its API, and from a run executed again.

    Raises:
        UsageError: with the days there are, or why there are none.
    """
    settings = get_settings()
    begin, end = settings.first_day, last_partition()
    if first < begin or last > end:
        own = f" Settings of this lake alone are in {settings.own_file}." if store.exists(settings.own_file) else ""
        raise UsageError(
            f"There are daily partitions from {begin} to {end}; got {first} … {last}. The last one is the last full "
            "day, UTC, or today where rows come during the day, unless LAKEHOUSE_LAST_DAY sets an earlier one; "
            f"LAKEHOUSE_FIRST_DAY sets the first.{own}"
        )
