"""Column lineage is what the transforms do: inputs are changed one column at a time, and what changes is compared with it.

The rows are awkward on purpose, so that whatever can depend on a column does: orders over several days, of several users,
countries and currencies, two events of one instant, cancellations, guests, both sources, nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.intake.closings import with_closing
from lakehouse.build.recompute import PLACE, frame_of, recomputed, rows_of
from lakehouse.catalog import declared
from lakehouse.contracts import Table
from lakehouse.contracts.lineage import Source, grouping, sources
from lakehouse.read.lake import Lake
from lakehouse.sources.reader import LINE_SCHEMA
from lakehouse_tests.conftest import engine_settings

pytestmark = pytest.mark.spark
Row = dict[str, Any]
Pair = tuple[str, Source]  # an output column, and an input column that it depends on

RETAIL = [
    ("536365", "A", "LAMP", "2", "2011-01-03 10:00:00", "2.50", "17850.0", "France"),
    ("536365", "B", "VASE", "1", "2011-01-03 10:00:00", "4.00", "13047.0", "Spain"),
    ("536366", "C", "CUP", "5", "2011-01-04 09:30:00", "1.25", "17850.0", "France"),
    ("C536365", "A", "LAMP", "-2", "2011-01-05 11:00:00", "2.50", "17850.0", "France"),
    ("A563185", "B", "Adjust bad debt", "1", "2011-01-05 14:50:00", "11062.06", None, "United Kingdom"),
    ("536370", "D", None, "3", "2011-01-06 12:00:00", "0.75", None, "Spain"),
]
EVENTS = [  # id, user, type, time, order, amount, currency, paid by, e-mail, country
    ("e1", "u1", "purchase", "2011-01-03T10:00:00Z", "W1", "10.00", "EUR", "card", "a@example.com", "France"),
    ("e2", "u2", "purchase", "2011-01-03T10:00:00Z", "W1", "20.00", "GBP", "cash", "b@example.com", "Spain"),
    ("e3", "u3", "purchase", "2011-01-04T08:00:00Z", "W1", "5.00", "USD", None, None, "Italy"),
    ("e4", None, "cancellation", "2011-01-06T10:00:00Z", "W2", "-3.00", "EUR", None, None, None),
    ("e5", "u3", "purchase", "2011-01-05T10:00:00Z", "W2", "3.00", "EUR", "card", "c@example.com", "Italy"),
    ("e6", "u1", "purchase", "2011-01-05T12:00:00Z", None, "7.50", "EUR", "card", "a@example.com", "France"),
    ("e7", "u1", "purchase", "2011-01-06T12:00:00Z", "W4", "8.50", "EUR", "card", "a@example.com", "France"),
    ("e8", "u1", "cancellation", "2011-01-06T13:00:00Z", "W4", "-8.50", "EUR", "card", "a@example.com", "France"),
    ("e9", "u4", "purchase", "2011-01-04T13:00:00Z", "W5", "1.50", "GBP", "card", "d@example.com", "France"),
    # One visit, at night: two orders, paid in two ways and from two countries.
    ("e10", "u5", "purchase", "2011-01-04T03:10:00Z", "W6", "2.00", "EUR", "card", "e@example.com", "France"),
    ("e11", "u5", "purchase", "2011-01-04T03:20:00Z", "W6", "4.50", "EUR", "cash", "e@example.com", "Spain"),
    ("e12", "u5", "cancellation", "2011-01-04T03:25:00Z", "W7", "-1.00", "EUR", "card", "e@example.com", "France"),
]
_EVENT = (
    "event_id",
    "user_id",
    "event_type",
    "event_time",
    "order_id",
    "amount",
    "currency",
    "payment_method",
    "email",
    "country",
)


ORDERS = [  # order, batch, transaction, when it was changed, tombstone: of two versions each of these decides on one pair
    ("1", 1, 10, "2011-01-03T10:00:00Z", False),
    ("1", 2, 20, "2011-01-04T10:00:00Z", False),
    ("2", 1, 11, "2011-01-03T10:00:00Z", False),
    ("2", 1, 12, "2011-01-03T10:00:00Z", False),
    ("3", 1, 30, "2011-01-03T10:00:00Z", False),
    ("3", 2, 13, "2011-01-03T10:00:00Z", False),
    ("4", 1, 14, "2011-01-03T10:00:00Z", False),
    ("4", 2, 21, None, True),
    ("5", 1, 15, None, True),
    ("5", 2, 22, "2011-01-05T10:00:00Z", False),
    ("6", 1, 16, None, True),
]


def versions(table: Table) -> list[Row]:
    """Rows of a table that is taken from a database, of which no two have a value in common beside those above."""
    rows: list[Row] = []
    for n, (order, batch, xid, updated, tombstone) in enumerate(ORDERS):
        day = date(2011, 1, 1) + timedelta(days=n)
        texts = {"user_id": f"u{n}", "status": f"s{n}", "amount": f"{n}.50", "currency": f"{'ABCDEFGHIJK'[n]}UR"}
        times = {"created_at": f"{day}T08:00:00Z", "updated_at": updated, "deleted_at": f"{day}T20:00:00Z"}
        place = {"_arrival_date": date(2011, 1, 20), "_event_date": day, "_ingested_run": "r", "_code_version": "c"}
        counted = {"_batch": batch, "_xid": xid, "_tombstone": tombstone}
        rows.append({"order_id": order, **texts, **times, **place, **counted})
    assert set(rows[0]) == set(table.columns)
    return rows


def messages(table: Table) -> list[Row]:
    """Rows of a table that is taken from a topic: other events than the landed ones, as its messages held them."""
    rows: list[Row] = []
    for n, line in enumerate(EVENTS[:6], 1):
        event = {"schema_version": "1", **dict(zip(_EVENT, line, strict=True))}
        at = datetime.fromisoformat(str(event["event_time"]))
        own = {"event_id": f"m{n}", "order_id": f"M{n}", "user_id": f"m{n}", "email_token": f"token {n}"}
        place = {
            "_arrival_date": date(2011, 1, 6),
            "_event_date": at.date(),
            "_source_file": "topic/t/0",
            "_source_row": n,
            "_event_at": at,
            "_arrived_at": at + timedelta(hours=n),
        }
        shown = {name: value for name, value in event.items() if name != "email"}
        rows.append({**dict.fromkeys(table.columns), **shown, **own, **place})
    assert set(rows[0]) == set(table.columns)
    return rows


def landed(table: Table) -> list[Row]:
    """The landed lines of a bronze table, all of one arrival day."""
    assert table.landing is not None
    if table.landing.source == "online_retail":
        lines = [dict(zip(table.landing.columns, line, strict=True)) for line in RETAIL]
    else:
        lines = [{"schema_version": "1", **dict(zip(_EVENT, line, strict=True))} for line in EVENTS]
    place: Row = {"_arrival_date": date(2011, 1, 6), "_source_file": f"landing/{table.landing.source}/x"}
    return [{**line, **place, "_source_row": n} for n, line in enumerate(lines, 1)]


def closed(rows: list[Row]) -> list[Row]:
    """Messages whose hours were closed, each by another watermark; every second one came after that."""
    return [
        {**row, "_closed_at": row["_event_at"] + timedelta(hours=2, minutes=n), "_came_after": n % 2 == 1}
        for n, row in enumerate(rows)
    ]


def input_schema(name: str, table: Table) -> T.StructType:
    """The columns of one input of a table, by parameter."""
    if table.landing is None:
        return with_closing(table.upstream[name], declared()[table.upstream[name].table].schema)
    texts = [T.StructField(c, T.StringType()) for c in (*table.landing.columns, "_ingested_run", "_code_version")]
    return T.StructType([*texts, *LINE_SCHEMA])


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    return Lake(engine_settings(Path(tmp_path_factory.mktemp("lineage"))), declared(), lambda: spark)


@pytest.fixture(scope="module")
def inputs(engine: Lake) -> Mapping[str, Mapping[str, list[Row]]]:
    """The input rows of each table by parameter: what the tables before it publish from the rows above."""
    published: dict[str, list[Row]] = {}
    found: dict[str, dict[str, list[Row]]] = {}
    for table in declared().values():
        if table.taken is not None:  # taken as it is from a source outside: what it holds, and not what it is made of
            published[table.id] = versions(table) if table.extract else messages(table)
            continue
        if table.landing is not None:
            found[table.id] = {name: landed(table) for name in table.inputs}
        else:
            found[table.id] = {
                name: closed(published[each.table]) if each.hours_close_after else published[each.table]
                for name, each in table.upstream.items()
            }
        frames = {n: frame_of(engine, input_schema(n, table), rows) for n, rows in found[table.id].items()}
        published[table.id] = recomputed(table, frames, quarantined=False)
        assert published[table.id], f"{table.id} publishes nothing from the rows of this test"
    return found


# ---- ways to change a column ----------------------------------------------------------------------------------------


def fresh(values: list[Any]) -> list[Any]:
    """Each value another one that was nowhere before; equal ones stay equal, order stays as it is."""
    return [None if value is None else _other(value) for value in values]


def _other(value: Any) -> Any:
    match value:
        case str():
            return value + "~"
        case bool():
            return not value
        case datetime():
            return value + timedelta(days=1000, seconds=1)
        case date():
            return value + timedelta(days=1000)
        case int() | Decimal() | float():
            return value + 1
        case list():
            return [*map(_other, value)]
    raise TypeError(f"no other value for {value!r}; tell this test how to change a {type(value).__name__}")


def rotated(by: int) -> Callable[[list[Any]], list[Any]]:
    """Each row has another's value."""
    return lambda values: values[by:] + values[:by]


def mirrored(values: list[Any]) -> list[Any]:
    """Least and greatest exchanged, and so on: what was first is last."""
    order = sorted({value for value in values if value is not None}, key=str)
    return [None if value is None else order[-1 - order.index(value)] for value in values]


def nulled(values: list[Any]) -> list[Any]:
    return [None if n % 2 else value for n, value in enumerate(values)]


CHANGES: list[Callable[[list[Any]], list[Any]]] = [fresh, rotated(1), rotated(2), mirrored, nulled]


def changed(rows: list[Row], columns: Sequence[str], change: Callable[[list[Any]], list[Any]]) -> list[Row]:
    new = {column: change([row[column] for row in rows]) for column in columns}
    return [{**row, **{column: new[column][n] for column in columns}} for n, row in enumerate(rows)]


# ---- what changes ---------------------------------------------------------------------------------------------------


def observed(engine: Lake, table: Table, inputs: Mapping[str, list[Row]]) -> tuple[set[Pair], set[Source]]:
    """Which output columns change with which input columns, and with which input columns rows come or go.

    Columns that are declared nowhere are changed all at once: as long as nothing depends on them, one try tells that.
    """
    said = {pair for found in sources(table, declared()).values() for pair in found} | {*grouping(table, declared())}
    tries: list[tuple[str, list[str], Mapping[str, list[Row]], bool]] = []
    for name in table.inputs:
        source = f"landing.{table.landing.source}" if table.landing else table.upstream[name].table
        known = table.landing.columns if table.landing else declared()[source].columns
        required = frozenset() if table.landing else declared()[source].required
        single = [[c] for c in known if (source, c) in said]
        rest = [c for c in known if (source, c) not in said and c not in PLACE]
        for columns in [*single, *([rest] if rest else [])]:
            for change in CHANGES:
                can = [c for c in columns if change is not nulled or c not in required]
                if can:
                    rows = changed(inputs[name], can, change)
                    tries.append((source, can, {**inputs, name: rows}, change is fresh))
    outputs = _outputs(engine, table, [inputs, *(each for _, _, each, _ in tries)])
    pairs: set[Pair] = set()
    rows_change: set[Source] = set()
    for (source, columns, _, is_fresh), after in zip(tries, outputs[1:], strict=True):
        seen = _changed_columns(table, outputs[0], after, is_fresh)
        pairs |= {(column, (source, read)) for column in seen for read in columns}
        if set(outputs[0]) != set(after):
            rows_change |= {(source, read) for read in columns}
    return pairs, rows_change


def _outputs(engine: Lake, table: Table, tries: Sequence[Mapping[str, list[Row]]]) -> list[dict[Any, Row]]:
    """The table's rows by identity for each try, in one Spark job."""
    by_place = table.landing is not None or table.conserves_rows
    schemas = {name: input_schema(name, table) for name in table.inputs}
    if by_place:  # one row gives one row: the try is part of where the row comes from
        tagged = {}
        for name, schema in schemas.items():
            rows = [
                {**row, "_source_file": f"{n}#{row['_source_file']}"}
                for n, each in enumerate(tries)
                for row in each[name]
            ]
            tagged[name] = frame_of(engine, schema, rows)
        whole = table.transform(**tagged).withColumn("_try", F.substring_index("_source_file", "#", 1).cast("long"))
    else:

        def one(n: int) -> DataFrame:
            # Of its own rows alone: what all tries share would be in the plan once for each.
            made = table.transform(**{name: frame_of(engine, schemas[name], tries[n][name]) for name in schemas})
            return made.withColumn("_try", F.lit(n).cast("long"))

        whole = reduce(DataFrame.unionByName, map(one, range(len(tries))))
    found: list[dict[Any, Row]] = [{} for _ in tries]
    for row in rows_of(whole):
        if by_place:
            row["_source_file"] = row["_source_file"].partition("#")[2]
        key = tuple(row[c] for c in (PLACE if by_place else table.key))
        found[row.pop("_try")][key] = row
    return found


def _changed_columns(table: Table, before: Mapping[Any, Row], after: Mapping[Any, Row], is_fresh: bool) -> set[str]:
    both = set(before) & set(after)
    seen = {c for c in table.columns for key in both if before[key][c] != after[key][c]}
    if is_fresh and after and not (table.landing or table.conserves_rows):
        # Of a key's column there is no row with another value, and of no column where all keys are others; but all its
        # values are new if it is made of new ones.
        for column in table.key if both else table.columns:
            old = [row[column] for row in before.values()]
            if not any(row[column] in old for row in after.values() if row[column] is not None):
                seen.add(column)
    return seen


def wrong(engine: Lake, table: Table, inputs: Mapping[str, list[Row]]) -> list[str]:
    """What the declared lineage says otherwise than the transform does."""
    pairs, rows_change = observed(engine, table, inputs)
    said = {(column, source) for column, found in sources(table, declared()).items() for source in found}
    by_group = grouping(table, declared())
    missing = {(c, s) for c, s in pairs - said if s not in by_group}
    known = {s for _, s in said} | set(by_group)
    return sorted(
        [f"{table.id}.{c} changes with {'.'.join(s)}, which its lineage does not say" for c, s in missing]
        + [f"{table.id}.{c} does not change with {'.'.join(s)}, which its lineage says" for c, s in said - pairs]
        + [
            f"rows of {table.id} come and go with {'.'.join(s)}, which no lineage of it says"
            for s in rows_change - known
        ]
    )


@pytest.mark.parametrize("name", [name for name, each in declared("lakehouse").items() if each.taken is None])
def test_lineage_is_what_the_transform_does(
    name: str, engine: Lake, inputs: Mapping[str, Mapping[str, list[Row]]]
) -> None:
    """Declared by hand it would be believed and wrong: impact and provenance follow it."""
    assert wrong(engine, declared()[name], inputs[name]) == []


def test_a_wrong_lineage_is_noticed(engine: Lake, inputs: Mapping[str, Mapping[str, list[Row]]]) -> None:
    """Both ways: a dependency that is left out, and one that is made up."""
    table = declared()["gold.daily_revenue"]
    told = {**table.lineage, "purchases": (("silver.transactions", "amount"),), "net_revenue": ()}
    assert wrong(engine, replace(table, lineage=told), inputs[table.id]) == [
        "gold.daily_revenue.net_revenue changes with silver.transactions.amount, which its lineage does not say",
        "gold.daily_revenue.purchases changes with silver.transactions.event_type, which its lineage does not say",
        "gold.daily_revenue.purchases does not change with silver.transactions.amount, which its lineage says",
    ]
