"""Which days are stale is decided from logs alone, and is exact: no day too many, none too few."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.build.plan import make_plan
from lakehouse.build.ready import MISSING, readiness
from lakehouse.build.stale import (
    all_stale_days,
    all_waiting_days,
    days_before_the_first,
    known_days,
    stale_days,
    tidied_days,
    waiting_days,
)
from lakehouse.commands.summary import before_the_first
from lakehouse.contracts import Input, Landing, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.orchestration.metadata import older_code_metadata
from lakehouse.orchestration.pieces import Piece
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.records.history import older_code
from lakehouse.runs import running
from lakehouse.runs.plans import stale_by_table
from lakehouse.runs.reports import Report
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, stage_rows, table

D = [date(2011, 3, n) for n in range(1, 21)]


def _never(**_: object) -> None:
    raise AssertionError("deciding what is stale computes nothing")


def raw() -> Table:
    """Landed lines by arrival day, each with the event day that downstream tables see."""
    contract = model(
        _arrival_date=(T.DateType(), pa.Field()),
        _event_date=(T.DateType(), pa.Field()),
        n=(T.LongType(), pa.Field(nullable=True)),
    )

    def transform(lines: Any) -> None:
        _never(lines=lines)

    return table(
        "bronze.raw",
        contract,
        transform,
        {"lines": Landing("events", "jsonl", ("n",))},
        partition_by=("_arrival_date", "_event_date"),
    )


def typed(code: str = "v1") -> Table:
    """The same rows by event day."""
    contract = model(day=(T.DateType(), pa.Field()), n=(T.LongType(), pa.Field(nullable=True)))

    def transform(raw: Any) -> None:
        _never(raw=raw)

    return table("silver.typed", contract, transform, {"raw": Input("bronze.raw")}, code=code)


def weekly() -> Table:
    """What three days together hold, by the last of them."""
    contract = model(day=(T.DateType(), pa.Field()), n=(T.LongType(), pa.Field(nullable=True)))

    def transform(typed: Any) -> None:
        _never(typed=typed)

    return table("gold.weekly", contract, transform, {"typed": Input("silver.typed", days_before=2)})


@pytest.fixture
def chain(lake: LakeFactory) -> Lake:
    """Three tables in a row whose engine must not be asked."""
    return lake(raw(), typed(), weekly())


def land(lake: Lake, arrival: date, text: str = '{"n": 1}\n') -> Path:
    file = lake.settings.root / "landing" / "events" / arrival.isoformat() / "part-0.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def build(lake: Lake, name: str, rows: dict[date, list[dict[str, Any]]]) -> None:
    """Publish days as a build would, with the fingerprints of the inputs and code of now."""
    made = lake.table(name)
    prints = make_plan(lake, made, list(rows)).fingerprints
    for day, cells in rows.items():
        put(lake, made, day, cells, mark=prints[day])


def stale(lake: Lake, name: str) -> list[date]:
    return stale_days(lake, lake.table(name))


def build_all(lake: Lake) -> None:
    """Three arrival days, each with events of its own day; everything published."""
    for day in D[:3]:
        land(lake, day)
    build(lake, "bronze.raw", {day: [{"_event_date": day, "n": 1}] for day in D[:3]})
    build(lake, "silver.typed", {day: [{"n": 1}] for day in D[:3]})
    build(lake, "gold.weekly", {day: [{"n": 1}] for day in D[:5]})


def test_days_that_were_never_published_are_stale(chain: Lake) -> None:
    """The first build must not wait for a change; days without any input are nobody's."""
    assert stale(chain, "bronze.raw") == []
    for day in D[:3]:
        land(chain, day)
    assert stale(chain, "bronze.raw") == D[:3]
    assert stale(chain, "silver.typed") == []
    build(chain, "bronze.raw", {day: [{"_event_date": day, "n": 1}] for day in D[:2]})
    assert stale(chain, "bronze.raw") == [D[2]]
    assert stale(chain, "silver.typed") == D[:2]
    assert known_days(chain, chain.table("silver.typed")) == set(D[:2])


def test_nothing_is_stale_once_all_is_built(chain: Lake) -> None:
    """A second call that found something would rebuild the lake for ever."""
    build_all(chain)
    assert [stale(chain, name) for name in chain.tables] == [[], [], []]


def test_a_late_file_touches_the_days_it_holds_and_their_windows(chain: Lake) -> None:
    """A fixed look-back would miss the old day, or rebuild all between the two."""
    build_all(chain)
    land(chain, D[9])
    assert [stale(chain, name) for name in chain.tables] == [[D[9]], [], []], "its event days are not known yet"
    build(chain, "bronze.raw", {D[9]: [{"_event_date": D[0], "n": 5}, {"_event_date": D[2], "n": 6}]})
    assert stale(chain, "silver.typed") == [D[0], D[2]]
    build(chain, "silver.typed", {day: [{"n": 2}] for day in (D[0], D[2])})
    assert stale(chain, "gold.weekly") == D[:5]
    build(chain, "gold.weekly", {day: [{"n": 2}] for day in D[:5]})
    assert [stale(chain, name) for name in chain.tables] == [[], [], []]


def test_a_day_that_came_out_the_same_makes_nothing_stale(chain: Lake) -> None:
    """Built again from the same inputs and code it has its old fingerprint, and readers need not follow."""
    build_all(chain)
    build(chain, "silver.typed", {D[1]: [{"n": 1}]})
    assert stale(chain, "gold.weekly") == []


def test_changed_code_makes_every_day_stale_and_their_readers_follow(chain: Lake, lake: LakeFactory) -> None:
    """Rows of the old code would otherwise stay as if nothing had happened."""
    build_all(chain)
    changed = lake(raw(), typed("v2"), weekly())
    assert stale(changed, "silver.typed") == D[:3]
    assert stale(changed, "bronze.raw") == stale(changed, "gold.weekly") == []
    build(changed, "silver.typed", {D[0]: [{"n": 1}]})
    assert stale(changed, "silver.typed") == [D[1], D[2]]
    assert stale(changed, "gold.weekly") == D[:3], "the windows that read the first day"


def test_a_day_that_was_published_empty_is_built_again_when_code_changes(chain: Lake, lake: LakeFactory) -> None:
    """Without it, status named it as stale for ever, and `backfill --stale` found nothing to do."""
    build_all(chain)
    build(chain, "silver.typed", {D[5]: []})
    other = lake(raw(), typed("v2"), weekly(), root=chain.settings.root)
    assert all_stale_days(chain, chain.table("silver.typed")) == []
    assert all_stale_days(other, other.table("silver.typed")) == [*D[:3], D[5]]
    assert stale_by_table(other, ["silver.typed"], (D[0], D[-1])) == {"silver.typed": {*D[:3], D[5]}}


def test_days_that_have_only_landed_are_planned_in_every_table(chain: Lake) -> None:
    """Without it, `--stale --dry-run` of a new lake names bronze alone, and `--stale --daemon` builds no more."""
    land(chain, D[4], '{"n": 1}\n')
    found = stale_by_table(chain, list(chain.tables), (D[0], D[5]))
    assert found == {"bronze.raw": {D[4]}, "silver.typed": {D[4]}, "gold.weekly": set(D[4:6])}


def test_only_the_days_asked_for_are_looked_at(chain: Lake) -> None:
    """A status of some days must not read the log for all others."""
    build_all(chain)
    land(chain, D[1], '{"n": 2}\n{"n": 3}\n')
    assert stale_days(chain, chain.table("bronze.raw"), [D[0], D[1]]) == [D[1]]
    assert stale_days(chain, chain.table("bronze.raw"), [D[0]]) == []
    assert stale_days(chain, chain.table("bronze.raw"), []) == []


def test_rows_of_days_before_the_first_are_told(chain: Lake) -> None:
    """Without it, `backfill --stale` says that nothing is left to do while such rows are in no table beyond bronze."""
    first = chain.settings.first_day
    before = [first - timedelta(days=n) for n in (3, 1)]
    build(chain, "bronze.raw", {first: [{"_event_date": day, "n": 1} for day in [first, *before]]})
    # What arrived before the lake's days is not theirs: somebody has moved the first day on.
    build(chain, "bronze.raw", {before[1]: [{"_event_date": first - timedelta(days=2), "n": 1}]})
    assert days_before_the_first(chain) == before
    build(chain, "silver.typed", {first: [{"n": 1}]})
    assert waiting_days(chain, chain.table("gold.weekly"), [first]) == {}, "no run could clear it"
    assert all_waiting_days(chain)["gold.weekly"].get(first) is None
    told = before_the_first(before, chain.settings)
    assert f"2 days before the lake's first day, {first}" in told
    assert f"LAKEHOUSE_FIRST_DAY={before[0]}" in told
    build(chain, "silver.typed", {day: [{"n": 1}] for day in before})
    assert days_before_the_first(chain) == [], "a batch has built them: a run that says that they lack would be wrong"


def test_a_file_that_was_tidied_away_is_no_change(chain: Lake) -> None:
    """Its rows are published; to build the day again would be to lose them."""
    build_all(chain)
    (chain.settings.root / "landing" / "events" / D[0].isoformat() / "part-0.jsonl").unlink()
    assert stale(chain, "bronze.raw") == []


def test_a_day_without_its_quarantine_is_stale(lake: LakeFactory) -> None:
    """A crash between the two commits leaves one without the other; either alone is half a day."""
    made = ruled(lambda: None)
    lake_of = lake(raw(), made)
    land(lake_of, D[0])
    build(lake_of, "bronze.raw", {D[0]: [{"_event_date": D[0], "n": 1}]})
    build(lake_of, made.id, {D[0]: [{"n": 1}]})
    assert stale(lake_of, made.id) == [D[0]]
    mark = make_plan(lake_of, made, [D[0]]).fingerprints[D[0]]
    side = Target(lake_of.path(made.quarantine_id), made.schema, made.partition_by)
    replace_days(side, ensure_table(side), [], [D[0]], Commit({day_transaction(D[0]): mark}))
    assert stale(lake_of, made.id) == []


def test_a_day_of_set_aside_rows_alone_is_stale_once_its_input_is_gone(lake: LakeFactory) -> None:
    """Without it, rows of a file that was withdrawn stay in quarantine for ever, and the day never adds up again."""
    made = ruled(lambda: None)
    lake_of = lake(raw(), made)
    file = land(lake_of, D[2])
    build(lake_of, "bronze.raw", {D[2]: [{"_event_date": D[0], "n": 1}]})
    build(lake_of, made.id, {D[0]: []})
    mark = make_plan(lake_of, made, [D[0]]).fingerprints[D[0]]
    side = Target(lake_of.path(made.quarantine_id), made.schema, made.partition_by)
    files = stage_rows(side, [{"day": D[0], "n": 1}])
    replace_days(side, ensure_table(side), files, [D[0]], Commit({day_transaction(D[0]): mark}))
    assert stale(lake_of, made.id) == []
    file.write_text("")
    build(lake_of, "bronze.raw", {D[2]: []})
    assert stale(lake_of, made.id) == [D[0]]


def ruled(holds: Callable[[], Any]) -> Table:
    contract = model(rules={"holds": holds}, day=(T.DateType(), pa.Field()), n=(T.LongType(), pa.Field(nullable=True)))

    def transform(raw: Any) -> None:
        _never(raw=raw)

    return table("silver.ruled", contract, transform, {"raw": Input("bronze.raw")})


def test_a_day_of_an_upserted_input_is_known_by_its_files(lake: LakeFactory) -> None:
    """A run over other days may have replaced it, which its own fingerprint does not say."""
    days = T.ArrayType(T.DateType())
    contract = model(
        key=(T.StringType(), pa.Field()), day=(T.DateType(), pa.Field()), _event_days=(days, pa.Field(nullable=True))
    )

    def upserted(raw: Any) -> None:
        _never(raw=raw)

    def reads(keyed: Any) -> None:
        _never(keyed=keyed)

    keyed = table("silver.keyed", contract, upserted, {"raw": Input("bronze.raw")}, key=("key",), upsert=True)
    plain = model(day=(T.DateType(), pa.Field()), n=(T.LongType(), pa.Field(nullable=True)))
    reader = table("gold.reader", plain, reads, {"keyed": Input("silver.keyed")})
    whole = lake(raw(), keyed, reader)
    rows = {day: [{"key": f"k{day.day}", "_event_days": [day]}] for day in D[:3]}
    build(whole, "silver.keyed", rows)
    build(whole, "gold.reader", {day: [{"n": 1}] for day in D[:3]})
    assert stale(whole, "gold.reader") == []
    target = Target(whole.path("silver.keyed"), keyed.schema, keyed.partition_by)
    files = stage_rows(target, [{"day": D[0], **rows[D[0]][0]}])
    replace_days(target, ensure_table(target), files, [D[0]], Commit())  # no fingerprint of the day is set
    assert stale(whole, "gold.reader") == [D[0]]


def test_days_of_older_code_are_told_by_version(chain: Lake) -> None:
    """Rows of mixed code in one table look alike; who reads them has to be able to see it."""
    made = chain.table("silver.typed")
    target = Target(chain.path(made.id), made.schema, made.partition_by)
    for code, days in (("v0", D[:3]), ("v1", D[1:2]), ("v2", D[2:4])):
        figures = {day.isoformat(): {"rows": 1} for day in days}
        files = stage_rows(target, [{"day": day, "n": 1} for day in days])
        facts = {"lakehouse.code_version": code, "lakehouse.metrics": figures}
        replace_days(target, ensure_table(target), files, days, Commit({}, facts))
    root = chain.settings.root
    assert older_code(root, made.id, "v2") == {"v1": [D[1]], "v0": [D[0]]}
    assert older_code(root, made.id, "v2", [D[0], D[3]]) == {"v0": [D[0]]}
    assert older_code(root, made.id, "v3") == {"v2": D[2:4], "v1": [D[1]], "v0": [D[0]]}
    assert older_code_metadata(older_code(root, made.id, "v2"))["older_code_days"] == 2
    assert older_code_metadata({}) == {"older_code_days": 0, "older_code": "none"}


@pytest.mark.parametrize(
    ("day", "why"),
    [
        (D[3], "silver.typed 2011-03-04 was never published"),
        (D[0], "silver.typed 2011-03-01 was never published, and is no day of the lake, which begins with 2011-03-03"),
        (D[9], "silver.typed 2011-03-10 was never published, and is no day of the lake, which ends with 2011-03-05"),
    ],
)
def test_a_day_that_nothing_will_build_is_told(chain: Lake, day: date, why: str) -> None:
    """Without it, a program would wait for a day for ever that no run may build."""
    days = chain.settings.model_copy(update={"first_day": D[2], "last_day": D[4]})
    found = readiness(PinnedLake(days, chain.tables), chain.table("silver.typed"), day, datetime.now(UTC))
    assert (found.status, found.reason) == (MISSING, why)


def test_a_day_whose_files_are_gone_is_in_no_run_that_bridges_a_gap(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, `backfill --stale` would refuse a day that is not stale, and fail, since it lies between two others."""
    made = lake(raw())
    bronze = made.table("bronze.raw")
    for day in D[:3]:
        put(made, bronze, day, [{"_arrival_date": day, "_event_date": day, "n": 1}])
    for day in (D[0], D[2]):
        path = made.settings.root / "landing" / "events" / str(day) / "a.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text('{"n": 2}\n')
    asked: list[Piece] = []
    monkeypatch.setattr(running, "run_pieces", lambda _, pieces, **__: asked.extend(pieces) or Report())
    monkeypatch.setattr(running, "lake_without_engine", lambda _: made)
    running.run_stale(made.settings, [bronze.id], within=(D[0], D[-1]))
    assert stale_days(made, bronze) == [D[0], D[2]]
    assert tidied_days(made, bronze, D) == {D[1]}
    assert [(each.first, each.last) for each in asked] == [(D[0], D[0]), (D[2], D[2])]
