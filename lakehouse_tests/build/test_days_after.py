"""Inputs with days after the computed one: what is read, what is stale, what waits, and what is published."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.build import build as build_days
from lakehouse.build.made_from import touched_days
from lakehouse.build.plan import input_days, output_days
from lakehouse.build.stale import all_waiting_days, known_days, stale_days, waiting_days
from lakehouse.contracts import Input, Table
from lakehouse.read.lake import Lake
from lakehouse.runs.plans import stale_by_table
from lakehouse_tests.build import test_build as sensors
from lakehouse_tests.build.test_stale import D, build, land, raw, stale, typed
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, rows_of, table


def around(reads: str = "silver.typed", column: str = "n", *, before: int = 1, after: int = 1) -> Table:
    """The sum over each day and the days beside it."""
    contract = model(day=(T.DateType(), pa.Field()), n=(T.LongType(), pa.Field(nullable=True)))

    def transform(rows: DataFrame) -> DataFrame:
        days = F.sequence(F.date_add("day", -after), F.date_add("day", before))
        spread = rows.select(F.explode(days).alias("day"), column)
        return spread.groupBy("day").agg(F.sum(column).alias("n"))

    return table("gold.around", contract, transform, {"rows": Input(reads, before, after)})


@pytest.fixture
def chain(lake: LakeFactory) -> Lake:
    """Landed lines, the same by event day, and the sums around a day; four days of them are published."""
    made = lake(raw(), typed(), around())
    for day in D[4:8]:
        land(made, day)
    build(made, "bronze.raw", {day: [{"_event_date": day, "n": 1}] for day in D[4:8]})
    build(made, "silver.typed", {day: [{"n": 1}] for day in D[4:8]})
    build(made, "gold.around", {day: [{"n": 3}] for day in D[3:9]})
    return made


def correct(chain: Lake, day: date) -> None:
    """Another file of a day is landed and in bronze."""
    land(chain, day, '{"n": 7}\n')
    build(chain, "bronze.raw", {day: [{"_event_date": day, "n": 7}]})


@pytest.mark.parametrize(("before", "after"), [(0, 0), (6, 0), (0, 1), (1, 1), (2, 3)])
def test_what_a_day_reads_and_what_reads_a_day_are_one(before: int, after: int) -> None:
    """Without it, a day could read another that, changed, would not make it stale."""
    made = around(before=before, after=after)
    (each,) = made.upstream.values()
    for day in D:
        assert input_days(each, day) == [day + timedelta(days=n) for n in range(-before, after + 1)]
        assert output_days(each, day) == touched_days(made, each, day)
        assert {reader for reader in D if day in input_days(each, reader)} == set(output_days(each, day)) & set(D)


def test_a_changed_day_makes_the_days_around_it_stale(chain: Lake) -> None:
    """Without it, what goes on after midnight would never reach the day it began in; or all days would be built again."""
    assert stale(chain, "gold.around") == []
    assert known_days(chain, chain.table("gold.around")) == set(D[3:9])
    correct(chain, D[5])
    build(chain, "silver.typed", {D[5]: [{"n": 7}]})
    assert stale(chain, "gold.around") == D[4:7]


def test_the_first_day_with_rows_makes_the_day_before_it_known(lake: LakeFactory) -> None:
    """Without it, a day whose rows all come from the day after would never be built."""
    made = lake(raw(), typed(), around(before=0, after=1))
    land(made, D[4])
    build(made, "bronze.raw", {D[4]: [{"_event_date": D[4], "n": 1}]})
    build(made, "silver.typed", {D[4]: [{"n": 1}]})
    assert stale(made, "gold.around") == D[3:5]


def test_a_plan_counts_the_days_that_look_ahead(chain: Lake) -> None:
    """Without it, `--stale --dry-run` would promise less than is built."""
    land(chain, D[6], '{"n": 7}\n')
    found = stale_by_table(chain, list(chain.tables), (D[0], D[-1]))
    assert found == {"bronze.raw": {D[6]}, "silver.typed": {D[6]}, "gold.around": set(D[5:8])}


def test_a_day_waits_for_the_day_after_it(chain: Lake) -> None:
    """Without it, a day would be called ready whose end is still to come."""
    correct(chain, D[6])
    why = f"silver.typed {D[6]} is not published from its newest input"
    wanted = dict.fromkeys(D[5:8], why)
    assert waiting_days(chain, chain.table("gold.around"), D) == wanted
    assert all_waiting_days(chain)["gold.around"] == wanted


def test_days_after_the_last_are_not_waited_for(chain: Lake) -> None:
    """Without it, one early row of today would keep yesterday from being ready until tomorrow."""
    correct(chain, D[6])
    ended = Lake(chain.settings.model_copy(update={"last_day": D[5]}), chain.tables, lambda: None)  # type: ignore[arg-type,return-value]
    assert waiting_days(ended, ended.table("gold.around"), D[:6]) == {}
    assert set(all_waiting_days(ended)["gold.around"]).isdisjoint(D[:6])


@pytest.mark.spark
def test_days_built_in_any_order_come_out_alike(lake: LakeFactory, seed: int) -> None:
    """Without it, rows of the day after would be missing for ever, or rows of other days be published with a day."""
    days = sensors.DAYS[:4]
    made = lake(*sensors.sensors(), around("silver.readings", "value"))
    for n, day in enumerate(days):
        sensors.land(made, day, [(f"a{n}", None, 10**n)])
    for day in random.Random(seed).sample(days, len(days)):
        for each in made.tables.values():
            build_days(made, each, [day], run_id="run")
    settled: dict[str, Any] = {}
    for name, each in made.tables.items():
        if found := [day for day in stale_days(made, each) if day in days]:
            build_days(made, each, found, run_id="run")
            settled[name] = found
    assert "gold.around" in settled, "an order in which no day is built before what it reads is not possible"
    assert _sums(made) == dict(zip(days, [11, 111, 1110, 1100], strict=True)), f"seed {seed}"
    whole = build_days(made, made.table("gold.around"), days, run_id="run", force=True)
    assert not whole.with_status("failed")
    assert _sums(made) == dict(zip(days, [11, 111, 1110, 1100], strict=True))


def _sums(made: Lake) -> dict[date, int]:
    return {row["day"]: row["n"] for row in rows_of(made.path("gold.around"))}
