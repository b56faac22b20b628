"""Every operation on a table beside every other: it lands as if one had come after the other, or is a named conflict."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.contracts import Table
from lakehouse.delta import attempts, maintenance
from lakehouse.delta import commit as door
from lakehouse.delta.commit import append, ensure_table, exchange_files, replace_days
from lakehouse.delta.maintenance import Compactable, compact, vacuum
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import WITHDRAWN, Snapshot, fresh_snapshot
from lakehouse.delta.target import Commit
from lakehouse.errors import PublishConflictError, SchemaMismatchError
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.records.history import CHECKS_ONLY, UNPUBLISHED_CHECKS
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.doors import MONDAY, TUESDAY, WEDNESDAY
from lakehouse_tests.fixtures.making import age_table, model, rows_of, stage_rows, table
from lakehouse_tests.fixtures.tally import tally

pytestmark = pytest.mark.crash
Content = dict[date, list[str]]
LATE = f"late/{MONDAY}"
OLD: Content = {MONDAY: ["m1"], TUESDAY: ["t1"], WEDNESDAY: ["w1", "w2"]}
START: Content = {**OLD, MONDAY: ["m2", "m3"]}
LOOKS = {door: "open_snapshot", attempts: "open_snapshot", maintenance: "fresh_snapshot"}
"""With what each module looks at a table before it changes it."""
OPERATIONS = (
    "replace", "other day", "upsert", "force", "append", "accept", "compact", "restore", "vacuum", "columns", "judge",
)  # fmt: skip
PAIRS = list(product(OPERATIONS, repeat=2))
# Of a table whose replaced files are older than the retention, the second comes when the first has looked for the last
# time before it acts. Of a young one, it comes when the first has decided: that is for what looks at ages.
CASES = [(*pair, True) for pair in PAIRS] + [(*pair, False) for pair in PAIRS if "vacuum" in pair]
ACCEPTED = {"a": 20, "b": 10}  # by whom, what he accepts: once accepted it stays


def _things(**more: Any) -> Table:
    columns = {"id": (T.StringType(), pa.Field(nullable=True)), "day": (T.DateType(), pa.Field(nullable=True)), **more}
    return table("silver.things", model("Things", **columns), lambda: None, {})


class Bench:
    """One table at version 2, and each operation in two halves: what it decides, and what it then does."""

    def __init__(self, lake: Lake, *, old: bool) -> None:
        self.lake = lake
        self.target, _ = targets(lake, lake.table("silver.things"))
        self.path = self.target.path
        for content in (OLD, {MONDAY: START[MONDAY]}):
            replace_days(self.target, ensure_table(self.target), self._files(content), list(content), Commit())
        self._files({MONDAY: ["orphan"]})
        then = time.time() - 3 * 86400
        for path in self.path.rglob("*.parquet"):
            os.utime(path, (then, then))
        if old:
            age_table(self.path)

    def _files(self, content: Content) -> Any:
        return [f for d, ids in content.items() for i in ids for f in stage_rows(self.target, [{"day": d, "id": i}])]

    def content(self) -> Content:
        """What readers see."""
        found: Content = {}
        for row in rows_of(self.path):
            found.setdefault(row["day"], []).append(row["id"])
        return found

    def begin(self, name: str, who: str) -> Callable[[], object]:
        """The first half of an operation; the function does the second."""
        base = open_snapshot(self.path)
        if name in ("replace", "other day", "upsert"):
            day = TUESDAY if name == "other day" else MONDAY
            files, mark = self._files({day: [who]}), Commit({f"day/{day}": hash(who) & 0xFFFF})
            return lambda: replace_days(self.target, base, files, [day], mark, read_whole=name == "upsert")
        if name == "force":
            files, again = self._files({MONDAY: [who]}), Commit({f"day/{MONDAY}": hash(who) & 0xFFFF})

            def forced() -> object:
                begun = exchange_files(self.target, base, (), (), Commit({f"day/{MONDAY}": WITHDRAWN}), days=[MONDAY])
                return replace_days(self.target, open_snapshot(self.path, begun), files, [MONDAY], again)

            return forced
        if name == "accept":

            def accepting(current: Snapshot) -> Commit:
                return Commit({LATE: max(ACCEPTED[who], current.transaction(LATE) or 0)})

            return lambda: append(self.target, [], accepting)
        if name == "judge":  # a build that publishes none of its days says why
            refused: dict[str, Any] = {str(MONDAY): {"checks": {}}}
            told = Commit(metadata={"lakehouse.operation": CHECKS_ONLY, UNPUBLISHED_CHECKS: refused})
            return lambda: exchange_files(self.target, base, (), (), told, days=[])
        if name == "append":
            files = self._files({MONDAY: [who]})
            return lambda: append(self.target, files, Commit({f"stream {who}": 1}))
        if name == "restore":
            plan = plan_restore(self.lake, self.lake.table("silver.things"), 1)
            return lambda: restore(self.lake, plan, by="a test")
        if name == "columns":
            wider = self.lake.settings.root, {"silver.things": _things(more=(T.LongType(), pa.Field(nullable=True)))}
            made, _ = targets(Lake(self.lake.settings, wider[1], lambda: None), wider[1]["silver.things"])  # type: ignore[arg-type, return-value]
            return lambda: ensure_table(made)
        layout = Compactable(self.path, self.target.schema)
        return (lambda: compact(layout)) if name == "compact" else lambda: vacuum(self.path, 24)


def _after(name: str, who: str, content: Content) -> Content:
    """What the operation makes of a table's content."""
    match name:
        case "replace" | "upsert" | "force":
            return {**content, MONDAY: [who]}
        case "other day":
            return {**content, TUESDAY: [who]}
        case "append":
            return {**content, MONDAY: [*content[MONDAY], who]}
        case "restore":
            return OLD
    return content


def _plain(content: Content) -> Content:
    return {day: sorted(ids) for day, ids in content.items()}


@pytest.mark.parametrize(("first", "second", "old"), CASES)
def test_two_operations_at_once(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, first: str, second: str, old: bool
) -> None:
    """Without it, some pair of them could lose rows of the one that was told it had succeeded."""
    bench = Bench(lake(_things()), old=old)
    end = bench.begin(first, "a")
    done: list[str] = []

    def interloper() -> None:
        if not done:
            done.append(second)
            with monkeypatch.context() as patch:
                for module, look in LOOKS.items():
                    patch.setattr(module, look, fresh_snapshot)
                bench.begin(second, "b")()

    def opened(path: Path, version: int | None = None) -> Any:
        found = fresh_snapshot(path, version)
        interloper()  # after the first has looked, before it acts on it
        return found

    error = ""
    if old or first in ("append", "accept", "compact", "vacuum", "columns"):
        for module, look in LOOKS.items():
            monkeypatch.setattr(module, look, opened)
    else:
        interloper()
    try:
        end()
    except (PublishConflictError, SchemaMismatchError) as caught:
        error = type(caught).__name__
    finally:
        monkeypatch.undo()
    assert done
    one, other = _after(second, "b", START), _after(first, "a", START)
    allowed: Sequence[Content] = [one] if error else [_after(first, "a", one), _after(second, "b", other)]
    found = bench.content()
    ids = [name for each in found.values() for name in each]
    tally(
        "operations at once", "{pairs} pairs: {both} both done, {conflicts} a named conflict, {doubled} rows doubled",
        pairs=1, both=not error, conflicts=bool(error), doubled=len(ids) - len(set(ids)),
    )  # fmt: skip
    assert _plain(found) in [_plain(each) for each in allowed], (error, found)
    if {first, second} & {"accept"} and not error:
        marks = [ACCEPTED[who] for name, who in ((first, "a"), (second, "b")) if name == "accept"]
        assert fresh_snapshot(bench.path).transaction(LATE) == max(marks)
    harmless = {"vacuum", "compact", "columns", "accept"}
    if {first, second} == {"accept", "columns"}:
        assert error in ("", "SchemaMismatchError"), "code of before the new column"
    elif (
        "judge" in (first, second)
        or second == "vacuum"
        or {first, second} <= harmless
        or {first, second} == {"replace", "other day"}
    ):
        assert not error
    if {first, second} <= {"replace", "upsert", "force"}:
        assert error == "PublishConflictError"
