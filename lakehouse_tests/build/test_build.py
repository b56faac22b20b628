"""Building days: what is skipped and what is not, what fails by name, and what readers see meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.build.result import FAILED, PUBLISHED, UNCHANGED
from lakehouse.contracts import BronzeModel, Input, Landing, Rule, Table, Volume
from lakehouse.errors import ContractError, StagedFileError, UnsupportedTableError
from lakehouse.read.lake import Lake
from lakehouse.transforms.columns import with_event_date
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, rows_of, spark_rows, table

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(14)]
ORIGIN = ("_arrival_date", "_source_file", "_source_row")
NEVER = Rule("never", "nothing passes", lambda: F.lit(False))
TEXT, DAY, LONG = T.StringType(), T.DateType(), T.LongType()


class RawReadings(BronzeModel):
    """Lines of a sensor."""

    id: T.StringType = pa.Field(nullable=True)
    at: T.StringType = pa.Field(nullable=True)
    value: T.StringType = pa.Field(nullable=True)


def _raw(lines: DataFrame) -> DataFrame:
    return with_event_date(lines, "at")


def _typed(raw: DataFrame) -> DataFrame:
    return raw.select(
        "id", F.col("_event_date").alias("day"), F.col("value").try_cast("bigint").alias("value"), *ORIGIN
    )


def _summed(readings: DataFrame) -> DataFrame:
    return readings.groupBy("day").agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("n"))


def sensors(code: str = "v1", **policy: Any) -> tuple[Table, Table, Table]:
    """bronze.readings from landed lines, silver.readings typed and once each, gold.sums by day."""
    typed = model(id=(TEXT, pa.Field()), day=(DAY, pa.Field()), value=(LONG, pa.Field(ge=0)))
    summed = model(day=(DAY, pa.Field()), total=(LONG, pa.Field()), n=(LONG, pa.Field()))
    landing = Landing("events", "jsonl", ("id", "at", "value"))
    return (
        table("bronze.readings", RawReadings, _raw, {"lines": landing}, partition_by=("_arrival_date", "_event_date")),
        table(
            "silver.readings", typed, _typed, {"raw": Input("bronze.readings")}, code=code, key=("id",),
            keep_first_by=ORIGIN, conserves_rows=True, **{"max_quarantined": 0.5, **policy},
        ),
        table("gold.sums", summed, _summed, {"readings": Input("silver.readings")}, key=("day",)),
    )  # fmt: skip


def land(lake: Lake, day: date, lines: Iterable[Any], name: str = "a.jsonl") -> Path:
    """Put a file of lines (id, event day or None, value), or of raw texts, into the landing zone."""
    path = lake.settings.root / "landing" / "events" / day.isoformat() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [
        line
        if isinstance(line, str)
        else json.dumps({"id": line[0], "at": f"{line[1] or day}T10:00:00Z", "value": line[2]})
        for line in lines
    ]
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text("\n".join(texts) + "\n")
    os.utime(path, ns=(before + 10**9,) * 2)  # a landing of its own, however fast the disk
    return path


def run(lake: Lake, days: list[date], **kwargs: Any) -> list[dict[str, list[int]]]:
    """Build every table of the lake over some days; the numbers of the days by status, for each table."""
    statuses = []
    for each in lake.tables.values():
        result = build(lake, each, days, run_id="run", **kwargs)
        found = {s: [DAYS.index(day) for day in result.with_status(s)] for s in (PUBLISHED, UNCHANGED, FAILED)}
        statuses.append({status: numbers for status, numbers in found.items() if numbers})
    return statuses


def sums(lake: Lake, version: int | None = None) -> dict[int, int]:
    """gold.sums by number of the day."""
    return {DAYS.index(row["day"]): row["total"] for row in rows_of(lake.path("gold.sums"), version)}


def test_only_what_changed_is_built_and_exactly_what_reads_it(lake: LakeFactory) -> None:
    """Without it, each run would rebuild years, or late data would never reach the days it belongs to."""
    three = DAYS[:3]
    shop = lake(*sensors())
    for n, day in enumerate(three):
        land(shop, day, [(f"a{n}", None, 1), (f"b{n}", None, 2), "no json"])
    assert run(shop, three) == [{PUBLISHED: [0, 1, 2]}] * 3
    assert sums(shop) == {0: 3, 1: 3, 2: 3}

    versions = {name: shop.snapshot(name).version for name in shop.tables}
    result = build(shop, shop.table("silver.readings"), three[::-1], run_id="again")
    figures = result.days[DAYS[1]].metrics
    assert (result.with_status(UNCHANGED), figures.rows, figures.quarantined) == (three, 2, 0)
    assert build(shop, shop.table("bronze.readings"), three, run_id="again").days[DAYS[1]].metrics.quarantined == 1
    assert run(shop, three) == [{UNCHANGED: [0, 1, 2]}] * 3
    assert {name: shop.snapshot(name).version for name in shop.tables} == versions, "nothing was committed"

    # One file changes. It now also holds a late line of the day before.
    land(shop, DAYS[1], [("a1", None, 1), ("b1", None, 5), ("late", DAYS[0], 10)])
    assert run(shop, three) == [
        {PUBLISHED: [1], UNCHANGED: [0, 2]},
        {PUBLISHED: [0, 1], UNCHANGED: [2]},
        {PUBLISHED: [0, 1], UNCHANGED: [2]},
    ]
    assert sums(shop) == {0: 13, 1: 6, 2: 3}

    # The late line is withdrawn, and with it its file's part of the day before.
    land(shop, DAYS[1], [("a1", None, 1), ("b1", None, 5)])
    assert run(shop, three)[1:] == [{PUBLISHED: [0, 1], UNCHANGED: [2]}] * 2
    assert sums(shop) == {0: 3, 1: 6, 2: 3}

    # New code of one table rebuilds it, and what reads it, but nothing before it.
    newer = lake(*sensors(code="v2"))
    assert run(newer, three) == [{UNCHANGED: [0, 1, 2]}, {PUBLISHED: [0, 1, 2]}, {PUBLISHED: [0, 1, 2]}]
    assert run(newer, [DAYS[1]], force=True) == [{PUBLISHED: [1]}] * 3
    assert sums(newer) == {0: 3, 1: 6, 2: 3}
    assert spark_rows(newer, newer.path("gold.sums")) == rows_of(newer.path("gold.sums"))


@pytest.mark.parametrize(
    ("broken", "made", "got"),
    [
        pytest.param("bronze.readings", None, "nothing", id="landed files"),
        pytest.param("silver.readings", None, "nothing", id="a table"),
        pytest.param("gold.sums", [], "a list", id="a list"),
    ],
)
def test_a_transform_without_return_publishes_nothing(lake: LakeFactory, broken: str, made: Any, got: str) -> None:
    """Without it, the day would be published without rows, as one that nothing came for, and its rows would be gone."""
    shop = lake(*sensors())
    land(shop, DAYS[0], [("a", None, 1)])
    run(shop, DAYS[:1])
    newer = lake(*sensors(code="v2"))
    vars(newer.table(broken))["transform"] = lambda **_: made
    with pytest.raises(ContractError, match=f"^The transform of {broken}: expected a DataFrame, got {got}. End it"):
        build(newer, newer.table(broken), DAYS[:1], run_id="broken", force=True)
    assert sums(shop) == {0: 1}
    assert {shop.snapshot(name).live.rows for name in shop.tables} == {1}


def test_a_bad_day_stays_as_it_was_while_the_others_go_live(lake: LakeFactory) -> None:
    """Without it, one cut-off file would stop a month, or rows of a failed day would be visible for a moment."""
    three = DAYS[:3]
    shop = lake(*sensors())
    for n, day in enumerate(three):
        land(shop, day, [(f"a{n}", None, 1), (f"b{n}", None, 2)])
    run(shop, three)
    for n, day in enumerate(three):
        land(
            shop,
            day,
            [(f"a{n}", None, 4), (f"b{n}", None, 5), *([(f"x{n}{m}", None, -1) for m in range(30 * (n == 1))])],
        )
    land(shop, DAYS[2], [], "broken.jsonl.gz")
    bronze = build(shop, shop.table("bronze.readings"), three, run_id="second")
    assert (bronze.with_status(PUBLISHED), bronze.with_status(FAILED)) == (three[:2], [DAYS[2]])
    assert bronze.days[DAYS[2]].reason.startswith("source_readable: broken.jsonl.gz is not readable gzip")
    silver = build(shop, shop.table("silver.readings"), three, run_id="second")
    assert [silver.days[day].status for day in three] == [PUBLISHED, FAILED, UNCHANGED]
    assert silver.days[DAYS[1]].reason == (
        "row_rules: 30 of 32 rows quarantined (93.75%; at most 50%): value_at_least_minimum 30"
    )
    run(shop, three)
    assert sums(shop) == {0: 9, 1: 3, 2: 3}, "the last good data of the failed days"

    # What is wrong can be looked at, by rule and row; the next run tries these days again, and only these.
    (quarantined,) = {row["day"] for row in rows_of(shop.path("silver.readings_quarantine"))}
    assert quarantined == DAYS[1]
    assert run(shop, three) == [
        {UNCHANGED: [0, 1], FAILED: [2]},
        {UNCHANGED: [0, 2], FAILED: [1]},
        {UNCHANGED: [0, 1, 2]},
    ]
    # Fixed: the days are published, and the quarantine holds what the published rows leave out.
    (shop.settings.root / "landing/events" / DAYS[2].isoformat() / "broken.jsonl.gz").unlink()
    land(shop, DAYS[1], [("a1", None, 4), ("b1", None, 5), ("x", None, -1)])
    assert run(shop, three)[1:] == [{PUBLISHED: [1, 2], UNCHANGED: [0]}] * 2
    assert sums(shop) == {0: 9, 1: 9, 2: 9}
    assert [row["id"] for row in rows_of(shop.path("silver.readings_quarantine"))] == ["x"]

    # No version of any table ever showed a row that breaks a rule, or a day in part.
    for version in range(shop.snapshot("silver.readings").version + 1):
        rows = rows_of(shop.path("silver.readings"), version)
        assert all(row["value"] >= 0 for row in rows)
        by_day = {day: [row["id"] for row in rows if row["day"] == day] for day in {row["day"] for row in rows}}
        assert all(len(ids) == 2 for ids in by_day.values()), version


def test_going_back_to_old_code_fixes_the_quarantine_of_a_failed_attempt(lake: LakeFactory) -> None:
    """Without it, the day would count as unchanged, while its quarantine holds what the failed attempt left there."""
    shop = lake(*sensors())
    land(shop, DAYS[0], [("a", None, 1), ("b", None, 2), ("bad", None, -1)])
    run(shop, DAYS[:1])
    stricter = lake(*sensors(code="v2", max_quarantined=0.0))
    stricter.table("silver.readings").__dict__["rules"] = (*shop.table("silver.readings").rules, NEVER)
    assert build(stricter, stricter.table("silver.readings"), DAYS[:1], run_id="v2").with_status(FAILED) == DAYS[:1]
    assert len(rows_of(shop.path("silver.readings_quarantine"))) == 3
    assert run(shop, DAYS[:1]) == [{UNCHANGED: [0]}, {PUBLISHED: [0]}, {UNCHANGED: [0]}]
    assert [row["id"] for row in rows_of(shop.path("silver.readings_quarantine"))] == ["bad"]
    assert len(rows_of(shop.path("silver.readings"))) == 2


WEEKS = [date(2026, 3, 16) - timedelta(weeks=n) for n in range(1, 6)]


def _checked(rows: DataFrame) -> DataFrame:
    kept = rows.where("note IS NULL OR note <> 'dropped by the transform'")
    return kept.select("id", "day", "value", F.nullif("note", F.lit("")).alias("note"), "_source_row")


def test_each_check_blocks_its_own_day(lake: LakeFactory) -> None:
    """Without it, one of the checks could be computed and reported, and still let its day through."""
    columns = {"id": (TEXT, pa.Field()), "value": (LONG, pa.Field()), "note": (TEXT, pa.Field(nullable=True))}
    columns |= {"day": (DAY, pa.Field()), "_source_row": (LONG, pa.Field(nullable=True))}
    raw = table("bronze.rows", model(**columns), lambda: None, {})
    typed = model(**{**columns, "value": (LONG, pa.Field(ge=0))})
    policy: dict[str, Any] = {
        "key": ("id",),
        "conserves_rows": True,
        "min_rows": 5,
        "max_rows": 150,
        "max_quarantined": 0.1,
    }
    made = table(
        "silver.rows", typed, _checked, {"rows": Input("bronze.rows")}, volume=Volume(min_ratio=0.2),
        max_null_rate={"note": 0.1}, **policy,
    )  # fmt: skip
    shop = lake(raw, made)

    def rows(n: int, **cells: Any) -> list[dict[str, Any]]:
        return [{"id": f"r{k}", "value": 1, "note": "x", **cells} for k in range(n)]

    monday = date(2026, 3, 16)
    week = [monday + timedelta(days=n) for n in range(7)]
    content = {
        monday: rows(10),  # a tenth of the usual Monday
        week[1]: rows(60, note=""),
        week[2]: rows(4),
        week[3]: [*rows(60), *[{**row, "id": f"bad {row['id']}", "value": -1} for row in rows(20)]],
        week[4]: [*rows(60), {"id": "r1", "value": 1, "note": "x"}],
        week[5]: [*rows(60), {"id": "lost", "value": 1, "note": "dropped by the transform"}],
        week[6]: rows(151),
        monday + timedelta(days=7): rows(60),
    }
    for day, each in content.items():
        put(shop, raw, day, each)
    for day in WEEKS:
        put(shop, made, day, rows(100), mark=1)
    before = shop.snapshot("silver.rows").version
    result = build(shop, made, list(content), run_id="run")
    reasons = {day: result.days[day].reason.split(":")[0] for day in result.with_status(FAILED)}
    expected = ["volume", "null_rates", "row_count", "row_rules", "unique_key", "row_conservation", "row_count"]
    assert reasons == dict(zip(week, expected, strict=True))
    assert result.with_status(PUBLISHED) == [monday + timedelta(days=7)]
    assert result.version == before + 1
    live = shop.snapshot("silver.rows").rows_by_day("day")
    assert live == dict.fromkeys(WEEKS, 100) | {monday + timedelta(days=7): 60}
    assert "10 rows, 0.10 of the usual 100 of this weekday" in result.days[monday].reason
    assert "61 rows came in but 60 went out" in result.days[week[5]].reason


def test_a_day_without_input_is_published_empty_and_filled_later(lake: LakeFactory) -> None:
    """Without it, a closed day would be missing for ever in what waits for it, or stay empty once its file lands."""
    shop = lake(*sensors())
    land(shop, DAYS[0], [("a", None, 1)])
    assert run(shop, DAYS[:2]) == [{PUBLISHED: [0, 1]}] * 3
    assert run(shop, DAYS[:2]) == [{UNCHANGED: [0, 1]}] * 3
    assert sums(shop) == {0: 1}
    land(shop, DAYS[1], [("b", None, 7)])
    assert run(shop, DAYS[:2]) == [{UNCHANGED: [0], PUBLISHED: [1]}] * 3
    assert sums(shop) == {0: 1, 1: 7}


@pytest.mark.parametrize("how", ["removed", "empty"])
def test_published_rows_do_not_go_when_their_file_does(lake: LakeFactory, how: str) -> None:
    """Without it, tidying up the landing zone, or one export without a line, would empty the lake at the next run."""
    shop = lake(sensors()[0])
    path = land(shop, DAYS[0], [("a", None, 1), ("b", None, 2)])
    assert run(shop, DAYS[:2]) == [{PUBLISHED: [0, 1]}]
    path.unlink()
    if how == "empty":
        path.with_name("b.jsonl").write_text("")
    result = build(shop, shop.table("bronze.readings"), DAYS[:2], run_id="again")
    assert (result.with_status(FAILED), result.with_status(UNCHANGED)) == (DAYS[:1], DAYS[1:2])
    assert "source_readable: 2 rows of this day are kept, but no line of it" in result.days[DAYS[0]].reason
    assert len(rows_of(shop.path("bronze.readings"))) == 2
    assert run(shop, DAYS[:1], force=True) == [{PUBLISHED: [0]}]
    assert rows_of(shop.path("bronze.readings")) == []


def test_quarantined_rows_do_not_go_when_their_file_does(lake: LakeFactory) -> None:
    """Without it, the build that kept a day's rows took away those in quarantine, the only trace of their lines."""
    shop = lake(sensors()[0])
    raw = shop.table("bronze.readings")
    whole, broken = land(shop, DAYS[0], [*[(str(n), None, n) for n in range(9)], "{"]), land(shop, DAYS[1], ["{"])
    lines = whole.read_text()
    build(shop, raw, DAYS[:2], run_id="run")
    whole.unlink()
    broken.unlink()
    # Twice: a day whose rows had all broken a rule had nothing left to be kept for, and was published empty.
    for again in ("once", "twice"):
        result = build(shop, raw, DAYS[:2], run_id=again)
        assert result.with_status(FAILED) == DAYS[:2]
        assert "10 rows of this day are kept, but no line of it" in result.days[DAYS[0]].reason
        assert "1 row of this day is kept, but no line of it" in result.days[DAYS[1]].reason
        assert [str(row["_arrival_date"]) for row in rows_of(shop.path(raw.quarantine_id))] == list(map(str, DAYS[:2]))
    whole.write_text(lines)
    result = build(shop, raw, DAYS[:1], run_id="landed again")
    assert result.with_status(UNCHANGED) == DAYS[:1]
    # Beside a day that is published, too.
    whole.unlink()
    land(shop, DAYS[2], ["{"])
    result = build(shop, raw, DAYS[:3], run_id="beside")
    assert result.with_status(FAILED) == DAYS[:2]
    assert len(rows_of(shop.path(raw.quarantine_id))) == 3
    assert run(shop, DAYS[:2], force=True) == [{PUBLISHED: [0, 1]}]
    assert len(rows_of(shop.path(raw.quarantine_id))) == 1


@pytest.mark.parametrize(("shift", "named"), [("date_add(day, 1)", "2026-03-03 (2)"), ("NULL", "None (2)")])
def test_rows_of_a_day_that_was_not_asked_for_are_refused(lake: LakeFactory, shift: str, named: str) -> None:
    """Without it, rows of a transform that changes the day would vanish: in no day's count, and in no table."""
    columns = {"id": (TEXT, pa.Field()), "day": (DAY, pa.Field())}
    raw = table("bronze.rows", model(**columns), lambda: None, {})

    def moved(rows: DataFrame) -> DataFrame:
        return rows.select("id", F.expr(f"CAST({shift} AS DATE)").alias("day"))

    made = table("gold.moved", model(**columns), moved, {"rows": Input("bronze.rows")})
    shop = lake(raw, made)
    put(shop, raw, DAYS[0], [{"id": "a"}, {"id": "b"}])
    with pytest.raises(StagedFileError, match=r"gold\.moved gave 2 row\(s\) whose day is not among") as caught:
        build(shop, made, DAYS[:1], run_id="run")
    assert named in str(caught.value)
    assert shop.snapshot("gold.moved").version == 0


def test_a_table_with_further_partition_columns_can_be_read_by_others(lake: LakeFactory) -> None:
    """Without it, days would be looked for in the last partition column, be it a country, and never be found."""
    columns = {"id": (TEXT, pa.Field()), "day": (DAY, pa.Field()), "land": (TEXT, pa.Field(nullable=True))}
    rows = table("silver.rows", model(**columns), lambda: None, {}, partition_by=("day", "land"))

    def counted(rows: DataFrame) -> DataFrame:
        return rows.groupBy("day", "land").agg(F.count(F.lit(1)).alias("n"))

    counts = {"day": (DAY, pa.Field()), "land": (TEXT, pa.Field(nullable=True)), "n": (LONG, pa.Field())}
    made = table("gold.counts", model(**counts), counted, {"rows": Input("silver.rows")}, key=("day", "land"))
    shop = lake(rows, made)
    lands = ["EIRE", "Österreich", "a/b", "x y", "100%", None, "EIRE"]
    put(shop, rows, DAYS[0], [{"id": str(n), "land": land} for n, land in enumerate(lands)])
    put(shop, rows, DAYS[1], [{"id": "other", "land": "EIRE"}])
    assert build(shop, made, DAYS[:1], run_id="run").with_status(PUBLISHED) == DAYS[:1]
    found = {row["land"]: row["n"] for row in rows_of(shop.path("gold.counts"))}
    assert found == {"EIRE": 2, "Österreich": 1, "a/b": 1, "x y": 1, "100%": 1, None: 1}
    assert build(shop, made, DAYS[:1], run_id="run").with_status(UNCHANGED) == DAYS[:1]
    put(shop, rows, DAYS[0], [{"id": "1", "land": "EIRE"}])
    assert build(shop, made, DAYS[:1], run_id="run").with_status(PUBLISHED) == DAYS[:1]


def test_an_unsupported_table_is_refused_before_any_work(lake: LakeFactory) -> None:
    """Without it, an hour of computing would end in the refusal, or in a commit that breaks the table."""

    def never(rows: DataFrame) -> DataFrame:
        raise AssertionError("the transform ran")

    columns = {"id": (TEXT, pa.Field()), "day": (DAY, pa.Field())}
    made = table("gold.foreign", model(**columns), never, {"rows": Input("gold.foreign")})
    shop = lake(made)
    put(shop, made, DAYS[0], [])
    log = shop.path("gold.foreign") / "_delta_log" / f"{shop.snapshot('gold.foreign').version + 1:020}.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    log.write_text(json.dumps({"protocol": {**protocol, "writerFeatures": ["deletionVectors"]}}))
    with pytest.raises(UnsupportedTableError, match="deletionVectors"):
        build(shop, made, DAYS[:1], run_id="run")
