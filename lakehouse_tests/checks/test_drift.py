"""Fields that have no column, and columns whose field stays away: told in the same run, by name alone."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.checks.drift import MOST_FIELDS, schema_drift, with_fields
from lakehouse.checks.metrics import DayMetrics, measure
from lakehouse.checks.profile import OTHER
from lakehouse.contracts import BronzeModel, Input, Landing, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.staged import StagedFile
from lakehouse.delta.target import Commit, Target
from lakehouse.read.lake import Lake
from lakehouse.store import parquet
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import having, stage_rows, table

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(12)]
TODAY = DAYS[-1]


class Raw(BronzeModel):
    """Lines of a shop."""

    id: T.StringType = pa.Field(nullable=True)
    country: T.StringType = pa.Field(nullable=True)
    email_token: T.StringType = pa.Field(nullable=True)


LINES = table(
    "bronze.lines", Raw, lambda lines: lines, {"lines": Landing("lines", "jsonl", ("id", "country", "email"))},
    partition_by=("_arrival_date", "_event_date"), pii=("email_token",),
)  # fmt: skip


def target_of(lake: Lake) -> Target:
    """The table behind its door."""
    return Target(lake.path(LINES.id), LINES.schema, LINES.partition_by, required=LINES.required, pii=LINES.pii)


def staged(lake: Lake, days: Mapping[date, Sequence[Mapping[str, Any]]], route: str = "valid") -> list[StagedFile]:
    """Rows of some days as staged files; a row's `_rescued` may be given as an object."""
    rows = [
        {
            "id": "1", "country": "FR", "email_token": "ff", "_arrival_date": day, "_event_date": day, "_source_file": "f",
            **row, "_rescued": json.dumps(kept) if isinstance(kept := row.get("_rescued"), dict) else kept,
        }
        for day, found in days.items()
        for row in found
    ]  # fmt: skip
    return stage_rows(target_of(lake), rows, route)


def noted(lake: Lake, *files: StagedFile, made: Table = LINES) -> dict[date, DayMetrics]:
    """The figures of the days of some files."""
    metrics = measure(made, files, {date.fromisoformat(f.partition["_arrival_date"] or "") for f in files})
    return with_fields(made, ensure_table(target_of(lake)), files, metrics)


def publish(lake: Lake, days: Mapping[date, Sequence[Mapping[str, Any]]]) -> None:
    """Make rows the table's content of some days."""
    target = target_of(lake)
    base = ensure_table(target)
    replace_days(target, base, staged(lake, days), list(days), Commit())


@pytest.fixture
def shop(lake: LakeFactory) -> Lake:
    """A lake whose table does not exist yet."""
    return lake(LINES)


def test_each_unknown_field_is_told_with_its_rows(shop: Lake) -> None:
    """Without it, a source could send a new field for months before anybody knows that it waits in `_rescued`."""
    kept = [{"coupon": "SPRING", "ref": None}, {"coupon": "x"}, None, {}, {"nested": '{"a":"b"}'}]
    m = noted(shop, *staged(shop, {TODAY: [{"_rescued": each} for each in kept]}))[TODAY]
    assert m.unknown_fields == {"coupon": 2, "ref": 1, "nested": 1}
    assert m.as_json()["unknown_fields"] == m.unknown_fields
    outcome = schema_drift(m)
    assert (outcome.passed, outcome.blocking) == (False, False)
    assert "without a column, kept in _rescued: coupon (2 rows), ref (1 row), nested (1 row)" in outcome.message
    assert outcome.values == {"unknown/coupon": 2, "unknown/ref": 1, "unknown/nested": 1}
    assert "SPRING" not in outcome.message


def test_days_files_and_quarantined_rows_are_told_apart_and_together(shop: Lake) -> None:
    """Without it, fields of one day would be told of another, or those of quarantined rows of none."""
    other = DAYS[0]
    files = staged(shop, {TODAY: [{"_rescued": {"a": "1"}}], other: [{"_rescued": {"b": "1"}}, {}]})
    bad = staged(shop, {TODAY: [{"_rescued": {"a": "2", "c": "1"}}]})
    metrics = measure(LINES, files, [TODAY, other])
    metrics = with_fields(
        LINES, ensure_table(target_of(shop)), [*files, *[replace(f, route="quarantined") for f in bad]], metrics
    )
    assert metrics[TODAY].unknown_fields == {"a": 2, "c": 1}
    assert metrics[other].unknown_fields == {"b": 1}


def test_names_that_may_be_data_are_not_told(shop: Lake) -> None:
    """Without it, whoever uses addresses or card numbers as field names would put them into checks and commits."""
    odd = ["ann@example.com", "4111111111111111", "", "x" * 65, "a\nb", "{", "+49 30 1234"]
    m = noted(shop, *staged(shop, {TODAY: [{"_rescued": dict.fromkeys(odd, "1") | {"größe.cm": "1"}}]}))[TODAY]
    assert m.unknown_fields == {"größe.cm": 1, OTHER: 1}


@pytest.mark.parametrize("text", ["no json", "[1]", "5", '{"a":', "null"])
def test_what_is_no_object_is_counted_and_does_not_fail_the_day(shop: Lake, text: str) -> None:
    """Without it, a transform that keeps something else in `_rescued` could never publish."""
    m = noted(shop, *staged(shop, {TODAY: [{"_rescued": text}]}))[TODAY]
    assert m.unknown_fields == {OTHER: 1}


def test_files_without_rescued_rows_are_not_read(shop: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, each day would be read once more for what its footers already say."""
    files = staged(shop, {TODAY: [{}, {}]})
    monkeypatch.setattr(parquet, "opened", lambda path: pytest.fail("a file was read"))
    assert noted(shop, *files)[TODAY].unknown_fields == {}
    assert schema_drift(noted(shop, *files)[TODAY]).message == "the fields are those of the contract"
    assert schema_drift(DayMetrics(TODAY)).passed


def test_many_names_cost_neither_memory_nor_time(shop: Lake) -> None:
    """Without it, a source with an id as field name would fill the driver's memory, or the commit's metadata."""
    rows = [{"_rescued": {f"id{n}": "1", "often": "1"}} for n in range(20_000)]
    files = staged(shop, {TODAY: rows})
    tracemalloc.start()
    began = time.process_time()
    m = noted(shop, *files)[TODAY]
    spent, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(m.unknown_fields) == MOST_FIELDS + 1
    assert m.unknown_fields["often"] == 20_000
    assert sum(m.unknown_fields.values()) == 40_000
    assert peak < 20_000_000
    assert spent < 5


def test_a_table_of_tables_has_no_schema_drift(shop: Lake) -> None:
    """Without it, silver would warn of what bronze has said already."""
    made = table("silver.lines", Raw, lambda rows: rows, {"rows": Input("bronze.lines")}, partition_by="_arrival_date")
    files = staged(shop, {TODAY: [{"_rescued": {"a": "1"}}]})
    assert noted(shop, *files, made=made)[TODAY].unknown_fields == {}


def test_a_field_that_stays_away_is_told(shop: Lake) -> None:
    """Without it, a field that the source dropped or renamed would become null in silence."""
    publish(shop, {day: [{}] * 9 + [{"country": None}] for day in DAYS[:-1]})
    m = noted(shop, *staged(shop, {TODAY: [{"country": None}] * 20}))[TODAY]
    assert m.missed_columns == {"country": pytest.approx(0.9)}
    outcome = schema_drift(m)
    assert (outcome.passed, outcome.blocking) == (False, False)
    assert outcome.message == "country is in no row, but was in 90% of the rows of the days before"
    assert m.as_json()["missed_columns"] == m.missed_columns


def test_a_column_with_a_bound_is_left_to_its_own_check(shop: Lake) -> None:
    """Without it, one missing key would fail two checks, and people look for two mistakes."""
    bounded = having(LINES, max_null_rate={"country": 0.5})
    publish(shop, {day: [{}] * 10 for day in DAYS[:3]})
    files = staged(shop, {TODAY: [{"country": None}] * 10})
    assert noted(shop, *files, made=bounded)[TODAY].missed_columns == {}
    assert set(noted(shop, *files)[TODAY].missed_columns) == {"country"}


def test_a_renamed_field_is_told_from_both_sides(shop: Lake) -> None:
    """Without it, one would look for a new field and miss that an old one went."""
    publish(shop, {day: [{}] * 10 for day in DAYS[:3]})
    m = noted(shop, *staged(shop, {TODAY: [{"country": None, "_rescued": {"land": "FR"}}] * 5}))[TODAY]
    assert schema_drift(m).message == (
        "fields without a column, kept in _rescued: land (5 rows); country is in no row, but was in 100% of the rows of "
        "the days before"
    )


@pytest.mark.parametrize(
    ("filled", "rows", "missed"),
    [(10, 1, True), (5, 20, True), (5, 3, False), (1, 20, False), (0, 1000, False)],
)
def test_what_may_be_chance_is_not_told(shop: Lake, filled: int, rows: int, missed: bool) -> None:
    """Without it, a rare field would be missed on each quiet day. `filled` of 10 rows had it on the days before."""
    publish(shop, {day: [{}] * filled + [{"country": None}] * (10 - filled) for day in DAYS[:3]})
    m = noted(shop, *staged(shop, {TODAY: [{"country": None}] * rows}))[TODAY]
    assert (set(m.missed_columns) == {"country"}) is missed


def test_days_of_the_same_run_are_the_days_before(shop: Lake) -> None:
    """Without it, a first backfill could not see that a field ended in the middle of it."""
    before: dict[date, list[dict[str, Any]]] = {day: [{}] * 10 for day in DAYS[:3]}
    after = {day: [{"country": None}] * 10 for day in DAYS[3:11]}
    metrics = noted(shop, *staged(shop, before | after))
    told = [day for day in sorted(metrics) if metrics[day].missed_columns]
    assert told == DAYS[3:7], "until it is rare enough among the days before"
    publish(shop, before | {DAYS[3]: [{}]})
    again = noted(shop, *staged(shop, {DAYS[3]: [{"country": None}] * 10}))
    assert set(again[DAYS[3]].missed_columns) == {"country"}, "not compared with what it replaces"


def test_what_the_log_does_not_say_is_not_claimed(shop: Lake) -> None:
    """Without it, personal data, which has no null counts, would count as filled or as empty."""
    publish(shop, {day: [{}] * 10 for day in DAYS[:3]})
    m = noted(shop, *staged(shop, {TODAY: [{"email_token": None}] * 10}))[TODAY]
    assert m.missed_columns == {}
    target = target_of(shop)
    files = [f for _ in range(2) for f in staged(shop, {DAYS[4]: [{}] * 10})]
    replace_days(target, ensure_table(target), files, DAYS[:5], Commit())
    assert compact(Compactable(target.path, LINES.schema, LINES.pii)).files_after == 1
    merged = noted(shop, *staged(shop, {TODAY: [{"country": None, "email_token": None}] * 10}))[TODAY].missed_columns
    assert merged == {"country": 1.0}, "a compacted file says it too, and nothing of personal columns"
