"""A build in slices: nothing is visible before all are there, and what was staged outlives the process that staged it.

Without an engine: a slice's rows are staged by Arrow, all else is the code that runs.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from deltalake import DeltaTable
from filelock import FileLock

from lakehouse.build import build as building
from lakehouse.build import slices as slicing
from lakehouse.build.audit import Audited, audit
from lakehouse.build.base import open_base
from lakehouse.build.build import build, carry_through
from lakehouse.build.result import DayResult
from lakehouse.build.slices import FanOut, Slices, Slicing
from lakehouse.build.stage import Staged
from lakehouse.build.work import Work
from lakehouse.checks.metrics import DayMetrics
from lakehouse.delta.maintenance import vacuum
from lakehouse.delta.opening import open_snapshot
from lakehouse.errors import StagedFileError
from lakehouse.read.targets import quarantine_schema
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.crashing import COLUMNS, DAYS, expected, land, tables
from lakehouse_tests.faults.publisher import MONDAY, Door, sales
from lakehouse_tests.faults.readers import judge, look
from lakehouse_tests.fixtures.making import rows_of, stage_rows, target_of

N = 4
OLD = 40 * 24 * 3600.0  # seconds; older than any retention


class SliceError(Exception):
    """Stands for whatever ends an attempt."""


class Sliced(Door):
    """Publishes generations of one day in slices, each of one sound row and one that breaks a rule."""

    def __init__(self, lake: Any, patch: pytest.MonkeyPatch) -> None:
        super().__init__(lake, patch)
        self.staged: list[int] = []
        self.dies_at: int | None = None
        self.told: list[str] = []
        patch.setattr(slicing, "write_routed", self._stage_slice)

    def _stage_slice(self, made: Any, frame: Any, folder: Path, *_: Any) -> None:
        generation, number = frame
        if number == self.dies_at:
            raise SliceError
        self.staged.append(number)
        sound = {"id": f"{generation}-{number}", "day": MONDAY, "n": number}
        bad = {"id": f"{generation}-bad{number}", "day": MONDAY, "n": -1, "_failed_rules": ["n_at_least_minimum"]}
        stage_rows(target_of(self.path, made.schema), [sound], folder=folder)
        stage_rows(target_of(self.path, quarantine_schema(made)), [bad] * self.bad, "quarantined", folder)

    def attempt(self, generation: int, mark: int = 0, identity: str = "same", anew: bool = False) -> DayResult:
        """One run; `identity` names what decides its rows, and where it begins `anew`, it is forced."""
        self.staged = []
        base, plan = open_base(self.lake, self.table), self.plan(mark or generation)
        named = f"{identity}{generation}"
        fan_out = FanOut(Slicing(N, self.told.append), lambda number: (generation, number), named, anew)  # type: ignore[arg-type, return-value]
        audited = carry_through(Work(base, plan, [MONDAY], "run", fan_out=fan_out)).audited
        assert audited.staged.facts["slices"] == N
        assert audited.staged.facts["slices_taken"] == N - len(self.staged)
        return audited.results[MONDAY]

    def die(self, generation: int, at: int) -> None:
        """A run that ends before a slice."""
        self.dies_at = at
        with pytest.raises(SliceError):
            self.attempt(generation)
        self.dies_at = None

    def check(self, *generations: int) -> None:
        """The table is a whole generation, and so is its quarantine."""
        (generation,) = generations
        assert self.seen(self.path) == [f"{generation}-{n}" for n in range(N)]
        assert self.seen(self.side) == [f"{generation}-bad{n}" for n in range(N) if self.bad]

    def notes(self) -> list[Path]:
        """What remembers staged slices."""
        return sorted(self.path.glob("staged/slices-*/*.json"))

    def orphans(self) -> set[str]:
        """Files of the table that no reader sees."""
        live = {file.path for file in open_snapshot(self.path).files}
        found = {path.relative_to(self.path).as_posix() for path in self.path.rglob("*.parquet")}
        return {name for name in found - live if not name.startswith("_delta_log")}


@pytest.fixture
def door(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> Sliced:
    """A door through which generation 1 has gone."""
    made = Sliced(lake(sales()), monkeypatch)
    made.publish(1)
    made.check(1)
    return made


def files_of(notes: Iterable[Path]) -> list[Path]:
    """The staged files that notes tell of."""
    found = []
    for note in notes:
        told = json.loads(note.read_text())
        found += [note.parent.parent / told["folder"] / name for name in told["files"]]
    return found


def test_slices_are_published_together_and_leave_nothing(door: Sliced) -> None:
    """Without it, readers could see a part of the slices, or each build would leave copies behind."""
    assert door.staged == [0, 1, 2, 3]
    assert (door.attempt(2).metrics.rows, door.attempt(3).metrics.quarantined) == (N, N)
    door.check(3)
    assert not door.notes()
    assert {file.path.split("/")[2] for file in open_snapshot(door.path).files} == {"valid"}
    assert not [name for name in door.orphans() if "/quarantined/" in name]
    assert door.told[-1].startswith("silver.sales: slice 4 of 4 staged in ")
    assert door.told[-1].endswith(" s, 2 rows")


def test_an_attempt_goes_on_with_what_was_staged(door: Sliced) -> None:
    """Without it, hours of staged slices would be computed again after a kill, or be taken for another build's."""
    door.die(2, at=3)
    door.check(1)
    before = {path: path.stat().st_mtime_ns for path in files_of(door.notes())}
    assert len(before) == 6
    door.attempt(9, identity="other")
    assert door.staged == [0, 1, 2, 3]
    door.publish(2)
    assert door.staged == [3]
    assert door.told[-4] == "silver.sales: slice 1 of 4 taken from an earlier attempt, 2 rows"
    door.check(2)
    live = {door.path / file.path for file in open_snapshot(door.path).files}
    assert {path for path in before if "/valid/" in str(path)} < live
    assert {path: path.stat().st_mtime_ns for path in before if path in live}.items() <= before.items()
    assert not door.notes()


def test_a_staged_slice_that_is_not_whole_is_staged_again(door: Sliced) -> None:
    """Without it, what a vacuum or a power cut took of a slice would be missing from the table without a word."""
    door.die(2, at=3)
    gone, short, *_ = sorted(p for p in files_of(door.notes()) if "/quarantined/" in str(p))
    gone.unlink()
    os.truncate(short, short.stat().st_size - 1)
    door.publish(2)
    assert len(door.staged) == 3
    door.check(2)

    door.die(3, at=3)
    one, two, three = door.notes()
    one.write_text(one.read_text()[:-5])
    two.unlink()
    three.write_text('{"folder": "../../../..", "files": {}}')
    door.publish(3)
    assert door.staged == [0, 1, 2, 3]
    door.check(3)


def test_a_forced_build_begins_anew(door: Sliced) -> None:
    """Without it, a rebuild after a fix that no fingerprint knows would publish what was staged before the fix."""
    door.die(2, at=3)
    door.dies_at = 2
    with pytest.raises(SliceError):
        door.attempt(2, anew=True)
    assert door.staged == [0, 1]
    door.dies_at = None
    door.publish(2)
    assert door.staged == [2, 3], "not what was staged before the forced attempt"
    door.check(2)


def test_slices_that_are_live_are_not_published_again(door: Sliced) -> None:
    """Without it, a kill between commit and clearing would make the next build remove the files it adds."""
    door.bad = 0  # quarantined rows of published slices are cleared away, and then they are not whole
    door.die(2, at=3)
    kept = [(note, note.read_text()) for note in door.notes()]
    door.publish(2)
    kept[0][0].parent.mkdir()
    for note, text in kept:
        note.write_text(text)
    door.publish(2)
    assert door.staged == [0, 1, 2, 3]
    door.check(2)


def test_a_second_process_keeps_its_slices_to_itself(door: Sliced) -> None:
    """Without it, the one that publishes first would clear away what the other is about to publish."""
    door.die(2, at=3)
    notes = door.notes()
    with FileLock(notes[0].parent / "lock"):
        door.publish(2)
    assert door.staged == [0, 1, 2, 3]
    assert door.notes() == notes
    door.check(2)


def test_a_failed_audit_keeps_nothing_for_later(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a day that fails would be judged by old slices once it is tried again by hand."""
    door = Sliced(lake(sales(max_quarantined=0.0)), monkeypatch)
    assert door.attempt(1).status == "failed"
    assert not door.notes()
    assert door.seen(door.side) == [f"1-bad{n}" for n in range(N)]
    assert door.attempt(1).status == "failed"
    assert door.staged == [0, 1, 2, 3]


def test_a_lost_file_is_refused_at_the_door(door: Sliced, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a file that vanished after its slice was looked at would be named in the log, and no table read."""

    def lose(staged: Staged) -> Audited:
        next(file.path for file in staged.files if file.route == "valid").unlink()
        return audit(staged)

    with monkeypatch.context() as patch:
        patch.setattr(building, "audit", lose)
        with pytest.raises(StagedFileError, match="is gone"):
            door.attempt(2)
    assert door.seen(door.path) == [f"1-{n}" for n in range(N)]
    door.publish(2)
    assert door.staged == [0]
    door.check(2)


def test_the_first_slices_of_a_long_fan_out_stay_young(door: Sliced) -> None:
    """Without it, a vacuum would remove the first slices of a build that takes longer than its retention."""
    door.die(2, at=2)
    aged = time.time() - OLD
    for path in [*files_of(door.notes()), *door.notes()]:
        os.utime(path, (aged, aged))
    door.die(2, at=3)
    assert door.staged == [2]
    assert all(path.stat().st_mtime > time.time() - 60 for path in [*files_of(door.notes()), *door.notes()])
    assert not vacuum(door.path, 24).files


def test_what_a_dead_run_left_is_vacuumed(door: Sliced) -> None:
    """Without it, slices of a backfill that nobody takes up again would fill the disk for ever."""
    door.die(2, at=3)
    aged = time.time() - OLD
    for path in door.path.glob("staged/**/*"):
        os.utime(path, (aged, aged))
    vacuum(door.path, 24)
    assert not door.notes()
    assert not door.orphans()
    assert not list(door.path.glob("staged/slices-*"))
    door.check(1)
    door.publish(2)
    assert door.staged == [0, 1, 2, 3]


def test_undo_and_the_same_slices_again(door: Sliced) -> None:
    """Without it, slices of a build that was undone could be written into files that its version still needs."""
    door.publish(2)
    second = open_snapshot(door.path).version
    DeltaTable(str(door.path)).restore(second - 1)
    door.publish(2)
    door.check(2)
    assert [row["id"] for row in rows_of(door.path, second)] == [f"2-{n}" for n in range(N)]


def test_where_a_file_cannot_have_two_names_it_is_copied(door: Sliced, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, slices would need hard links from wherever they were staged."""
    link = os.link

    def refused(source: Path, target: Path) -> None:
        if Path(target).suffix == ".parquet":  # entries of the log are put in place by links, and by delta-rs too
            raise OSError(errno.EPERM, "no links here")
        link(source, target)

    monkeypatch.setattr(os, "link", refused)
    door.publish(2)
    door.check(2)


@pytest.mark.spark
def test_slices_of_the_engine_are_the_whole(lake: LakeFactory, tmp_path: Path) -> None:
    """Without it, rows, rows in quarantine or figures of a table would depend on how it was cut."""
    figures: list[dict[str, dict[str, Any]]] = []
    for number in (0, 3):
        root = tmp_path / f"root{number}"
        land(root, 1)
        shop = lake(*tables().values(), root=root)
        told: list[str] = []
        found = {}
        for name, each in shop.tables.items():
            result = build(shop, each, DAYS, run_id="run", slicing=Slicing(number, told.append) if number else None)
            assert result.with_status("published") == DAYS
            found[name] = {str(day): _counted(done.metrics) for day, done in result.days.items()}
        figures.append(found)
        assert len([text for text in told if ": slice " in text]) == 2 * number
        seen = look(root)
        assert not {name: wrong for name in COLUMNS if (wrong := judge(seen[name], [expected(1)[name]])).total()}
    assert figures[0] == figures[1]


def _counted(metrics: DayMetrics) -> dict[str, Any]:
    return {k: v for k, v in metrics.as_json().items() if k not in ("files", "bytes")}


@pytest.mark.spark
def test_which_builds_may_share_slices(lake: LakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, slices staged from other files, for other days or in another number could be put together."""
    names: list[str | None] = []

    def seen(self: Slices, *_: Any) -> NoReturn:
        names.append(self._fan_out.identity)
        raise SliceError

    def identity(days: Any = DAYS, number: int = 3) -> str | None:
        with pytest.raises(SliceError):
            build(shop, shop.table("silver.readings"), days, run_id="run", slicing=Slicing(number))
        return names.pop()

    shop = lake(*tables().values(), root=tmp_path / "root")
    land(shop.settings.root, 1)
    build(shop, shop.table("bronze.readings"), DAYS, run_id="run")
    monkeypatch.setattr(Slices, "stage", seen)
    first = identity()
    assert first == identity(DAYS[::-1])
    found = {first, identity(DAYS[:2]), identity(number=4)}
    shop.table("silver.readings").__dict__["code_version"] = "v2"
    found.add(identity())
    shop.table("bronze.readings").__dict__["code_version"] = "v2"
    found.add(identity())
    land(shop.settings.root, 2)
    build(shop, shop.table("bronze.readings"), DAYS[:1], run_id="run")
    found.add(identity())
    # The same rows in another file: where a person was forgotten, the fingerprint need not tell, but the file does.
    day = DAYS[0]
    mark = open_snapshot(shop.path("bronze.readings")).transaction(f"day/{day}")
    monkeypatch.setattr("lakehouse.build.plan.Snapshot.transaction", lambda *_: mark)
    same = identity()
    build(shop, shop.table("bronze.readings"), DAYS[:1], run_id="run", force=True)
    assert identity() != same
    assert len(found) == 6
