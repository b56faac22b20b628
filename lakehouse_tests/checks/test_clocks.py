"""Wrong clocks: no row with an impossible time is published, none is lost, and whose clock it was is known."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehouse.build.build import build
from lakehouse.catalog import tables
from lakehouse.checks.clocks import with_clocks
from lakehouse.checks.metrics import DayMetrics, measure
from lakehouse.checks.producers import ProducerDay, judge_clocks, producer_days, span
from lakehouse.contracts import Clock
from lakehouse.lineage.reconcile import reconcile
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import rows_of, stage_rows, target_of

DAY = date(2026, 3, 2)
NEXT = DAY + timedelta(days=1)
END = datetime.combine(NEXT, time(), UTC)
PRESENT, NUMBER, UNIT = "event_time_present", "event_time_not_a_number", "event_time_in_right_unit"
FUTURE, OLD = "event_time_not_in_future", "event_time_not_too_old"
CLOCK = Clock("event_time")


def land(root: Path, producer: str, times: Sequence[str], day: date = DAY) -> None:
    """A producer's file: one purchase for each JSON text of a time; its id is the producer's name and a number."""
    file = root / "landing" / "events" / str(day) / f"{producer}-0001.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    head = '{"event_type":"purchase","amount":10.00,"currency":"EUR","country":"France","order_id":"o","user_id":"u",'
    file.write_text(
        "".join(f'{head}"event_id":"{producer} {n}","event_time":{moment}}}\n' for n, moment in enumerate(times))
    )


def text(moment: datetime) -> str:
    """As JSON."""
    return json.dumps(moment.isoformat().replace("+00:00", "Z"))


def hours(ahead: timedelta = timedelta(0), count: int = 48) -> list[str]:
    """Times over the whole day by a clock that is ahead, five minutes before its end the last."""
    return [text(END - timedelta(minutes=5) - timedelta(days=1) * n / count + ahead) for n in range(count)]


# What each producer's clock writes, and the rules that its rows break (None: they are published).
KINDS: Mapping[str, tuple[list[str], tuple[str, ...] | None]] = {
    "epoch-zero": (['"1970-01-01T00:00:00Z"'] * 2, (OLD,)),
    "year-2038": (['"2038-01-19T03:14:07Z"', '"2038-01-19T03:14:08Z"'], (FUTURE,)),
    "year-1": (['"0001-01-01T00:00:00Z"'] * 2, (OLD,)),
    "year-9999": (['"9999-12-31T23:59:59.999999Z"'] * 2, (FUTURE,)),
    "seconds": ([str(int(END.timestamp()) - 3600)] * 2, (PRESENT, NUMBER)),
    "millis": ([str(int(END.timestamp() - 3600) * 1000)] * 2, (PRESENT, NUMBER)),
    "text-number": ([f'"{int(END.timestamp()) - 3600}"'] * 2, (PRESENT, NUMBER)),
    "as-millis": ([text(datetime.fromtimestamp((END.timestamp() - 3600) / 1000, UTC))] * 2, (OLD, UNIT)),
    "as-seconds": (['"+58132-03-02T10:00:00Z"'] * 2, (PRESENT, UNIT)),
    "one-day": (hours(timedelta(days=1), 2), (FUTURE,)),
    "no-time": (["null", '"soon"'], (PRESENT,)),
    "behind": ([text(END - timedelta(days=3))] * 2, None),
}


@pytest.fixture
def shop(lake: LakeFactory) -> Lake:
    names = ("bronze.online_retail", "bronze.events", "silver.transactions", "gold.daily_revenue")
    return lake(*(tables()[name] for name in names))


def test_every_kind_of_wrong_clock_from_landing_to_gold(shop: Lake) -> None:
    """Each impossible time would be a day of its own in reports, or lost; or the reason would not say what to fix."""
    root = shop.settings.root
    land(root, "right", hours())
    land(root, "ten-minutes", hours(timedelta(minutes=10)))
    land(root, "twenty-minutes", hours(timedelta(minutes=21), 480))
    for producer, (times, _) in KINDS.items():
        land(root, producer, times)
    days = [DAY - timedelta(days=2), DAY, NEXT]
    build(shop, shop.table("bronze.events"), [DAY], run_id="r")
    result = build(shop, shop.table("silver.transactions"), days, run_id="r")
    build(shop, shop.table("gold.daily_revenue"), days, run_id="r")
    assert result.with_status("published") == days

    published = {row["event_id"] for row in rows_of(shop.path("silver.transactions"))}
    aside = {row["event_id"]: set(row["_failed_rules"]) for row in rows_of(shop.path("silver.transactions_quarantine"))}
    for producer, (times, rules) in KINDS.items():
        ids = {f"{producer} {n}" for n in range(len(times))}
        assert {frozenset(aside[each]) for each in ids & aside.keys()} == ({frozenset(rules)} if rules else set())
        assert ids <= (aside.keys() if rules else published), producer
    assert not any(each.startswith(("right", "ten-minutes")) for each in aside)
    twenty = [each for each in aside if each.startswith("twenty-minutes")]
    assert [aside[each] for each in twenty] == [{FUTURE}], "only what is beyond the quarter of an hour"
    assert not any(link.differing for link in reconcile(shop, [shop.table("silver.transactions")]))
    assert sum(row["purchases"] for row in rows_of(shop.path("gold.daily_revenue"))) == len(published)

    found = {each.producer.removeprefix("events/"): each for each in result.producers if each.day == DAY}
    assert {name: each.wrong for name, each in found.items() if each.wrong} == {
        "epoch-zero": {"too_old": 2},
        "year-2038": {"far_ahead": 2},
        "year-1": {"too_old": 2},
        "year-9999": {"far_ahead": 2},
        "seconds": {"number": 2},
        "millis": {"number": 2},
        "text-number": {"number": 2},
        "as-millis": {"mixed_units": 2},
        "as-seconds": {"mixed_units": 2},
    }
    ahead = {name: (each["ahead"], each["ahead_p50"], each["ahead_most"]) for name, each in found.items()}
    assert ahead["right"] == (0, 0, 0)
    assert ahead["ten-minutes"] == (1, 300, 300)
    assert ahead["twenty-minutes"] == (6, 420, 960)
    assert ahead["one-day"] == (2, 42_900, 86_100)
    assert (found["behind"]["late"], found["behind"]["late_most"]) == (2, 2)
    assert found["right"]["rows"] == 48
    passed, told = judge_clocks(CLOCK, result.producers)
    assert not passed
    accused = set(re.findall(r"the clock of events/(\S+) is wrong", told))
    assert accused == {*KINDS, "twenty-minutes"} - {"no-time", "behind"}
    assert "6 of 480 rows are ahead of their arrival by 7 min (median) to 16 min" in told

    silver = shop.table("silver.transactions")
    assert producer_days(shop, silver) == list(result.producers), "what commits keep says the same"
    again = build(shop, silver, days, run_id="again")
    assert again.with_status("unchanged") == days
    assert list(again.producers) == list(result.producers)


def test_a_producer_is_named_even_where_its_day_is_held_back(shop: Lake) -> None:
    """A clock so wrong that the day fails is the one that has to be told first."""
    land(shop.settings.root, "right", hours())
    land(shop.settings.root, "dead", ['"1970-01-01T00:00:00Z"'] * 200)
    build(shop, shop.table("bronze.events"), [DAY], run_id="r")
    result = build(shop, shop.table("silver.transactions"), [DAY], run_id="r")
    assert result.with_status("failed") == [DAY]
    passed, told = judge_clocks(CLOCK, result.producers)
    assert not passed
    assert "events/dead is wrong" in told
    assert "events/right" not in told
    assert producer_days(shop, shop.table("silver.transactions")) == list(result.producers), "as it is told afterwards"


# ---- whatever clocks producers have ---------------------------------------------------------------------------------

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def possible(written: str) -> bool:
    """Whether an event that arrived on the day can have happened then, by the standard library."""
    value = json.loads(written)
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        return False
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:  # no such day
        return False
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    first = datetime.combine(DAY - timedelta(days=400), time(), UTC)
    return first <= moment <= END + timedelta(minutes=15)


def clocks() -> st.SearchStrategy[str]:
    """What some clock writes: right, ahead or behind by anything, in wrong units, or nonsense; as JSON."""
    offsets = st.one_of(
        st.timedeltas(timedelta(minutes=-60), timedelta(minutes=60)),
        st.timedeltas(timedelta(days=-800), timedelta(days=800)),
        st.sampled_from([timedelta(minutes=15), timedelta(minutes=15, microseconds=1), timedelta(days=-401)]),
    )
    skewed = offsets.map(lambda offset: END + offset)
    anywhere = st.datetimes(timezones=st.just(UTC))
    seconds = skewed.map(lambda moment: int(moment.timestamp()))
    return st.one_of(
        skewed.map(text),
        anywhere.map(text),
        seconds.map(str),
        seconds.map(lambda n: str(n * 1000)),
        seconds.map(lambda n: f'"{n}"'),
        seconds.map(lambda n: text(datetime.fromtimestamp(n / 1000, UTC))),
        st.integers(10_000, 999_999).map(lambda year: f'"+{year}-03-02T10:00:00Z"'),
        st.sampled_from(
            ["null", "true", "[]", '""', '"0000-00-00T00:00:00Z"', '"2026-02-30T10:00:00Z"', "-1", "1e400"]
        ),
    )


def test_whatever_clocks_there_are_no_row_is_lost_and_no_impossible_one_published(
    lake: LakeFactory, tmp_path: Path, cases: Callable[[int], int]
) -> None:
    """The bounds are of the contract, not of the examples that somebody thought of."""
    lists = st.lists(st.lists(clocks(), min_size=1, max_size=25), min_size=1, max_size=4)
    number = 0

    @settings(max_examples=cases(4), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(lists)
    def whatever(producers: list[list[str]]) -> None:
        nonlocal number
        number += 1
        names = ("bronze.online_retail", "bronze.events", "silver.transactions")
        shop = lake(*(tables()[name] for name in names), root=tmp_path / f"root{number}")
        land(shop.settings.root, "right", hours(count=200))
        for n, times in enumerate(producers):
            land(shop.settings.root, f"p{chr(97 + n)}", times)
        build(shop, shop.table("bronze.events"), [DAY], run_id="r")
        silver = shop.table("silver.transactions")
        days = sorted({*shop.snapshot("bronze.events").by_day("_event_date"), DAY})
        result = build(shop, silver, days, run_id="r")
        published = {row["event_id"] for row in rows_of(shop.path(silver.id))}
        aside = {row["event_id"]: row["_failed_rules"] for row in rows_of(shop.path(silver.quarantine_id))}
        late = {key for key, rules in aside.items() if rules == ["not_too_late"]}
        for n, times in enumerate(producers):
            for line, written in enumerate(times):
                key = f"p{chr(97 + n)} {line}"
                assert (key in published or key in late) == possible(written), (key, written, aside.get(key))
                assert (key in published) != (key in aside), f"{key} is lost or doubled"
        held = [day for day in result.with_status("failed") if day == DAY]
        assert not held

    whatever()


# ---- measured without an engine -------------------------------------------------------------------------------------

NAMES = ("web-0001", "web-0002", "app-0001", "part-0000")
ROWS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(-1, 40), st.integers(0, 86_399)), max_size=40)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_figures_equal_a_count_of_the_rows(
    lake: LakeFactory, tmp_path: Path, drawn: list[tuple[str, int, int]]
) -> None:
    """Figures come from footers where these say enough: a producer must never get another's rows."""
    shop, table = lake(*tables().values()), tables()["bronze.events"]
    rows = [
        {
            "_arrival_date": DAY,
            "_event_date": DAY - timedelta(days=late),
            "_source_file": f"landing/events/{DAY}/{name}.jsonl",
            "event_time": (END - timedelta(days=late + 1) + timedelta(seconds=second)).isoformat(),
        }
        for name, late, second in drawn
    ]
    producer = {"web-0001": "events/web", "web-0002": "events/web", "app-0001": "events/app", "part-0000": "events"}
    lines = Counter(producer[name] for name, *_ in drawn)
    files = stage_rows(target_of(tmp_path / "t", table.schema, table.partition_by), rows)
    metrics = with_clocks(shop, table, files, {DAY: lines}, measure(table, files, [DAY]))
    assert metrics[DAY].clocks.keys() == lines.keys()
    for name, figures in metrics[DAY].clocks.items():
        own = [(late, second) for file, late, second in drawn if producer[file] == name]
        ahead = sorted(second for late, second in own if late < 0)
        late_days = sorted(max(late, 0) for late, _ in own)
        each = ProducerDay(DAY, name, figures)
        assert (each["rows"], each["ahead"], each["late"]) == (len(own), len(ahead), sum(n > 0 for n in late_days))
        assert each["ahead_most"] == max(ahead, default=0)
        assert each["ahead_p50"] == (ahead[(len(ahead) - 1) // 2] if ahead else 0)
        assert (each["late_most"], each["late_p50"]) == (late_days[-1], late_days[(len(own) - 1) // 2])


def test_few_rows_accuse_nobody() -> None:
    """One broken row of many is no broken clock, and an alert a day would be read by nobody."""
    sound = ProducerDay(DAY, "a", {"rows": 10_000, "number": 10, "ahead": 9, "ahead_p50": 10, "ahead_most": 90_000})
    assert sound.accused(CLOCK) == ""
    within = ProducerDay(DAY, "a", {"rows": 1000, "ahead": 80, "ahead_p50": 300, "ahead_most": 900})
    assert within.accused(CLOCK) == "", "a quarter of an hour is what clocks may differ"
    wrong = ProducerDay(DAY, "a", {"rows": 1000, "ahead": 80, "ahead_p50": 300, "ahead_most": 901})
    assert wrong.accused(CLOCK) == "80 of 1000 rows are ahead of their arrival by 5 min (median) to 15 min"
    assert ProducerDay(DAY, "a", {"number": 5}).accused(CLOCK) == "", "of how many, nobody knows"
    assert judge_clocks(CLOCK, []) == (True, "no figures of producers yet")
    assert judge_clocks(CLOCK, [sound, within]) == (True, "no clock of a producer is wrong (2 judged)")


def test_a_table_without_landed_files_or_clock_has_no_producers(lake: LakeFactory) -> None:
    """Its days are nobody's arrival."""
    shop = lake(*tables().values())
    metrics = with_clocks(shop, tables()["gold.daily_revenue"], [], {}, {DAY: DayMetrics(DAY)})
    assert metrics[DAY].clocks == {}
    assert "clocks" not in metrics[DAY].as_json()


def test_spans_are_for_people() -> None:
    """378,691,200 seconds say nothing."""
    seconds = (0, 119, 120, 7199, 7200, 172_799, 172_800, 378_691_200)
    assert [span(n) for n in seconds] == ["0 s", "119 s", "2 min", "120 min", "2 h", "48 h", "2 days", "12 years"]
