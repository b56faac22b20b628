"""What stale days cost, beside a fixed look-back: read from logs and file sizes, and true."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehouse.build.build import build
from lakehouse.build.lookback import look_back, versions, would_write, written_since
from lakehouse.build.stale import stale_days
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.read.lake import Lake
from lakehouse_tests.build.test_build import DAYS, land, sensors, sums
from lakehouse_tests.build.test_stale import raw, typed, weekly
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import stage_rows

FIRST = date(2026, 3, 1)
SPAN = [FIRST + timedelta(days=n) for n in range(60)]
NAMES = ("bronze.raw", "silver.typed", "gold.weekly")


def written(lake: Lake, name: str, days: Iterable[date], run_id: str) -> int:
    """Publish days of a table as a run would, one row more in each that is there; returns the bytes of their files."""
    made = lake.table(name)
    target = Target(lake.path(name), made.schema, made.partition_by)
    base, chosen = ensure_table(target), list(days)
    files = stage_rows(target, [{made.day_column: day, "_event_date": day, "n": 1} for day in chosen])
    facts = {"lakehouse.run_id": run_id, "lakehouse.metrics": {str(day): {"rows": 1} for day in chosen}}
    replace_days(target, base, files, chosen, Commit({}, facts))
    return sum(file.size for file in files)


@pytest.fixture
def chain(lake: LakeFactory) -> Lake:
    """Sixty days in three tables."""
    shop = lake(raw(), typed(), weekly())
    for name in NAMES:
        written(shop, name, SPAN, "history")
    return shop


def test_bytes_are_those_of_the_runs_own_commits(chain: Lake, lake: LakeFactory) -> None:
    """Counted from sizes of days, what another run wrote meanwhile, or what an upsert moved, would be lost or doubled."""
    before = versions(chain, NAMES)
    touched = [SPAN[10], SPAN[50], SPAN[59]]
    size = written(chain, "silver.typed", touched, "ours") + written(chain, "gold.weekly", touched, "ours")
    written(chain, "gold.weekly", SPAN[:5], "theirs")
    found = written_since(lake(raw(), typed(), weekly(), root=chain.settings.root), before, {"ours"})
    assert (found.newest_arrival, found.days, found.bytes) == (SPAN[59], 6, size)
    assert [(each.look_back, each.days, each.missed_days) for each in found.beside] == [
        (7, 16, 4),
        (30, 62, 2),
        (49, 100, 0),
    ]
    assert found.beside[0].bytes == sum(
        file.size
        for name in NAMES[1:]
        for file in chain.snapshot(name).files
        if SPAN[52].isoformat() <= str(file.partition[0])
    )


def test_landed_days_are_no_part_of_the_comparison(chain: Lake, lake: LakeFactory) -> None:
    """They are written once either way; counted, they would make both look alike."""
    before = versions(chain, NAMES)
    written(chain, "bronze.raw", SPAN[59:], "ours")
    found = written_since(lake(raw(), typed(), weekly(), root=chain.settings.root), before, {"ours"})
    assert (found.days, found.bytes, found.beside) == (0, 0, ())


def test_the_estimate_is_from_the_sizes_of_now(chain: Lake) -> None:
    """Before a build, the days' present files are what is known of them; a new day is as large as usual."""
    sizes = {file.partition[0]: file.size for file in chain.snapshot("silver.typed").files}
    new = SPAN[59] + timedelta(days=1)
    found = would_write(chain, {"bronze.raw": {new}, "silver.typed": {SPAN[3], new}})
    assert found.newest_arrival == new, "what is going to be built has arrived"
    assert (found.days, found.bytes) == (2, sizes[str(SPAN[3])] + sorted(sizes.values())[30])
    assert [each.look_back for each in found.beside] == [7, 30, 57]
    assert would_write(chain, {"silver.typed": set()}).beside == ()
    assert found.as_json()["beside"][2]["missed_days"] == 0


def test_a_lake_without_tables_is_compared_with_nothing(lake: LakeFactory) -> None:
    """The first backfill of all has no newest arrival."""
    assert would_write(lake(raw(), typed(), weekly()), {"silver.typed": set()}).newest_arrival is None


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(0, 59), min_size=1), st.integers(0, 59))
def test_a_look_back_misses_what_is_older_and_the_shortest_that_misses_nothing_is_told(
    chain: Lake, touched: set[int], other: int
) -> None:
    """Against a count day by day."""
    found = would_write(chain, {"silver.typed": {SPAN[n] for n in touched}})
    for each in found.beside:
        assert each.missed_days == sum(59 - n > each.look_back for n in touched)
        assert each.days == min(each.look_back, 59) + 1
    needed = found.beside[-1].look_back
    assert found.beside[-1].missed_days == 0
    assert needed == 0 or any(59 - n > needed - 1 for n in touched)
    assert look_back(chain, ["silver.typed"], SPAN[59], other)[0] == other + 1


def test_late_files_through_the_engine(lake: LakeFactory, tmp_path: Path) -> None:
    """The figures of a real build are those of its log: exactly the stale days, no byte more."""
    shop = lake(*sensors())
    names = tuple(shop.tables)
    for day in DAYS[:10]:
        land(shop, day, [(f"a{day}", None, 1)])
    for name in names:
        build(shop, shop.table(name), DAYS[:10], run_id="history")
    land(shop, DAYS[9], [("late", DAYS[1], 5), ("now", None, 1)], name="b.jsonl")
    before = versions(shop, names)
    for name in names:
        build(shop, shop.table(name), stale_days(shop, shop.table(name)), run_id="late")
    assert sums(shop)[1] == 6
    found = written_since(shop, before, {"late"})
    assert (found.days, found.newest_arrival) == (4, DAYS[9])
    assert found.bytes == sum(
        file.size for name in names[1:] for day in (DAYS[1], DAYS[9]) for file in shop.snapshot(name).by_day("day")[day]
    )
    assert [(each.look_back, each.days, each.missed_days) for each in found.beside] == [(7, 16, 2), (8, 18, 0)]
