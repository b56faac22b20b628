"""What the automation asks for, from logs and landed files: everything that is due, once, and nothing else."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import pandera.pyspark as pa
import pytest
from dagster import DagsterInstance, DagsterRun, SensorResult, build_sensor_context
from pyspark.sql import types as T

from lakehouse.build.plan import make_plan
from lakehouse.build.stale import stale_days
from lakehouse.catalog import tables
from lakehouse.contracts import Input, Landing, Table
from lakehouse.contracts.graph import all_downstream
from lakehouse.definitions import defs
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.orchestration import automation
from lakehouse.orchestration.automation import Cursor, Decision, decide
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.orchestration.instance import checks_of
from lakehouse.orchestration.metadata import asset_key
from lakehouse.orchestration.pieces import Piece
from lakehouse.orchestration.run_tags import AUTOMATIC
from lakehouse.privacy.alone import alone
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.records.history import project_history
from lakehouse.runs.executing import asset_graph, create_run
from lakehouse.sample.events import land_events
from lakehouse.settings import Settings
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import age_landed, model, stage_rows, table

DAYS = [date(2026, 3, 1) + timedelta(days=n) for n in range(12)]
LAST = DAYS[9]
BRONZE, SILVER, GOLD = "bronze.raw", "silver.sales", "gold.window"


def columns(*dates: str) -> dict[str, Any]:
    """An id and dates, none of them with a rule."""
    return {"id": (T.StringType(), pa.Field(nullable=True))} | {name: (T.DateType(), pa.Field()) for name in dates}


def catalog(code: str = "v1", **of_landed: Any) -> tuple[Table, Table, Table]:
    """Landed lines by arrival and event day; sales of an event day; a window of two days."""
    landed = Landing("events", "jsonl", ("id",))
    bronze = model(**{n: (t, pa.Field(nullable=True)) for n, (t, _) in columns("arrived", "day").items()})
    return (
        table(BRONZE, bronze, lambda lines: lines, {"lines": landed}, partition_by=("arrived", "day"), **of_landed),
        table(SILVER, model(**columns("day")), lambda raw: raw, {"raw": Input(BRONZE)}, code=code),
        table(GOLD, model(**columns("day")), lambda sales: sales, {"sales": Input(SILVER, days_before=1)}),
    )


class World:
    """A lake whose runs are played: each builds what is stale of its piece, except days that are to fail."""

    def __init__(self, lake: Lake) -> None:
        self.root = lake.settings.root
        self.settings = lake.settings
        self.tables = lake.tables
        self.events: dict[date, set[date]] = {}
        self.failing: set[tuple[str, date]] = set()
        self.cursor: str | None = None
        self.asked: Counter[tuple[str, date, int]] = Counter()
        self.now = 2e9
        self._lines = 0

    def lake(self) -> PinnedLake:
        return PinnedLake(self.settings, self.tables)

    def land(self, arrived: date, *events: date) -> None:
        """A file of that arrival day, with lines of these event days (that very day, unless given)."""
        self._lines += 1
        folder = self.root / "landing" / "events" / arrived.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "part-0000.jsonl").write_text("{}\n" * self._lines)
        self.events[arrived] = set(events or (arrived,))

    def look(
        self, runs: tuple[DagsterRun, ...] = (), limit: int = 99, leave: Mapping[str, set[date]] | None = None
    ) -> Decision:
        """One evaluation; the cursor goes through its text, as after a restart."""
        lake = self.lake()
        made = decide(lake, Cursor.of(self.cursor, 5.0), runs, leave=leave, last=LAST, limit=limit, now=self.now)
        self.cursor = made.cursor.text()
        for piece in made.pieces:
            (first,) = piece.tables[:1]
            marks = make_plan(lake, lake.table(first), piece.days).fingerprints
            self.asked.update((first, day, marks[day]) for day in piece.days)
        return made

    def run(self, piece: Piece) -> None:
        """What a run of the piece does."""
        for name in piece.tables:
            lake = self.lake()
            for day in stale_days(lake, lake.table(name), piece.days):
                if (name, day) not in self.failing:
                    self.publish(name, day)

    def publish(self, name: str, day: date, code: str | None = None) -> None:
        lake = self.lake()
        made = lake.table(name)
        plan = make_plan(lake, made, [day])
        target = Target(lake.path(name), made.schema, made.partition_by)
        rows = (
            [{"arrived": day, "day": event} for event in self.events.get(day, ())] if name == BRONZE else [{"day": day}]
        )
        files = stage_rows(target, [{"id": str(n), **each} for n, each in enumerate(rows)])
        facts = {"lakehouse.code_version": code or made.code_version, "lakehouse.metrics": {str(day): {"rows": 1}}}
        facts |= {"lakehouse.run_id": "r", "lakehouse.inputs": plan.versions}
        commit = Commit({day_transaction(day): plan.fingerprints[day]}, facts)
        replace_days(target, ensure_table(target), files, [day], commit)

    def settle(self, limit: int = 99, most: int = 60) -> list[Piece]:
        """Look and run until nothing is asked for; returns what was run."""
        done: list[Piece] = []
        for _ in range(most):
            made = self.look(limit=limit)
            if not made.pieces:
                return done
            for piece in made.pieces:
                self.run(piece)
                done.append(piece)
        raise AssertionError("it never comes to rest")

    def due(self) -> dict[str, list[date]]:
        """What is not built."""
        lake = self.lake()
        found = {name: [d for d in stale_days(lake, made) if d <= LAST] for name, made in self.tables.items()}
        return {name: days for name, days in found.items() if days}


@pytest.fixture
def world(lake: LakeFactory) -> World:
    return World(lake(*catalog()))


def of_days(*pieces: Piece) -> list[tuple[tuple[str, ...], str, str]]:
    return [(piece.tables, str(piece.first), str(piece.last)) for piece in pieces]


def test_a_landed_day_is_built_and_so_is_what_it_touches(world: World) -> None:
    """Without it, people would start a run for each file, and the window of the next day stay stale."""
    world.land(DAYS[0])
    (first,) = world.look().pieces
    assert of_days(first) == [((BRONZE, SILVER, GOLD), "2026-03-01", "2026-03-01")]
    world.run(first)
    (second,) = world.look().pieces
    assert of_days(second) == [((GOLD,), "2026-03-02", "2026-03-02")]
    world.run(second)
    assert world.look().reason == "Everything is built."
    assert world.look().reason == "Nothing has landed or changed."
    assert world.due() == {}


def test_a_day_that_looks_ahead_is_built_again(lake: LakeFactory) -> None:
    """Without it, what goes on after midnight would be missing from the day it began in until somebody asks."""
    ahead = table(GOLD, model(**columns("day")), lambda sales: sales, {"sales": Input(SILVER, days_after=1)})
    world = World(lake(*catalog()[:2], ahead))
    for day in DAYS[3:5]:
        world.land(day)
        before = day - timedelta(days=1)
        assert of_days(*world.settle()) == [
            ((BRONZE, SILVER, GOLD), str(day), str(day)),
            ((GOLD,), str(before), str(before)),
        ]
    assert world.due() == {}


def test_an_input_that_is_as_it_was_is_no_reason(world: World) -> None:
    """Without it, a run's page would blame a table that nobody has touched."""
    world.land(DAYS[0])
    world.settle()
    lake = world.lake()
    for _ in ("from the table's log", "from its history"):
        assert what_happened(lake, {SILVER: [DAYS[0]]}) == ""
        assert project_history(world.root, lake.snapshot(SILVER), SILVER) in (0, 1)
    world.land(DAYS[1])
    world.run(Piece((BRONZE,), DAYS[1], DAYS[1]))
    assert what_happened(world.lake(), {SILVER: [DAYS[1]]}) == f"{BRONZE} has changed"
    assert what_happened(world.lake(), {SILVER: [DAYS[0]]}) == "", "another day of it was published"
    assert what_happened(world.lake(), {SILVER: [DAYS[5]]}) == "", "it never had a row of that day"


def test_late_events_touch_their_own_days_only(world: World) -> None:
    """Without it, a file with an event of last week would leave last week's sums as they were, or rebuild the week."""
    for day in DAYS[:6]:
        world.land(day)
    world.settle()
    before = {name: world.lake().snapshot(name).version for name in (SILVER, GOLD)}
    world.land(DAYS[6], DAYS[6], DAYS[2])
    looked = world.look()
    assert dict(zip([str(each.first) for each in looked.pieces], looked.why, strict=True)) == {
        str(DAYS[6]): f"files landed for {BRONZE}"
    }
    for piece in looked.pieces:
        world.run(piece)
    touched = world.look()
    assert touched.why[0] == f"late rows in {BRONZE} {DAYS[6]}"
    ran = list(looked.pieces) + list(touched.pieces)
    for piece in touched.pieces:
        world.run(piece)
    ran += world.settle()
    assert {(name, day) for piece in ran for name in piece.tables for day in piece.days if name == SILVER} == {
        (SILVER, DAYS[2]),
        (SILVER, DAYS[6]),
    }
    assert world.lake().snapshot(SILVER).version == before[SILVER] + 2
    assert world.lake().snapshot(GOLD).version == before[GOLD] + 4, "each touched day and the one whose window it is in"
    assert world.due() == {}


def test_days_that_lie_close_are_one_run(world: World) -> None:
    """Without it, late rows of a fortnight make a run, with an engine, for each scrap of it: seventeen after the demo."""
    for day in DAYS[:8]:
        world.land(day)
    world.settle()
    world.land(DAYS[8], DAYS[8], DAYS[1], DAYS[4])
    (arrived,) = world.look().pieces
    world.run(arrived)
    touched = world.look().pieces
    assert of_days(*touched) == [((SILVER, GOLD), "2026-03-02", "2026-03-05")]
    world.run(touched[0])
    world.settle()
    assert world.due() == {}


def test_a_run_spans_no_day_that_failed(world: World) -> None:
    """Without it, a day that fails would be tried again with each late row of the days beside it."""
    for day in DAYS[:6]:
        world.land(day)
    world.failing = {(BRONZE, DAYS[3])}
    world.settle()
    world.land(DAYS[2], DAYS[2])
    world.land(DAYS[4], DAYS[4])
    assert of_days(*world.look().pieces) == [
        ((BRONZE, SILVER, GOLD), "2026-03-03", "2026-03-03"),
        ((BRONZE, SILVER, GOLD), "2026-03-05", "2026-03-05"),
    ]


def test_while_a_run_is_on_nothing_more_is_asked_for(world: World) -> None:
    """Without it, every look until the run has committed would start the same run again."""
    world.land(DAYS[0])
    (piece,) = world.look().pieces
    on = DagsterRun("lakehouse", tags={AUTOMATIC: "true"})
    world.land(DAYS[1])
    assert world.look((on,)).pieces == []
    world.run(piece)
    assert of_days(*world.look().pieces)[0] == ((BRONZE, SILVER, GOLD), "2026-03-02", "2026-03-02")


def test_days_that_somebody_is_building_are_waited_for(world: World) -> None:
    """Without it, a backfill from the command line would be run a second time beside itself."""
    for day in DAYS[:4]:
        world.land(day)
    tags = {"dagster/asset_partition_range_start": str(DAYS[0]), "dagster/asset_partition_range_end": str(DAYS[2])}
    on = DagsterRun("lakehouse", tags=tags, asset_selection=frozenset({asset_key(BRONZE)}))
    (piece,) = world.look((on,)).pieces
    assert of_days(piece) == [((BRONZE, SILVER, GOLD), str(DAYS[3]), str(DAYS[3]))]
    world.run(piece)
    world.settle()
    assert world.due() == {}


def test_days_of_a_backfill_are_left_to_it_even_while_it_is_paused(world: World) -> None:
    """Without it, a paused backfill would be built all the same, by the sensor and with the engine of live runs."""
    world.land(DAYS[0])
    world.land(DAYS[1])
    (piece,) = world.look(leave={BRONZE: {DAYS[0]}}).pieces
    assert of_days(piece) == [((BRONZE, SILVER, GOLD), str(DAYS[1]), str(DAYS[1]))]
    world.run(piece)
    world.settle()
    assert world.due() == {}, "once it is over, what it has not built is due like any other day"


def test_a_day_that_fails_is_left_alone_until_its_input_changes(world: World) -> None:
    """Without it, one broken file would keep the engine busy all night; or its correction would never be built."""
    world.failing.add((BRONZE, DAYS[0]))
    world.land(DAYS[0])
    world.land(DAYS[1])
    assert len(world.settle()) >= 1
    assert world.due() == {BRONZE: [DAYS[0]]}
    assert [world.look().pieces for _ in range(3)] == [[], [], []]
    world.failing.clear()
    assert world.look().pieces == []
    world.land(DAYS[0])
    world.settle()
    assert world.due() == {}
    assert set(world.asked.values()) == {1}


def test_a_long_history_comes_in_pieces_the_oldest_first(world: World) -> None:
    """Without it, years of landed files would become one run that no laptop survives."""
    for day in DAYS[:10]:
        world.land(day)
    first = world.look(limit=3)
    assert of_days(*first.pieces) == [((BRONZE, SILVER, GOLD), str(DAYS[0]), str(DAYS[2]))]
    for piece in first.pieces:
        world.run(piece)
    ran = world.settle(limit=3)
    assert max(len(piece.days) for piece in ran) <= 3
    assert world.due() == {}
    assert set(world.asked.values()) == {1}


def test_a_file_that_is_still_being_written_is_not_read(world: World) -> None:
    """Without it, a slow copy would be taken for a broken file, and somebody be called for it."""
    world.land(DAYS[0])
    (file,) = (world.root / "landing" / "events" / str(DAYS[0])).iterdir()
    world.now = file.stat().st_mtime + 1
    assert world.look().pieces == []
    world.now += 60
    assert len(world.look().pieces) == 1


def test_a_file_of_a_machine_whose_clock_is_ahead_is_read(world: World) -> None:
    """Without it, its day would wait until that time comes; and where a look takes long, a file be read half written."""
    world.land(DAYS[0])
    (file,) = (world.root / "landing" / "events" / str(DAYS[0])).iterdir()
    for ahead, pieces in ((20, 0), (7200, 1)):
        os.utime(file, (world.now + ahead, world.now + ahead))
        assert len(world.look().pieces) == pieces, ahead


def test_a_day_that_is_not_over_waits_for_its_end(world: World) -> None:
    """Without it, Dagster would refuse a run for a day that has no partition yet, and with it the whole look."""
    world.land(DAYS[10])
    assert world.look().pieces == []
    made = decide(world.lake(), Cursor.of(world.cursor, 5.0), [], last=DAYS[10], limit=9, now=world.now)
    assert len(made.pieces) == 1


def test_new_code_makes_no_run_but_does_not_hide_new_data(world: World, lake: LakeFactory) -> None:
    """Without it, saving a file in the editor would rebuild all of history; or a late row be missed because of it."""
    for day in DAYS[:3]:
        world.land(day)
    world.settle()
    world.tables = {each.id: each for each in catalog(code="v2")}
    assert world.due()[SILVER] == DAYS[:3]
    assert world.look().pieces == []
    world.land(DAYS[1])
    (piece,) = world.look().pieces
    assert of_days(piece) == [((BRONZE, SILVER, GOLD), str(DAYS[1]), str(DAYS[1]))]
    world.run(piece)
    world.settle()
    assert world.due()[SILVER] == [DAYS[0], DAYS[2]]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_all_is_built_and_nothing_is_asked_for_twice(world: World, seed: int) -> None:
    """Without it, an order of arrivals, failures and restarts that nobody thought of could lose or double a day."""
    chance = random.Random(seed)
    for _ in range(14):
        match chance.choice(["land", "land", "late", "fail", "fix", "run", "run"]):
            case "land":
                world.land(chance.choice(DAYS))
            case "late":
                world.land(chance.choice(DAYS), *chance.sample(DAYS[:9], 2))
            case "fail":
                world.failing.add((BRONZE, chance.choice(DAYS)))
            case "fix":
                world.failing.clear()
            case "run":
                for piece in world.look(limit=chance.choice([1, 3, 99])).pieces:
                    if chance.random() < 0.8:  # else the process is gone before it did anything
                        world.run(piece)
                    else:
                        world.cursor = Cursor(Cursor.of(world.cursor, 5.0).count).text()
                        world.asked.clear()
    world.failing.clear()
    world.cursor = Cursor(Cursor.of(world.cursor, 5.0).count).text()  # what failed is asked for once more
    world.asked.clear()
    world.settle()
    assert world.due() == {}, f"seed {seed}"
    assert set(world.asked.values()) <= {1}, f"seed {seed}"


def test_run_keys_never_come_again() -> None:
    """Without it, Dagster would pass over a request that looks like one of before, for instance after a restore."""
    assert Cursor.of(None, 100.0).count == 100
    cursor = Cursor(7, "x", {BRONZE: {DAYS[0]: 2**62}})
    assert Cursor.of(cursor.text(), 0.0) == cursor


@pytest.fixture
def evaluated(instance: DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real sensor on the real tables, as the daemon evaluates it."""

    def evaluate(cursor: str | None = None) -> SensorResult:
        age_landed(settings.root)
        made = defs.resolve_sensor_def("landed")(build_sensor_context(instance, cursor=cursor, definitions=defs))
        assert isinstance(made, SensorResult)
        return made

    return evaluate


def test_dagster_gets_requests_it_can_start(evaluated: Any, settings: Settings, instance: DagsterInstance) -> None:
    """Without it, the decision would be right and the run refused, or built for other days and tables."""
    land_events(settings.root, date(2011, 3, 1), 2, rows=5, seed=1)
    (request,) = evaluated().run_requests
    assert request.tags["dagster/asset_partition_range_start"] == "2011-03-01"
    assert request.tags["dagster/asset_partition_range_end"] == "2011-03-02"
    assert request.tags["dagster/retry_on_asset_or_op_failure"] == "false"
    assert (request.tags["days"], request.tags["why"]) == ("2011-03-01…03-02", "files landed for bronze.events")
    named = {".".join(key.path) for key in request.asset_selection}
    assert named == {
        name for name in tables() if name == "bronze.events" or name in all_downstream(tables(), "bronze.events")
    }
    assert set(request.asset_check_keys) == checks_of(asset_graph(), named)
    assert "data_fresh" not in {check.name for check in request.asset_check_keys}
    # A run that is waiting for its turn holds back the next look.
    run = create_run(instance, sorted(named), date(2011, 3, 1), date(2011, 3, 2))
    instance.add_run_tags(run.run_id, {AUTOMATIC: "true"})
    made = evaluated()
    assert not made.run_requests
    assert "not over" in made.skip_reason.skip_message


def test_nothing_begins_while_somebody_is_forgotten(evaluated: Any, settings: Settings) -> None:
    """Without it, what an erasure is about to build was built twice, and the run made it end with an error."""
    land_events(settings.root, date(2011, 3, 1), 2, rows=5, seed=1)
    with alone(settings.root):
        made = evaluated()
    assert not made.run_requests
    assert "`lakehouse forget` is on" in made.skip_reason.skip_message
    assert len(evaluated(made.cursor).run_requests) == 1, "its end is not missed"


def test_it_is_on_from_the_start_and_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Without it, `dagster dev` alone would not be enough; or tests and demos could not keep it quiet."""
    from lakehouse.definitions import whole_lake
    from lakehouse.settings import get_settings

    assert automation.automation_sensor(whole_lake).default_status.value == "RUNNING"
    monkeypatch.setenv("LAKEHOUSE_AUTO_DAYS", "0")
    get_settings.cache_clear()
    assert automation.automation_sensor(whole_lake).default_status.value == "STOPPED"
