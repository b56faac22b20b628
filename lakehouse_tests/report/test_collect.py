"""What the report says of a lake is what its logs and Dagster's instance hold."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandera.pyspark as pa
import pyarrow
import pytest
from dagster import DagsterInstance
from pyspark.sql import types as T

from lakehouse.build.plan import Plan, make_plan
from lakehouse.build.stale import all_waiting_days, waiting_days
from lakehouse.checks.anomalies import Band, baseline, baselines, usual_count, usual_share, usual_sum, volume
from lakehouse.checks.metrics import DayMetrics
from lakehouse.contracts import Input, Landing, Sum, Table, Volume
from lakehouse.delta.commit import ensure_table, exchange_files, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.orchestration.outcomes import asked
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.records.history import CHECKS_ONLY, UNPUBLISHED_CHECKS, latest_records, project_history
from lakehouse.records.quarantined import QuarantinedRow
from lakehouse.report.bands import Usual, bands, usual_counts, usual_shares, usual_sums
from lakehouse.report.collect import collect
from lakehouse.report.figures import State, TableReport, Verdict
from lakehouse.report.usual import rows_series
from lakehouse.store import parquet
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, stage_rows, table
from lakehouse_tests.orchestration.test_outcomes import create_run

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(70)]
HISTORY_FOLDER = "ops/partition_metrics/staged"
TEXT, DAY = T.StringType(), T.DateType()
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def raw() -> Table:
    columns = {
        "id": (TEXT, pa.Field(nullable=True)),
        "day": (DAY, pa.Field()),
        "paid": (T.DecimalType(18, 2), pa.Field(nullable=True)),
    }
    return table("silver.raw", model(**columns), lambda rows: rows, {"rows": Input("bronze.none")})


def sales() -> Table:
    columns = {
        "id": (TEXT, pa.Field(nullable=True)),
        "day": (DAY, pa.Field()),
        "paid": (T.DecimalType(18, 2), pa.Field(nullable=True)),
    }
    figures = {"revenue": Sum("paid")}
    return table(
        "gold.sales", model(**columns), lambda raw: raw, {"raw": Input("silver.raw")}, figures=figures, volume=Volume()
    )


def none() -> Table:
    """What the others are computed from: a landed source without files."""
    columns = {"id": (TEXT, pa.Field(nullable=True)), "day": (DAY, pa.Field())}
    landing = Landing("online_retail", "csv", ("id",))
    return table("bronze.none", model(**columns), lambda lines: lines, {"lines": landing})


@pytest.fixture
def shop(lake: LakeFactory) -> Lake:
    return lake(none(), raw(), sales())


def publish(shop: Lake, name: str, by_day: Mapping[date, int], warned: Mapping[str, str] | None = None) -> None:
    """Publish days with their figures as a build does, without an engine."""
    made = shop.table(name)
    target = Target(shop.path(name), made.schema, made.partition_by)
    rows = [{"id": str(n), "day": day, "paid": Decimal(n)} for day, number in by_day.items() for n in range(number)]
    lately = PinnedLake(shop.settings, shop.tables)
    prints = make_plan(lately, made, list(by_day)).fingerprints
    facts: dict[str, Any] = {"lakehouse.run_id": "r", "lakehouse.code_version": made.code_version}
    facts["lakehouse.metrics"] = {
        day.isoformat(): {
            "rows": number,
            "bytes": 10 * number,
            "seconds": 4.0,
            "nulls": {"id": number // 4},
            "figures": {"revenue": f"{number}.50"},
            "checks": {check: {"blocking": False, "found": text} for check, text in (warned or {}).items()},
        }
        for day, number in by_day.items()
    }
    marks = {day_transaction(day): mark for day, mark in prints.items()}
    replace_days(target, ensure_table(target), stage_rows(target, rows), list(by_day), Commit(marks, facts))


def seen(shop: Lake, instance: DagsterInstance | None = None, **given: Any) -> TableReport:
    fresh = PinnedLake(shop.settings, shop.tables)
    names = ["silver.raw", "gold.sales"]
    of_runs = asked(instance, names)[0] if instance else None
    return collect(fresh, names, NOW, of_runs, **given).tables[1]


def test_every_figure_is_what_the_commit_says(shop: Lake) -> None:
    """Without it, the page could show a day's figures under another day, or an older commit's."""
    few = dict(zip(DAYS[:4], (5, 0, 8, 12), strict=True))
    publish(shop, "silver.raw", few)
    publish(shop, "gold.sales", few)
    publish(shop, "gold.sales", {DAYS[0]: 6})
    found = seen(shop)
    series = {each.name: {point.day: point.value for point in each.points} for each in (*found.figures, *found.cost)}
    assert series["rows"] == {DAYS[0]: 6, DAYS[1]: 0, DAYS[2]: 8, DAYS[3]: 12}
    assert series["revenue"] == {DAYS[0]: 6.5, DAYS[1]: 0.5, DAYS[2]: 8.5, DAYS[3]: 12.5}
    assert series["id is null"] == {DAYS[0]: 1 / 6, DAYS[2]: 0.25, DAYS[3]: 0.25}
    assert series["seconds"] == {DAYS[0]: 4.0, **{day: pytest.approx(4 / 3) for day in DAYS[1:4]}}
    assert series["bytes"] == {DAYS[0]: 60, DAYS[1]: 0, DAYS[2]: 80, DAYS[3]: 120}
    assert (found.rows, found.bytes) == (26, 260)
    assert {day: cell.sign for day, cell in found.days.items()} == {
        day: State.EMPTY if day == DAYS[1] else State.PUBLISHED for day in DAYS[:4]
    }
    narrow = seen(shop, between=(DAYS[2], DAYS[2]))
    assert list(narrow.days) == [DAYS[2]]
    assert narrow.rows == 8
    (seconds,) = [each.points for each in narrow.cost if each.name == "seconds"]
    assert [point.value for point in seconds] == [
        pytest.approx(4 / 3)
    ]  # the build is shared by days that are not shown


def test_quarantined_rows_of_days_to_come_are_counted(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, rows with a time in the future wait in `lakehouse status` and not on the page."""
    columns = {"id": (TEXT, pa.Field()), "day": (DAY, pa.Field())}
    strict = table("gold.sales", model(**columns), lambda raw: raw, {"raw": Input("silver.raw")})
    shop = lake(none(), raw(), strict)
    days = (DAYS[0], NOW.date() + timedelta(days=1))
    aside = [QuarantinedRow(day, 1, ("id_present",), NOW, NOW, 1, "c") for day in days]
    monkeypatch.setattr("lakehouse.report.collect.quarantined_rows", lambda *_: aside)
    assert seen(shop).quarantined == 2
    assert seen(shop, between=(DAYS[0], DAYS[1])).quarantined == 1


def test_days_wait_are_stale_or_not_built(shop: Lake) -> None:
    """Without it, a day that holds yesterday's input would look like any other."""
    publish(shop, "silver.raw", dict.fromkeys(DAYS[:3], 4))
    publish(shop, "gold.sales", dict.fromkeys(DAYS[:2], 4))
    assert {day: cell.sign for day, cell in seen(shop).days.items()} == {
        DAYS[0]: State.PUBLISHED,
        DAYS[1]: State.PUBLISHED,
        DAYS[2]: State.NOT_BUILT,
    }
    target = Target(shop.path("silver.raw"), raw().schema, ("day",))
    files = stage_rows(target, [{"id": "new", "day": DAYS[1], "paid": Decimal(1)}])
    replace_days(target, ensure_table(target), files, [DAYS[1]], Commit({day_transaction(DAYS[1]): 77}))
    found = seen(shop)
    assert found.days[DAYS[1]].sign is State.WAITING
    assert found.days[DAYS[1]].why == "silver.raw 2026-03-03 is not published from its newest input"
    lake = PinnedLake(shop.settings, shop.tables)
    assert (
        all_waiting_days(lake)["gold.sales"] == waiting_days(lake, sales(), DAYS) == {DAYS[1]: found.days[DAYS[1]].why}
    )
    _, fresh = found.checks["inputs_fresh"]
    assert {day: cell.sign for day, cell in fresh.items()} == {DAYS[0]: Verdict.PASSED, DAYS[1]: Verdict.WARNED}


def test_days_without_a_partition_are_not_said_to_be_missing(lake: LakeFactory) -> None:
    """Without it, each report asked somebody to build the day before the lake's first one, which nobody can."""
    visits = replace(sales(), inputs={"raw": Input("silver.raw", days_before=1, days_after=1)})
    visits.__dict__["code_version"] = "v1"  # as `table` sets it
    shop = lake(none(), raw(), visits)
    first = shop.settings.model_copy(update={"first_day": DAYS[1]})
    shop = Lake(first, shop.tables, lambda: shop.spark)
    publish(shop, "silver.raw", dict.fromkeys(DAYS[1:3], 4))
    states = {day: cell.sign for day, cell in seen(shop).days.items()}
    assert states == dict.fromkeys(DAYS[1:4], State.NOT_BUILT)


def test_a_warning_stands_until_the_day_is_published_again(shop: Lake) -> None:
    """Without it, a matrix would keep a warning for ever, or lose it to the next day's run."""
    publish(shop, "silver.raw", dict.fromkeys(DAYS[:2], 4))
    publish(shop, "gold.sales", dict.fromkeys(DAYS[:2], 4), warned={"volume": "few rows"})
    _, cells = seen(shop).checks["volume"]
    assert [(cell.sign, cell.why) for cell in cells.values()] == [(Verdict.WARNED, "few rows")] * 2
    publish(shop, "gold.sales", {DAYS[0]: 5})
    _, cells = seen(shop).checks["volume"]
    assert [cells[day].sign for day in DAYS[:2]] == [Verdict.PASSED, Verdict.WARNED]


def test_what_blocked_a_day_is_told_until_the_day_is_built_again(shop: Lake) -> None:
    """As Dagster, status and alerts tell it: from the commit that says why nothing was published."""
    publish(shop, "silver.raw", dict.fromkeys(DAYS[:2], 4))
    publish(shop, "gold.sales", dict.fromkeys(DAYS[:2], 4))
    target = Target(shop.path("gold.sales"), sales().schema, sales().partition_by)
    told: dict[str, Any] = {"checks": {"row_count": {"blocking": True, "found": "no rows"}}}
    told["tried"] = make_plan(PinnedLake(shop.settings, shop.tables), sales(), [DAYS[1]]).fingerprints[DAYS[1]]
    facts = {"lakehouse.run_id": "r", "lakehouse.operation": CHECKS_ONLY, UNPUBLISHED_CHECKS: {str(DAYS[1]): told}}
    exchange_files(target, ensure_table(target), (), (), Commit(metadata=facts), days=[])
    found = seen(shop)
    assert [cell.sign for cell in found.days.values()] == [State.PUBLISHED, State.FAILED]
    assert (found.days[DAYS[1]].why, found.rows) == ("row_count: no rows", 8)
    _, cells = found.checks["row_count"]
    assert [(cell.sign, cell.why) for cell in cells.values()] == [(Verdict.PASSED, ""), (Verdict.FAILED, "no rows")]
    publish(shop, "gold.sales", {DAYS[1]: 2})
    _, cells = seen(shop).checks["row_count"]
    assert [cell.sign for cell in cells.values()] == [Verdict.PASSED] * 2
    assert {cell.sign for cell in seen(shop).days.values()} == {State.PUBLISHED}


def test_a_day_that_somebody_ended_is_no_failure(shop: Lake) -> None:
    """As status says it; one that is up to date waits for nothing."""
    publish(shop, "silver.raw", dict.fromkeys(DAYS[:3], 4))
    publish(shop, "gold.sales", {DAYS[0]: 4})
    with DagsterInstance.ephemeral() as instance:
        ended = create_run(instance, ["gold.sales"], DAYS[0], DAYS[1])
        instance.report_run_canceling(ended)
        instance.report_run_canceled(ended)
        instance.report_run_failed(create_run(instance, ["gold.sales"], DAYS[2], DAYS[2]), "it broke")
        found = seen(shop, instance)
    told = {DAYS[0]: State.PUBLISHED, DAYS[1]: State.ENDED, DAYS[2]: State.FAILED}
    assert {day: cell.sign for day, cell in found.days.items()} == told


def test_a_day_that_a_killed_run_published_is_no_failure(shop: Lake) -> None:
    """Without it, days that nothing is left to do for are told as failed, and a replay of them finds them unchanged."""
    publish(shop, "silver.raw", dict.fromkeys(DAYS[:2], 4))
    publish(shop, "gold.sales", {DAYS[0]: 4})
    with DagsterInstance.ephemeral() as instance:
        instance.report_run_failed(create_run(instance, ["gold.sales"], DAYS[0], DAYS[1]), "it was killed")
        found = seen(shop, instance)
    assert {day: cell.sign for day, cell in found.days.items()} == {DAYS[0]: State.PUBLISHED, DAYS[1]: State.FAILED}


def test_the_band_is_where_the_checks_have_nothing_to_say(shop: Lake) -> None:
    """Without it, the page could call a day usual that a check warned of."""
    counts = dict(zip(DAYS, (100 + 7 * (n % 5) for n in range(70)), strict=True))
    publish(shop, "gold.sales", counts)
    kept = latest_records(shop.settings.root, "gold.sales")
    points = {point.day: point for point in rows_series(sales(), kept).points}
    assert points[DAYS[27]].usual is None
    assert points[DAYS[28]].usual is not None
    for day in DAYS[28:]:
        band = points[day].usual
        assert band is not None
        assert band.usual == pytest.approx(_median(counts, day))
        for rows, passes in ((int(band.high), True), (int(band.high) + 1, False), (int(band.low) + 1, True)):
            judged = volume(
                Volume(max_ratio=99), DayMetrics(day, rows=rows), {d: n for d, n in counts.items() if d != day}
            )
            assert judged.passed is passes, (day, rows, band, judged.message)


def _median(counts: Mapping[date, int], day: date) -> float:
    import statistics

    return statistics.median(counts[each] for each in baseline(day, counts, {}, 8))


def test_baselines_of_many_days_are_those_of_each() -> None:
    known = {DAYS[14]: "a sale"}
    history = [day for day in DAYS if day.day % 3]
    assert dict(baselines(DAYS, history, known, 4)) == {
        day: baseline(day, dict.fromkeys(history), known, 4) for day in DAYS
    }


def test_bands_of_shares_and_sums_hold_what_is_usual() -> None:
    assert usual_share([0.0, 0.0, 0.0], 100, 5.0) == Band(0.0, 0.0, 0.05)
    mixed = usual_sum([-10.0, 0.0, 10.0], 1.0)
    assert (mixed.low, mixed.usual, mixed.high) == pytest.approx((-14.826, 0.0, 14.826))
    assert usual_sum([10.0, 10.0], 2.0) == usual_count([10.0, 10.0], 2.0)


@pytest.mark.parametrize("most", [4, 8])
def test_bands_of_many_days_are_those_of_each(most: int) -> None:
    """The page works with arrays, the checks day by day: both must call the same usual."""
    chance = random.Random(most)
    judged = [DAYS[0] + timedelta(days=n) for n in range(150)]
    history = {day: chance.uniform(1, 900) for day in judged if chance.random() < 0.9}
    signed = {day: value - 300 * (chance.random() < 0.2) for day, value in history.items()}
    shares = {day: value / 1_000 for day, value in history.items()}
    rows = np.array([chance.randint(1, 500) for _ in judged], dtype=np.float64)
    known = {judged[30]: "a sale", judged[31]: "a sale"}
    pairs: list[tuple[Mapping[date, float], Usual, Callable[[int, list[float]], Band]]] = [
        (history, lambda _, past: usual_counts(past, 4.0), lambda _, past: usual_count(past, 4.0)),
        (signed, lambda _, past: usual_sums(past, 3.0), lambda _, past: usual_sum(past, 3.0)),
        (shares, lambda n, past: usual_shares(past, rows[n], 2.0), lambda n, past: usual_share(past, rows[n], 2.0)),
    ]
    for figures, many, one in pairs:
        found = bands(judged, figures, known, (3, most), many)
        for n, (day, past) in enumerate(baselines(judged, figures, known, most)):
            band = found[n]
            if len(past) < 3:
                assert band is None
            else:
                assert band == pytest.approx(one(n, [figures[each] for each in past])), day
    assert bands([], {}, {}, (3, most), pairs[0][1]) == []
    assert bands(judged[:2], {}, {}, (3, most), pairs[0][1]) == [None, None]


def test_each_table_is_looked_at_once(shop: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: with thousands of days each look at a table's logs and records is most of a second."""
    few = dict.fromkeys(DAYS[:4], 4)
    publish(shop, "silver.raw", few)
    publish(shop, "gold.sales", few)
    for name in ("silver.raw", "gold.sales"):
        project_history(shop.settings.root, shop.snapshot(name), name)
    planned: list[str] = []
    read: list[Path] = []

    def plan(lake: Lake, made: Table, days: list[date]) -> Plan:
        planned.append(made.id)
        return make_plan(lake, made, days)

    def rows(path: Path, *how: Any) -> pyarrow.Table:
        read.append(path)
        return parquet_read(path, *how)

    parquet_read = parquet.read
    monkeypatch.setattr("lakehouse.build.stale.make_plan", plan)
    monkeypatch.setattr("lakehouse.store.parquet.read", rows)
    assert {cell.sign for cell in seen(shop).days.values()} == {State.PUBLISHED}
    assert sorted(planned) == ["gold.sales", "silver.raw"]
    assert max(Counter(path for path in read if HISTORY_FOLDER in str(path)).values()) == 1
