"""Keys that are unique beyond a day: the rule against brute force, and the same tables however they are built."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.result import PUBLISHED, UNCHANGED, BuildResult
from lakehouse.build.route import BEATEN, routed
from lakehouse.build.slices import Slicing
from lakehouse.build.stale import stale_days
from lakehouse.build.unique import with_marks
from lakehouse.contracts import Table
from lakehouse.lineage.reconcile import differing_rows, reconcile
from lakehouse.read.lake import Lake
from lakehouse.records.history import latest_records
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults import crashing
from lakehouse_tests.fixtures.making import having, rows_of

FIRST = date(2026, 3, 2)
DAYS = [FIRST + timedelta(days=n) for n in range(6)]
ORIGIN = crashing.ORIGIN


def unique(days: int = 1, **policy: Any) -> dict[str, Table]:
    """Landed lines, and their rows once each within some days: bronze and silver of the crash tests' small lake."""
    made = crashing.tables()
    policy = {"unique_within": timedelta(days=days), **policy}
    silver = made["silver.readings"]
    changed = having(silver, max_quarantined=1.0, **policy)
    changed.__dict__["code_version"] = "v1"
    return {"bronze.readings": made["bronze.readings"], "silver.readings": changed}


# ---- the rule -------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A row as the transform gives it: days as numbers, `value` negative where it breaks a rule."""

    key: str | None
    day: int
    arrival: int | None
    place: int
    value: int


LINES = st.lists(
    st.builds(
        Line,
        st.sampled_from([*"abcdefghijklmno", None]),
        st.integers(0, 5),
        st.one_of(st.none(), st.integers(0, 3)),
        st.integers(0, 1),
        st.sampled_from([1, -1]),
    ),
    max_size=60,
)


def by_brute_force(lines: list[Line], days: set[int], within: int) -> Counter[tuple[Any, ...]]:
    """What each built day holds, by the sentence of the contract: outcome, key, day and rows."""

    def place(line: Line) -> tuple[Any, ...]:
        return (line.arrival is None, line.arrival or 0, line.place)

    found: Counter[tuple[Any, ...]] = Counter()
    groups: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for line in lines:
        if line.key is None:
            found["quarantined", None, line.day] += line.day in days
        else:
            groups[line.key, line.day].append(line)
    for (key, day), rows in groups.items():
        if day not in days:
            continue
        first = min(map(place, rows))
        near = [line for line in lines if line.key == key and 0 < abs(line.day - day) <= within]
        if any((place(line), line.day) < (first, day) for line in near):
            found["duplicate", key, day] += len(rows)
            continue
        # Rows that arrived alike have no first; either may be kept.
        kept = {line.value for line in rows if place(line) == first}
        found["kept", key, day, *sorted(kept)] += 1
        found["duplicate", key, day] += len(rows) - 1
    return +found


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines=LINES, days=st.sets(st.integers(0, 5), min_size=1), within=st.integers(1, 2), files=st.integers(1, 2))
# A chain, from the last day backwards: each is a duplicate of the next, and only the first to arrive is left.
@example([Line("a", 2, 0, 0, 1), Line("a", 1, 1, 0, 1), Line("a", 0, 2, 0, 1)], {0, 1, 2}, 1, 1)
# The first goes to quarantine, and what repeats it a day later is a duplicate all the same.
@example([Line("a", 1, 0, 0, -1), Line("a", 2, 0, 1, 1), Line("a", 2, 1, 0, 1)], {1, 2}, 1, 2)
# Of rows that arrived alike, or with nothing known of that, the earlier day's comes first.
@example(
    [Line("a", 1, 0, 0, 1), Line("a", 0, 0, 0, 1), Line("b", 4, None, 0, 1), Line("b", 3, None, 0, 1)], {1, 4}, 1, 1
)
# Rows without a key repeat nothing; days are told apart on both sides.
@example([Line(None, 1, 0, 0, 1), Line(None, 2, 0, 0, 1), Line("a", 0, 0, 0, 1), Line("a", 2, 1, 0, 1)], {1, 2}, 1, 1)
def test_the_rule_is_what_the_contract_says(
    spark: SparkSession, lines: list[Line], days: set[int], within: int, files: int
) -> None:
    """Without it, what is published of a key could depend on more than the sentence that users read."""
    table = unique(within, files_per_day=files)["silver.readings"]
    schema = T.StructType(
        [
            T.StructField("id", T.StringType()),
            T.StructField("sensor", T.StringType()),
            T.StructField("day", T.DateType()),
            T.StructField("value", T.LongType()),
            T.StructField("_arrival_date", T.DateType()),
            T.StructField("_source_file", T.StringType()),
            T.StructField("_source_row", T.LongType()),
        ]
    )

    def frame(some: Iterable[Line]) -> Any:
        rows = [
            (n.key, "s", DAYS[n.day], n.value, None if n.arrival is None else DAYS[n.arrival], "f", n.place)
            for n in some
        ]
        return spark.createDataFrame(rows, schema)

    asked = {DAYS[day] for day in days}
    near = {n + beside for n in days for beside in range(-within, within + 1)}
    rows = frame(line for line in lines if line.day in days)
    marked = with_marks(table, rows, frame(line for line in lines if line.day in near), sorted(asked))
    found: Counter[tuple[Any, ...]] = Counter()
    for row in routed(table, marked).collect():
        day, copies = DAYS.index(row["day"]), row["_copies"]
        if row["id"] is None:
            found["quarantined", None, day] += copies
        elif row["route"] == "repeated":
            found["duplicate", row["id"], day] += copies
        else:
            assert row["route"] == ("valid" if row["value"] > 0 else "quarantined")
            found["kept", row["id"], day, row["value"]] += 1
            found["duplicate", row["id"], day] += copies - 1
    wanted = by_brute_force(lines, days, within)
    for either in [name for name in wanted if name[0] == "kept" and len(name) > 4]:  # two rows arrived alike
        del wanted[either]
        wanted[next(name for name in ((*either[:3], v) for v in either[3:]) if name in found)] += 1
    assert +found == wanted


def test_a_row_is_marked_at_its_own_key_and_day_alone(spark: SparkSession) -> None:
    """Without it, the marks themselves could come out as rows."""
    table = unique()["silver.readings"]
    rows = spark.createDataFrame([("a", DAYS[0]), ("b", DAYS[1])], "id string, day date")
    rows = rows.selectExpr(
        "id", "'s' AS sensor", "day", "1L AS value", "DATE'2026-03-02' AS _arrival_date", "id AS _source_file",
        "1L AS _source_row",
    )  # fmt: skip
    found = routed(table, with_marks(table, rows, rows, DAYS[:2])).collect()
    assert sorted((r["id"], r["route"], r["_copies"]) for r in found) == [("a", "valid", 1), ("b", "valid", 1)]
    assert BEATEN not in found[0].asDict()


# ---- however it is built --------------------------------------------------------------------------------------------


def land(root: Path, arrival: date, name: str, *lines: tuple[str, date, int]) -> None:
    """A landed file of lines `(id, day, value)`."""
    folder = root / "landing" / "events" / arrival.isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    made = [{"id": key, "sensor": "s", "at": f"{day}T23:59:59Z", "value": value} for key, day, value in lines]
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in made))


ONE, TWO, THREE, FOUR = DAYS[:4]
ARRIVED: dict[date, list[tuple[str, date, int]]] = {
    # Sent again after midnight, and arrived with its original; the repeat has a repeat of its own.
    ONE: [("midnight", ONE, 1), ("midnight", TWO, 2), ("midnight", TWO, 2), ("plain", ONE, 1)],
    # Sent again after midnight, and arrived the day after; then once more: three rows, each a day after the other.
    TWO: [("plain", TWO, 2), ("chain", TWO, 1), ("bad", TWO, -1), ("back", THREE, 1)],
    # The first of its key broke a rule; the first to arrive is of the later day.
    THREE: [("chain", THREE, 2), ("bad", THREE, 1), ("back", TWO, 2), ("far", ONE, 1)],
    # Two days apart are two events.
    FOUR: [("chain", FOUR, 3), ("far", FOUR, 2), ("own", FOUR, 1)],
}
WANTED = {
    ONE: ({"midnight": 1, "plain": 1, "far": 1}, {}, 0),
    TWO: ({"chain": 1}, {"bad": -1}, 4),  # midnight, midnight, plain, back
    THREE: ({"back": 1}, {}, 2),  # chain, bad
    FOUR: ({"far": 2, "own": 1}, {}, 1),  # chain
}


def silver(lake: Lake, days: Iterable[date], **kwargs: Any) -> BuildResult:
    """Build days of silver."""
    return build(lake, lake.table("silver.readings"), days, run_id="run", **kwargs)


def bronze(lake: Lake, days: Iterable[date]) -> None:
    """Build arrival days."""
    result = build(lake, lake.table("bronze.readings"), days, run_id="run")
    assert not result.with_status("failed"), result.days


def held(lake: Lake) -> dict[date, tuple[dict[str, int], dict[str, int], int]]:
    """By day: published and quarantined values by key, and the duplicates that its commit counted."""
    found: dict[date, tuple[dict[str, int], dict[str, int], int]] = {}
    kept = latest_records(lake.settings.root, "silver.readings", DAYS)
    sides = [rows_of(lake.path(name)) for name in ("silver.readings", "silver.readings_quarantine")]
    for day in DAYS[:4]:
        parts = [{r["id"]: r["value"] for r in rows if r["day"] == day} for rows in sides]
        assert sum(map(len, parts)) == sum(r["day"] == day for rows in sides for r in rows), "a key twice in one day"
        found[day] = (parts[0], parts[1], int(kept[day].figures.get("duplicates", 0)))
    return found


def settle(lake: Lake) -> set[date]:
    """Build what is stale, as `backfill --stale` does."""
    stale = stale_days(lake, lake.table("silver.readings"))
    if stale:
        silver(lake, stale)
    return set(stale)


@pytest.fixture
def shop(lake: LakeFactory) -> Lake:
    """A lake where nothing has landed."""
    return lake(*unique().values())


def land_all(shop: Lake) -> None:
    for arrival, lines in ARRIVED.items():
        land(shop.settings.root, arrival, "a.jsonl", *lines)


@pytest.mark.spark
def test_one_range_and_any_order_give_the_same(shop: Lake, seed: int) -> None:
    """Without it, a backfill from the end would keep other rows than the days that were built as they came."""
    land_all(shop)
    bronze(shop, DAYS[:4])
    result = silver(shop, DAYS[:4])
    assert held(shop) == WANTED
    for day, each in result.days.items():
        assert each.status == PUBLISHED
        assert (
            each.metrics.rows_in == each.metrics.staged == sum(line[1] == day for a in ARRIVED.values() for line in a)
        )
    left = DAYS[:4]
    random.Random(seed).shuffle(left)
    for day in left:
        silver(shop, [day], force=True)
    assert held(shop) == WANTED, f"seed {seed}"
    silver(shop, DAYS[:4], force=True, slicing=Slicing(3))
    assert held(shop) == WANTED
    assert settle(shop) == set()
    assert silver(shop, DAYS[:4]).with_status(UNCHANGED) == DAYS[:4]
    (link,) = [each for each in reconcile(shop, shop.tables.values()) if each.target == "silver.readings"]
    assert not link.differing
    assert [differing_rows(shop, shop.table("silver.readings"), day) for day in DAYS[:4]] == [[]] * 4


@pytest.mark.spark
def test_day_by_day_as_files_arrive_and_what_is_stale(shop: Lake) -> None:
    """Without it, an ordinary new day would rebuild the day before it, or a late original would stay a second event."""
    for arrival in (ONE, TWO, FOUR):
        land(shop.settings.root, arrival, "a.jsonl", *ARRIVED[arrival])
        bronze(shop, [arrival])
        built = settle(shop)
        # The day of THREE has a row of TWO's file; nothing that arrives after all rows of a day comes before them.
        assert built == {ONE: {ONE, TWO}, TWO: {TWO, THREE}, FOUR: {FOUR}}[arrival]
    assert "chain" in held_keys(shop, FOUR), "its repeats have not arrived yet"
    # A file that was late for its arrival day: its rows come before those of FOUR's file, and so FOUR is stale beside
    # the days it has rows for. ONE is touched; TWO is too.
    land(shop.settings.root, THREE, "a.jsonl", *ARRIVED[THREE])
    bronze(shop, [THREE])
    assert settle(shop) == {ONE, TWO, THREE, FOUR}
    assert held(shop) == WANTED
    assert settle(shop) == set()


def held_keys(lake: Lake, day: date) -> set[str]:
    """Published keys of a day."""
    return {row["id"] for row in rows_of(lake.path("silver.readings")) if row["day"] == day}


@pytest.mark.spark
def test_only_what_may_come_before_a_day_makes_it_stale(shop: Lake) -> None:
    """Without it, each late file would rebuild the neighbours of all days it touches, or one of them too few."""
    for arrival in (ONE, THREE):
        land(shop.settings.root, arrival, "a.jsonl", ("x", arrival, 1))
    land(shop.settings.root, FOUR, "a.jsonl", ("late", TWO, 1))
    bronze(shop, [ONE, THREE, FOUR])
    silver(shop, DAYS[:4])
    assert settle(shop) == set()
    # A day later than every row of ONE and THREE: only its own day changes.
    land(shop.settings.root, FOUR, "b.jsonl", ("x", TWO, 2))
    bronze(shop, [FOUR])
    assert settle(shop) == {TWO}
    assert held_keys(shop, TWO) == {"late"}
    # As early as ONE's rows, and before THREE's: both may have to give way.
    land(shop.settings.root, ONE, "0.jsonl", ("x", TWO, 0))
    bronze(shop, [ONE])
    assert settle(shop) == {ONE, TWO, THREE}
    assert [held_keys(shop, day) for day in DAYS[:3]] == [set(), {"late", "x"}, set()]
