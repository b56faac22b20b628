"""Builds of one table, one after the other, as one: nothing of the first is lost."""

from __future__ import annotations

from datetime import date, timedelta

from lakehouse.build.result import FAILED, PUBLISHED, UNCHANGED, BuildResult, DayResult, merged
from lakehouse.checks.metrics import DayMetrics, Outcome
from lakehouse.checks.producers import ProducerDay
from lakehouse_tests.fixtures.streaming import by_day, visits

MON = date(2026, 3, 2)
TUE, WED = MON + timedelta(days=1), MON + timedelta(days=2)


def days(**by_name: str) -> dict[date, DayResult]:
    """Days of these statuses, by their names."""
    named = {"mon": MON, "tue": TUE, "wed": WED}
    return {named[name]: DayResult(status, DayMetrics(named[name])) for name, status in by_name.items()}


def test_of_two_builds_of_a_table_both_are_told() -> None:
    """Without it, days that the first has published would be told to nobody, since the second finds them done."""
    silver, gold = visits(), by_day()
    clocks = [ProducerDay(day, "till", {"rows": rows}) for day, rows in ((MON, 1), (TUE, 2), (TUE, 3))]
    first = BuildResult(
        silver, 3, {"bronze.a": 1}, days(mon=PUBLISHED, tue=FAILED), {WED: 4}, {"plan": 1.0, "stage": 2.0},
        producers=clocks[:2], facts={"slices": 2}, outcomes=[Outcome("one", MON, True, "")],
    )  # fmt: skip
    later = BuildResult(
        silver, 5, {"bronze.b": 7}, days(tue=PUBLISHED, wed=FAILED), {MON: 1}, {"plan": 0.5},
        producers=clocks[2:], outcomes=[Outcome("other", TUE, True, "")],
    )  # fmt: skip
    built = merged({silver.id: first}, {silver.id: later, gold.id: BuildResult(gold, 0, {})})
    assert list(built) == [silver.id, gold.id]
    both = built[silver.id]
    assert (both.version, both.inputs) == (5, {"bronze.a": 1, "bronze.b": 7})
    assert {day: each.status for day, each in both.days.items()} == {MON: PUBLISHED, TUE: PUBLISHED, WED: FAILED}
    assert (both.also_replaced, both.seconds) == ({WED: 4, MON: 1}, {"plan": 1.5, "stage": 2.0})
    assert [(each.day, each["rows"]) for each in both.producers] == [(MON, 1), (TUE, 3)]
    assert (both.facts, [each.check for each in both.outcomes]) == ({"slices": 2}, ["one", "other"])


def test_a_day_that_is_found_as_it_was_published_is_still_to_be_told() -> None:
    """Without it, a second look at a day would hide that it is new."""
    table = visits()
    first = BuildResult(table, 3, {}, days(mon=PUBLISHED, tue=FAILED))
    both = merged({table.id: first}, {table.id: BuildResult(table, 4, {}, days(mon=UNCHANGED, tue=UNCHANGED))})
    assert both[table.id].with_status(PUBLISHED) == [MON]
    assert both[table.id].with_status(FAILED) == [], "somebody else has published it meanwhile"
