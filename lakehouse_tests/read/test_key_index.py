"""The index of keys spares opening every file of an upsert table, and never says less than the files do."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from lakehouse.read.key_index import days_of_keys, index_folder
from lakehouse.read.lake import IndexBounds, Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.groups import assert_shared, share
from lakehouse_tests.fixtures.making import having, put
from lakehouse_tests.fixtures.shop.silver.orders import orders
from lakehouse_tests.fixtures.shop.silver.transactions import transactions

DAYS = [date(2026, 3, day) for day in range(2, 8)]


@pytest.fixture
def shop(lake: LakeFactory) -> Lake:
    """One order a day, and an index as soon as there are more than two files."""
    made = lake(transactions, orders)
    made.key_index = IndexBounds(most_files=2)
    for day in DAYS:
        sell(made, day, f"order of {day}")
    return made


def sell(lake: Lake, day: date, *names: str) -> None:
    """Replace a day of silver.orders by orders of these names."""
    moment = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    known = {"order_date": day, "ordered_at": moment, "status": "placed", "lines": 1, "_event_days": [day]}
    put(lake, orders, day, [{"order_id": name, **known} for name in names])


def found(lake: Lake) -> set[tuple[str, tuple[date, ...]]]:
    """What the index tells of the newest version."""
    rows = days_of_keys(lake, orders, lake.snapshot(orders.id)).collect()
    return {(row["order_id"], tuple(row["_event_days"])) for row in rows}


def wanted(lake: Lake) -> set[tuple[str, tuple[date, ...]]]:
    """What the files tell."""
    snapshot = lake.snapshot(orders.id)
    rows = lake.read_files(orders, snapshot, snapshot.files).select("order_id", "_event_days").collect()
    return {(row["order_id"], tuple(row["_event_days"])) for row in rows}


def entries(lake: Lake) -> list[Path]:
    """Folders of the index's entries."""
    return [path.parent for path in index_folder(lake.settings.root).glob("silver.orders/[!.]*/_files.json")]


def read_by(frame: DataFrame) -> int:
    """How many data files of the table a frame opens."""
    return sum("/tables/silver/orders/" in path for path in frame.inputFiles())


def test_what_was_read_once_is_not_opened_again(shop: Lake) -> None:
    """Without it, the cost of a day would grow with every day there is."""
    assert found(shop) == wanted(shop)
    assert len(entries(shop)) == 1
    sell(shop, date(2026, 3, 9), "new")
    assert read_by(days_of_keys(shop, orders, shop.snapshot(orders.id))) == 1
    assert found(shop) == wanted(shop)
    assert len(entries(shop)) == 1


def test_replaced_files_are_not_believed_any_more(shop: Lake) -> None:
    """Without it, an order would still have events on a day that was corrected, and that day be written again."""
    found(shop)
    sell(shop, DAYS[0], "other")
    sell(shop, DAYS[1])
    assert found(shop) == wanted(shop)
    assert not any(name.endswith(("03-02", "03-03")) for name, _ in found(shop))
    for day in DAYS[2:]:  # the entry is about nothing that is live; a new one takes its place
        sell(shop, day, f"again {day}")
    assert found(shop) == wanted(shop)
    assert len(entries(shop)) == 2


def test_entries_are_merged_and_removed_once_nobody_reads_them(shop: Lake) -> None:
    """Without it, there would be as many entries as there once were files, or a run would lose one it reads."""
    shop.key_index = IndexBounds(most_files=0, most_entries=2)
    assert found(shop) == wanted(shop)
    for n in range(4):
        sell(shop, date(2026, 4, n + 1), f"april {n}")
        assert found(shop) == wanted(shop)
    chosen = entries(shop)
    assert len(chosen) > 3
    shop.key_index = IndexBounds(most_files=0, most_entries=2, kept_seconds=-1.0)
    sell(shop, date(2026, 4, 9), "last")
    assert found(shop) == wanted(shop)
    assert len(entries(shop)) <= 3


def test_a_killed_or_damaged_entry_is_as_good_as_none(shop: Lake) -> None:
    """Without it, a kill while the index is written could hide orders from a run, which would put them in two days."""
    found(shop)
    (entry,) = entries(shop)
    draft = entry.with_name(f".{entry.name}")
    shutil.copytree(entry, draft)
    next(draft.glob("*.parquet")).unlink()
    (entry / "_files.json").write_text((entry / "_files.json").read_text()[:-9])
    assert found(shop) == wanted(shop)
    shutil.rmtree(index_folder(shop.settings.root))
    assert found(shop) == wanted(shop)
    (entry,) = entries(shop)
    assert set(json.loads((entry / "_files.json").read_text())) == {f.path for f in shop.snapshot(orders.id).files}


def test_in_a_shared_root_an_entry_belongs_to_its_group(shop: Lake) -> None:
    """Without it, of those who build in turns only who wrote an entry could read it, and others could build no order."""
    index_folder(shop.settings.root).mkdir(parents=True)
    group = share(shop.settings.root)
    found(shop)
    assert entries(shop)
    assert_shared(shop.settings.root, group)


def test_keys_that_are_personal_stay_in_the_table(lake: LakeFactory) -> None:
    """Without it, someone who is forgotten would live on in a cache."""
    personal = having(orders, person=("order_id",))
    made = lake(transactions, personal)
    made.key_index = IndexBounds(most_files=0)
    sell(made, DAYS[0], "someone")
    assert days_of_keys(made, personal, made.snapshot(orders.id)).count() == 1
    assert not index_folder(made.settings.root).exists()
