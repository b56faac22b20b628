"""What was kept of days says the same as a look at all of them, whatever is committed in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from lakehouse.build import made_from
from lakehouse.build.late import late_transaction
from lakehouse.build.plan import Plan, make_plan
from lakehouse.contracts import Input, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.snapshot import WITHDRAWN
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.content import content_of_day, content_of_days
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.settings import Settings
from lakehouse_tests.build.test_stale import raw, weekly
from lakehouse_tests.fixtures.making import model, stage_rows, table

D = [date(2011, 3, n) for n in range(1, 6)]


def typed() -> Table:
    """Rows by event day, of which each key is kept once within two days, and which may be late for a day."""
    contract = model(
        day=(T.DateType(), pa.Field()),
        _arrival_date=(T.DateType(), pa.Field()),
        n=(T.LongType(), pa.Field(nullable=True)),
    )
    policy: dict[str, Any] = {
        "key": ("n",),
        "keep_first_by": ("_arrival_date", "n"),
        "unique_within": timedelta(days=1),
        "allowed_lateness": timedelta(days=1),
    }
    return table("silver.typed", contract, lambda raw: raw, {"raw": Input("bronze.raw")}, **policy)


def latest() -> Table:
    """A row a key, in the first of its days: runs of other days replace days of it."""
    contract = model(
        day=(T.DateType(), pa.Field()),
        n=(T.LongType(), pa.Field()),
        _event_days=(T.ArrayType(T.DateType()), pa.Field(nullable=True)),
    )
    return table("silver.latest", contract, lambda raw: raw, {"raw": Input("bronze.raw")}, key=("n",), upsert=True)


def both() -> Table:
    """What two tables hold of a day and of some around it."""
    contract = model(day=(T.DateType(), pa.Field()), n=(T.LongType(), pa.Field(nullable=True)))
    inputs = {"one": Input("silver.typed", days_after=1), "two": Input("silver.latest", days_before=1)}
    return table("gold.both", contract, lambda one, two: one, inputs)


TABLES = {each.id: each for each in (raw(), typed(), latest(), weekly(), both())}
READERS = [each for each in TABLES.values() if each.upstream]


def commit(lake: Lake, name: str, day: date, rows: list[dict[str, Any]], marks: dict[str, int]) -> None:
    """Replace a day of a table, with transactions of every kind that a plan looks at."""
    made = lake.table(name)
    target = Target(lake.path(name), made.schema, made.partition_by, required=made.required, pii=made.pii)
    base = ensure_table(target)
    files = stage_rows(target, [{made.day_column: day, **row} for row in rows])
    replace_days(target, base, files, [day], Commit(marks))


day = st.sampled_from(D)
number = st.sampled_from([WITHDRAWN, 1, 2])


def landed(lake: Lake, arrival: date, event: date, rows: int, mark: int) -> None:
    """An arrival day of the lines, which holds rows of an event day; none: it is published empty."""
    marks = {day_transaction(arrival): mark, str(content_of_days(str(arrival), str(event))): mark}
    commit(lake, "bronze.raw", arrival, [{"_event_date": event, "n": n} for n in range(rows)], marks)


def published(lake: Lake, name: str, at: date, rows: int, mark: int) -> None:
    """A day of a table further down."""
    marks = {day_transaction(at): mark, str(content_of_day(str(at))): mark}
    cells = [{"n": n, **({"_arrival_date": at} if name == "silver.typed" else {})} for n in range(rows)]
    commit(lake, name, at, cells, marks)


def marked(lake: Lake, name: str, at: date, mark: int) -> None:
    """Transactions alone, as a withdrawal writes them."""
    made = lake.table(name)
    target = Target(lake.path(name), made.schema, made.partition_by, required=made.required, pii=made.pii)
    replace_days(target, ensure_table(target), [], [], Commit({day_transaction(at): mark}))


def accepted(lake: Lake, at: date, through: date) -> None:
    """Late rows of a day are accepted, which the log of the quarantine keeps."""
    made = lake.table("silver.typed")
    target = Target(lake.path(made.quarantine_id), made.schema, made.partition_by, required=made.required)
    replace_days(target, ensure_table(target), [], [], Commit({late_transaction(at): through.toordinal()}))


def removed(lake: Lake, name: str) -> None:
    """A table is moved away; the next commit makes it anew under its name."""
    shutil.rmtree(lake.path(name), ignore_errors=True)


written = st.sampled_from(["silver.typed", "silver.latest"])
rows = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just(landed), day, day, rows, number),
        st.tuples(st.just(landed), day, day, rows, number),
        st.tuples(st.just(published), written, day, rows, number),
        st.tuples(st.just(marked), st.sampled_from(["bronze.raw", "silver.typed", "silver.latest"]), day, number),
        st.tuples(st.just(accepted), day, day),
        st.tuples(st.just(removed), st.sampled_from(["bronze.raw", "silver.latest"])),
    ),
    min_size=2,
    max_size=7,
)


def told(plan: Plan) -> tuple[Any, ...]:
    """All that a plan says of days."""
    return plan.fingerprints, plan.has_input, plan.beside, plan.accepted, plan.open


@settings(max_examples=40, deadline=None)
@given(steps=steps)
@example(steps=[(landed, D[0], D[2], 1, 1), (marked, "bronze.raw", D[0], 2)])  # no file of it has changed
@example(steps=[(landed, D[0], D[2], 1, 1), (landed, D[4], D[4], 1, 1), (accepted, D[2], D[4])])
@example(steps=[(landed, D[1], D[1], 0, 1), (marked, "bronze.raw", D[1], WITHDRAWN)])
@example(steps=[(published, "silver.typed", D[3], 0, 1), (marked, "silver.typed", D[3], 2)])
@example(steps=[(published, "silver.typed", D[3], 1, 1), (published, "silver.typed", D[3], 1, 2)])
def test_what_was_kept_is_what_a_look_at_all_days_finds(steps: list[tuple[Any, ...]], tmp_path_factory: Any) -> None:
    """Without it, a day would pass for current whose input has changed, for as long as the process lives."""
    root: Path = tmp_path_factory.mktemp("lake")
    lake = Lake(Settings(root=root), TABLES, lambda: pytest.fail("deciding what is stale computes nothing"))
    try:
        for act, *what in steps:
            do: Callable[..., None] = act
            do(lake, *what)
            kept = [told(make_plan(PinnedLake(lake.settings, TABLES), each, D)) for each in READERS]
        made_from.forget_days()
        assert kept == [told(make_plan(PinnedLake(lake.settings, TABLES), each, D)) for each in READERS]
    finally:
        shutil.rmtree(root)


def test_days_that_nothing_touched_are_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, each step of a run and each turn of a stream would cost as much as there are days."""
    lake = Lake(Settings(root=tmp_path), TABLES, lambda: pytest.fail("no engine"))
    for each in D:
        landed(lake, each, each, 1, 1)
    made_from.forget_days()
    looked_at = list[date]()
    identity = made_from.DayStates.identity

    def counted(self: made_from.DayStates, of: date, through: date | None = None) -> str:
        looked_at.append(of)
        return identity(self, of, through)

    monkeypatch.setattr(made_from.DayStates, "identity", counted)
    first = make_plan(lake, TABLES["silver.latest"], D)
    assert sorted(looked_at) == D
    looked_at.clear()
    landed(lake, D[4], D[2], 2, 2)
    second = make_plan(lake, TABLES["silver.latest"], D)
    assert set(looked_at) == {D[2], D[4]}
    assert {each for each in D if first.fingerprints[each] != second.fingerprints[each]} == {D[2], D[4]}
