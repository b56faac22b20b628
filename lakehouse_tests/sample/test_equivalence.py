"""However it was built, it is the same: in one range, day by day, shuffled, with re-runs, crashes and late files.

Compared are content hashes of silver, gold and the quarantines, on real files where they are present.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse.build import publish, stage
from lakehouse.build.build import build
from lakehouse.build.slices import Slicing
from lakehouse.build.stale import stale_days
from lakehouse.catalog import tables
from lakehouse.delta.failpoints import POINTS
from lakehouse.read.lake import Lake, table_path
from lakehouse.records.history import latest_records
from lakehouse.sample.events import land_events
from lakehouse.sample.faults import Faults
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.settings import get_settings
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.landed import land_online_retail
from lakehouse_tests.fixtures.making import land_twins, rows_of
from lakehouse_tests.sample.test_end_to_end import REAL

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FIRST = date(2011, 1, 10)
DAYS = [FIRST + timedelta(days=n) for n in range(4)]
EARLIEST = FIRST - timedelta(days=9)  # of late events: before the windows of the first day; each day more is built
SEED = int(os.environ.get("LAKEHOUSE_TEST_SEED", "1"))


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of both shops; a tenth of the web events come late or broken."""
    root = tmp_path_factory.mktemp("landed")
    if REAL.is_dir():
        land_online_retail(REAL, root, DAYS[0], DAYS[-1])
    else:
        land_sample_online_retail(root, FIRST, len(DAYS), rows=300, seed=2)
    faults = Faults.all(0.02)
    land_events(root, FIRST, len(DAYS), rows=150, seed=5, faults=faults, files_per_day=2, earliest=EARLIEST)
    land_twins(root, DAYS[1])
    return root


class Shop:
    """A lake with some of what has landed."""

    early: Sequence[date] = ()  # days before the first, of late events or of windows that have such

    def __init__(self, make: LakeFactory, root: Path, landed: Path, days: Iterable[date] = ()) -> None:
        self.lake: Lake = make(*tables().values(), root=root)
        self.landed = landed
        for day in days:
            self.land(day)

    def land(self, day: date, names: tuple[str, ...] = ("online_retail", "events")) -> None:
        """What has arrived on a day."""
        for name in names:
            for path in (self.landed / "landing" / name).glob(f"{day}*"):
                target = self.lake.settings.root / "landing" / name / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)

    def build(self, days: Iterable[date], **kwargs: Any) -> None:
        """Every table over some days."""
        for table in self.lake.tables.values():
            result = build(self.lake, table, days, run_id="run", **kwargs)
            assert not result.with_status("failed"), result.days

    def settle(self) -> dict[str, list[date]]:
        """What `backfill --stale` does; returns the days that were built."""
        built = {}
        for name, table in self.lake.tables.items():
            if days := [day for day in stale_days(self.lake, table) if day <= DAYS[-1]]:
                build(self.lake, table, days, run_id="touched")
                built[name] = days
        return built

    def hashes(self) -> dict[str, str]:
        """Content of every table behind bronze, and of the quarantines, without what says which run it was."""
        found = {}
        for table in self.lake.tables.values():
            names = [table.id] if table.layer != "bronze" else []
            for name in [*names, *([table.quarantine_id] if table.rules else [])]:
                rows = rows_of(table_path(self.lake.settings.root, name))
                rows = [row for row in rows if row[table.day_column] <= DAYS[-1]]
                texts = sorted(repr(sorted((k, v) for k, v in row.items() if k not in _OF_A_RUN)) for row in rows)
                found[name] = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] + f" ({len(rows)} rows)"
        return found

    def files(self) -> dict[tuple[str, date], frozenset[str]]:
        """Live files by table and day."""
        return {
            (name, day): frozenset(f.path for f in files)
            for name, table in self.lake.tables.items()
            for day, files in self.lake.snapshot(name).by_day(table.day_column).items()
        }


_OF_A_RUN = {"_ingested_run", "_code_version"}


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """Tokens depend on the key alone, which is the same for every root."""
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture(scope="module")
def ranged(landed: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Shop:
    """Everything landed, then built in one range."""
    from lakehouse_tests.conftest import engine_settings

    def make(*made: Any, root: Path) -> Lake:
        return Lake(engine_settings(root), {t.id: t for t in made}, lambda: request.getfixturevalue("spark"))

    shop = Shop(make, tmp_path_factory.mktemp("range"), landed, DAYS)
    shop.build(DAYS)
    early = shop.settle()  # late events of days before the range, and nothing else
    assert all(day < FIRST for name, days in early.items() if "transactions" in name for day in days)
    shop.early = sorted({day for days in early.values() for day in days if day < FIRST})
    assert shop.early
    assert shop.settle() == {}
    return shop


@pytest.fixture(scope="module")
def wanted(ranged: Shop) -> dict[str, str]:
    """What every way of building has to give."""
    found = ranged.hashes()
    assert not any(text.endswith("(0 rows)") for name, text in found.items() if "quarantine" not in name)
    return found


def test_day_by_day_as_files_arrive(lake: LakeFactory, tmp_path: Path, landed: Path, wanted: dict[str, str]) -> None:
    """Without it, a lake that has run for a year would differ from one that was backfilled today."""
    shop = Shop(lake, tmp_path / "daily", landed)
    for day in DAYS:
        shop.land(day)
        if day < DAYS[-1]:  # the last one is built as what is stale, together with the days before
            shop.build([day])
        if day in DAYS[1::2]:  # so that days are built on a lake that is settled, and on one that is not
            shop.settle()  # late events of these days' files belong to days before
    assert shop.hashes() == wanted


def test_shuffled_with_random_reruns(lake: LakeFactory, tmp_path: Path, landed: Path, wanted: dict[str, str]) -> None:
    """Without it, a backfill from the end, or one that is forced twice, would leave other numbers."""
    chance = random.Random(SEED)
    shop = Shop(lake, tmp_path / "shuffled", landed, DAYS)
    left = DAYS[:]
    chance.shuffle(left)
    while left:
        several = [left.pop() for _ in range(min(len(left), chance.randint(1, 3)))]
        shop.build(several)
        if chance.random() < 0.3:
            shop.build(chance.sample(DAYS, 2), force=True)
    shop.settle()
    assert shop.settle() == {}
    assert shop.hashes() == wanted, f"seed {SEED}"


def test_in_slices(lake: LakeFactory, tmp_path: Path, landed: Path, ranged: Shop, wanted: dict[str, str]) -> None:
    """Without it, a table could declare slices that together are not the table, or that count its rows otherwise."""
    told: list[str] = []
    shop = Shop(lake, tmp_path / "slices", landed, DAYS)
    shop.build([*ranged.early, *DAYS], slicing=Slicing(3, told.append))
    sliced = {name for name, table in shop.lake.tables.items() if table.layout.slice_by}
    assert {text.split(":")[0] for text in told if ": slice " in text} == sliced
    assert {text.split(":")[0] for text in told if ": built whole" in text} == set(shop.lake.tables) - sliced
    assert shop.settle() == {}
    assert shop.hashes() == wanted
    for name in sliced:
        ours, theirs = (latest_records(each.lake.settings.root, name, DAYS) for each in (shop, ranged))
        assert ours.keys() == theirs.keys()
        for day, record in ours.items():
            assert _counted(record.figures) == _counted(theirs[day].figures), (name, day)


def _counted(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a day without those of its files; means are rounded, for slices add them up in another order."""
    whole = {k: v for k, v in figures.items() if k not in ("files", "bytes", "seconds", "profile")}
    means = {c: {k: _rounded(v) for k, v in each.items()} for c, each in figures.get("profile", {}).items()}
    return whole | {"profile": means}


def _rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


class CrashError(Exception):
    """Stands for the end of the process at a point; that a killed process is no different, the crash tests show."""


def test_after_crashes_everywhere(
    lake: LakeFactory,
    tmp_path: Path,
    landed: Path,
    ranged: Shop,
    wanted: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it, a run that died between two commits would leave a lake that no re-run fixes."""
    chance = random.Random(SEED)
    shop = Shop(lake, tmp_path / "crashed", landed, DAYS)
    died: dict[str, str] = {}

    def failpoint(table: str, name: str) -> None:
        if table not in died and chance.random() < 0.4:
            died[table] = name
            raise CrashError(f"{table} {name}")

    for step in (stage, publish):
        monkeypatch.setattr(step, "failpoint", failpoint)
    for days in (DAYS[:3], DAYS[2:]):
        built = False
        while not built:  # each table dies once, so that all of them do, and not the first ones again and again
            with suppress(CrashError):
                shop.build(days)
                built = True
    monkeypatch.undo()
    shop.build([*ranged.early, *DAYS])
    assert shop.settle() == {}
    assert shop.hashes() == wanted, f"seed {SEED}, died at {died}"
    assert {shop.lake.table(name).layer for name in died} == {"bronze", "silver", "gold"}
    assert set(died.values()) <= set(POINTS)


def test_late_files_rebuild_exactly_the_days_they_touch(
    lake: LakeFactory, tmp_path: Path, landed: Path, ranged: Shop, wanted: dict[str, str]
) -> None:
    """Without it, late data would be missed beyond a look-back, or every late row would cost a month."""
    chance = random.Random(SEED)
    shop = Shop(lake, tmp_path / "late", landed)
    late = set(chance.sample(DAYS[1:-1], 2))
    for day in DAYS:
        shop.land(day, ("online_retail",) if day in late else ("online_retail", "events"))
    shop.build([*ranged.early, *DAYS])
    assert shop.settle() == {}
    for day in sorted(late, key=lambda _: chance.random()):
        before = shop.files()
        shop.land(day, ("events",))
        built = shop.settle()
        # From the landed text alone: which event days did this file touch?
        touched = _event_days(landed / "landing" / "events" / str(day), day)
        # And days beside those, where they have rows that arrived no earlier: its rows may come before these.
        beside = {each + timedelta(days=n) for each in touched for n in (-1, 1)}
        touched |= {each for each in beside if each <= DAYS[-1] and _last_arrival(shop, each) >= day}
        assert set(built["bronze.events"]) == {day}
        assert set(built["silver.transactions"]) == touched
        assert set(built["gold.daily_revenue"]) == touched
        windows = {each + timedelta(days=n) for each in touched for n in range(7)}
        assert set(built["gold.user_features"]) == {each for each in windows if each <= DAYS[-1]}
        spans = {each + timedelta(days=n) for each in touched for n in range(8)}
        assert set(built["gold.user_fraud_features"]) == {each for each in spans if each <= DAYS[-1]}
        around = {each + timedelta(days=n) for each in touched for n in (-1, 0, 1)}
        assert set(built["silver.sessions"]) == {each for each in around if each <= DAYS[-1]}
        for (name, each), files in shop.files().items():
            if name != "silver.orders" and each not in built.get(name, ()) and (name, each) in before:
                assert files == before[name, each], f"{name} {each} was rewritten"
        assert shop.settle() == {}
    assert shop.hashes() == wanted, f"seed {SEED}, late {sorted(map(str, late))}"


def _last_arrival(shop: Shop, day: date) -> date:
    """The last arrival among all rows of an event day."""
    names = ("bronze.online_retail", "bronze.events")
    files = [file for name in names for file in shop.lake.snapshot(name).by_day("_event_date").get(day, ())]
    return max((date.fromisoformat(file.partition[0] or "") for file in files), default=date.min)


def _event_days(folder: Path, arrival: date) -> set[date]:
    """Days of the events in the files of a folder; the arrival day where an event has no plausible one."""
    found: set[date] = set()
    for path in folder.iterdir():
        for line in gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError):  # a line that is no JSON is in no day
                pairs = json.loads(line, object_pairs_hook=tuple)
                if not isinstance(pairs, tuple) or len({name for name, _ in pairs}) < len(pairs):
                    continue  # not an object, or one that names a field twice: in quarantine
                text = str(dict(pairs).get("event_time"))
                try:
                    day = date.fromisoformat(text[:10]) if "T" in text else arrival
                except ValueError:
                    day = arrival
                plausible = arrival - timedelta(days=400) <= day <= arrival + timedelta(days=1)
                found.add(day if plausible else arrival)
    return found
