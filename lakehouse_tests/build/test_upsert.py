"""Upsert by key on silver.orders: whatever the order of days and runs, the table is what one run over all would give."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build.base import open_base
from lakehouse.build.build import build
from lakehouse.build.result import FAILED, PUBLISHED, UNCHANGED
from lakehouse.build.stale import changed_days, stale_days, turned_down
from lakehouse.contracts import Input, Table
from lakehouse.errors import PublishConflictError
from lakehouse.read.lake import IndexBounds, Lake
from lakehouse.records.history import older_code
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, rows_of, table
from lakehouse_tests.fixtures.shop.silver.orders import orders
from lakehouse_tests.fixtures.shop.silver.transactions import transactions

SEED = random.Random().randrange(1 << 30)
FIRST = date(2026, 3, 2)
DAYS = [FIRST + timedelta(days=n) for n in range(5)]


@dataclass(frozen=True)
class Event:
    """A transaction of an order, on day number `day`."""

    order: str | None
    day: int
    minute: int
    amount: Decimal
    kind: str = "purchase"
    user: str | None = "u1"

    @property
    def row(self) -> dict[str, Any]:
        """Its row in silver.transactions."""
        moment = datetime.combine(DAYS[self.day], datetime.min.time(), UTC) + timedelta(minutes=self.minute)
        return {
            "event_id": f"{self.order}/{self.day}/{self.minute:04}/{self.kind}",
            "source": "events", "order_id": self.order, "user_id": self.user, "event_type": self.kind, "event_time": moment,
            "amount": self.amount, "currency": "GBP", "country": f"land of {self.user}",
        }  # fmt: skip


def bought(order: str, day: int, minute: int = 600, amount: str = "10.00") -> Event:
    """A purchase line of an order."""
    return Event(order, day, minute, Decimal(amount))


def cancelled(order: str, day: int, minute: int = 700, amount: str = "-10.00") -> Event:
    """A cancellation of an order."""
    return Event(order, day, minute, Decimal(amount), "cancellation")


class Shop:
    """A lake with silver.transactions written by hand, and silver.orders built from it."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.days: dict[int, frozenset[Event]] = {}

    def sell(self, events: Iterable[Event], days: Iterable[int] = ()) -> list[date]:
        """Make these all the events there are; returns the days that changed. `days` exist though they be empty."""
        new: dict[int, set[Event]] = {day: set() for day in {*self.days, *days}}
        for event in events:
            new.setdefault(event.day, set()).add(event)
        changed = [day for day, found in sorted(new.items()) if self.days.get(day) != frozenset(found)]
        for day in changed:
            put(self.lake, transactions, DAYS[day], [event.row for event in sorted(new[day], key=repr)])
            self.days[day] = frozenset(new[day])
        return [DAYS[day] for day in changed]

    def build(self, days: Iterable[date], *, force: bool = False) -> Any:
        """Run silver.orders over some days; each must be published."""
        result = build(self.lake, orders, list(days), run_id="run", force=force)
        assert not result.with_status(FAILED), [each.reason for each in result.days.values()]
        return result

    def found(self) -> dict[str, dict[str, Any]]:
        """silver.orders by order; no order is there twice."""
        rows = rows_of(self.lake.path("silver.orders"))
        assert len({row["order_id"] for row in rows}) == len(rows)
        return {row["order_id"]: row for row in rows}

    def wanted(self) -> dict[str, dict[str, Any]]:
        """The same from all events, in plain Python."""
        by_order: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for events in self.days.values():
            for event in events:
                if event.order is not None:
                    by_order[event.order].append({**event.row, "day": DAYS[event.day]})
        rows = {}
        for order, found in by_order.items():
            first = min(found, key=lambda e: (e["event_time"], e["event_id"]))
            rows[order] = {
                "order_id": order,
                "source": "events",
                "user_id": first["user_id"],
                "order_date": min(e["day"] for e in found),
                "ordered_at": first["event_time"],
                "status": "cancelled" if any(e["event_type"] == "cancellation" for e in found) else "placed",
                "lines": len(found),
                "amount": sum((e["amount"] for e in found), Decimal("0.00")),
                "currency": "GBP",
                "country": first["country"],
                "_event_days": sorted({e["day"] for e in found}),
            }
        return rows

    def files(self) -> dict[date, set[str]]:
        """Live files of silver.orders by day."""
        by_day = self.lake.snapshot("silver.orders").by_day("order_date")
        return {day: {file.path for file in files} for day, files in by_day.items()}


@pytest.fixture
def shop(lake: LakeFactory) -> Shop:
    """An empty shop."""
    return Shop(lake(transactions, orders))


def test_an_order_follows_its_events_through_the_days(shop: Shop) -> None:
    """Without it, a cancellation could be lost, or an order be in two days, depending on which day ran last."""
    plain = [bought(f"plain {day}", day) for day in range(5)]
    base = [*plain, bought("late", 0), bought("late", 0, 601, "2.50"), bought("moves", 1), cancelled("moves", 3)]
    shop.build(shop.sell(base))
    assert shop.found() == shop.wanted()
    before = shop.files()

    # A cancellation on the last day reaches back to the order's own day, and to no other.
    result = shop.build(shop.sell([*base, cancelled("late", 4, amount="-12.50")]))
    assert result.also_replaced == {DAYS[0]: 2}, "the cancelled order, and one that is carried over"
    assert shop.found() == shop.wanted()
    assert shop.found()["late"]["status"] == "cancelled"
    after = shop.files()
    assert {day for day in after if after[day] != before[day]} == {DAYS[0], DAYS[4]}

    # The order's own day runs again, for a line that came late: the cancellation of another day stays known.
    shop.build(shop.sell([*base, bought("late", 0, 602, "1.00"), cancelled("late", 4, amount="-12.50")]))
    assert shop.found() == shop.wanted()
    assert shop.found()["late"]["status"] == "cancelled"

    # The purchases of an order are withdrawn: what is left of it moves to the day of its cancellation.
    shop.build(shop.sell([*[e for e in base if e != bought("moves", 1)], cancelled("late", 4)]))
    assert shop.found() == shop.wanted()
    assert shop.found()["moves"]["order_date"] == DAYS[3]

    # The cancellation is withdrawn, and an order disappears whole.
    shop.build(shop.sell([e for e in base if e.order != "plain 2"]))
    assert shop.found() == shop.wanted()
    assert shop.found()["late"]["status"] == "placed"


def test_an_order_alone_in_its_days_keeps_its_cancellation(shop: Shop) -> None:
    """Without it, a day that holds all orders there are would forget their events on days without an order."""
    events = [bought("only", 0), cancelled("only", 3)]
    shop.build(shop.sell(events))
    assert list(shop.files()) == [DAYS[0]]
    shop.build(shop.sell([*events, bought("only", 0, 601)]))
    assert shop.found() == shop.wanted()
    shop.build([DAYS[0]], force=True)
    shop.build([DAYS[3]], force=True)
    assert shop.found() == shop.wanted()


def test_what_reads_an_upserted_table_sees_the_days_it_changed(lake: LakeFactory) -> None:
    """Without it, a table over orders would keep a placed order that was cancelled by a run over a later day."""
    columns = {"day": (T.DateType(), pa.Field()), "left": (T.DecimalType(38, 2), pa.Field())}

    def sums(orders: Any) -> Any:
        return orders.groupBy(F.col("order_date").alias("day")).agg(F.sum("amount").cast("decimal(38,2)").alias("left"))

    made = table("gold.open_orders", model(**columns), sums, {"orders": Input("silver.orders")}, key=("day",))
    shop = Shop(lake(transactions, orders, made))
    events = [bought("a", 0), bought("b", 1), bought("c", 2)]
    shop.build(shop.sell(events, range(3)))
    assert build(shop.lake, made, DAYS[:3], run_id="r").with_status(PUBLISHED) == DAYS[:3]
    shop.build(shop.sell([*events, cancelled("a", 2)]))
    result = build(shop.lake, made, DAYS[:3], run_id="r")
    # The third day was written anew by that run, with the very rows it had.
    assert (result.with_status(PUBLISHED), result.with_status(UNCHANGED)) == ([DAYS[0]], DAYS[1:3])
    assert {row["day"]: row["left"] for row in rows_of(shop.lake.path(made.id))} == {
        DAYS[0]: Decimal(0),
        DAYS[1]: Decimal(10),
        DAYS[2]: Decimal(10),
    }


def _random_events(chance: random.Random) -> set[Event]:
    """Orders of every shape: one line or several, over the days, cancelled before or after, or without any order."""
    events = set()
    for n in range(60):
        for _ in range(chance.choice([1, 1, 2, 3])):
            kind = chance.choice(["purchase", "purchase", "purchase", "cancellation"])
            amount = Decimal(chance.randint(1, 9999)) / 100
            events.add(
                Event(
                    None if n == 0 else f"o{n}", chance.randrange(5), chance.randrange(1440),
                    amount if kind == "purchase" else -amount, kind, chance.choice([None, "u1", "u2"]),
                )
            )  # fmt: skip
    return events


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_any_history_of_runs_ends_in_the_same_table(shop: Shop, number: int) -> None:
    """Without it, shuffled days, repeats and withdrawn events could leave the table in a state of their own.

    Some histories go through the index of keys at every step, and through merges of its entries.
    """
    if number:
        shop.lake.key_index = IndexBounds(most_files=number - 1, most_entries=2)
    chance = random.Random(SEED + number)
    events = _random_events(chance)
    due = set(shop.sell(events, range(5)))
    for step in range(5):
        if step:
            gone = set(chance.sample(sorted(events, key=repr), len(events) // 6))
            news = set(chance.sample(sorted(_random_events(chance), key=repr), len(events) // 6))
            touched = set(chance.sample(range(5), 2))
            events = {e for e in events if e not in gone or e.day not in touched}
            events |= {
                e for e in news if e.day in touched and all(o.row["event_id"] != e.row["event_id"] for o in events)
            }
            due |= set(shop.sell(events, range(5)))
        run = chance.sample(sorted(due), chance.randint(1, len(due))) if due else [chance.choice(DAYS)]
        shop.build(run, force=chance.random() < 0.3)
        due -= set(run)
    chance.shuffle(rest := sorted(due))
    for day in rest:
        shop.build([day])
    assert shop.found() == shop.wanted(), f"seed {SEED + number}"
    assert shop.build(DAYS).with_status(UNCHANGED) == DAYS


def test_two_runs_of_different_days_cannot_miss_each_other(shop: Shop) -> None:
    """Without it, an order whose events two runs read apart would be in two days, each with half of its events."""
    shop.sell([bought("shared", 0), cancelled("shared", 3)])
    early = open_base(shop.lake, orders)
    from lakehouse.build import build as building

    result = shop.build([DAYS[0]])
    assert result.with_status(PUBLISHED) == [DAYS[0]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "open_base", lambda *_: early)  # a run that began before the first had committed
        with pytest.raises(PublishConflictError, match=r"silver\.orders: another run published"):
            build(shop.lake, orders, [DAYS[3]], run_id="second")
    shop.build([DAYS[3]])
    assert shop.found() == shop.wanted()


def totals(**policy: Any) -> Table:
    """A table of sums by key, in the day of the key's first event, of which none may be below zero."""
    contract = model(
        "Totals",
        key=(T.StringType(), pa.Field()),
        day=(T.DateType(), pa.Field()),
        total=(T.LongType(), pa.Field(ge=0)),
        _event_days=(T.ArrayType(T.DateType()), pa.Field(nullable=True)),
    )

    def made(events: Any) -> Any:
        rows = events.groupBy("key").agg(
            F.min("day").alias("day"),
            F.sum("n").alias("total"),
            F.array_sort(F.collect_set("day")).alias("_event_days"),
        )
        # A mistake of the transform, asked for by the data: the row of one key comes out twice.
        return rows.unionByName(rows.where("key = 'twin' AND total > 5"))

    return table(
        "silver.totals", contract, made, {"events": Input("silver.events")}, key=("key",), upsert=True, **policy
    )


@pytest.fixture
def ledger(lake: LakeFactory) -> tuple[Lake, Table, Table]:
    """A table of events and the sums over it."""
    columns = {"key": (T.StringType(), pa.Field()), "n": (T.LongType(), pa.Field()), "day": (T.DateType(), pa.Field())}
    events = table("silver.events", model("Events", **columns), lambda: None, {})
    sums = totals(max_quarantined=1.0)
    return lake(events, sums), events, sums


def test_a_key_that_breaks_a_rule_is_quarantined_in_its_day_until_it_is_sound(
    ledger: tuple[Lake, Table, Table],
) -> None:
    """Without it, a run over another day would drop quarantined keys, forget their events, or fail for good."""
    lake, events, sums = ledger

    def state() -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
        found = [
            {row["key"]: (row["day"].day, row["total"]) for row in rows_of(lake.path(name))}
            for name in (sums.id, sums.quarantine_id)
        ]
        return found[0], found[1]

    def run(*numbers: int) -> None:
        assert not build(lake, sums, [DAYS[n] for n in numbers], run_id="r").with_status(FAILED)

    put(lake, events, DAYS[0], [{"key": "a", "n": 1}, {"key": "b", "n": -5}, {"key": "c", "n": -1}])
    put(lake, events, DAYS[1], [{"key": "x", "n": 1}])
    run(0, 1)
    assert state() == ({"a": (2, 1), "x": (3, 1)}, {"b": (2, -5), "c": (2, -1)})
    # A later day makes `a` bad and `b` good; `c` is not touched and stays where it is.
    put(lake, events, DAYS[2], [{"key": "a", "n": -3}, {"key": "b", "n": 9}])
    run(2)
    assert state() == ({"b": (2, 4), "x": (3, 1)}, {"a": (2, -2), "c": (2, -1)})
    # And back again.
    put(lake, events, DAYS[2], [])
    run(2)
    assert state() == ({"a": (2, 1), "x": (3, 1)}, {"b": (2, -5), "c": (2, -1)})


def test_days_that_are_replaced_beside_the_asked_ones_are_audited_too(ledger: tuple[Lake, Table, Table]) -> None:
    """Without it, a mistake that shows only in the day of an older key would be published unseen."""
    lake, events, sums = ledger
    put(lake, events, DAYS[0], [{"key": "twin", "n": 1}, {"key": "a", "n": 1}])
    put(lake, events, DAYS[1], [{"key": "b", "n": 1}])
    build(lake, sums, DAYS[:2], run_id="r")
    files = lake.snapshot(sums.id).files
    put(lake, events, DAYS[3], [{"key": "twin", "n": 9}])
    result = build(lake, sums, [DAYS[3]], run_id="r")
    assert result.with_status(FAILED) == [DAYS[3]]
    assert "2026-03-02" in result.days[DAYS[3]].reason
    assert "unique_key" in result.days[DAYS[3]].reason
    assert lake.snapshot(sums.id).files == files, "what was found is in the log, and no row of it is published"


@pytest.mark.spark
def test_rows_from_before_the_key_had_a_column_are_replaced_by_any_run(lake: LakeFactory) -> None:
    """Without it, an order that was published without its shop would stay beside the one that knows it."""
    shop = Shop(lake(transactions, orders))
    shop.sell([bought("o1", 0), bought("o2", 1), bought("o3", 3), cancelled("o1", 4)])
    old = [
        {
            "order_id": o,
            "ordered_at": datetime(2026, 3, 1, tzinfo=UTC),
            "status": "placed",
            "lines": 9,
            "_event_days": d,
        }
        for o, d in (("o1", [DAYS[0], DAYS[4]]), ("gone", [DAYS[0]]))
    ]
    put(shop.lake, orders, DAYS[0], old)
    put(shop.lake, orders, DAYS[3], [old[0] | {"order_id": "o3", "_event_days": [DAYS[3]]}])
    shop.build([DAYS[1]])
    assert shop.found() == shop.wanted()
    before = shop.files()
    shop.build([DAYS[1]], force=True)
    assert {day for day, files in shop.files().items() if files != before[day]} == {DAYS[1]}


def by_shop() -> tuple[Table, Table]:
    """Lines of orders, and the orders; both are partitioned by shop too, which is a part of the key and may be null."""
    columns: dict[str, Any] = {
        "day": (T.DateType(), pa.Field()), "shop": (T.StringType(), pa.Field(nullable=True)),
        "id": (T.StringType(), pa.Field()),
    }  # fmt: skip
    more = {"lines": (T.LongType(), pa.Field()), "_event_days": (T.ArrayType(T.DateType()), pa.Field())}

    def sums(lines: DataFrame) -> DataFrame:
        days = F.array_sort(F.collect_set("day")).alias("_event_days")
        return lines.groupBy("shop", "id").agg(F.min("day").alias("day"), F.count(F.lit(1)).alias("lines"), days)

    lines = table("silver.lines", model(**columns), lambda raw: raw, {"raw": Input("bronze.raw")},
                  partition_by=("day", "shop"))  # fmt: skip
    return lines, table("silver.sums", model(**columns, **more), sums, {"lines": Input("silver.lines")},
                        key=("shop", "id"), partition_by=("day", "shop"), upsert=True)  # fmt: skip


def test_days_that_are_replaced_beside_the_asked_ones_stay_of_their_code(shop: Shop) -> None:
    """Without it, `backfill --older-code` finds nothing, and rows of older code carried over there would stay."""
    older = replace(orders)
    older.__dict__["code_version"] = "older"
    shop.sell([bought("long", 0), bought("long", 2), bought("short", 0), bought("late", 2)])
    build(shop.lake, older, [DAYS[0], DAYS[2]], run_id="run")
    assert shop.build([DAYS[2]]).also_replaced == {DAYS[0]: 2}
    root = shop.lake.settings.root
    assert older_code(root, orders.id, orders.code_version) == {"older": [DAYS[0]]}
    assert stale_days(shop.lake, orders) == [DAYS[0]]
    assert changed_days(shop.lake, orders) == [], "what reads the table would be said to wait for an input of the day"
    shop.build([DAYS[0]])
    assert older_code(root, orders.id, orders.code_version) == {}


def test_days_that_are_replaced_beside_the_asked_ones_stay_restored(shop: Shop) -> None:
    """Without it, an order's cancellation of today let the sensor build its day from what somebody had turned down."""
    good = [bought("long", 0), bought("short", 0)]
    shop.build(shop.sell(good))
    wrong = [bought("long", 0), bought("short", 0, amount="99.00")]
    shop.build(shop.sell(wrong))
    version = shop.lake.snapshot(orders.id).version - 1
    restore(shop.lake, plan_restore(shop.lake, orders, version, [DAYS[0]]), by="somebody")
    assert turned_down(shop.lake, orders, DAYS) == {DAYS[0]}
    assert shop.build(shop.sell([*wrong, cancelled("long", 2)])).also_replaced == {DAYS[0]: 2}
    assert shop.found()["long"]["status"] == "cancelled"
    assert shop.found()["short"]["amount"] == Decimal("10.00"), "it is as it was restored"
    assert turned_down(shop.lake, orders, DAYS) == {DAYS[0]}
    shop.sell([*good, cancelled("long", 2)])
    assert turned_down(shop.lake, orders, DAYS) == set(), "its input is another one"
    shop.build([DAYS[0]])
    assert shop.found() == shop.wanted()


@pytest.mark.spark
@pytest.mark.parametrize("name", ["north", "Zürich/süd = 5% + x"])
def test_a_key_may_have_a_partition_column(lake: LakeFactory, name: str) -> None:
    """Without it, the first day was published, and each further one ended in an error of the engine."""
    lines, sums = by_shop()
    made = lake(lines, sums)
    for day in DAYS[:2]:
        put(made, lines, day, [{"shop": name, "id": "a"}, {"shop": "other", "id": str(day)}])
        assert build(made, sums, [day], run_id="r").days[day].status == PUBLISHED
    found = {(row["shop"], row["id"]): (row["day"], row["lines"]) for row in rows_of(made.path(sums.id))}
    assert found[name, "a"] == (DAYS[0], 2)
    assert len(found) == 3


@pytest.mark.spark
def test_a_key_with_a_null_is_a_key(lake: LakeFactory) -> None:
    """Without it, an order of no shop was there once for each day that was built, and again with each later build."""
    lines, sums = by_shop()
    made = lake(lines, sums)
    for day in DAYS[:3]:
        put(made, lines, day, [{"shop": None, "id": "a"}, {"shop": "other", "id": "a"}, {"shop": None, "id": str(day)}])
        build(made, sums, [day], run_id="r")
    alone = sorted(map(repr, rows_of(made.path(sums.id))))
    build(made, sums, [DAYS[1]], run_id="r", force=True)
    again = sorted(map(repr, rows_of(made.path(sums.id))))
    build(made, sums, DAYS[:3], run_id="r", force=True)
    assert alone == again == sorted(map(repr, rows_of(made.path(sums.id))))
    assert len(alone) == 5
