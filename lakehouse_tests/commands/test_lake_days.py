"""The days of a lake are those of its files, unless somebody set them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from lakehouse.catalog import get_table, lake_without_engine
from lakehouse.errors import UsageError
from lakehouse.orchestration.assets import build_asset
from lakehouse.orchestration.partitions import check_range, daily_partitions
from lakehouse.runs.selection import fit_days, last_partition
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.commands.conftest import run
from lakehouse_tests.fixtures.making import put

OLD = date(2011, 3, 1)


@pytest.fixture
def lake(root: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of the process, on a root of the test's own."""
    monkeypatch.chdir(root.parent)
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(root))
    for name in ("FIRST_DAY", "LAST_DAY"):
        monkeypatch.delenv(f"LAKEHOUSE_{name}", raising=False)
    get_settings.cache_clear()
    return get_settings()


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    """No test leaves its settings behind."""
    yield
    get_settings.cache_clear()


def test_a_lake_of_new_data_begins_with_its_first_file_and_goes_on(lake: Settings, today: date) -> None:
    """Without it, a first look at the demo shows 14 days among six thousand empty ones."""
    yesterday = today - timedelta(days=1)
    land_sample_online_retail(lake.root, yesterday - timedelta(days=13), 14, 5, 1)
    found = fit_days(lake)
    assert (found.first_day, found.last_day) == (yesterday - timedelta(days=13), None)
    keys = daily_partitions().get_partition_keys()
    assert (len(keys), keys[-1]) == (14, str(yesterday))


def test_a_lake_of_old_data_ends_with_its_last_file(lake: Settings) -> None:
    """Without it, every table of a lake of 2011 is red for being years behind, and the launcher opens on empty days."""
    land_sample_online_retail(lake.root, OLD, 3, 5, 1)
    found = fit_days(lake)
    assert (found.first_day, found.last_day) == (OLD, OLD + timedelta(days=2))
    assert daily_partitions().get_partition_keys() == ["2011-03-01", "2011-03-02", "2011-03-03"]
    assert last_partition() == OLD + timedelta(days=2)
    with pytest.raises(UsageError, match=f"to {OLD + timedelta(days=2)}; got .* in {re.escape(str(lake.own_file))}"):
        check_range(OLD, OLD + timedelta(days=3))
    land_sample_online_retail(lake.root, OLD + timedelta(days=3), 1, 5, 1)
    assert fit_days(found).last_day == OLD + timedelta(days=3), "what lands later belongs to it"


def test_days_of_files_that_were_tidied_away_stay_days_of_the_lake(lake: Settings) -> None:
    """Without it, the next file that landed took the first days from the lake, and no run built them any more."""
    land_sample_online_retail(lake.root, OLD, 4, 5, 1)
    fit_days(lake)
    for day in (OLD, OLD + timedelta(days=3)):
        put(
            lake_without_engine(lake),
            get_table("bronze.online_retail"),
            day,
            [{"_event_date": day, "_source_file": "f", "_source_row": 1}],
        )
        next((lake.root / "landing" / "online_retail").glob(f"{day}*")).unlink()
    found = fit_days(get_settings())
    assert (found.first_day, found.last_day) == (OLD, OLD + timedelta(days=3))


@pytest.mark.parametrize("name", ["FIRST_DAY", "LAST_DAY"])
def test_days_that_somebody_set_stay(lake: Settings, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without it, a deliberate range would change with the next file."""
    monkeypatch.setenv(f"LAKEHOUSE_{name}", "2011-03-02")
    get_settings.cache_clear()
    land_sample_online_retail(lake.root, OLD, 3, 5, 1)
    assert fit_days(get_settings()) == get_settings()
    assert not lake.own_file.exists()


def test_landing_by_command_extends_a_lake_that_goes_by_its_files(lake: Settings) -> None:
    """Without it, days landed later could not be built, and the message would name a setting nobody had made."""
    land_sample_online_retail(lake.root, OLD, 1, 5, 1)
    fit_days(lake)
    said = run(lake.root, "land", "events", "--days", "2", "--rows", "5", "--seed", "1", "--from", "2011-03-04")
    assert "from 2011-03-01 to 2011-03-05" in said.err
    get_settings.cache_clear()
    assert get_settings().last_day == date(2011, 3, 5)


def test_the_first_landing_gives_a_new_lake_its_days(lake: Settings) -> None:
    """Without it, old files landed by hand would be a lake that is years behind; one that is built keeps its days."""
    land = ("land", "events", "--days", "2", "--rows", "5", "--seed", "1", "--from")
    assert "from 2011-03-04 to 2011-03-05" in run(lake.root, *land, "2011-03-04").err
    lake.own_file.unlink()
    (lake.root / "tables").mkdir()
    assert "The lake's days" not in run(lake.root, *land, "2011-03-08").err
    assert not lake.own_file.exists()


def test_files_of_a_day_that_is_not_over_are_said_to_wait(lake: Settings, today: date) -> None:
    """Without it, the next command that is named would build a day without the rows that were just landed."""
    land = ("land", "events", "--rows", "5", "--seed", "1", "--from")
    said = run(lake.root, *land, str(today), "--days", "1").err
    assert f"Files of {today} are built once their day is over" in said
    assert "backfill" not in said
    said = run(lake.root, *land, str(today - timedelta(days=1)), "--days", "2").err
    assert f"--from {today - timedelta(days=1)} --to {today - timedelta(days=1)}" in said


def test_dagster_expects_nothing_new_of_a_lake_that_has_ended(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, Dagster's own freshness turns every asset of a finished lake red a day and a half later."""
    contract = get_table("gold.daily_revenue")
    key = next(iter(build_asset(contract).keys))
    assert build_asset(contract).specs_by_key[key].freshness_policy is not None
    monkeypatch.setenv("LAKEHOUSE_LAST_DAY", "2011-03-02")
    get_settings.cache_clear()
    assert build_asset(contract).specs_by_key[key].freshness_policy is None


@pytest.mark.parametrize(
    ("last", "why"), [("2011-02-01", "after LAKEHOUSE_LAST_DAY, 2011-02-01"), ("", "after yesterday")]
)
def test_a_lake_whose_first_day_comes_too_late_says_after_what(
    lake: Settings, monkeypatch: pytest.MonkeyPatch, last: str, why: str
) -> None:
    """Without it, two days that were swapped are told as a day in the future."""
    first = "2011-03-01" if last else "2999-01-01"
    monkeypatch.setenv("LAKEHOUSE_FIRST_DAY", first)
    if last:
        monkeypatch.setenv("LAKEHOUSE_LAST_DAY", last)
    get_settings.cache_clear()
    with pytest.raises(UsageError, match=f"LAKEHOUSE_FIRST_DAY, {first}, is {why}"):
        last_partition()
