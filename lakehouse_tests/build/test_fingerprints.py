"""What makes a day stale and what does not: a fingerprint may say neither "unchanged" nor "changed" wrongly.

A shop in a package of its own, with landed files, and three tables in a row. Each case is one change of one thing, and
names the first table whose day it must, or must not, make stale. No engine: what decides is the log, files and code.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.build.plan import make_plan
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Input, Landing, Table, code
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.staged import CONTENT, StagedFile
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import ContractError
from lakehouse.read.content import contents
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.sources.landing import landing_files
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, stage_rows, table, target_of

D = [date(2011, 3, n) for n in range(1, 4)]
SALES = '''
"""Sales."""
from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pandera.pyspark as pa
from pyspark.sql import types as T

import rates
from lakehouse.contracts import Freshness, Input, Layout, Privacy, Quality, Quarantine, table
from shop.silver import other
from shop.silver.helpers import net
if TYPE_CHECKING:
    from shop.silver import hints

LOOKUP = (Path(__file__).parent / "currencies.csv")


class Sales(pa.DataFrameModel):
    """What was sold."""

    day: T.DateType() = pa.Field(description="UTC date")
    n: T.LongType() = pa.Field(nullable=True, description="Number of sales", ge=0)


@table(
    model=Sales,
    inputs={"raw": Input("bronze.raw")},
    partition_by="day",
    owner="team:sales",
    grain="one day",
    reads=("more/names.txt",),
    quality=Quality(max_null_rate={"n": 0.1}),
)
def sales(raw):
    """Net sales."""
    from shop.late import cut
    return net(raw, "a", rates.NOW, other.X, cut)
'''
FILES = {
    "shop/__init__.py": "",
    "shop/late.py": "cut = 1\n",
    "shop/unused.py": "X = 1\n",
    "shop/silver/__init__.py": "",
    "shop/silver/sales.py": SALES,
    "shop/silver/helpers.py": "from .deeper import half\n\ndef net(*rows):\n    return half(rows)\n",
    "shop/silver/deeper.py": "import numpy\n\ndef half(rows):\n    return rows\n",
    "shop/silver/other.py": "X = 1\n",
    "shop/silver/hints.py": "X = 1\n",
    "shop/silver/currencies.csv": "EUR\n",
    "shop/silver/more/names.txt": "a\n",
    "rates/__init__.py": "from rates.today import NOW\n",
    "rates/today.py": "NOW = 1\n",
}


class World:
    """The shop, its landing zone, and what is published of two tables."""

    def __init__(self, make: LakeFactory, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.make, self.folder, self.patch = make, folder, patch
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.lake = self.load()
        self.landed = self.lake.settings.root / "landing" / "events" / str(D[0]) / "part-0.jsonl"
        self.landed.parent.mkdir(parents=True)
        self.landed.write_text('{"n": 1}\n')
        self.publish("bronze.raw", [{"_event_date": D[0], "n": 1}, {"_event_date": D[1], "n": 2}])
        self.publish("silver.sales", [{"n": 1}, {"n": 2}])

    def load(self) -> Lake:
        """The tables as a new process would see them."""
        forget()
        importlib.invalidate_caches()
        sales: Table = importlib.import_module("shop.silver.sales").sales
        days = {"_arrival_date": (T.DateType(), pa.Field()), "_event_date": (T.DateType(), pa.Field())}
        number = {"n": (T.LongType(), pa.Field(nullable=True))}
        landing = {"lines": Landing("events", "jsonl", ("n",))}
        raw = table(
            "bronze.raw", model(**days, **number), lambda lines: lines, landing, partition_by=("_arrival_date", "_event_date")
        )  # fmt: skip
        sums = table("gold.sums", model(day=(T.DateType(), pa.Field()), **number), lambda s: s, {"s": Input(sales.id)})
        self.lake = self.make(raw, sales, sums)
        return self.lake

    def prints(self) -> dict[str, int]:
        """The fingerprint that a new process would build the first day of each table with."""
        lake = self.load()
        return {name: make_plan(lake, each, D[:1]).fingerprints[D[0]] for name, each in lake.tables.items()}

    def edit(self, name: str, old: str, new: str) -> None:
        """Change a file of the shop."""
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    def publish(self, name: str, rows: Sequence[Mapping[str, Any]], files: int = 1, mark: int = 7) -> int:
        """Publish the first day of a table as a build does; returns the version."""
        made = self.lake.table(name)
        target, _ = targets(self.lake, made)
        base = ensure_table(target)
        staged = self.staged(made, rows, files)
        marks = {day_transaction(D[0]): mark} | contents(made, staged, base)
        return replace_days(target, base, staged, [D[0]], Commit(marks))

    def staged(self, made: Table, rows: Sequence[Mapping[str, Any]], files: int) -> list[StagedFile]:
        schema = T.StructType([*made.schema.fields, T.StructField(CONTENT, T.LongType())])
        target = target_of(self.lake.path(made.id), schema, made.partition_by)
        whole = [
            {made.day_column: D[0], **row, CONTENT: zlib.crc32(repr(sorted(row.items())).encode()) << 31}
            for row in rows
        ]
        return [f for n in range(files) for f in stage_rows(target, whole[n::files])]


def forget() -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] in ("shop", "rates")]:
        del sys.modules[name]


@pytest.fixture
def world(lake: LakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The shop on a lake of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield World(lake, tmp_path, monkeypatch)
    forget()


Change = Callable[[World], object]


def edited(name: str, old: str, new: str) -> Change:
    return lambda world: world.edit(name, old, new)


def policy(text: str) -> Change:
    return edited("shop/silver/sales.py", 'partition_by="day",', f'partition_by="day",\n    {text},')


def relanded(world: World) -> None:
    """Another content of the same size, with the times set back."""
    found = world.landed.stat()
    world.landed.write_text('{"n": 2}\n')
    os.utime(world.landed, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert world.landed.stat().st_mtime_ns == found.st_mtime_ns


def copied(world: World) -> None:
    """The same content in another file of the same name."""
    shutil.copy(world.landed, world.landed.with_name(".copy"))
    world.landed.with_name(".copy").replace(world.landed)


def of_minor(library: str, version: str) -> Change:
    real = code._minor
    return lambda world: world.patch.setattr(code, "_minor", lambda name: version if name == library else real(name))


def compacted(name: str) -> Change:
    def change(world: World) -> None:
        made = world.lake.table(name)
        assert compact(Compactable(world.lake.path(name), made.schema)).files_before > 1

    return change


def restored(world: World) -> None:
    """Other rows are published, and taken back."""
    version = world.lake.snapshot("silver.sales").version
    world.publish("silver.sales", [{"n": 9}], mark=8)
    restore(world.lake, plan_restore(world.lake, world.lake.table("silver.sales"), version), by="ann")


ORIGINAL = [{"n": 1}, {"n": 2}]
CHANGES: dict[str, tuple[str, Change]] = {
    "a helper beside the table file": ("silver.sales", edited("shop/silver/helpers.py", "half(rows)", "half(rows[1:])")),
    "what a helper imports": ("silver.sales", edited("shop/silver/deeper.py", "return rows", "return rows[1:]")),
    "another table's file": ("silver.sales", edited("shop/silver/other.py", "1", "2")),
    "a package of the user's own": ("silver.sales", edited("rates/today.py", "1", "2")),
    "a module imported in a function": ("silver.sales", edited("shop/late.py", "1", "2")),
    "a data file named in the source": ("silver.sales", edited("shop/silver/currencies.csv", "EUR", "USD")),
    "a data file that is declared": ("silver.sales", edited("shop/silver/more/names.txt", "a", "b")),
    "the transform": ("silver.sales", edited("shop/silver/sales.py", '"a"', '"b"')),
    "a row rule's threshold": ("silver.sales", edited("shop/silver/sales.py", "ge=0", "ge=1")),
    "the key": ("silver.sales", policy('key=("n",)')),
    "personal data": ("silver.sales", policy('privacy=Privacy(person=("n",))')),
    "the window of an input": (
        "silver.sales", edited("shop/silver/sales.py", 'Input("bronze.raw")', 'Input("bronze.raw", days_before=1)'),
    ),
    "the machinery": (
        "silver.sales", lambda world: world.patch.setattr(code, "ENGINE_VERSION", code.ENGINE_VERSION + 1),
    ),
    "another minor version of Spark": ("silver.sales", of_minor("pyspark", "9.9")),
    "another minor version of a library": ("silver.sales", of_minor("numpy", "9.9")),
    "a file of the same size and time": ("bronze.raw", relanded),
    "a forced build that gave other rows": ("gold.sums", lambda w: w.publish("silver.sales", [{"n": 1}, {"n": 3}])),
    "a forced build that gave a row twice": ("gold.sums", lambda w: w.publish("silver.sales", [*ORIGINAL, {"n": 2}])),
    "a forced build that gave no rows": ("gold.sums", lambda w: w.publish("silver.sales", [])),
    "a forced build that moved a row": (
        "silver.sales", lambda w: w.publish("bronze.raw", [{"_event_date": D[0], "n": n} for n in (1, 2)]),
    ),
}  # fmt: skip
NO_CHANGES: dict[str, tuple[str, Change]] = {
    "the owner": ("silver.sales", edited("shop/silver/sales.py", "team:sales", "team:shop")),
    "the grain": ("silver.sales", edited("shop/silver/sales.py", "one day", "a day")),
    "a column's description": ("silver.sales", edited("shop/silver/sales.py", "Number of sales", "Sales")),
    "docstrings": ("silver.sales", edited("shop/silver/sales.py", "What was sold", "Sold")),
    "a helper's comment": ("silver.sales", edited("shop/silver/helpers.py", "half(rows)", "half(rows)  # why")),
    "quotes, brackets and commas": (
        "silver.sales", edited("shop/silver/sales.py", 'net(raw, "a", rates.NOW', "net((raw),\n 'a', (rates.NOW)"),
    ),
    "freshness": ("silver.sales", policy("freshness=Freshness(within=timedelta(hours=3))")),
    "an import that policy alone uses": ("silver.sales", edited("shop/silver/sales.py", "import timedelta", "import date")),
    "a bound of nulls": ("silver.sales", edited("shop/silver/sales.py", '{"n": 0.1}', '{"n": 0.2}')),
    "a bound of rows": ("silver.sales", policy("quarantine=Quarantine(max_rows=10)")),
    "how a build may be cut": ("silver.sales", policy("layout=Layout(files_per_day=2)")),
    "a module that is not imported": ("silver.sales", edited("shop/unused.py", "1", "2")),
    "a module for type checkers": ("silver.sales", edited("shop/silver/hints.py", "1", "2")),
    "a touched file": ("bronze.raw", lambda world: os.utime(world.landed, ns=(1, 1))),
    "a copied file": ("bronze.raw", copied),
    "a forced build of the same rows": ("gold.sums", lambda w: w.publish("silver.sales", ORIGINAL[::-1], files=2)),
    "a forced build of another day's rows": (
        "silver.sales", lambda w: w.publish("bronze.raw", [{"_event_date": D[0], "n": 1}, {"_event_date": D[2], "n": 2}]),
    ),
    "a restore of the old rows": ("gold.sums", restored),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_makes_the_day_stale(world: World, case: str) -> None:
    """Without it, old rows would pass for what the inputs and the code of now give."""
    name, change = CHANGES[case]
    before = world.prints()
    change(world)
    assert world.prints()[name] != before[name]


@pytest.mark.parametrize("case", NO_CHANGES)
def test_what_changes_no_row_makes_no_day_stale(world: World, case: str) -> None:
    """Without it, years of days would be built again for nothing."""
    name, change = NO_CHANGES[case]
    before = world.prints()
    change(world)
    assert world.prints()[name] == before[name]


@pytest.mark.parametrize("name", ["bronze.raw", "silver.sales"])
def test_a_compacted_input_is_no_change(world: World, name: str) -> None:
    """Without it, tidying up would be followed by computing everything again."""
    rows = [{"_event_date": D[0], "n": n} if name == "bronze.raw" else {"n": n} for n in range(4)]
    world.publish(name, rows, files=2)
    before = world.prints()
    compacted(name)(world)
    assert world.prints() == before


def test_a_compacted_upsert_table_is_no_change_but_other_rows_are(lake: LakeFactory, tmp_path: Path) -> None:
    """Its days have no fingerprints that tell, since runs over other days replace them."""
    contract = model(
        key=(T.StringType(), pa.Field()), day=(T.DateType(), pa.Field()),
        _event_days=(T.ArrayType(T.DateType()), pa.Field(nullable=True)),
    )  # fmt: skip
    plain = model(day=(T.DateType(), pa.Field()), n=(T.LongType(), pa.Field(nullable=True)))
    keyed = table("silver.keyed", contract, lambda raw: raw, {"raw": Input("bronze.raw")}, key=("key",), upsert=True)
    reader = table("gold.reader", plain, lambda keyed: keyed, {"keyed": Input("silver.keyed")})
    world = World.__new__(World)
    world.lake = lake(keyed, reader)
    world.publish(keyed.id, [{"key": "a", "_event_days": D[:1]}, {"key": "b", "_event_days": D[:1]}], files=2)
    before = make_plan(world.lake, reader, D[:1]).fingerprints
    assert compact(Compactable(world.lake.path(keyed.id), keyed.schema)).files_before == 2
    assert make_plan(world.lake, reader, D[:1]).fingerprints == before
    world.publish(keyed.id, [{"key": "a", "_event_days": D[:2]}, {"key": "b", "_event_days": D[:1]}])
    assert make_plan(world.lake, reader, D[:1]).fingerprints != before


def test_batches_add_up(world: World) -> None:
    """Without it, a table that grows by batches would be known by its files, which a compaction changes."""
    made, rows = world.lake.table("bronze.raw"), [{"_event_date": D[0], "n": n} for n in range(3)]
    target, _ = targets(world.lake, made)
    first = contents(made, world.staged(made, rows[:1], 1), ensure_table(target))
    replaced = replace_days(target, ensure_table(target), world.staged(made, rows[:1], 1), [D[0]], Commit(first))
    base = world.lake.snapshot(made.id)
    assert base.version == replaced
    both = contents(made, world.staged(made, rows[1:], 2), base, added=True)
    assert both == contents(made, world.staged(made, rows, 1), base)
    assert both != first


def test_rows_that_nobody_has_counted_are_not_known_by_an_older_number(world: World) -> None:
    """Without it, rows published by something that writes no hashes would pass for those before them."""
    made = world.lake.table("silver.sales")
    base = ensure_table(targets(world.lake, made)[0])
    uncounted = stage_rows(target_of(world.lake.path(made.id), made.schema), [{"day": D[0], "n": 5}])
    assert contents(made, uncounted, base) == {f"rows/{D[0]}": -1}


def test_code_counts_as_it_was_loaded(world: World) -> None:
    """Without it, a process with old code in its memory would stamp its rows with the version of the new file."""
    made = world.lake.table("silver.sales")
    before, current = make_plan(world.lake, made, D[:1]).fingerprints, made.code_version
    assert made.changed_on_disk() == []
    world.edit("shop/silver/helpers.py", "half(rows)", "half(rows[1:])")
    world.edit("shop/silver/currencies.csv", "EUR", "USD")
    assert (make_plan(world.lake, made, D[:1]).fingerprints, made.code_version) == (before, current)
    assert made.changed_on_disk() == ["file silver/currencies.csv", "shop.silver.helpers"]
    world.edit("shop/silver/sales.py", "def sales", "def (sales")
    assert made.changed_on_disk() == ["shop.silver.sales"]


def test_a_data_file_that_is_not_there_is_refused_when_the_table_is_loaded(world: World) -> None:
    """Without it, the first run would fail, or a misspelt name would count for nothing."""
    (world.folder / "shop/silver/more/names.txt").unlink()
    with pytest.raises(
        ContractError, match=r"shop\.silver\.sales: reads names 'more/names\.txt', but there is no such"
    ):
        world.load()


def test_a_loosened_bound_is_seen_by_what_runs_by_itself(world: World) -> None:
    """Without it, a day that a bound refused would not be tried again, since its rows would be the same."""
    before = world.lake.table("silver.sales").policy_version
    policy("quarantine=Quarantine(max_share=0.9)")(world)
    assert world.load().table("silver.sales").policy_version != before


def test_landed_files_are_read_once_and_again_where_they_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, each look would read years of files, or trust a size and a time that anybody can set."""
    from lakehouse.sources import digests

    read: list[str] = []
    real = digests._read
    monkeypatch.setattr(digests, "_read", lambda file: (read.append(file.path.name), real(file))[1])
    raw = world.lake.table("bronze.raw")
    for file in (world.lake.settings.root / "landing").rglob("part-*"):
        file.touch()  # on a busy machine it was written long ago
    first = make_plan(world.lake, raw, D[:1]).fingerprints
    assert read == ["part-0.jsonl"], "what has just been written may be written again within the same tick"
    assert raw.landing is not None
    root = world.lake.settings.root
    assert digests.digests(root, landing_files(root, raw.landing), settled_ns=0)
    assert [make_plan(world.lake, raw, D[:1]).fingerprints for _ in range(3)] == [first] * 3
    assert len(read) == 2
    relanded(world)
    assert make_plan(world.lake, raw, D[:1]).fingerprints != first
    assert len(read) == 3
    kept = root / "cache" / "landing" / "events.json"
    kept.write_text("damaged")
    assert make_plan(world.lake, raw, D[:1]).fingerprints != first
    assert stale_days(world.lake, raw) == [D[0]]


def test_a_module_is_from_what_python_says() -> None:
    """Without it, a library could pass for a part of the project, or its version be left out of the code version."""
    known = importlib.metadata.packages_distributions()
    assert {"pyspark", "dagster", "yaml"} <= set(known)
    assert {top: code._distributions(top) for top in known} == {top: set(names) for top, names in known.items()}
    assert not code._distributions("no_such_module")
