"""What Dagster, `lakehouse status`, alerts and `lakehouse ready` say of a day is the same, and it is true."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterRun, DagsterRunStatus, TableMetadataValue

from lakehouse.build.plan import make_plan
from lakehouse.build.ready import READY, readiness
from lakehouse.build.result import BuildResult
from lakehouse.build.verdicts import INPUTS_FRESH, JUDGED_AFTER
from lakehouse.catalog import tables
from lakehouse.checks.audit import check_names
from lakehouse.commands.build.backfill import _unfinished
from lakehouse.commands.operate.alerts import _failing
from lakehouse.contracts import Table
from lakehouse.delta.transactions import day_transaction
from lakehouse.orchestration.alerts.message import RECOVERED
from lakehouse.orchestration.alerts.sensor import look, store_path
from lakehouse.orchestration.alerts.store import opened_store
from lakehouse.orchestration.checks import FAILING
from lakehouse.orchestration.metadata import asset_key
from lakehouse.read.lake import PinnedLake
from lakehouse.report.states import Status, table_states
from lakehouse.runs.executing import Asked, create_run, execute
from lakehouse.settings import Settings
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.orchestration.running import BAD, GOOD, ODD, SAME, TABLE, Foretold, result

pytestmark = pytest.mark.slow

RETAIL, SILVER, ORDERS = "bronze.online_retail", "silver.transactions", "silver.orders"  # the last one is an upsert
LANDED = {TABLE: "events", RETAIL: "online_retail"}
DAYS = [date(2011, 3, 1) + timedelta(days=n) for n in range(5)]
CHECK_OF = {BAD: "row_conservation", ODD: "volume"}
NOT_OF_DAYS = ("build", "inputs_fresh")
Failing = set[tuple[str, str]]
"""Check and day."""


class Shop:
    """A landing zone and tables, played through Dagster; and what must be true of the one that is looked at."""

    def __init__(self, runs: Foretold, settings: Settings, table: str = TABLE) -> None:
        self.runs, self.settings, self.instance, self.table = runs, settings, runs.instance, table
        self.content: dict[date, tuple[int, str]] = {}  # what is landed: its number, and how a build of it ends
        self.stands: dict[date, tuple[int, str]] = {}  # what was judged last
        self.published: dict[date, tuple[int, str]] = {}
        self.at_version: dict[int, dict[date, tuple[int, str]]] = {}
        self.messages: list[dict[str, Any]] = []
        self._number = 0

    @property
    def lake(self) -> PinnedLake:
        return PinnedLake(self.settings, tables())

    def land(self, day: date, fate: str) -> None:
        """A file whose building ends so; of a table that is not landed, the next building of the day does."""
        self._number += 1
        if self.table in LANDED:
            file = self._landed(day)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("{}\n" * self._number)
        self.content[day] = (self._number, fate)

    def _landed(self, day: date) -> Path:
        zone = self.settings.root / "landing" / LANDED[self.table]
        return zone / f"{day}.csv.gz" if self.table == RETAIL else zone / str(day) / "part-0000.jsonl"

    def withdraw(self, day: date) -> None:
        """The file goes away."""
        if self.table in LANDED:
            self._landed(day).unlink(missing_ok=True)
            self.content.pop(day, None)

    def run(self, first: date, last: date, *, force: bool = False) -> DagsterRun:
        """A run over these days; what is not landed comes out empty and well."""
        self.runs._build = self.build
        run = create_run(self.instance, [self.table], first, last, Asked(force=force))
        for _ in execute(self.instance, run):
            pass
        self.ran()
        stored = self.instance.get_run_by_id(run.run_id)
        assert stored is not None
        return stored

    def build(self, table: Table, days: list[date], *, force: bool, **_: Any) -> BuildResult:
        """What the engine would make of some days."""
        lake = self.lake
        base, marks = lake.snapshot(self.table), make_plan(lake, table, days).fingerprints
        fates = {}
        for day in days:
            same = not force and base.transaction(day_transaction(day)) == marks[day]
            number, fate = self.content.get(day, (0, GOOD))
            fates[day] = SAME if same else fate
            if fates[day] not in (SAME, BAD) or (same and self.table in LANDED):
                self.published[day] = (number, fate)
            if not same:
                self.stands[day] = (number, fate)
        return result(table, fates)

    def ran(self) -> None:
        """Remember what a run left."""
        self.at_version[self.lake.snapshot(self.table).version] = dict(self.published)

    def restore(self, version: int) -> None:
        """The rows of an older version come back; what is landed is judged no better by that."""
        lake = self.lake
        restore(lake, plan_restore(lake, tables()[self.table], version), by="somebody")
        self.published = dict(self.at_version[version])
        refused = {day: each for day, each in self.stands.items() if each[1] == BAD}
        self.stands = {**self.published, **refused}
        self.ran()

    def look(self) -> None:
        """The sensor of alerts looks."""
        with opened_store(store_path(self.settings)) as store:
            look(self.instance, store, {}, {}, quiet=1e9, now=time.time() + 60)
            self.messages = store.recent(1000)[::-1]

    def failing(self) -> Failing:
        """What is true, by the rules in the README."""
        found = set()
        for day, (number, fate) in self.stands.items():
            now = self.content.get(day, (0, GOOD))[0] if self.table in LANDED else number
            withdrawn = now != number and (now == 0 or self.published.get(day, (-1, ""))[0] == now)
            if fate in CHECK_OF and not (fate == BAD and withdrawn):
                found.add((CHECK_OF[fate], str(day)))
            if fate == BAD and self.published.get(day, (0, GOOD))[1] == ODD:  # what readers see is as odd as before
                found.add((CHECK_OF[ODD], str(day)))
        return found

    def in_dagster(self) -> Failing:
        """The newest evaluation of each check: red or green, and the days it names."""
        table = tables()[self.table]
        keys = [AssetCheckKey(asset_key(self.table), name) for name in check_names(table)]
        newest = self.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        found = set()
        for key, record in newest.items():
            assert record is not None
            shown = record.evaluation
            assert isinstance(shown, AssetCheckEvaluation), key
            if key.name in JUDGED_AFTER:  # of the whole table; nothing is in quarantine here
                assert shown.passed, key
                continue
            listed = shown.metadata.get("failing")
            days = listed.records if isinstance(listed, TableMetadataValue) else []
            assert (shown.passed, shown.metadata[FAILING].value) == (not days, len(days))
            assert all(str(each.data["day"]) in (shown.description or "") for each in days[:3])
            found |= {(key.name, str(each.data["day"])) for each in days}
        return found

    def waiting_in_dagster(self) -> set[date]:
        """The days that `inputs_fresh` names; none where nothing has judged it yet."""
        key = AssetCheckKey(asset_key(self.table), INPUTS_FRESH)
        record = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
        if record is None:
            return set()
        assert record.evaluation is not None, "a run that broke has left it open"
        listed = record.evaluation.metadata.get("failing")
        days = listed.records if isinstance(listed, TableMetadataValue) else []
        assert record.evaluation.passed == (not days)
        return {date.fromisoformat(str(each.data["day"])) for each in days}

    def in_status(self) -> Status:
        """What `lakehouse status` says."""
        (state,) = table_states(self.settings, [self.table])
        return state

    def in_alerts(self) -> Failing:
        """What `lakehouse alerts list --failing` shows."""
        return {
            (row["check"], row["day"])
            for row in _failing(self.settings)
            if row["check"] != "build" and row["table"] == self.table
        }

    def remembered(self) -> Failing:
        """What the sensor of alerts remembers."""
        with opened_store(store_path(self.settings)) as store:
            return {
                (check, day) for name, check, day in store.problems() if name == self.table and check not in NOT_OF_DAYS
            }

    def in_ready(self) -> Failing:
        """What `lakehouse ready` says of each day."""
        lake, found = self.lake, set()
        for day in DAYS:
            each = readiness(lake, lake.table(self.table), day, datetime.now(UTC))
            found |= {(check, str(day)) for check in each.failing}
            blocked = CHECK_OF[BAD] in each.failing
            assert not (blocked and each.status == READY), day
            assert ("was refused" in each.reason) == blocked
        return found

    def all_agree(self, *, looked: bool) -> None:
        """One truth."""
        true = self.failing()
        assert self.in_ready() == true
        assert self.in_alerts() == true
        told = self.in_status()
        assert {str(day) for day in told.failed_days} >= {day for check, day in true if check == CHECK_OF[BAD]}
        assert set(told.failing_checks) == {check for check, _ in true}
        for check, text in told.failing_checks.items():
            days = sorted(day for name, day in true if name == check)
            assert all(day in text for day in days[:3]), text
        if looked:
            assert self.in_dagster() == true
            assert self.remembered() == true
            waiting = self.waiting_in_dagster()
            assert waiting >= set(told.waiting_days)
            assert waiting - set(told.waiting_days) <= set(told.failed_days), "never published, and missed"


@pytest.fixture
def shop(runs: Foretold, settings: Settings) -> Shop:
    return Shop(runs, settings)


def test_another_day_does_not_turn_a_failing_check_green(shop: Shop) -> None:
    """Without it, the red check of a corrupt day would pass as soon as any other day runs, and its alert be taken back."""
    for day, fate in zip(DAYS[:3], (GOOD, BAD, GOOD), strict=True):
        shop.land(day, fate)
    assert shop.run(DAYS[0], DAYS[2]).is_failure
    assert shop.in_dagster() == shop.failing() == {("row_conservation", str(DAYS[1]))}
    shop.look()
    for asked in (DAYS[0], DAYS[2]):
        assert shop.run(asked, asked).is_success, "nothing is wrong with this day"
        assert shop.in_dagster() == shop.failing()
        shop.all_agree(looked=True)
    shop.land(DAYS[2], GOOD)
    assert shop.run(DAYS[2], DAYS[2]).is_success
    shop.look()
    shop.all_agree(looked=True)
    assert [m["kind"] for m in shop.messages if m["kind"] == RECOVERED] == []
    shop.land(DAYS[1], GOOD)
    assert shop.run(DAYS[1], DAYS[1]).is_success
    assert shop.in_dagster() == set()
    shop.look()
    assert [(m["kind"], m["days"]) for m in shop.messages if m["kind"] == RECOVERED and m["check"] != "build"] == [
        (RECOVERED, [str(DAYS[1])])
    ]


def test_a_refused_day_takes_no_warning_back(shop: Shop) -> None:
    """Without it, a file that is cut short would be told as a recovery of what its day's published rows warn of."""
    shop.land(DAYS[0], ODD)
    shop.run(DAYS[0], DAYS[0])
    shop.look()
    shop.land(DAYS[0], BAD)
    shop.run(DAYS[0], DAYS[0])
    assert shop.failing() == {("volume", str(DAYS[0])), ("row_conservation", str(DAYS[0]))}
    assert shop.in_dagster() == shop.failing()
    shop.look()
    shop.all_agree(looked=True)
    assert [m["kind"] for m in shop.messages if m["kind"] == RECOVERED] == []


def test_a_day_whose_failed_run_was_deleted_is_still_left_over(shop: Shop) -> None:
    """Without it, who tidies the list of runs would take a refused day from `status` and `backfill --failed-only`."""
    shop.land(DAYS[0], BAD)
    shop.land(DAYS[1], GOOD)
    shop.instance.delete_run(shop.run(DAYS[0], DAYS[1]).run_id)
    assert shop.in_status().failed_days == [DAYS[0]]
    assert _unfinished(shop.settings, [TABLE], None, None, look=False) == {TABLE: {DAYS[0]}}
    assert _unfinished(shop.settings, [TABLE], DAYS[1], None, look=True) == {}
    shop.all_agree(looked=False)
    shop.land(DAYS[0], GOOD)
    shop.run(DAYS[0], DAYS[0])
    assert shop.in_status().failed_days == []
    assert _unfinished(shop.settings, [TABLE], None, None, look=False) == {}


def test_a_restore_and_a_withdrawn_file_are_seen_without_a_run(shop: Shop) -> None:
    """Without it, a check would stay red after what it found is gone, or green though its rows came back."""
    shop.land(DAYS[0], ODD)
    shop.run(DAYS[0], DAYS[0])
    odd = shop.lake.snapshot(TABLE).version
    shop.land(DAYS[0], GOOD)
    shop.land(DAYS[1], BAD)
    shop.run(DAYS[0], DAYS[1])
    shop.look()
    assert shop.failing() == {("row_conservation", str(DAYS[1]))}
    shop.restore(odd)
    shop.withdraw(DAYS[1])
    assert shop.failing() == {("volume", str(DAYS[0]))}
    shop.look()
    shop.all_agree(looked=True)


def test_a_restore_to_as_many_failing_days_is_seen_without_a_run(shop: Shop) -> None:
    """Without it, a check would go on naming a day that is well again, and not the one that fails by now."""
    for fates in ((ODD, GOOD), (GOOD, ODD)):
        for day, fate in zip(DAYS[:2], fates, strict=True):
            shop.land(day, fate)
        shop.run(DAYS[0], DAYS[1])
    shop.look()
    assert shop.in_dagster() == {("volume", str(DAYS[1]))}
    shop.restore(min(shop.at_version))
    shop.look()
    assert shop.failing() == {("volume", str(DAYS[0]))}
    shop.all_agree(looked=True)


def test_a_run_that_ended_before_it_judged_leaves_no_check_open(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, with PostgreSQL, the first terminated run ends each look of the sensor: no alert is sent any more."""
    shop.land(DAYS[0], ODD)
    shop.run(DAYS[0], DAYS[0])
    shop.look()
    shop.land(DAYS[0], GOOD)
    with monkeypatch.context() as patch:
        # As in PostgreSQL: what a run is to judge is noted when the run is made.
        patch.setenv("DAGSTER_EMIT_PLANNED_EVENTS_INDIVIDUALLY", "1")
        patch.setattr(shop, "build", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
        assert shop.run(DAYS[0], DAYS[0]).status is DagsterRunStatus.CANCELED
    shop.look()
    shop.all_agree(looked=True)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happened_all_say_the_same(shop: Shop, seed: int, cases: Callable[[int], int]) -> None:
    """Without it, an order of failures, fixes and restores that nobody thought of would show green what is not well."""
    chance = random.Random(seed)
    for _ in range(cases(7)):
        day = chance.choice(DAYS)
        match chance.choice(["land", "land", "run", "run", "force", "withdraw", "restore"]):
            case "land":
                shop.land(day, chance.choice([GOOD, BAD, ODD]))
            case "withdraw":
                shop.withdraw(day)
            case "restore" if shop.at_version:
                shop.restore(chance.choice(sorted(shop.at_version)))
            case "run" | "force" as what:
                last = chance.choice([each for each in DAYS if each >= day])
                shop.run(day, last, force=what == "force")
                assert shop.in_dagster() == shop.failing(), f"seed {seed}"
        if chance.random() < 0.5 and shop.at_version:
            shop.look()
            shop.all_agree(looked=True)
        shop.all_agree(looked=False)


class Mall(dict[str, Shop]):
    """Several tables in one run: two that are landed, one that reads both, and an upsert that reads that."""

    def __init__(self, runs: Foretold, settings: Settings) -> None:
        super().__init__({name: Shop(runs, settings, name) for name in (TABLE, RETAIL, SILVER, ORDERS)})
        self.runs, self.instance = runs, runs.instance

    def run(self, first: date, last: date, *, force: bool) -> None:
        """A run over some days of all tables; what is refused is held back from the tables below."""
        self.runs._build = lambda table, days, **given: self[table.id].build(table, days, **given)
        for _ in execute(self.instance, create_run(self.instance, list(self), first, last, Asked(force=force))):
            pass
        for each in self.values():
            each.ran()


def test_of_several_tables_all_say_the_same(runs: Foretold, settings: Settings, cases: Callable[[int], int]) -> None:
    """Without it, a day held back from a table below, or a check of an upsert, would be told in two ways."""
    chance = random.Random(100)
    mall = Mall(runs, settings)
    for _ in range(cases(4)):
        for name in chance.sample(list(mall), 3):
            day = chance.choice(DAYS)
            if chance.random() < 0.2:
                mall[name].withdraw(day)
            else:
                # These builds leave no rows, and a refusal of a day without input stands for nothing that is wanted.
                # Nobody sees a failure of what the contract does not check: orders have no `volume`.
                fates = {SILVER: [GOOD, ODD], ORDERS: [GOOD]}.get(name, [GOOD, ODD, BAD])
                mall[name].land(day, chance.choice(fates))
        first = chance.choice(DAYS[:3])
        mall.run(first, chance.choice([each for each in DAYS if each > first]), force=chance.random() < 0.4)
        landed = chance.choice(list(LANDED))
        if chance.random() < 0.4 and len(mall[landed].at_version) > 1:
            mall[landed].restore(chance.choice(sorted(mall[landed].at_version)))
        mall[TABLE].look()
        for shop in mall.values():
            shop.all_agree(looked=True)
