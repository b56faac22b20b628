"""Which days a run may be about: Dagster's pages offer partitions, but its API takes any day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import pytest
from dagster import DagsterEventType

import lakehouse.definitions  # noqa: F401  # before the days are changed, which would stay in it for other tests
from lakehouse.errors import UsageError
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.partitions import asked_days
from lakehouse.settings import get_settings
from lakehouse_tests.orchestration.running import GOOD, TABLE, Foretold

FIRST, LAST = date(2011, 3, 1), date(2011, 3, 5)


@pytest.fixture(autouse=True)
def lake_of_five_days(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The lake's days are these five."""
    monkeypatch.setenv("LAKEHOUSE_FIRST_DAY", str(FIRST))
    monkeypatch.setenv("LAKEHOUSE_LAST_DAY", str(LAST))
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.mark.parametrize("days", [(FIRST, LAST), (FIRST, FIRST), (LAST, LAST)])
def test_a_run_is_about_the_days_of_its_tags(days: tuple[date, date]) -> None:
    first, last = days
    tags = {"dagster/asset_partition_range_start": str(first), "dagster/asset_partition_range_end": str(last)}
    found = asked_days(tags if first != last else {"dagster/partition": str(first)})
    assert (found[0], found[-1]) == days


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"dagster/partition": "yesterday"},
        {"dagster/asset_partition_range_start": str(LAST), "dagster/asset_partition_range_end": str(FIRST)},
    ],
)
def test_a_run_without_a_day_is_refused(tags: dict[str, str]) -> None:
    """Without it, a run of no day was green, and Dagster took its tables for built just now."""
    with pytest.raises(UsageError, match="asks for no day"):
        asked_days(tags)


def test_a_day_that_has_not_begun_is_refused(monkeypatch: pytest.MonkeyPatch, today: date) -> None:
    """Without it, features of days to come were made up of rows that are there, and served as the newest."""
    monkeypatch.delenv("LAKEHOUSE_LAST_DAY")
    get_settings.cache_clear()
    # Rows of a stream that were set aside today are replayed by a run of today.
    assert asked_days({"dagster/partition": str(today)}) == [today]
    tomorrow = today + timedelta(days=1)
    with pytest.raises(UsageError, match=f"from {FIRST} to {today - timedelta(days=1)}; got {tomorrow} … {tomorrow}"):
        asked_days({"dagster/partition": str(tomorrow)})


@pytest.mark.slow
@pytest.mark.parametrize("day", [FIRST - timedelta(days=1), LAST + timedelta(days=1), date(2099, 1, 1)])
def test_a_run_over_a_day_that_is_no_partition_builds_nothing(runs: Foretold, day: date) -> None:
    """Dagster starts it all the same: by its API, or where a run is executed again after the lake's days changed."""
    run = runs.run({day: GOOD})
    assert (run.status.value, runs.calls) == ("FAILURE", 0)
    (failed,) = runs.instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)
    told = failed.get_dagster_event().step_failure_data.user_failure_data
    assert told is not None
    assert f"daily partitions from {FIRST} to {LAST}; got {day} … {day}" in (told.description or "")
    assert runs.instance.get_latest_materialization_event(asset_key(TABLE)) is None
