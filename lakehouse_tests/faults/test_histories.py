"""Random histories of a table against a dictionary: whatever is done to it, in whatever order, its rows are the model's.

Replaced days, appended batches, compaction, vacuum, checkpoints and log clean-up; commits whose answer is lost, that
meet another writer or fail; runs that crashed after staging; and old batches that come again after all of that.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakehouse.delta import commit as door
from lakehouse.delta.commit import append, ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact, vacuum
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot, fresh_snapshot
from lakehouse.delta.staged import StagedFile
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import read_transactions
from lakehouse.errors import PublishConflictError, StagedFileError
from lakehouse_tests.faults.racers import SCHEMA, target_at
from lakehouse_tests.fixtures.making import rows_of, stage_rows
from lakehouse_tests.fixtures.tally import tally

pytestmark = pytest.mark.crash
DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(4)]
EXAMPLES, STEPS = 25, 25
SAID = "{histories} histories, {steps} steps, {commits} acknowledged commits, {lost} lost, {doubled} doubled"
some_days = st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True).map(sorted)
LOST_ANSWERS = (CommitFailedError("timed out"), DeltaError("checkpoint failed"), OSError("connection reset"))
FAULTS = st.sampled_from(["none", "none", "none", "lost answer", "refused", "another day first", "same day first"])


@dataclass
class Batch:
    """Staged files with what they hold; `base` is the snapshot they were computed on, `clock` the model's time then."""

    days: Sequence[date]
    rows: dict[date, list[str]]
    files: list[StagedFile]
    base: Snapshot
    clock: int
    mark: int
    whole: bool = False
    committed: bool = field(default=False)


class Histories(RuleBasedStateMachine):
    """One table, and what it must hold."""

    counted: ClassVar[Counter[str]] = Counter()

    @initialize()
    def begin(self) -> None:
        """An empty table."""
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "silver" / "raced"
        self.target = target_at(self.path)
        ensure_table(self.target)
        self.model: dict[date, list[str]] = {day: [] for day in DAYS}
        self.marks: dict[str, int] = {}
        # What happened is counted; these say when a day was last published, and when its rows or files changed: a day
        # without rows that is published without rows is, for whoever reads it, the day it was.
        self.clock = 0
        self.published_at = dict.fromkeys(DAYS, 0)
        self.rows_at = dict.fromkeys(DAYS, 0)
        self.files_at = dict.fromkeys(DAYS, 0)
        self.staged: list[Batch] = []
        self.sent: list[tuple[int, list[StagedFile]]] = []
        self.names = 0
        Histories.counted["histories"] += 1

    def teardown(self) -> None:
        """Remove the table."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _stage(self, days: Sequence[date], number: int, *, whole: bool = False) -> Batch:
        self.names += 1
        rows = {day: [f"r{self.names}-{n}" for n in range(number)] for day in days}
        files = stage_rows(self.target, [{"day": d, "id": i, "n": 0} for d, ids in rows.items() for i in ids])
        return Batch(days, rows, files, open_snapshot(self.path), self.clock, self.names, whole)

    def _commit(self, batch: Batch) -> int:
        marks = {f"day/{day}": batch.mark for day in batch.days}
        return replace_days(
            self.target, batch.base, batch.files, batch.days, Commit(marks), read_whole=batch.whole
        )  # fmt: skip

    def _done(self, batch: Batch) -> None:
        self.clock += 1
        for day in batch.days:
            self.published_at[day] = self.clock
            if self.model[day] or batch.rows[day]:
                self.rows_at[day] = self.files_at[day] = self.clock
            self.model[day] = batch.rows[day]
            self.marks[f"day/{day}"] = batch.mark
        batch.committed = True
        Histories.counted["commits"] += 1

    @contextmanager
    def _fault(self, fault: str, error: int, other: Batch | None) -> Any:
        """The next commit of the door meets a fault."""
        real = door.put_entry
        left = [1]

        def faulty(*args: Any, **kwargs: Any) -> int:
            if not left[0]:
                return real(*args, **kwargs)
            left[0] = 0
            if fault == "refused":
                raise OSError(5, "Input/output error")
            if other is not None:
                self._commit(other)
                self._done(other)
            version = real(*args, **kwargs)
            if fault == "lost answer":
                raise LOST_ANSWERS[error]
            return version

        with pytest.MonkeyPatch.context() as patch:
            if fault != "none":
                patch.setattr(door, "put_entry", faulty)
            yield

    def _other(self, fault: str, days: Sequence[date]) -> Batch | None:
        if not fault.endswith("first"):
            return None
        day = next((d for d in DAYS if (d in days) == (fault == "same day first")), None)
        return self._stage([day], 1) if day else None

    def _publish(self, batch: Batch, fault: str = "none", error: int = 0) -> None:
        """Commit staged files; what must happen follows from what happened since they were staged."""
        other = self._other(fault, batch.days)
        gone = not all(file.path.exists() for file in batch.files)
        try:
            with self._fault(fault, error, other):
                self._commit(batch)
        except StagedFileError:
            assert gone
            return
        except OSError:
            assert fault == "refused"
            return
        except PublishConflictError:
            watched = DAYS if batch.whole else batch.days
            touched = max(self.files_at[day] for day in watched) > batch.clock
            assert touched or any(self.published_at[day] > batch.clock for day in batch.days)
            return
        assert not gone
        changed = [self.rows_at[day] for day in (DAYS if batch.whole else batch.days)]
        changed += [self.published_at[day] for day in batch.days]
        assert max(changed) <= batch.clock or batch.committed, "rows of another run were overwritten without a word"
        if not batch.committed:
            self._done(batch)

    @rule(days=some_days, number=st.integers(0, 2), whole=st.booleans(), fault=FAULTS, error=st.integers(0, 2))
    def replace(self, days: Sequence[date], number: int, whole: bool, fault: str, error: int) -> None:
        """A run from the newest version: it must succeed unless another writer came between."""
        batch = self._stage(days, number, whole=whole)
        self._publish(batch, fault, error)
        if fault in ("none", "lost answer"):
            assert batch.committed
        self.staged.append(batch)

    @rule(days=some_days, number=st.integers(0, 2), whole=st.booleans())
    def crash_after_staging(self, days: Sequence[date], number: int, whole: bool) -> None:
        """A run that died before its commit; or a slow one, that may commit later."""
        self.staged.append(self._stage(days, number, whole=whole))

    @precondition(lambda self: self.staged)
    @rule(data=st.data(), fault=FAULTS, error=st.integers(0, 2))
    def commit_late(self, data: st.DataObject, fault: str, error: int) -> None:
        """A slow run commits, or a run comes again, on the version it began with."""
        batch = data.draw(st.sampled_from(self.staged))
        if batch.committed and not all(self.marks.get(f"day/{d}") == batch.mark for d in batch.days):
            fault = "none"
        before = {day: list(ids) for day, ids in self.model.items()}
        committed = batch.committed
        self._publish(batch, fault, error)
        if committed and not fault.endswith("first"):
            assert self.model == before

    @rule(days=some_days, number=st.integers(1, 2), fault=FAULTS, error=st.integers(0, 2))
    def append_batch(self, days: Sequence[date], number: int, fault: str, error: int) -> None:
        """The next batch of a stream; after a refusal it is sent again."""
        batch = self._stage(days, number)
        version = self.marks.get("stream", 0) + 1
        try:
            with self._fault(fault, error, self._other(fault, days)):
                append(self.target, batch.files, Commit({"stream": version}))
        except OSError:
            assert fault == "refused"
            append(self.target, batch.files, Commit({"stream": version}))
        self.clock += 1
        self.marks["stream"] = version
        for day in days:
            self.model[day] = [*self.model[day], *batch.rows[day]]
            self.rows_at[day] = self.files_at[day] = self.clock
        self.sent.append((version, batch.files))
        Histories.counted["commits"] += 1

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        """An old batch comes again: after compaction it must not double, after a replacement not rise again."""
        version, files = data.draw(st.sampled_from(self.sent))
        append(self.target, files, Commit({"stream": version}))

    @rule()
    def compact(self) -> None:
        """Files are merged; a run that began before may have to run again, no row changes."""
        several = Counter(file.partition[0] for file in open_snapshot(self.path).files)
        compact(Compactable(self.path, SCHEMA))
        self.clock += 1
        for text, number in several.items():
            if number > 1 and text is not None:
                self.files_at[date.fromisoformat(text)] = self.clock

    @rule(hours=st.sampled_from([0, 24]), old=st.booleans())
    def vacuum(self, hours: int, old: bool) -> None:
        """Files that no version needs go; of crashed runs, once they are old enough."""
        there = {file.path for batch in self.staged for file in batch.files if file.path.exists()}
        if old:
            then = time.time() - 3 * 86400
            for path in self.path.rglob("*.parquet"):
                os.utime(path, (then, then))
        if hours:
            vacuum(self.path, hours)
            assert old or all(path.exists() for path in there), "a young file of a run was removed"
        else:
            DeltaTable(str(self.path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    @rule()
    def checkpoint(self) -> None:
        """The log is summed up."""
        DeltaTable(str(self.path)).create_checkpoint()

    @rule()
    def clean_the_log(self) -> None:
        """Entries older than the table keeps them go, once a checkpoint has them."""
        log = self.path / "_delta_log"
        then = time.time() - 100 * 86400
        for entry in sorted(log.glob("*.json"))[:-1]:
            os.utime(entry, (then, then))
        DeltaTable(str(self.path)).create_checkpoint()
        DeltaTable(str(self.path)).cleanup_metadata()
        self.clock += 1  # a run that began on an entry that is gone may have to run again
        self.files_at = dict.fromkeys(DAYS, self.clock)

    @invariant()
    def readers_see_the_model(self) -> None:
        """delta-rs and this project's snapshot agree with the model, to the row and to the transaction."""
        if not hasattr(self, "path"):
            return
        Histories.counted["steps"] += 1
        wanted = sorted((day, name) for day, ids in self.model.items() for name in ids)
        found = sorted((row["day"], row["id"]) for row in rows_of(self.path))
        Histories.counted["lost"] += len(set(wanted) - set(found))
        Histories.counted["doubled"] += len(found) - len(set(found))
        assert found == wanted
        snapshot = open_snapshot(self.path)
        own = [
            (date.fromisoformat(str(file.partition[0])), name)
            for file in snapshot.files
            for name in pq.ParquetFile(self.path / file.path).read(["id"])["id"].to_pylist()
        ]
        assert sorted(own) == wanted
        assert snapshot.rows_by_day("day") == {day: len(ids) for day, ids in self.model.items() if ids}
        assert {name: snapshot.transaction(name) for name in self.marks} == self.marks
        # Of its own: delta-rs reads entries when it is asked, and those of an older one may have been cleaned up.
        fresh = fresh_snapshot(self.path).delta
        assert fresh is not None
        one_by_one = {name: fresh.transaction_version(name) for name in self.marks}
        assert (read_transactions(self.path, snapshot.version) or {}).items() >= one_by_one.items()


@pytest.mark.slow
def test_any_history_of_a_table_leaves_the_rows_it_should(seed: int, cases: Callable[[int], int]) -> None:
    """Without it, only the orders of events that somebody thought of would be known to lose and double nothing."""
    Histories.counted.clear()
    settings = hypothesis.settings(
        max_examples=cases(EXAMPLES), stateful_step_count=STEPS, deadline=None, database=None, print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(Histories), settings=settings)
    finally:
        counts = dict.fromkeys(("histories", "steps", "commits", "lost", "doubled"), 0) | Histories.counted
        tally("histories of a table", SAID, **counts)
    assert Histories.counted["commits"] > Histories.counted["histories"]
