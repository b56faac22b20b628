"""Days that are not over: open only where rows of them come by then, and only until they are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

import pandera.pyspark as pa
import pytest
from pydantic import SecretStr
from pyspark.sql import types as T

from lakehouse.build import open_days
from lakehouse.build.build import build
from lakehouse.build.open_days import (
    come_to,
    is_reached,
    newest_closed,
    newest_partition,
    open_until,
    rows_so_far,
    takes_today,
)
from lakehouse.contracts import Input, Landing, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.records.history import project_history
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, stage_rows, table
from lakehouse_tests.fixtures.streaming import SOURCE, messages, streamed

DAY = date(2026, 3, 1)
NOON, MIDNIGHT = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
COLUMNS = model(id=(T.StringType(), pa.Field(nullable=True)), day=(T.DateType(), pa.Field(nullable=True)))


def landed(*, during_day: bool) -> tuple[Table, Table]:
    """Lines by arrival day, and what is made of them."""
    source = Landing("parts", "jsonl", ("id",), during_day=during_day)
    return (
        table("bronze.parts", COLUMNS, lambda lines: lines, {"lines": source}),
        table("silver.parts", COLUMNS, lambda parts: parts, {"parts": Input("bronze.parts")}),
    )


@pytest.mark.parametrize(
    ("now", "until"),
    [
        (datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 2, 0, 5, tzinfo=UTC)),
        (datetime(2026, 3, 2, 0, 4, tzinfo=UTC), datetime(2026, 3, 2, 0, 5, tzinfo=UTC)),
        (datetime(2026, 3, 2, 0, 5, tzinfo=UTC), None),
        (datetime(2026, 3, 9, tzinfo=UTC), None),
    ],
    ids=["at noon", "messages may be on their way", "over", "long over"],
)
@pytest.mark.parametrize("name", ["bronze.visits", "silver.visits", "gold.by_day"])
def test_a_day_closes_by_itself(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, name: str, now: datetime, until: datetime | None
) -> None:
    """Without it, today would pass for whole, or yesterday never be."""
    monkeypatch.setattr(open_days, "batch_of", lambda *_: 1)
    made = lake(*streamed())
    assert open_until(made, made.table(name), DAY, now) == until


def test_a_day_is_open_for_as_long_as_its_messages_have_time(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, days of a topic that is read once a night would be judged as whole before they are read."""
    monkeypatch.setattr(open_days, "batch_of", lambda *_: 1)
    made = lake(*streamed(max_lag=timedelta(hours=30)))
    closes = datetime(2026, 3, 3, 6, tzinfo=UTC)
    for name in made.tables:
        assert open_until(made, made.table(name), DAY, closes - timedelta(hours=1)) == closes
        assert open_until(made, made.table(name), DAY, closes) is None
    assert [min(newest_closed(made, closes - timedelta(hours=n))) for n in (1, 0)] == [DAY - timedelta(days=1), DAY]


def test_a_day_closes_for_each_topic_in_its_own_time(lake: LakeFactory) -> None:
    """Without it, whoever closes days would look for those of a quick topic only once the slowest has closed, too."""
    visits = messages()
    made = lake(visits, replace(visits, name="slow", inputs=messages(max_lag=timedelta(hours=30)).inputs))
    minutes = [MIDNIGHT + timedelta(minutes=n) for n in range(31 * 60)]
    seen = [newest_closed(made, at) for at in minutes]
    moved = [at - MIDNIGHT for at, now, before in zip(minutes[1:], seen[1:], seen, strict=False) if now != before]
    closes = [(0, 5), (6, 0), (24, 0), (24, 5), (30, 0)]
    assert moved == [timedelta(hours=hours, minutes=minutes) for hours, minutes in closes]


def test_where_no_message_was_ever_taken_no_day_is_open(lake: LakeFactory) -> None:
    """Without it, whoever has no stream would never have a whole day before it is over."""
    made = lake(*streamed())
    assert open_until(made, made.table("gold.by_day"), DAY, datetime(2026, 3, 1, 12, tzinfo=UTC)) is None


@pytest.mark.parametrize("during_day", [True, False], ids=["as they come", "built by hand"])
@pytest.mark.parametrize("name", ["bronze.parts", "silver.parts"])
def test_a_day_of_files_is_open_until_it_is_over(lake: LakeFactory, name: str, during_day: bool) -> None:
    """Without it, the file of the morning would pass for the whole day."""
    made = lake(*landed(during_day=during_day))
    assert open_until(made, made.table(name), DAY, NOON) == MIDNIGHT
    assert open_until(made, made.table(name), DAY, MIDNIGHT) is None


def test_today_is_a_partition_where_rows_of_it_come(lake: LakeFactory) -> None:
    """Without it, the page of a lake of daily exports would offer a day first of which nothing has come."""
    settings = lake().settings
    streams, files, exports = (
        {each.id: each for each in made} for made in (streamed(), landed(during_day=True), landed(during_day=False))
    )
    connected = settings.model_copy(update={"source_urls": {SOURCE: SecretStr("kafka://127.0.0.1:9")}})
    yesterday = DAY - timedelta(days=1)
    assert newest_partition(settings, exports, NOON) == yesterday
    assert newest_partition(settings, files, NOON) == DAY
    assert newest_partition(settings, streams, NOON) == yesterday, "no brokers are set"
    assert newest_partition(connected, {**exports, **streams}, NOON) == DAY
    assert not takes_today(connected, {**exports, **streams}, exports["silver.parts"])
    visits = streams["bronze.visits"]
    target = Target(settings.root / "tables" / "bronze" / "visits", visits.schema, visits.partition_by)
    ensure_table(target)
    assert newest_partition(settings, streams, NOON) == yesterday, "a run of all tables made it, empty"
    replace_days(target, ensure_table(target), [], [DAY], Commit({f"intake/{SOURCE}/batch": 1}))
    assert newest_partition(settings, streams, NOON) == DAY, "messages were taken before"
    ended = connected.model_copy(update={"last_day": date(2026, 1, 1)})
    assert newest_partition(ended, {**files, **streams}, NOON) == date(2026, 1, 1)


def test_the_course_of_a_day_is_what_its_commits_say(lake: LakeFactory) -> None:
    """Without it, nobody would know how much of a day is usual by noon."""
    bronze, _ = landed(during_day=True)
    made = lake(bronze)
    target = Target(made.path(bronze.id), bronze.schema, bronze.partition_by)
    began = datetime.now(UTC)
    for rows in (3, 5):
        files = stage_rows(target, [{"id": str(n), "day": DAY} for n in range(rows)])
        facts = {"lakehouse.run_id": "r", "lakehouse.metrics": {str(DAY): {"rows": rows}}}
        replace_days(target, ensure_table(target), files, [DAY], Commit({}, facts))
    project_history(made.settings.root, made.snapshot(bronze.id), bronze.id)
    since = datetime.combine(DAY, time(), UTC)
    assert rows_so_far(made, bronze, [DAY], datetime.now(UTC) - since) == {DAY: 5}
    assert rows_so_far(made, bronze, [DAY], began - since - timedelta(seconds=1)) == {}


def test_a_day_that_was_built_as_it_came_says_that_its_files_wait(
    lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, who takes `during_day` back would look for files that are where they were."""
    bronze, _ = landed(during_day=False)
    made = lake(bronze)
    file = made.settings.root / "landing" / "parts" / str(DAY) / "a.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"id": "a"}\n')
    put(made, bronze, DAY, [{"id": "a", "day": DAY}])  # by the contract of the morning
    monkeypatch.setattr(open_days, "present", lambda: NOON)
    result = build(made, bronze, [DAY], run_id="r").days[DAY]
    assert result.status == "failed"
    assert "1 row of this day is kept, and its files wait until it is over" in result.reason
    file.unlink()
    assert "no line of it is in the landing zone" in build(made, bronze, [DAY], run_id="r").days[DAY].reason


def test_a_day_to_come_is_reached_where_no_stream_is_behind(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a day that a wrong clock has filled would be excused from its share of bad rows, as by a backlog."""
    made = lake(*streamed())
    silver = made.table("silver.visits")
    assert is_reached(date(2999, 1, 1), come_to(made, silver))
    monkeypatch.setattr(open_days, "taken_until", lambda *_: int(NOON.timestamp() * 1e6))
    assert [is_reached(DAY + timedelta(days=n), come_to(made, silver)) for n in (0, 1)] == [True, False]
