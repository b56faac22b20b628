"""Days that a stream adds to: what is appended comes out as if the day were built whole."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.build import build as building
from lakehouse.build.build import build
from lakehouse.build.grow import Growth, growth_of
from lakehouse.build.result import FAILED, PUBLISHED
from lakehouse.contracts import Input, Table, Topic, Volume
from lakehouse.records.history import latest_records
from lakehouse.runs.stream import Pace, merge_small, turns
from lakehouse.spark.options import REMOTE
from lakehouse.transforms.columns import with_event_date
from lakehouse_tests.build.intake.test_from_topic import Taking, visit
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.engines import configured
from lakehouse_tests.fixtures.kafka import Kafka
from lakehouse_tests.fixtures.making import having, model, rows_of, table
from lakehouse_tests.fixtures.midnight import present_day
from lakehouse_tests.fixtures.streaming import FIELDS, SOURCE, Visits, build_followers, built_whole, recent, visits

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("today")]
SILVER = "silver.visits"
OF_THE_FILES = {"files", "bytes", "seconds"}  # figures that may differ: they are not of the rows


@pytest.fixture
def with_gold(lake: LakeFactory, kafka: Kafka) -> Taking:
    """A topic of two partitions, of which the first comes first."""
    return Taking(lake, kafka, partitions=2)


@pytest.fixture
def taking(with_gold: Taking) -> Taking:
    """The same without the table that reads silver: what is added to is silver alone."""
    with_gold.tables.pop()
    with_gold.lake.tables = {each.id: each for each in with_gold.tables}
    return with_gold


def turn(taking: Taking, partition: int, *messages: str) -> None:
    """Send, take and build what was touched."""
    taking.kafka.send(taking.topic, messages, partition)
    taking.take()
    build_followers(taking.lake, taking.bronze, "test")


def files(taking: Taking) -> int:
    """Live files of silver's today: one where it was built whole."""
    return len(taking.lake.snapshot(SILVER).by_day("day").get(present_day(), []))


def state(taking: Taking) -> dict[str, Any]:
    """All that silver and what reads it hold, quarantine and figures too."""
    lake = taking.lake
    names = (f"{SILVER}_quarantine", *(each.id for each in taking.tables[1:]))
    rows = {name: sorted(map(repr, rows_of(lake.path(name)))) for name in names}
    records = latest_records(lake.settings.root, SILVER)
    told = {
        day: {name: value for name, value in each.figures.items() if value and name not in OF_THE_FILES}
        for day, each in records.items()
    }
    content = {n: v for n, v in lake.snapshot(SILVER).transactions().items() if n.startswith("rows/")}
    return {"rows": rows, "figures": told, "content": content}


def whole(taking: Taking) -> dict[str, Any]:
    """The state once all days are built whole."""
    for each in taking.tables[1:]:
        days = taking.lake.snapshot(each.id).by_day("day")
        build(taking.lake, each, days, run_id="test", force=True)
    return state(taking)


def test_what_is_added_is_what_a_whole_build_gives(with_gold: Taking) -> None:
    """Without it, a stream's days would differ from those that are built again: by a repeat, a count or a rule."""
    chance = random.Random(8)
    turn(with_gold, 1, *[visit(n) for n in range(60)])
    sent, most = list(range(60)), 1
    for _ in range(4):
        new = [max(sent) + 1 + n for n in range(chance.randint(1, 8))]
        again = chance.sample(sent, 3)  # some on their day, some a day later: repeats all the same
        late = {n: f"{present_day() - timedelta(days=chance.choice([0, 0, 1]))}T08:00:00Z" for n in [*new, *again]}
        turn(with_gold, 1, "broken", *[visit(n, late[n]) for n in [*new, new[0], *again]])
        sent += new
        most = max(most, files(with_gold))
    assert most > 1  # rows were added, and not all built anew
    grown = state(with_gold)
    assert grown["figures"][present_day()]["duplicates"] > 0
    assert grown == whole(with_gold)


def test_a_process_adds_to_days_before_it_has_had_a_session(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a run that begins with silver, as those of late rows do, would fail on the warm engine each time."""

    def without_session(*asked: Any) -> Growth | None:
        with pytest.MonkeyPatch.context() as patch:  # the kind of session that there would be is not yet known
            if REMOTE in os.environ:
                patch.delenv(REMOTE)
            else:
                patch.setenv(REMOTE, "1")
            return growth_of(*asked)

    turn(taking, 1, *[visit(n) for n in range(9)])
    monkeypatch.setattr(building, "growth_of", without_session)
    turn(taking, 1, visit(20))
    assert files(taking) == 2
    assert state(taking) == whole(taking)


def test_today_is_published_from_its_first_row_on(taking: Taking) -> None:
    """Without it, a table that bounds its volume would be refused each morning, until a quarter of the day is there."""
    bounded = having(taking.lake.table(SILVER), volume=Volume())
    bounded.__dict__["code_version"] = taking.lake.table(SILVER).code_version
    taking.lake.tables = {**taking.lake.tables, SILVER: bounded}
    weeks = [f"{present_day() - timedelta(weeks=n)}T10:00:00Z" for n in range(1, 5)]
    turn(taking, 1, *[visit(n, week) for n, week in enumerate(weeks * 20)])
    turn(taking, 1, visit(100))
    assert taking.lake.snapshot(SILVER).rows_by_day("day")[present_day()] == 1
    assert not latest_records(taking.lake.settings.root, SILVER)[present_day()].figures.get("checks"), (
        "no warning either"
    )
    turn(taking, 1, *[visit(n) for n in range(101, 190)])
    assert taking.lake.snapshot(SILVER).rows_by_day("day")[present_day()] == 1, (
        "more than four times a whole day is refused"
    )


def test_a_row_that_comes_before_one_that_is_there_takes_its_place(taking: Taking) -> None:
    """Without it, which of two rows of a key is kept would depend on the batches they came in."""
    turn(taking, 1, *[visit(n) for n in range(9)])
    turn(taking, 1, visit(20))
    assert files(taking) == 2
    turn(taking, 0, visit(3, page="earlier"))
    assert files(taking) == 1
    assert [row["page"] for row in taking.rows(SILVER) if row["id"] == "v3"] == ["earlier"]
    assert state(taking) == whole(taking)


def test_a_repeat_of_a_row_on_the_day_before_is_left_out(taking: Taking) -> None:
    """Without it, a message that is stamped anew after midnight would be there twice where its day is added to."""
    yesterday = f"{present_day() - timedelta(days=1)}T23:59:59Z"
    turn(taking, 1, *[visit(n) for n in range(9)], *[visit(n, yesterday) for n in range(30, 34)])
    turn(taking, 1, visit(20), visit(30))
    assert files(taking) == 2
    assert [row["day"] for row in taking.rows(SILVER) if row["id"] == "v30"] == [present_day() - timedelta(days=1)]
    assert state(taking) == whole(taking)


def test_a_day_that_is_added_to_counts_by_what_is_added(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a stream would be planned as a large build from some hours of a busy day on, and take twice as long."""
    sizes: list[int | None] = []
    monkeypatch.setattr("lakehouse.build.stage.plan_for", lambda _session, _settings, size: sizes.append(size))
    turn(taking, 1, *[visit(n) for n in range(300)])
    sizes.clear()
    turn(taking, 1, visit(1000))
    assert files(taking) == 2
    inputs = taking.lake.snapshot(taking.bronze.id).files
    by_size = sorted(each.size for each in inputs)
    assert sizes[0] == by_size[0] < by_size[-1] / 2


def row_by_row(taking: Taking, bronze: Table, column: str, kind: T.DataType, **words: Any) -> Table:
    """silver.plain: id, day and one more column of each message; words of its `Input` may be given."""
    columns: dict[str, Any] = {
        "id": (T.StringType(), pa.Field()), column: (kind, pa.Field(nullable=True)), "day": (T.DateType(), pa.Field()),
    }  # fmt: skip

    def plain(messages: DataFrame) -> DataFrame:
        return messages.select(
            "id", F.col(f"_{column}" if words else column).alias(column), F.col("_event_date").alias("day")
        )

    silver = table(
        "silver.plain", model(**columns), plain, {"messages": Input(bronze.id, **words)}, conserves_rows=True
    )
    taking.tables[:] = bronze, silver
    taking.lake.tables = {each.id: each for each in taking.tables}
    return silver


def test_what_is_added_has_the_partition_values_that_the_log_has(taking: Taking) -> None:
    """Without it, rows that were added had values as folders escape them, and a text in the place of null."""
    source = Topic(SOURCE, (taking.topic,), FIELDS, time="at")
    by_page = ("_arrival_date", "_event_date", "page")
    bronze = table(
        "bronze.visits", Visits, lambda raw: with_event_date(raw, "at"), {"raw": source}, partition_by=by_page
    )
    silver = row_by_row(taking, bronze, "page", T.StringType())
    turn(taking, 0, *[visit(n) for n in range(9)])
    turn(taking, 0, visit(20, page="Zürich/süd = 5% + x"), visit(21, page=None))
    assert len(taking.lake.snapshot(silver.id).files) == 2
    found = {row["id"]: row["page"] for row in taking.rows(silver.id)}
    assert (found["v20"], found["v21"]) == ("Zürich/süd = 5% + x", None)


def test_a_day_whose_hours_were_closed_is_built_whole(taking: Taking) -> None:
    """Without it, rows that were there stayed as of an hour that is open, beside new ones that know that it is closed."""
    silver = row_by_row(taking, taking.bronze, "closed_at", T.TimestampType(), hours_close_after=timedelta(0))
    day = present_day() - timedelta(days=1)
    turn(taking, 0, *[visit(n, f"{day}T08:00:00Z") for n in range(9)])
    turn(taking, 0, visit(20, f"{day}T20:00:00Z"))
    turn(taking, 0, visit(21, f"{day}T20:00:01Z"))
    found = {row["id"]: row["closed_at"] for row in taking.rows(silver.id)}
    assert [found[f"v{n}"] is None for n in (0, 8, 20, 21)] == [False, False, True, True]


@pytest.fixture
def adaptive(spark: SparkSession) -> Iterator[None]:
    """The engine plans anew on its way, as those of users do."""
    with configured(spark, {"spark.sql.adaptive.enabled": "true"}):
        yield


@pytest.mark.usefixtures("adaptive")
def test_the_first_rows_of_a_day_leave_the_day_before_as_it_is(taking: Taking) -> None:
    """Without it, a stream would end at midnight: an engine tells nothing of a plan that it finds to be without rows."""
    yesterday = f"{present_day() - timedelta(days=1)}T23:59:59Z"
    turn(taking, 1, *[visit(n, yesterday) for n in range(9)])
    turn(taking, 1, *[visit(n) for n in range(20, 29)])
    turn(taking, 1, visit(40))
    assert (
        sorted(row["day"] for row in taking.rows(SILVER))
        == [present_day() - timedelta(days=1)] * 9 + [present_day()] * 10
    )
    assert files(taking) > 1  # added to, not built whole
    assert state(taking) == whole(taking)


def test_no_day_to_come_is_built_of_a_table_that_looks_back(taking: Taking) -> None:
    """Without it, features would be published, and served, as known at the end of days that have not happened."""
    taking.lake.tables = {**taking.lake.tables, "gold.recent": recent()}
    turn(taking, 0, visit(1), visit(2, f"{present_day() - timedelta(days=1)}T08:00:00Z"))
    assert {(row["day"], row["visits"]) for row in taking.rows("gold.recent")} == {
        (present_day() - timedelta(days=1), 1),
        (present_day(), 2),
    }


def test_a_day_that_fails_with_new_rows_keeps_its_good_ones(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, a burst of broken messages would go live with the rest, or stay after it was fixed."""
    taking = Taking(lake, kafka)
    silver = visits(0.1)
    turn(taking, 0, *[visit(n) for n in range(40)])
    taking.kafka.send(taking.topic, ["broken"] * 18 + [visit(50)])
    taking.take()
    assert build(taking.lake, silver, [present_day()], run_id="test").days[present_day()].status == FAILED
    assert len(taking.rows(SILVER)) == 40
    taking.kafka.send(taking.topic, [visit(n) for n in range(100, 300)])
    taking.take()
    result = build(taking.lake, silver, [present_day()], run_id="test").days[present_day()]
    assert (result.status, result.metrics.rows, result.metrics.quarantined) == (PUBLISHED, 241, 18)
    assert (len(taking.rows(SILVER)), len(taking.rows(f"{SILVER}_quarantine"))) == (241, 18)


def test_sums_are_built_less_often_than_rows_are_added(lake: LakeFactory, kafka: Kafka) -> None:
    """Without it, every batch would wait for the tables that have to be built whole, or these for ever."""
    taking = Taking(lake, kafka, messages_per_batch=20)
    taking.kafka.send(taking.topic, [visit(n) for n in range(80)])
    done = list(turns(taking.lake, [taking.bronze], "run", threading.Event(), pace=Pace(0, 3600), until_caught_up=True))
    assert [sorted(each.built) for each in done] == [
        ["gold.by_day", SILVER], [SILVER], [SILVER], [SILVER], ["gold.by_day"],
    ]  # fmt: skip
    assert [row["visits"] for row in taking.rows("gold.by_day")] == [80]


def test_a_stream_merges_its_small_files_and_builds_no_day_whole_for_it(
    lake: LakeFactory, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, readers would open ten thousand files of a day; or each minute all of the day would be built anew."""
    taking = Taking(lake, kafka, partitions=2, messages_per_batch=20)
    taking.kafka.send(taking.topic, [visit(n) for n in range(120)], 1)
    taking.kafka.send(taking.topic, ["broken", *[visit(n) for n in range(0, 120, 9)], "broken too"], 1)
    wholly, most = built_whole(monkeypatch), 0
    pace = Pace(0, 3600, 3)
    for _ in turns(taking.lake, [taking.bronze], "run", threading.Event(), pace=pace, until_caught_up=True):
        live = [taking.lake.snapshot(name).live.number for name in (taking.bronze.id, SILVER, f"{SILVER}_quarantine")]
        most = max(most, *live)
    assert most == 3, "files of a turn, beside those that were merged"
    assert wholly.count(SILVER) == 2, "while there was nothing yet, or no more than came"
    assert len(taking.rows()) == 136
    assert (len(taking.rows(SILVER)), len(taking.rows(f"{SILVER}_quarantine"))) == (120, 2)
    grown = state(taking)
    monkeypatch.undo()
    assert grown == whole(taking)


def test_files_that_were_merged_with_what_a_day_has_not_seen_are_read_with_the_today(taking: Taking) -> None:
    """Without it, rows would be added that are there, or those left out that came with them."""
    turn(taking, 1, *[visit(n) for n in range(20)])
    turn(taking, 1, visit(20))
    taking.kafka.send(taking.topic, [visit(30)], 1)
    taking.take()
    merge_small(taking.lake, taking.bronze, [present_day()], 2)
    assert files(taking) == 2
    build_followers(taking.lake, taking.bronze, "test")
    assert files(taking) == 1
    merge_small(taking.lake, taking.bronze, [present_day()], 2)
    turn(taking, 1, visit(40))
    assert files(taking) == 2
    version = merge_small_and_forget(taking)
    turn(taking, 1, visit(50))
    assert files(taking) == 1, f"nobody can tell what version {version} did"
    assert state(taking) == whole(taking)


def merge_small_and_forget(taking: Taking) -> int:
    """Merge, and lose the entries of the log up to the one that tells of it, as where old ones are cleaned up."""
    merge_small(taking.lake, taking.bronze, [present_day()], 2)
    snapshot = taking.lake.snapshot(taking.bronze.id)
    DeltaTable(snapshot.uri).create_checkpoint()
    for version in range(snapshot.version + 1):
        Path(snapshot.uri, "_delta_log", f"{version:020}.json").unlink()
    return snapshot.version
