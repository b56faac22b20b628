"""Processes that write to one table at the same moment: each does what it is told once all have reached the barrier."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import types as T

from lakehouse.delta.commit import append, ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.errors import LakehouseError
from lakehouse_tests.fixtures.making import stage_rows

SCHEMA = T.StructType(
    [T.StructField("day", T.DateType()), T.StructField("id", T.StringType()), T.StructField("n", T.LongType())]
)
WAIT = 60  # seconds
TOGETHER, APART, CROWD = "together", "apart", "crowd"


def target_at(path: Path) -> Target:
    """The table of the races."""
    return Target(path, SCHEMA, ("day",), required={"day", "id"})


def wider_at(path: Path, *columns: str) -> Target:
    """The same table with further text columns."""
    schema = T.StructType([*SCHEMA.fields, *[T.StructField(name, T.StringType()) for name in columns]])
    return Target(path, schema, ("day",), required={"day", "id"})


@dataclass(frozen=True)
class Step:
    """What one racer does: `replace`, `append`, `compact`, `vacuum` (of what is older than an hour) or `evolve`.

    `mark` is its transaction, `app/version`; rows are `count` rows a day that carry the step's `name`, which for
    `evolve` is the column it adds.
    """

    action: str
    name: str = ""
    days: tuple[date, ...] = ()
    count: int = 1
    mark: str = "race/1"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What it writes."""
        return [{"day": day, "id": f"{self.name}-{n}", "n": n} for day in self.days for n in range(self.count)]


@dataclass(frozen=True)
class Outcome:
    """How a step ended: the version, or the error by class and text."""

    version: int = -1
    error: str = ""
    text: str = ""


def _perform(path: Path, step: Step, base: Snapshot, files: Any) -> int:
    app, version = step.mark.rsplit("/", 1)
    commit = Commit({app: int(version)}, {"racer": step.name})
    if step.action == "replace":
        return replace_days(target_at(path), base, files, step.days, commit)
    if step.action == "append":
        return append(target_at(path), files, commit)
    if step.action == "evolve":
        return ensure_table(wider_at(path, step.name)).version
    assert base.delta is not None
    if step.action == "compact":
        return compact(Compactable(path, SCHEMA)).version
    base.delta.vacuum(1, dry_run=False, enforce_retention_duration=False, full=True)
    return base.delta.version()


def _outcome(path: Path, step: Step, barrier: Barrier | None) -> Outcome:
    base = open_snapshot(path)
    files = stage_rows(target_at(path), step.rows)
    if barrier:
        barrier.wait(WAIT)
    try:
        return Outcome(_perform(path, step, base, files))
    except LakehouseError as error:
        return Outcome(-1, type(error).__name__, str(error))
    except Exception as error:  # noqa: BLE001 - delta-rs's own words for a lost race
        return Outcome(-1, type(error).__name__, str(error))


def _run(pipe: Connection, barrier: Barrier) -> None:
    while (order := pipe.recv()) is not None:
        path, steps, how = order
        if how == CROWD:
            with ThreadPoolExecutor(len(steps)) as pool:
                pipe.send(list(pool.map(lambda step, path=path: _outcome(path, step, None), steps)))
        else:
            pipe.send([_outcome(path, step, barrier if how == TOGETHER else None) for step in steps])


class Racers:
    """Some processes, started once and used for many races."""

    def __init__(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(number)
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        for _ in range(number):
            here, there = context.Pipe()
            process = context.Process(target=_run, args=(there, self._barrier), daemon=True)
            process.start()
            self._pipes.append(here)
            self._processes.append(process)

    def race(self, path: Path, *steps: Step) -> list[Outcome]:
        """One step each, on the version there is now, all at the same moment."""
        assert len(steps) == len(self._pipes)
        return [each[0] for each in self._order(path, [[step] for step in steps], TOGETHER)]

    def run(self, path: Path, steps: Sequence[Sequence[Step]]) -> list[list[Outcome]]:
        """A list of steps each, as fast as each can."""
        return self._order(path, steps, APART)

    def crowd(self, path: Path, steps: Sequence[Sequence[Step]]) -> list[list[Outcome]]:
        """A list of steps each, every step in a thread of its own."""
        return self._order(path, steps, CROWD)

    def _order(self, path: Path, steps: Sequence[Sequence[Step]], how: str) -> list[list[Outcome]]:
        for pipe, own in zip(self._pipes, steps, strict=True):
            pipe.send((path, own, how))
        found: list[list[Outcome]] = []
        for pipe in self._pipes:
            assert pipe.poll(WAIT), "a racer does not answer"
            found.append(pipe.recv())
        return found

    def stop(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(WAIT)


def names_in(path: Path) -> list[str]:
    """Whose rows the table holds, one name a row."""
    return sorted(row["id"].rsplit("-", 1)[0] for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist())
