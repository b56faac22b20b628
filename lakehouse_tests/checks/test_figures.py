"""Figures of the business: counted in the pass that publishes a day, kept with its commit, shown on the asset."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.checks.metrics import DayMetrics, figures_of
from lakehouse.checks.profile import MOST_CATEGORIES, OTHER, Numbers, Profile
from lakehouse.contracts import Count, Input, Sum, Table
from lakehouse.orchestration.metadata import day_metadata
from lakehouse.read.lake import Lake, table_path
from lakehouse.records.history import HISTORY, latest_records
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.jobs import counted_jobs
from lakehouse_tests.fixtures.making import model, put, rows_of, table

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(3)]
FIGURES = {
    "revenue": Sum("paid", by="currency"),
    "pieces": Sum("pieces"),
    "sales": Count(),
    "known": Count("customer_group"),
}


def sales(**policy: Any) -> Table:
    columns = {
        "id": (T.StringType(), pa.Field()),
        "day": (T.DateType(), pa.Field()),
        "paid": (T.DecimalType(18, 2), pa.Field(nullable=True)),
        "currency": (T.StringType(), pa.Field(nullable=True)),
        "pieces": (T.LongType(), pa.Field(nullable=True)),
        "customer_group": (T.StringType(), pa.Field(nullable=True)),
    }
    return table("gold.sales", model(**columns), lambda raw: raw, {"raw": Input("silver.raw")}, **policy)


def raw() -> Table:
    columns = {field.name: (field.dataType, pa.Field(nullable=True)) for field in sales().schema.fields}
    columns["paid"] = (T.DecimalType(18, 2), pa.Field(nullable=True))
    return table("silver.raw", model(**columns), lambda rows: rows, {"rows": Input("bronze.none")})


def sold(n: int, paid: str | None, currency: str | None, group: str | None = "a") -> dict[str, object]:
    return {
        "id": f"s{n}",
        "paid": None if paid is None else Decimal(paid),
        "currency": currency,
        "pieces": n,
        "customer_group": group,
    }


@pytest.fixture
def shop(lake: LakeFactory) -> Lake:
    made = lake(raw(), sales(figures=FIGURES))
    put(made, raw(), DAYS[0], [sold(1, "10.10", "GBP"), sold(2, "0.01", "EUR", None), sold(3, "5.00", "GBP")])
    put(made, raw(), DAYS[1], [sold(4, None, "GBP"), sold(5, "7.00", None)])
    return made


EXPECTED = {
    DAYS[0]: {"revenue/EUR": "0.01", "revenue/GBP": "15.10", "pieces": "6", "sales": "3", "known": "2"},
    DAYS[1]: {"pieces": "9", "sales": "2", "known": "2"},
}


def test_figures_are_kept_and_shown_the_same_for_one_day_and_many(shop: Lake) -> None:
    """One pass, no further job; the same keys whether a day is built alone, in a range, or found unchanged."""
    made = shop.table("gold.sales")
    with counted_jobs(shop.spark) as jobs:
        result = build(shop, made, DAYS[:2], run_id="r")
    for day in DAYS[:2]:
        assert {k: str(v) for k, v in result.days[day].metrics.figures.items()} == EXPECTED[day]
        shown = day_metadata(made, result, day, "u", 5)
        assert {k: shown[k] for k in EXPECTED[day]} == {k: float(v) for k, v in EXPECTED[day].items()}
    again = build(shop, made, DAYS[:1], run_id="r2")
    assert again.days[DAYS[0]].status == "unchanged"
    shown = day_metadata(made, again, DAYS[0], "u", 5)
    assert {k: shown[k] for k in EXPECTED[DAYS[0]]} == {k: float(v) for k, v in EXPECTED[DAYS[0]].items()}
    kept = latest_records(shop.settings.root, made.id)
    assert {day: {k: f"{v:f}" for k, v in kept[day].business.items()} for day in kept} == {
        day: {k: f"{Decimal(v):.2f}" for k, v in each.items()} for day, each in EXPECTED.items()
    }
    stored = rows_of(table_path(shop.settings.root, HISTORY))
    assert {dict(row["figures"])["sales"] for row in stored if row["table"] == made.id} == {3, 2}

    plain = sales(code="v2")
    shop.tables = {**shop.tables, "gold.sales": plain}
    with counted_jobs(shop.spark) as plain_jobs:
        build(shop, plain, DAYS[:2], run_id="r3", force=True)
    assert plain_jobs == jobs
    assert jobs[0] > 0


def test_of_very_many_values_the_largest_are_named() -> None:
    """Without it, a column of ids would make a key of the asset for each of them; nothing is lost of the sum."""
    made = sales(figures={"revenue": Sum("paid", by="currency")})
    sums = {f"C{n:03}": Decimal(n) for n in range(MOST_CATEGORIES + 10)}
    found = figures_of(made, DayMetrics(DAYS[0], profile=Profile(groups={("paid", "currency"): sums})))
    assert len(found) == MOST_CATEGORIES + 1
    assert sum(found.values()) == sum(sums.values())
    assert found[f"revenue/{OTHER}"] == sum(range(10))


def test_an_empty_day_has_its_counts_and_sums() -> None:
    """A plot that skips a day without sales hides the very day to look at."""
    made = sales(figures=FIGURES)
    assert figures_of(made, DayMetrics(DAYS[0])) == {"pieces": 0, "sales": 0, "known": 0}
    numbers = {"pieces": Numbers(count=2, total=Decimal(9))}
    some = DayMetrics(DAYS[0], rows=5, nulls={"customer_group": 2}, profile=Profile(numbers=numbers))
    assert figures_of(made, some) == {"pieces": 9, "sales": 5, "known": 3}
