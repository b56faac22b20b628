"""Layers that add up, and each way in which they may not: the day and the row are named."""

from __future__ import annotations

from datetime import date

from lakehouse.contracts import Table
from lakehouse.delta.commit import replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.lineage.reconcile import Link, differing_lines, differing_rows, reconcile
from lakehouse.read.lake import Lake
from lakehouse_tests.build.test_build import DAYS, land, run, sensors
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import rows_of, stage_rows


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
