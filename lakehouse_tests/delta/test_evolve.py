"""A changed contract and the Delta table behind it: new columns come by themselves, nothing else does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from lakehouse.build.base import open_base
from lakehouse.contracts import Input, Table
from lakehouse.delta import evolve
from lakehouse.delta.commit import append, ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.errors import SchemaMismatchError
from lakehouse.read.rows import top_rows
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.doors import MONDAY, SCHEMA, TUESDAY, WEDNESDAY, entry, ids, row, target
from lakehouse_tests.faults.racers import Racers, Step, target_at, wider_at
from lakehouse_tests.fixtures.making import model, put, rows_of, stage_rows, table

__all__ = ["target"]  # a fixture
NOTE = T.StructField("note", T.StringType(), metadata={"comment": "What was said"})


def with_fields(old: Target, *fields: T.StructField, **changes: Any) -> Target:
    """The table after a change of its contract: fields of a new name are added, others replaced."""
    named = {f.name: f for f in [*old.schema.fields, *fields]}
    return replace(old, schema=T.StructType(list(named.values())), **changes)


def without(old: Target, name: str) -> Target:
    """The table after a column was taken out of its contract."""
    return replace(old, schema=T.StructType([f for f in old.schema.fields if f.name != name]))


def columns(path: Path) -> list[str]:
    """The columns that readers see."""
    return [each.name for each in DeltaTable(str(path)).schema().fields]


def test_a_new_column_is_added_once_and_old_rows_have_none_of_it(target: Target) -> None:
    """Without it, each additive change of a contract would need its table's folder moved away and history rebuilt."""
    wider = with_fields(target, NOTE)
    base = ensure_table(wider)
    assert base.version == 2
    assert [list(action) for action in entry(target, 2)] == [["commitInfo"], ["metaData"]]
    assert entry(target, 2)[0]["commitInfo"]["lakehouse.columns_added"] == "note"
    assert columns(target.path) == [*SCHEMA.names, "note"]
    assert ensure_table(wider).version == 2, "there is nothing more to add"
    replace_days(wider, base, stage_rows(wider, [row("w", WEDNESDAY, note="new")]), [WEDNESDAY], Commit({"day/wed": 1}))
    assert {each["id"]: each["note"] for each in rows_of(target.path)} == {"m": None, "t": None, "w": "new"}
    assert sorted(map(str, open_snapshot(target.path).nulls("note").values())) == ["0", "None", "None"]
    assert not [action for action in entry(target, 3) if "metaData" in action]


REFUSED = {
    "retyped": (
        lambda t: with_fields(t, T.StructField("n", T.StringType())),
        "n is long in the table and string in the contract",
    ),
    "rescaled": (
        lambda t: with_fields(t, T.StructField("amount", T.DecimalType(18, 4))),
        "amount is decimal(18,2) in the table and decimal(18,4) in the contract",
    ),
    "removed": (lambda t: without(t, "amount"), "amount is in the table and not in the contract"),
    "renamed": (
        lambda t: with_fields(without(t, "amount"), T.StructField("total", T.DecimalType(18, 2))),
        "amount is in the table and not in the contract",
    ),
    "new and required": (
        lambda t: with_fields(t, NOTE, required={"id", "note"}),
        "note is new and never null, but 2 rows are without it",
    ),
    "newly required": (
        lambda t: replace(t, required={"id", "n"}),
        "n is never null in the contract, but null in 1 of 2 rows",
    ),
    "partitioned": (
        lambda t: replace(t, partition_by=("day", "id")),
        "the partition columns are day in the table and day, id in the contract",
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_any_other_change_is_refused_by_name_and_changes_nothing(target: Target, change: str) -> None:
    """Without it, readers would meet nulls where none may be, a column twice, or files they cannot read."""
    changed, message = REFUSED[change]
    replace_days(target, open_snapshot(target.path), stage_rows(target, [row("m", MONDAY, None)]), [MONDAY], Commit())
    with pytest.raises(SchemaMismatchError) as caught:
        ensure_table(changed(target))
    assert message in str(caught.value)
    assert "silver.sales does not have the columns of its contract" in str(caught.value)
    assert "by a candidate, which keeps its history" in str(caught.value)
    assert "backfill it" in str(caught.value)
    assert open_snapshot(target.path).version == 2
    assert columns(target.path) == SCHEMA.names


def test_what_is_refused_names_the_quarantine_as_well(target: Target) -> None:
    """Without it, whoever moves the table away as told would be refused once more, for its quarantine."""
    beside = target.path.with_name(f"{target.path.name}_quarantine")
    ensure_table(replace(target, path=beside))
    with pytest.raises(SchemaMismatchError, match=f"move its folders {target.path} and {beside} away"):
        ensure_table(without(target, "amount"))


def test_a_table_without_rows_takes_a_required_column(tmp_path: Path) -> None:
    """Without it, a contract that is still being written could not grow after its first empty run."""
    made = Target(tmp_path / "silver" / "empty", SCHEMA, ("day",), required={"id"})
    ensure_table(made)
    assert ensure_table(with_fields(made, NOTE, required={"id", "note"})).version == 1


def test_a_run_of_older_code_does_not_take_the_new_column_away(target: Target) -> None:
    """Without it, delta-rs would put the older code's columns in the place of the table's, without a word."""
    older = open_snapshot(target.path)
    files = stage_rows(target, [row("w", WEDNESDAY)])
    wider = with_fields(target, NOTE)
    newer = ensure_table(wider)
    named = f"note is in the table and not in the contract.*run the newer code.*move its folder {target.path} away"
    with pytest.raises(SchemaMismatchError, match=named):
        replace_days(target, older, files, [WEDNESDAY], Commit({"day/wed": 1}))
    with pytest.raises(SchemaMismatchError, match="note is in the table and not in the contract"):
        replace_days(target, newer, files, [WEDNESDAY], Commit({"day/wed": 1}))
    with pytest.raises(SchemaMismatchError, match="note is in the table and not in the contract"):
        append(target, files, Commit({"batch": 1}))
    assert columns(target.path) == [*SCHEMA.names, "note"]
    assert ids(target) == ["m", "t"]


def test_what_an_older_run_published_just_before_stays(target: Target) -> None:
    """Without it, adding a column could undo a commit that came between looking and adding."""
    wider, base = with_fields(target, NOTE), open_snapshot(target.path)
    replace_days(target, base, stage_rows(target, [row("w", WEDNESDAY)]), [WEDNESDAY], Commit({"day/wed": 1}))
    added = evolve.evolve(wider.path, wider.schema, wider.partition_by, wider.required, base)
    assert added.version == 3
    assert columns(target.path) == [*SCHEMA.names, "note"]
    assert ids(target) == ["m", "t", "w"]


def test_a_lost_answer_is_looked_up_and_a_real_error_is_told(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a time-out after the commit would fail the run, or a full disk be taken for a lost race."""

    class Alter:
        def __init__(self, real: Any) -> None:
            self.real = real

        def add_columns(self, *args: Any, **kwargs: Any) -> None:
            if self.real is not None:
                self.real.add_columns(*args, **kwargs)
            raise OSError("no answer")

    def broken(path: Path, version: int, real: Any) -> Any:
        snapshot = fresh_snapshot(path, version)

        class Delta:
            alter = Alter(snapshot.delta.alter if real and snapshot.delta else None)

            def __getattr__(self, name: str) -> Any:
                return getattr(snapshot.delta, name)

        made = replace(snapshot)
        made.__dict__["delta"] = Delta()
        return made

    wider = with_fields(target, NOTE)
    monkeypatch.setattr("lakehouse.delta.evolve.fresh_snapshot", partial(broken, real=False))
    with pytest.raises(OSError, match="no answer"):
        ensure_table(wider)
    assert columns(target.path) == SCHEMA.names
    monkeypatch.setattr("lakehouse.delta.evolve.fresh_snapshot", partial(broken, real=True))
    assert ensure_table(wider).version == 2
    assert columns(target.path) == [*SCHEMA.names, "note"]


def test_files_with_and_without_the_column_are_compacted_and_read_together(target: Target) -> None:
    """Without it, merging an old and a new file could fail, or lose the new column's values."""
    wider = with_fields(target, NOTE)
    append(target, stage_rows(target, [row("old", MONDAY)]), Commit({"batch": 1}))
    layout = Compactable(target.path, wider.schema, target.pii)
    assert compact(layout).files_after == 1, "by the contract of tomorrow, on the table of today"
    assert columns(target.path) == SCHEMA.names, "a compaction adds no column"
    append(wider, stage_rows(wider, [row("new", MONDAY, note="new")]), Commit({"batch": 2}))
    before = rows_of(target.path)
    read = ["id", "day", "note"]
    found = top_rows(target.path, read, days=[MONDAY, TUESDAY], order_by=[("id", "ascending")], limit=9)
    assert [each["note"] for each in found] == [None, "new", None, None]
    assert compact(layout).files_after == 1
    assert rows_of(target.path) == before
    assert {each["id"]: each["note"] for each in before} == {"m": None, "t": None, "old": None, "new": "new"}


@pytest.fixture(scope="module")
def pair() -> Iterator[Racers]:
    """Two processes."""
    racers = Racers(2)
    yield racers
    racers.stop()


@pytest.mark.slow
def test_runs_that_add_columns_at_the_same_moment(pair: Racers, tmp_path: Path) -> None:
    """Without it, two first runs of a new contract would fail each other, or one's column replace the other's."""
    for n in range(4):
        path = tmp_path / f"same-{n}"
        base = ensure_table(target_at(path))
        replace_days(
            target_at(path), base, stage_rows(target_at(path), [{"day": MONDAY, "id": "a"}]), [MONDAY], Commit()
        )
        outcomes = pair.race(path, Step("evolve", "note"), Step("evolve", "note"))
        assert [each.error for each in outcomes] == ["", ""]
        assert open_snapshot(path).version == 2, "one of them found it done"
        assert columns(path) == ["day", "id", "n", "note"]
        # Two branches of the code, each with a column of its own: one wins whole, the other says what it met.
        path = tmp_path / f"branches-{n}"
        ensure_table(target_at(path))
        outcomes = pair.race(path, Step("evolve", "note"), Step("evolve", "other"))
        assert sorted(each.error for each in outcomes) == ["", "SchemaMismatchError"]
        assert len(columns(path)) == 4
        # A run of older code publishes meanwhile: its day is there whole, or it says why not.
        path = tmp_path / f"older-{n}"
        ensure_table(target_at(path))
        added, older = pair.race(path, Step("evolve", "note"), Step("replace", "old", (TUESDAY,), 2))
        assert added.error == ""
        assert columns(path) == ["day", "id", "n", "note"]
        assert older.error in ("", "SchemaMismatchError")
        assert len(rows_of(path)) == (0 if older.error else 2)


def _widen(path: str, ready: Any) -> None:
    names: list[str] = []
    for n in range(10_000):
        names += [f"a{n}", f"b{n}"]
        ensure_table(wider_at(Path(path), *names))
        ready.set()


@pytest.mark.slow
def test_a_process_killed_while_it_adds_columns(tmp_path: Path) -> None:
    """Without it, a power cut could leave a column half added: a log nobody can read, or one of two columns."""
    context = multiprocessing.get_context("spawn")
    for n, seconds in enumerate((0.03, 0.11, 0.25)):
        path = tmp_path / f"killed-{n}"
        ensure_table(target_at(path))
        ready = context.Event()
        process = context.Process(target=_widen, args=(str(path), ready), daemon=True)
        process.start()
        assert ready.wait(60)
        time.sleep(seconds)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        found = columns(path)
        pairs = (len(found) - 3) // 2
        assert pairs >= 1
        names = [f"{c}{k}" for k in range(pairs) for c in "ab"]
        assert found == ["day", "id", "n", *names]
        assert columns(path) == found
        wider = wider_at(path, *names, "last")
        base = ensure_table(wider)
        assert columns(path) == [*found, "last"]
        replace_days(wider, base, stage_rows(wider, [{"day": MONDAY, "id": "a", "last": "x"}]), [MONDAY], Commit())
        assert [each["last"] for each in rows_of(path)] == ["x"]


def shops(extra: Sequence[str]) -> Table:
    """silver.shops with a rule, so that it has a quarantine, and with further columns."""
    text = {n: (T.StringType(), pa.Field(nullable=True)) for n in extra}
    contract = model(id=(T.StringType(), pa.Field()), day=(T.DateType(), pa.Field()), **text)
    return table("silver.shops", contract, lambda rows: rows, {"rows": Input("bronze.rows")})


def test_a_killed_run_left_the_quarantine_behind_the_table(lake: LakeFactory) -> None:
    """Without it, a crash between the two commits would leave a table that can never publish again."""
    shop = lake(shops(()))
    open_base(shop, shops(()))
    wider = shops(("note",))
    put(shop, wider, MONDAY, [{"id": "a", "note": "x"}])  # the table has it, the quarantine not yet
    base = open_base(shop, wider)
    assert "note" in columns(shop.path("silver.shops"))
    assert "note" in columns(shop.path("silver.shops_quarantine"))
    assert base.side is not None
    assert base.side.snapshot.version == 1


def test_a_contract_without_the_column_leaves_the_quarantine_alone(lake: LakeFactory) -> None:
    """Without it, the quarantine could change though the table was refused."""
    shop = lake(shops(("note",)))
    open_base(shop, shops(("note",)))
    with pytest.raises(SchemaMismatchError, match=r"silver\.shops does not have the columns.*note"):
        open_base(shop, shops(("other",)))
    assert columns(shop.path("silver.shops_quarantine"))[:3] == ["id", "day", "note"]
    assert "other" not in columns(shop.path("silver.shops_quarantine"))


def test_a_dry_run_and_readers_add_nothing(lake: LakeFactory) -> None:
    """Without it, looking at what a run would do would already change the table."""
    from lakehouse.build.plan import make_plan

    shop = lake(shops(()))
    put(shop, shops(()), MONDAY, [{"id": "a"}])
    rows = table("bronze.rows", shops(()).model, lambda: None, {})
    wider = lake(rows, shops(("note",)))
    put(wider, rows, MONDAY, [{"id": "a"}])
    assert make_plan(wider, wider.table("silver.shops"), [MONDAY]).has_input
    assert rows_of(wider.path("silver.shops")) == [{"id": "a", "day": MONDAY}]
    assert columns(wider.path("silver.shops")) == ["id", "day"]
