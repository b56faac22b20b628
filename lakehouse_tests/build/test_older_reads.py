"""A contract that reads other days than before is newer code: no day's inputs have changed for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.older_reads import keep_reads
from lakehouse.build.plan import make_plan
from lakehouse.build.stale import all_waiting_days, changed_days, stale_days, turned_down, waiting_days
from lakehouse.contracts import Input, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.lake import Lake
from lakehouse.records.history import older_code
from lakehouse.runs.plans import stale_by_table
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.build.test_stale import land, raw
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import having, model, put, stage_rows, table

D = [date(2026, 3, n) for n in range(1, 11)]
ROWS, SUMS, TOP = "silver.rows", "gold.sums", "gold.top"
COLUMNS = {"day": (T.DateType(), pa.Field()), "k": (T.StringType(), pa.Field(nullable=True))}  # no rule, no quarantine


def source(name: str = ROWS) -> Table:
    """Keys by day, put by hand."""
    return table(name, model(**COLUMNS), lambda raw: raw, {"raw": Input("bronze.raw")})


def sums(code: str, before: int = 1, more: dict[str, Input] | None = None, **policy: Any) -> Table:
    """The keys of a day, whatever else it reads."""

    def two(rows: Any, others: Any) -> Any:
        return rows.select("day", "k")

    def one(rows: Any) -> Any:
        return rows.select("day", "k")

    inputs = {"rows": Input(ROWS, days_before=before), **(more or {})}
    return table(SUMS, model(**COLUMNS), two if more else one, inputs, code=code, **policy)


def top() -> Table:
    """What reads the sums."""
    return table(TOP, model(**COLUMNS), lambda sums: sums, {"sums": Input(SUMS)})


WINDOW: Callable[[], Table] = lambda: sums("v2", before=3)  # noqa: E731 - one of the changes below
CHANGES = {
    "a longer window": WINDOW,
    "a shorter window": lambda: sums("v2", before=0),
    "another input": lambda: sums("v2", more={"others": Input("silver.others")}),
    "keys that are unique for longer": lambda: sums(
        "v2", key=("k",), keep_first_by=("day",), unique_within=timedelta(days=2)
    ),
}


def filled(make: LakeFactory) -> Lake:
    """A lake whose inputs have five days."""
    lake = make(raw(), source(), source("silver.others"), sums("v1"), top())
    for number, day in enumerate(D[:5]):
        sell(lake, ROWS, day, f"k{number}")
        sell(lake, "silver.others", day, "other")
    return lake


def with_tokens(code: str, tokens: tuple[str, ...]) -> Table:
    """Landed lines, with tokens in these columns."""
    made = replace(having(raw(), tokens=tokens), transform=lambda lines: lines)
    made.__dict__["code_version"] = code
    return made


def publish(lake: Lake, days: list[date]) -> None:
    """Publish days of the sums as a build does, without an engine."""
    publish_of(lake, lake.table(SUMS), days)


def publish_of(lake: Lake, made: Table, days: list[date]) -> None:
    """As `publish`, of another table."""
    keep_reads(lake, made)
    target = Target(lake.path(made.id), made.schema, made.partition_by)
    prints = make_plan(lake, made, days).fingerprints
    figures = {day.isoformat(): {"rows": 1} for day in days}
    facts = {"lakehouse.code_version": made.code_version, "lakehouse.metrics": figures}
    files = stage_rows(target, [{made.day_column: day} for day in days])
    commit = Commit({day_transaction(day): prints[day] for day in days}, facts)
    replace_days(target, ensure_table(target), files, days, commit)


def built(make: LakeFactory) -> Lake:
    """Five days built by older code that reads the day before as well."""
    lake = filled(make)
    publish(lake, D[:5])
    return lake


def sell(lake: Lake, name: str, day: date, key: str, *, anew: bool = False) -> None:
    """Make this key the only one of a day: as made from the inputs of now, or from others that came since."""
    made = lake.table(name)
    put(lake, made, day, [{"k": key}], mark=make_plan(lake, made, [day]).fingerprints[day] + anew)


def with_code(lake: Lake, newer: Table) -> Lake:
    """The same lake, once its code was deployed."""
    tables = [newer if each.id == newer.id else each for each in lake.tables.values()]
    return Lake(lake.settings, {each.id: each for each in tables}, lambda: lake.spark)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_contract_reads_since_changes_no_input(lake: LakeFactory, change: Callable[[], Table]) -> None:
    """Without it, the sensor would build years of days as soon as a window is longer, and readers wait for all of them."""
    newer = change()
    after = with_code(built(lake), newer)
    assert set(stale_days(after, newer)) >= set(D[:5])
    assert older_code(after.settings.root, SUMS, "v2") == {"v1": D[:5]}
    assert set(changed_days(after, newer)) & set(D[:5]) == set()
    assert waiting_days(after, after.table(TOP), D[:5]) == {}

    # What does change is told as ever: by the day that came, for the days that read it then.
    sell(after, ROWS, D[1], "new", anew=True)
    assert set(changed_days(after, newer)) & set(D[:5]) == set(D[1:3])
    publish(after, D[:5])
    assert [day for day in stale_days(after, newer) if day in D[:5]] == []


def test_a_day_waits_for_what_its_rows_were_made_from(lake: LakeFactory) -> None:
    """Without it, after a longer window a day would be said to hold the last good data for a day it never read."""
    before, newer = filled(lake), WINDOW()
    publish(before, D[:3])
    after = with_code(before, newer)
    publish(after, D[3:4])
    put(after, after.table("bronze.raw"), D[0], [{"_event_date": D[0], "n": 1}])
    waiting = {
        "silver.rows": set(),
        SUMS: {D[0], D[1], D[3]},
        TOP: {D[0], D[1], D[3], D[4]},
    }  # the last was never built
    found = all_waiting_days(after)
    for name, days in waiting.items():
        assert set(found[name]) & set(D[:5]) == days
        assert set(waiting_days(after, after.table(name), D[:5])) == days


def test_builds_keep_what_their_code_reads(lake: LakeFactory) -> None:
    """As above, by real builds: without it, nothing would be kept to be compared with."""
    before = filled(lake)
    build(before, before.table(SUMS), D[:5], run_id="r")
    newer = sums("v2", before=0)
    after = with_code(before, newer)
    assert changed_days(after, newer, D[:5]) == []
    assert stale_days(after, newer, D[:5]) == D[:5]
    build(after, newer, D[:5], run_id="r")
    assert stale_days(after, newer, D[:5]) == []
    assert len(list((after.settings.root / "contracts" / SUMS).iterdir())) == 2


def test_a_restored_day_stays_whatever_the_contract_reads_since(lake: LakeFactory) -> None:
    """Without it, a longer window would have the sensor build a day that somebody has put back."""
    old = built(lake)
    sums_v1 = old.table(SUMS)
    sell(old, ROWS, D[2], "bad", anew=True)
    publish(old, D[2:4])
    restore(old, plan_restore(old, sums_v1, 1), by="ann")
    assert turned_down(old, sums_v1, D[:5]) == set(D[2:4])
    newer = WINDOW()
    assert turned_down(with_code(old, newer), newer, D[:5]) == set(D[2:4])


@pytest.mark.parametrize("spoil", ["", "{", '{"inputs": 1}', '{"inputs": {"rows": {}}}'])
def test_without_what_was_kept_all_days_are_due(lake: LakeFactory, spoil: str) -> None:
    """A lake that an earlier release built keeps none: one build too many is better than one that is missing."""
    newer = WINDOW()
    after = with_code(built(lake), newer)
    for file in (after.settings.root / "contracts" / SUMS).iterdir():
        file.write_text(spoil) if spoil else file.unlink()
    assert set(changed_days(after, newer)) >= set(D[1:5])


def test_of_an_input_that_is_gone_today_counts(lake: LakeFactory) -> None:
    """Without it, a table that was exchanged for another would be looked for where no lake has it."""
    newer = sums("v2", more={"others": Input("silver.others")})
    newer = replace(newer, inputs={"others": Input("silver.others")})
    newer.__dict__["code_version"] = "v2"
    after = with_code(built(lake), newer)
    gone = Lake(after.settings, {n: t for n, t in after.tables.items() if n != ROWS}, lambda: after.spark)
    assert set(changed_days(gone, newer)) >= set(D[:5])


def test_a_day_that_a_restore_removed_is_of_no_code(lake: LakeFactory) -> None:
    """Without it, a longer window would have the sensor build it, and `--older-code` would undo the restore."""
    before = filled(lake)
    v1, newer = before.table(SUMS), WINDOW()
    publish(before, D[:2])
    publish(before, D[2:5])
    restore(before, plan_restore(before, v1, 1), by="ann")
    assert turned_down(before, v1, D[:5]) == set(D[2:5])
    assert stale_by_table(before, [SUMS], (D[0], D[-1]), by_code=True) == {SUMS: set()}

    after = with_code(before, newer)
    assert turned_down(after, newer, D[:5]) == set(D[2:5])
    assert stale_by_table(after, [SUMS], (D[0], D[-1]), by_code=True) == {SUMS: set(D[:2])}
    # As ever, it is due once what it would be made from is another.
    sell(after, ROWS, D[3], "new", anew=True)
    assert turned_down(after, newer, D[:5]) == {D[2]}


def test_a_restore_keeps_what_its_code_reads(lake: LakeFactory) -> None:
    """Code that has built nothing yet: without it, the next would take what a restore removed for due."""
    before = filled(lake)
    publish(before, D[:2])
    publish(before, D[2:5])
    newer, newest = WINDOW(), sums("v3", before=2)
    then = with_code(before, newer)
    restore(then, plan_restore(then, newer, 1), by="ann")
    assert turned_down(with_code(then, newest), newest, D[:5]) == set(D[2:5])


def test_a_first_rule_changes_no_input(lake: LakeFactory) -> None:
    """Without it, the sensor would build a table's whole history, since no day is in the quarantine that it has now."""
    before = built(lake)
    newer = replace(sums("v2"), model=model(rules={"short": lambda: F.length("k") < 9}, **COLUMNS))
    newer.__dict__["code_version"] = "v2"
    after = with_code(before, newer)
    assert newer.rules
    assert stale_days(after, newer, D[:5]) == D[:5]
    assert changed_days(after, newer, D[:5]) == []
    sell(after, ROWS, D[1], "new", anew=True)
    assert changed_days(after, newer, D[:5]) == D[1:3]


@pytest.mark.parametrize(("tokens", "since"), [((), ("n",)), (("n",), ())], ids=["first", "last"])
def test_a_column_of_tokens_changes_no_input(
    lake: LakeFactory, tokens: tuple[str, ...], since: tuple[str, ...]
) -> None:
    """Its key is an input from then on: without it, the sensor would build all that ever landed."""
    old, newer = with_tokens("v1", tokens), with_tokens("v2", since)
    before = lake(old)
    for day in D[:3]:
        land(before, day)
    publish_of(before, old, D[:3])
    after = with_code(before, newer)
    assert stale_days(after, newer) == D[:3]
    assert changed_days(after, newer) == []
    land(after, D[1], '{"n": 2}\n')
    assert changed_days(after, newer) == [D[1]]


def again(made: Table, **other: Any) -> Table:
    """The table, other in this, with a code version of its own."""
    found = replace(made, **other)
    found.__dict__["code_version"] = "v2"
    return found


def exchanged(lake: Lake, *others: Table) -> Lake:
    """The lake, once the sums of newer code read a table of another name in place of the rows."""
    newer = again(sums("v2", before=0), inputs={"rows": Input("silver.renamed")})
    made = [*others, newer, top()]
    return Lake(lake.settings, {each.id: each for each in made}, lambda: lake.spark)


def test_older_code_takes_along_what_it_reads_now_and_was_never_built(lake: LakeFactory) -> None:
    """Of a table that was renamed or split there is no day yet: the days that read it were published empty."""
    before = built(lake)
    for day in D[:5]:
        put(before, raw(), day, [{"_event_date": day, "n": 1}])
    renamed = source("silver.renamed")
    after = exchanged(before, raw(), renamed)
    found = stale_by_table(after, list(after.tables), (D[0], D[-1]), by_code=True)
    assert found == {"bronze.raw": set(), renamed.id: set(D[:5]), SUMS: set(D[:5]), TOP: set(D[:5])}
    publish_of(after, renamed, D[:2])
    land(after, D[6])
    found = stale_by_table(after, list(after.tables), (D[0], D[-1]), by_code=True)
    assert (found["bronze.raw"], found[renamed.id]) == (set(), set(D[2:5])), "what lands anew is no matter of code"


def test_older_code_takes_along_all_that_landed_where_nothing_of_it_was_built(lake: LakeFactory) -> None:
    """Where the table of landed lines was renamed as well, its reader has no input, and nobody knows whose rows land."""
    before = built(lake)
    lines = again(raw(), name="lines")
    renamed = again(source("silver.renamed"), inputs={"raw": Input(lines.id)})
    after = exchanged(before, lines, renamed)
    for day in (D[0], D[3], D[6]):
        land(after, day)
    found = stale_by_table(after, list(after.tables), (D[0], D[-1]), by_code=True)
    assert found[lines.id] == found[renamed.id] == {D[0], D[3], D[6]}
    assert found[SUMS] == {*D[:5], D[6]}
