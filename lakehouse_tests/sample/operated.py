"""What people do to a lake, at random, and what must be true of it whatever they did. See `test_operated`."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from lakehouse.build import publish, slices, stage
from lakehouse.build.build import build
from lakehouse.build.intake import take
from lakehouse.build.late import accept, late_rows
from lakehouse.build.slices import Slicing
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Table
from lakehouse.delta.log import versions
from lakehouse.errors import HistoryGoneError, PublishConflictError, UndoRefusedError
from lakehouse.lineage.reconcile import reconcile
from lakehouse.privacy.forget import Built, Runs, forget, subject
from lakehouse.quarantine.replay import discard, plan_replay, run_replay
from lakehouse.read.lake import Lake
from lakehouse.records.depth import depth_now
from lakehouse.records.history import latest_records
from lakehouse.records.ledger import Wanted
from lakehouse.records.quarantined import quarantined_rows
from lakehouse.runs.stream import Pace, turns
from lakehouse.versions.candidate import build_candidate, drop_candidate, swap
from lakehouse.versions.restore import plan_restore, restore
from lakehouse.versions.upkeep import Limits, tidy
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.sample.test_equivalence import CrashError

FIRST = date(2011, 1, 10)
DAYS = [FIRST + timedelta(days=n) for n in range(4)]
OF_A_RUN = {"_ingested_run", "_code_version", "closed_at_watermark", "corrections"}


class Operated(ABC):
    """A lake, and what may be done to it."""

    names: ClassVar[tuple[str, ...]]
    days: Sequence[date]
    steps: Sequence[Callable[[], object]]

    def __init__(self, lake: Lake, chance: random.Random) -> None:
        self.lake, self.chance = lake, chance
        self.tables = lake.tables
        self.away: list[tuple[Path, Path]] = []
        self.said: list[str] = []
        self.forgotten: list[str] = []
        self.writing: list[Callable[[], object]] = [self.build, self.settle]

    @property
    def root(self) -> Path:
        """Of the lake."""
        return self.lake.settings.root

    def table(self) -> Table:
        """Any of those that are played with."""
        return self.lake.table(self.chance.choice(self.names))

    def some_days(self) -> list[date]:
        """One to three."""
        return sorted(self.chance.sample(self.days, self.chance.randint(1, 3)))

    # What people do.

    def build(self) -> None:
        """Days of a table, forced or in slices perhaps."""
        chance, days = self.chance, self.some_days()
        slicing = Slicing(2, lambda _: None) if chance.random() < 0.3 else None
        build(self.lake, self.table(), days, run_id="run", force=chance.random() < 0.3, slicing=slicing)

    def settle(self) -> dict[str, list[date]]:
        """What `backfill --stale` does; returns the days that were built."""
        built = {}
        for name, table in self.lake.tables.items():
            if days := [day for day in stale_days(self.lake, table) if day <= self.days[-1]]:
                result = build(self.lake, table, days, run_id="touched")
                assert not result.with_status("failed"), (result.days, self.tell())
                built[name] = days
        return built

    def crash(self) -> None:
        """A process that ends at one of the points where a build writes."""
        left = [self.chance.randint(0, 4)]

        def failpoint(table: str, name: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise CrashError(f"{table} {name}")

        with pytest.MonkeyPatch.context() as patch:
            for step in (stage, slices, publish, take):
                patch.setattr(step, "failpoint", failpoint)
            try:
                self.chance.choice(self.writing)()
            except CrashError as error:
                self.said[-1] += f" {error}"

    def restore(self) -> None:
        """A table, or some of its days, as it was at a version."""
        table = self.table()
        known = [each.entry.version for each in versions(self.lake.path(table.id))] if self.exists(table) else []
        if not known:
            return
        version = self.chance.choice(known)
        days = self.some_days() if self.chance.random() < 0.5 else None
        self.said[-1] += f" {table.id} to {version} of {max(known)} {days or ''}"
        try:
            restore(self.lake, plan_restore(self.lake, table, version, days), by="ann")
        except (UndoRefusedError, HistoryGoneError) as error:
            self.said[-1] += f": {error}"

    def exists(self, table: Table) -> bool:
        """Whether it was built."""
        return self.lake.snapshot(table.id).exists

    def beside(self) -> None:
        """A candidate, put in place or dropped."""
        table = self.table()
        days = sorted({*self.lake.snapshot(table.id).by_day(table.day_column), *self.some_days()})
        self.said[-1] += f" {table.id}"
        try:
            build_candidate(self.lake, table, days if table.upsert else self.some_days(), run_id="candidate")
            if self.chance.random() < 0.7:
                swap(self.lake, table, by="ann", force=self.chance.random() < 0.5)
        except UndoRefusedError as error:
            self.said[-1] += f": {error}"
        if self.chance.random() < 0.7:
            drop_candidate(self.lake, table)

    def tidied(self) -> None:
        """As every night, with files that are young or old."""
        if self.chance.random() < 0.5:  # what nobody refers to is old enough to go
            then = time.time() - 3 * 86_400
            for path in self.root.rglob("*.parquet"):
                os.utime(path, (then, then))
        done = list(tidy(self.root, list(self.lake.tables.values()), Limits(600.0, 1 << 40), undo_days=1))
        assert not [each.problem for each in done if each.problem]

    def discard(self) -> None:
        """Rows of a quarantine are taken out of the counts, or count again."""
        table = self.lake.table(self.chance.choice(["silver.transactions", self.names[0]]))
        wanted = Wanted(day=self.chance.choice([None, *self.days]))
        discard(self.root, table, wanted, who="ann", at=datetime.now(UTC), reason="", undo=self.chance.random() < 0.4)

    def replay(self) -> None:
        """Rows of a quarantine are judged again."""
        table = self.lake.table(self.chance.choice(["silver.transactions", self.names[0]]))
        plan = plan_replay(self.lake, table, Wanted(), force=self.chance.random() < 0.5)

        def execute(days: object) -> list[str]:
            if plan.build:
                build(self.lake, table, list(plan.build), run_id="replay", force=True)
            return ["replay"]

        run_replay(self.lake, plan, execute, who="ann", now=lambda: datetime.now(UTC))

    def accept(self) -> None:
        """Rows that came too late are taken in."""
        for name in self.names:
            table = self.lake.table(name)
            if table.rules and (late := late_rows(self.lake, table)):
                accept(self.lake, table, {day: arrival for day, (_, arrival) in late.items()}, {"lakehouse.by": "ann"})

    def move_away(self) -> None:
        """A table is moved away to be built anew, with its quarantine or alone; or the history of all is lost."""
        table = self.table()
        names = self.chance.choice([[table.id, table.quarantine_id], [table.id], ["ops.partition_metrics"]])
        for name in names:
            folder = self.lake.path(name)
            if folder.exists():
                old = folder.with_name(f"{folder.name}.{len(self.said)}")
                folder.rename(self.root.parent / old.name)
                self.away.append((self.root.parent / old.name, folder))
                self.said[-1] += f" {name}"

    def bring_back(self) -> None:
        """Tables that were moved away come back."""
        if not self.away:
            return
        while self.away:
            old, folder = self.away.pop()
            if folder.name == "partition_metrics":
                continue
            if folder.exists():
                folder.rename(self.root.parent / f"{folder.name}.replaced.{self.chance.random()}")
            old.rename(folder)
            self.said[-1] += f" {folder.name}"

    def at_once(self) -> None:
        """Two processes are at work on the same tables: each does what it should, or says that the other was first."""
        chance = self.chance
        work = [
            [(self.table(), self.some_days(), chance.random() < 0.3) for _ in range(2)],
            [(self.table(), self.some_days(), chance.random() < 0.3) for _ in range(2)],
        ]

        def one(all_of: Sequence[tuple[Table, list[date], bool]]) -> None:
            for table, days, force in all_of:
                with suppress(PublishConflictError):
                    build(self.lake, table, days, run_id="run", force=force)

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(one, each) for each in work]:
                done.result()

    def forget(self) -> None:
        """A person is taken out of everything."""
        events = self.lake.snapshot(self.names[0])
        users = {row["user_id"] for row in rows_of(self.lake.path(self.names[0]))} if events.exists else set()
        users = {each for each in users if each and each.startswith("u")}
        if users:
            self.away.clear()  # what lies elsewhere would bring the person back
            self.forgotten.append(self.chance.choice(sorted(users)))
            self.said[-1] += f" {self.forgotten[-1]}"
            self.forget_user(self.forgotten[-1])

    def new_code(self) -> None:
        """A table's code changes, or changes back."""
        table = self.table()
        other = {"code_version": "other"} if table.code_version != "other" else {}
        self.lake.tables = {**self.lake.tables, table.id: replace(self.tables[table.id])}
        self.lake.table(table.id).__dict__.update(other)
        self.said[-1] += f" {table.id} {other}"

    # What must be true whatever they did.

    def check(self) -> None:
        """What is told of the tables is what they hold."""
        for name in self.names:
            table = self.lake.table(name)
            rows = self.lake.snapshot(name).rows_by_day(table.day_column)
            told = {day: each.rows for day, each in latest_records(self.root, name).items()}
            assert {d: n for d, n in told.items() if n} == {d: n for d, n in rows.items() if n}, self.tell()
            if table.rules:
                side = self.lake.snapshot(table.quarantine_id).rows_by_day(table.day_column)
                found = Counter(each.day for each in quarantined_rows(self.root, table))
                assert found == Counter({day: n for day, n in side.items() if n}), self.tell()
                depth = depth_now(self.root, table, datetime.now(UTC))
                assert depth.rows + depth.discarded == found.total(), self.tell()

    def settled(self) -> Mapping[str, Counter[str]]:
        """Content, once nothing is stale any more."""
        self.settle()
        assert self.settle() == {}, self.tell()
        self.check()
        for link in reconcile(self.lake, [self.lake.table(name) for name in self.names], last=self.days[-1]):
            assert not link.differing, (link, self.tell())
        return self.content()

    @abstractmethod
    def fresh(self, lake: Lake) -> Operated:
        """A lake of the same input, built at once."""

    def tell(self) -> str:
        """What was done so far."""
        return "\n".join(self.said)

    def usual(self) -> list[Callable[[], object]]:
        """What is done to any lake."""
        return [
            self.build, self.build, self.settle, self.crash, self.restore, self.restore, self.beside, self.tidied,
            self.discard, self.replay, self.accept, self.move_away, self.bring_back, self.new_code, self.at_once,
            self.at_once, self.forget,
        ]  # fmt: skip

    def compare(self, lake: Lake) -> list[str]:
        """The rows that differ from those of a lake that is built at once."""
        self.said.append("compare")
        self.lake.tables = self.tables
        self.accept()
        fresh = self.fresh(lake)
        now = self.settled()
        for user in self.forgotten:
            fresh.forget_user(user)
        fresh.accept()
        wanted = fresh.settled()
        too_many = [f"{name}: too many: {row}" for name in now for row in (now[name] - wanted[name]).elements()]
        missing = [f"{name}: missing: {row}" for name in now for row in (wanted[name] - now[name]).elements()]
        return too_many + missing

    def forget_user(self, user: str) -> None:
        """As `lakehouse forget` does."""
        contracts, settings = self.lake.tables, self.lake.settings

        def again(days: Mapping[str, Collection[date]]) -> Built:
            published = set()
            for name, table in contracts.items():
                wanted = stale_days(self.lake, table, days.get(name, ()))
                if wanted:
                    result = build(self.lake, table, wanted, run_id="forget")
                    assert not result.with_status("failed"), result.days
                    published |= {(name, day) for day in wanted}
            return Built(frozenset(published), frozenset())

        found = forget(settings, contracts, subject(settings, contracts, user, []), Runs(again, lambda: None))
        assert not found.hits, found.hits

    def content(self) -> Mapping[str, Counter[str]]:
        """The rows of each table and quarantine, without what says which run wrote them."""
        found: dict[str, Counter[str]] = {}
        for name in self.names:
            table = self.lake.table(name)
            for each in (name, table.quarantine_id) if table.rules else (name,):
                rows = rows_of(self.lake.path(each)) if self.lake.snapshot(each).exists else []
                found[each] = Counter(
                    repr(sorted((k, v) for k, v in row.items() if k not in OF_A_RUN))
                    for row in rows
                    if row[table.day_column] <= self.days[-1]
                )
        return found


class OfFiles(Operated):
    """Fed by files of some days."""

    names = ("bronze.events", "silver.transactions", "silver.orders", "gold.daily_revenue", "gold.user_features")

    def __init__(self, lake: Lake, chance: random.Random, parts: Path) -> None:
        super().__init__(lake, chance)
        self.parts, self.days = parts, DAYS
        self.steps = [self.land, self.land, *self.usual()]

    def land(self) -> None:
        """A file comes, late perhaps, or another form of one that is there."""
        form = self.chance.choice(["first", "first", "corrected"])
        file = self.chance.choice(sorted((self.parts / form / "landing").rglob("*.gz")))
        target = self.root / file.relative_to(self.parts / form)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)

    def fresh(self, lake: Lake) -> Operated:
        """A lake of the same files, built at once."""
        other = OfFiles(lake, self.chance, self.parts)
        shutil.copytree(self.root / "landing", other.root / "landing")
        other.settle()
        return other


class OfTopic(Operated):
    """Fed by messages."""

    names = (
        "bronze.event_stream", "silver.transactions", "silver.orders", "gold.daily_revenue", "gold.event_windows",
        "gold.user_features",
    )  # fmt: skip

    def __init__(self, lake: Lake, chance: random.Random, kafka: Kafka, topic: str, lines: Sequence[bytes]) -> None:
        super().__init__(lake, chance)
        self.kafka, self.topic, self.lines = kafka, topic, lines
        self.days = [datetime.now(UTC).date() - timedelta(days=n) for n in (4, 3, 2, 1, 0)]
        self.steps = [self.send, self.send, self.stream, self.stream, *self.usual()]
        self.writing.append(self.stream)

    def send(self) -> None:
        """Producers send some messages, perhaps again."""
        for line in self.chance.sample(self.lines, self.chance.randint(1, 30)):
            self.kafka.send(self.topic, [line], zlib.crc32(line[:40]) % 2)

    def stream(self) -> None:
        """Turns until all is taken, or one batch."""
        source = self.lake.table(self.names[0])
        if self.chance.random() < 0.5:
            build(self.lake, source, [], run_id="run", one_batch=True)
            return
        list(turns(self.lake, [source], "run", threading.Event(), pace=Pace(0, 0), until_caught_up=True))

    def fresh(self, lake: Lake) -> Operated:
        """A lake of the same messages, built at once."""
        other = OfTopic(lake, self.chance, self.kafka, self.topic, self.lines)
        for each in (self, other):
            source = each.lake.table(self.names[0])
            list(turns(each.lake, [source], "run", threading.Event(), pace=Pace(0, 0), until_caught_up=True))
        other.settle()
        return other
