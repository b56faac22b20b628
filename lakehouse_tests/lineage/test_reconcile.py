"""Layers that add up, and each way in which they may not: the day and the row are named."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.build.build import build
from lakehouse.commands.inspect.reconcile import print_links
from lakehouse.contracts import Input, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.lineage.reconcile import Link, differing_lines, differing_rows, reconcile
from lakehouse.read.lake import Lake
from lakehouse_tests.build.test_build import DAYS, land, run, sensors
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, rows_of, stage_rows, table


def shop_of(lake: LakeFactory) -> Lake:
    """Three days: sound lines, a repeat, a broken rule, no JSON, and a late line of the day before."""
    shop = lake(*sensors(profile=("value",)))
    for n, day in enumerate(DAYS[:3]):
        late = [(f"late{n}", DAYS[n - 1], 10)] if n else []
        land(shop, day, [(f"a{n}", None, 1), (f"a{n}", None, 1), (f"b{n}", None, -2), "no json", *late])
    run(shop, DAYS[:3])
    return shop


def links(shop: Lake, first: date | None = None, last: date | None = None) -> dict[str, Link]:
    """By target."""
    return {link.target: link for link in reconcile(shop, shop.tables.values(), first, last)}


def put_back(shop: Lake, made: Table, day: date, keep: int, copies: int = 1) -> None:
    """Replace a day by its first rows, behind the back of every check."""
    target = Target(shop.path(made.id), made.schema, made.partition_by)
    rows = [row for row in rows_of(shop.path(made.id)) if row[made.day_column] == day][:keep] * copies
    replace_days(target, shop.snapshot(made.id), stage_rows(target, rows), [day], Commit())


def test_every_line_is_accounted_for(lake: LakeFactory) -> None:
    """Without it, "no row is lost" would be a claim."""
    shop = shop_of(lake)
    found = links(shop)
    assert {
        name: (link.total.incoming, link.total.difference, len(link.differing)) for name, link in found.items()
    } == {
        "bronze.readings": (14, 0, 0),
        "silver.readings": (11, 0, 0),
    }
    silver = found["silver.readings"].total
    assert (silver.published, silver.quarantined, silver.duplicates) == (5, 3, 3)
    assert found["bronze.readings"].total.quarantined == 3
    assert list(links(shop, DAYS[1], DAYS[1])["silver.readings"].days) == [DAYS[1]]
    (shop.settings.root / "landing" / "events" / str(DAYS[0]) / "a.jsonl").unlink()
    assert not links(shop)["bronze.readings"].differing, "a landing zone may be tidied up"


def test_a_lost_row_is_named_with_its_line(lake: LakeFactory) -> None:
    """Without it, a day that is short by one row could only be stared at."""
    shop = shop_of(lake)
    silver = shop.table("silver.readings")
    put_back(shop, silver, DAYS[0], keep=1)
    differing = links(shop)["silver.readings"].differing
    assert {day: balance.difference for day, balance in differing.items()} == {DAYS[0]: -1}
    (named,) = differing_rows(shop, silver, DAYS[0])
    assert named == f"missing: id=late1, landing/events/{DAYS[1]}/a.jsonl line 5"


def test_a_doubled_line_is_named(lake: LakeFactory) -> None:
    """Without it, a file that was read twice would show only in sums."""
    shop = shop_of(lake)
    bronze = shop.table("bronze.readings")
    put_back(shop, bronze, DAYS[2], keep=2, copies=3)
    differing = links(shop)["bronze.readings"].differing
    assert {day: balance.difference for day, balance in differing.items()} == {DAYS[2]: 2}
    named = differing_lines(shop, bronze, DAYS[2])
    assert [line for line in named if line.startswith("3 times")]


def test_what_has_landed_and_is_not_built_is_a_difference(lake: LakeFactory) -> None:
    """Without it, a day that nobody has built would look like a day without rows."""
    shop = shop_of(lake)
    land(shop, DAYS[3], [("d", None, 1), ("e", None, 2)])
    differing = links(shop)["bronze.readings"].differing
    assert {day: int(balance.difference) for day, balance in differing.items()} == {DAYS[3]: -2}
    path = f"landing/events/{DAYS[3]}/a.jsonl"
    assert differing_lines(shop, shop.table("bronze.readings"), DAYS[3]) == [
        f"missing: {path} line 1",
        f"missing: {path} line 2",
    ]


def test_a_day_that_has_no_partition_yet_is_no_difference_unless_it_is_asked_for(
    lake: LakeFactory, today: date
) -> None:
    """Without it, an event whose clock is minutes ahead would make each evening's lake one that does not add up."""
    shop = shop_of(lake)
    arrived = today - timedelta(days=1)
    land(shop, arrived, [("d", today, 1)])
    land(shop, today, [("e", None, 1)])  # waits: not missing, whoever asks
    build(shop, shop.table("bronze.readings"), [arrived], run_id="r")
    assert {n: link.differing for n, link in links(shop).items() if link.differing} == {}
    asked = {name: list(link.differing) for name, link in links(shop, last=today).items() if link.differing}
    assert asked == {"silver.readings": [today]}


# ---- sums, from kept figures alone --------------------------------------------------------------------------------------

DAY, MONEY = (T.DateType(), pa.Field()), (T.DecimalType(18, 2), pa.Field(nullable=True))
SOLD = table("silver.sold", model(id=(T.StringType(), pa.Field()), day=DAY, amount=MONEY), lambda raw: raw,
             {"raw": Input("bronze.raw")}, profile=("amount",))  # fmt: skip


def orders_of(**policy: Any) -> Table:
    """A table whose amounts add up to those sold."""
    columns = model(id=(T.StringType(), pa.Field()), day=DAY, amount=MONEY,
                    _event_days=(T.ArrayType(T.DateType()), pa.Field(nullable=True)))  # fmt: skip
    return table("silver.of", columns, lambda sold: sold, {"sold": Input("silver.sold")}, key=("id",),
                 reconciles={"amount": "amount"}, **policy)  # fmt: skip


def publish(shop: Lake, made: Table, sums: Mapping[date, str | None]) -> None:
    """Publish days of one row with the figures that a build keeps: the sum of the amounts, or none of it."""
    target = Target(shop.path(made.id), made.schema, made.partition_by)
    for day, amount in sums.items():
        files = stage_rows(target, [{"id": "a", "day": day, "amount": Decimal(amount or 1)}])
        kept = {"profile": {"amount": {"sum": amount}}} if amount else {}
        facts = {"lakehouse.metrics": {day.isoformat(): {"rows": 1, "nulls": {}, **kept}}}
        replace_days(target, ensure_table(target), files, [day], Commit({}, facts))


def test_sums_of_an_upsert_table_are_compared_over_all_days(lake: LakeFactory) -> None:
    """Without it, an order that is cancelled on another day would be an alarm on both, for good."""
    made = orders_of(upsert=True)
    shop = lake(SOLD, made)
    publish(shop, SOLD, {DAYS[0]: "10.00", DAYS[1]: "-2.50"})
    publish(shop, made, {DAYS[0]: "7.50"})
    link = links(shop)[made.id]
    assert (link.together, link.differing) == (tuple(DAYS[:2]), {})
    assert (link.total.incoming, link.total.published) == (Decimal("7.50"), Decimal("7.50"))
    assert links(shop, DAYS[1], DAYS[1])[made.id] == link, "its days cannot be looked at one by one"
    publish(shop, SOLD, {DAYS[1]: "-2.00"})
    (balance,) = links(shop)[made.id].differing.values()
    assert balance.difference == Decimal("-0.50")
    publish(shop, SOLD, {DAYS[1]: None})
    link = links(shop)[made.id]
    assert (link.days, link.unknown) == ({}, (DAYS[1],)), "what is not known of one day is not known of all"


def test_sums_of_other_tables_are_compared_by_day(lake: LakeFactory) -> None:
    """Without it, a row in the wrong day would be nowhere."""
    made = orders_of()
    shop = lake(SOLD, made)
    publish(shop, SOLD, {DAYS[0]: "10.00", DAYS[1]: "-2.50"})
    publish(shop, made, {DAYS[0]: "7.50"})
    assert [balance.difference for balance in links(shop)[made.id].differing.values()] == [
        Decimal("-2.50"),
        Decimal("2.50"),
    ]


def test_what_is_not_known_does_not_add_up(lake: LakeFactory, capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, a sum that nobody keeps would be told as one that agrees."""
    made = orders_of()
    shop = lake(SOLD, made)
    publish(shop, SOLD, {DAYS[0]: "10.00", DAYS[1]: None})
    publish(shop, made, {DAYS[0]: "10.00", DAYS[1]: "3.00"})
    print_links(reconcile(shop, shop.tables.values()), {})
    assert capsys.readouterr().err == (
        f"silver.of: no figures are kept of {DAYS[1]}; build them again to compare.\n"
        "What can be compared adds up; 1 day cannot, for want of kept figures.\n"
    )


def test_nobody_is_sent_to_build_days_before_the_first(lake: LakeFactory, capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, the advice is a command that says that there is nothing to do."""
    made = orders_of()
    shop = lake(SOLD, made)
    publish(shop, SOLD, {DAYS[0]: "10.00"})
    found = reconcile(shop, shop.tables.values())
    print_links(found, {}, first_day=DAYS[1])
    assert capsys.readouterr().err.splitlines()[-1] == "1 day does not add up."
    print_links(found, {}, first_day=DAYS[0])
    assert "backfill --stale" in capsys.readouterr().err
