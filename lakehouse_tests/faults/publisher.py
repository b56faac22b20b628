"""A table behind the whole publish door, without an engine: rows are staged by Arrow, all else is the code that runs."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, cast

import pandera.pyspark as pa
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import DeltaError
from pyspark.sql import types as T

from lakehouse.build import stage as staging
from lakehouse.build.base import open_base
from lakehouse.build.build import carry_through
from lakehouse.build.plan import Plan
from lakehouse.build.result import PUBLISHED, DayResult
from lakehouse.build.space import said_when_full
from lakehouse.build.work import Work
from lakehouse.contracts import Table
from lakehouse.delta.opening import open_snapshot
from lakehouse.errors import LakehouseError
from lakehouse.read.lake import Lake
from lakehouse.read.targets import quarantine_schema
from lakehouse_tests.conftest import LakeFactory, engine_settings
from lakehouse_tests.fixtures.making import model, rows_of, stage_rows, table, target_of
from lakehouse_tests.fixtures.tally import tally

MONDAY = date(2026, 3, 2)
EXPECTED = (OSError, LakehouseError, DeltaError)


def count(cases: int = 0, **wrong: int) -> None:
    """Add to the summary of the test run."""
    said = "{cases} operations failed in turn, {lost} lost, {doubled} doubled, {violating} violating rows seen"
    tally("faults of the file system", said, cases=cases, **{"lost": 0, "doubled": 0, "violating": 0, **wrong})


def sales(max_quarantined: float = 1.0) -> Table:
    """A table with a rule, so that it has a quarantine."""
    columns = {
        "id": (T.StringType(), pa.Field()),
        "day": (T.DateType(), pa.Field()),
        "n": (T.LongType(), pa.Field(ge=0)),
    }
    return table("silver.sales", model("Sales", **columns), lambda: None, {}, max_quarantined=max_quarantined)


class Door:
    """Publishes generations of one day: sound rows, and `bad` ones that break a rule."""

    bad = 1

    def __init__(self, lake: Lake, patch: pytest.MonkeyPatch) -> None:
        self.lake, self.table = lake, lake.table("silver.sales")
        self.path, self.side = lake.path(self.table.id), lake.path(self.table.quarantine_id)
        self.paused = False
        patch.setattr(staging, "write_routed", self._stage)

    def _stage(self, made: Table, frame: Any, folder: Path, *_: Any) -> None:
        self.paused = True  # what the engine does is not under test here
        sound = [{"id": f"{frame}-{n}", "day": MONDAY, "n": n} for n in range(3)]
        stage_rows(target_of(self.path, made.schema), sound, folder=folder)
        bad = {"id": f"{frame}-bad", "day": MONDAY, "n": -1, "_failed_rules": ["n_at_least_minimum"]}
        stage_rows(target_of(self.path, quarantine_schema(made)), [bad] * self.bad, "quarantined", folder)
        self.paused = False

    def publish(self, generation: int, mark: int = 0) -> None:
        """One run of one day, which passes its audit."""
        result = self.attempt(generation, mark)
        assert result.status == PUBLISHED, result.reason

    def attempt(self, generation: int, mark: int = 0) -> DayResult:
        """One run of one day; where its fingerprint is not the generation's, it is `mark`."""
        with said_when_full(self.table.id, self.path):
            base, plan, frame = open_base(self.lake, self.table), self.plan(mark or generation), cast("Any", generation)
            work = Work(base, plan, [MONDAY], "run", frame)
            return carry_through(work).audited.results[MONDAY]

    def plan(self, mark: int) -> Plan:
        """A plan of the day that gives it a fingerprint."""
        return Plan(self.table, {}, {}, {MONDAY: mark}, None, frozenset())

    def done(self, generation: int) -> bool:
        """Whether a run would leave the day alone."""
        return open_base(self.lake, self.table).is_current(MONDAY, generation)

    def seen(self, path: Path) -> list[str]:
        """Ids that readers see, by delta-rs and by this project's own reading of the log."""
        ids = [row["id"] for row in rows_of(path)]
        named = [file.path for file in open_snapshot(path).files]
        own = [i for name in named for i in pq.ParquetFile(path / name).read(["id"])["id"].to_pylist()]
        assert sorted(own) == sorted(ids)
        return sorted(ids)

    def check(self, *generations: int) -> None:
        """The table is a whole generation of these, and so is its quarantine."""
        for path, whole in ((self.path, ("0", "1", "2")), (self.side, ("bad",))):
            ids = self.seen(path)
            states = [sorted(f"{g}-{name}" for name in whole) for g in generations]
            nearest = min(states, key=lambda state: len(set(state) ^ set(ids)))
            wrong = {
                "lost": len(set(nearest) - set(ids)),
                "doubled": len(ids) - len(set(ids)),
                "violating": len(set(ids) - set(nearest)),
            }
            count(**wrong)
            assert ids in states, wrong


@pytest.fixture
def door(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> Door:
    """A door through which generation 1 has gone."""
    made = Door(lake(sales()), monkeypatch)
    made.publish(1)
    made.check(1)
    return made


def publish(root: Path, generation: int, mark: int) -> None:
    """Publish one generation under a fingerprint, on a lake that is opened anew."""
    made = Lake(engine_settings(root), {"silver.sales": sales()}, lambda: None)  # type: ignore[arg-type,return-value]
    with pytest.MonkeyPatch.context() as patched:
        Door(made, patched).publish(generation, mark)
