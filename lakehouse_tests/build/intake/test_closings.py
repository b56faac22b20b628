"""When hours of a stream are closed: by which watermark, kept for ever, and the same whoever asks again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakehouse.build.base import open_base
from lakehouse.build.intake.closings import Closing, Closings, closed_by, closings_of
from lakehouse.build.intake.ends import Ends, Position
from lakehouse.build.plan import make_plan
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Input
from lakehouse.contracts.fitting import closing_mistakes
from lakehouse.delta.commit import append_batch, ensure_table, replace_days
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import ContractError
from lakehouse.orchestration.due_reasons import what_happened
from lakehouse.read.lake import Lake
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.fixtures.making import model, stage_rows, table, target_of
from lakehouse_tests.fixtures.streaming import SOURCE, messages

HOUR = 3_600_000_000
DAY = date(2026, 3, 1)
START = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 1_000_000
LATENESS = timedelta(hours=1)


def ends(batch: int, watermark: int | None, arrived: int = 0) -> Ends:
    """Where a batch ended."""
    return Ends(batch, watermark, {"t": 1}, {("t", 0): Position(batch, watermark, of=1)}, arrived)


def oracle(batches: list[tuple[int, int]], after: int) -> list[Closing]:
    """By looking at every hour and every batch, given as watermark and newest arrival."""
    found = []
    for hour in range(24):
        closing = next((each for each in batches if each[0] >= START + (hour + 1) * HOUR + after * HOUR), None)
        found += [Closing(START + hour * HOUR, *closing)] if closing else []
    return found


class Log:
    """The log of a table with a topic, and one entry a batch."""

    def __init__(self, folder: Path) -> None:
        self.target: Target = target_of(folder, T.StructType([T.StructField("day", T.DateType())]))
        ensure_table(self.target)
        self.last = ends(0, None)

    def add(self, watermark: int | None, arrived: int, *, keep: bool = True) -> None:
        """A batch; of a release before this one, if nothing is to be kept."""
        base = open_snapshot(self.target.path)
        now = ends(self.last.batch + 1, watermark, arrived)
        known = bool(closings_of(base, "s").hours)
        more: Mapping[str, int] = closed_by(self.last, now, "s", known=known) if keep else {}
        append_batch(self.target, base, [], Commit(now.transactions("s") | dict(more)))
        self.last = now

    def closed(self, after: timedelta = LATENESS, day: date = DAY) -> list[Closing]:
        """The hours of a day that are closed."""
        return closings_of(open_snapshot(self.target.path), "s").of(day, after)


@given(
    steps=st.lists(st.tuples(st.integers(0, 5 * HOUR), st.integers(1, HOUR)), max_size=40),
    begin=st.integers(-3 * HOUR, 26 * HOUR),
    after=st.integers(0, 4),
)
def test_an_hour_is_closed_by_the_first_watermark_behind_it(
    steps: list[tuple[int, int]], begin: int, after: int
) -> None:
    """Whatever batches do to the watermark: without it, an hour could be closed by another one, or twice."""
    batches: list[tuple[int, int]] = []
    kept: dict[str, int] = {}
    last = ends(0, None)
    watermark, arrived = START + begin, START
    for step, pause in steps:
        watermark, arrived = watermark + step, arrived + pause
        now = ends(last.batch + 1, watermark, arrived)
        new = closed_by(last, now, "s", known=bool(kept))
        assert not kept.keys() & new.keys(), "what is kept never changes"
        assert len(new) in (0, 2)
        kept |= new
        batches.append((watermark, arrived))
        last = now
    assert _closings(kept).of(DAY, timedelta(hours=after)) == oracle(batches, after)


def _closings(kept: Mapping[str, int]) -> Closings:
    class Snapshot:
        def transactions(self) -> Mapping[str, int]:
            return kept

    snapshot: Any = Snapshot()
    return closings_of(snapshot, "s")


def test_what_is_kept_outlives_the_log(tmp_path: Path) -> None:
    """Entries are cleaned away after a month: a day that is built again later must come out as it was."""
    log = Log(tmp_path / "t")
    chance = random.Random(3)
    batches: list[tuple[int, int]] = []
    watermark = START
    for n in range(30):
        watermark += chance.randrange(2 * HOUR)
        batches.append((watermark, START + n))
        log.add(*batches[-1])
    wanted = log.closed()
    assert wanted == oracle(batches, 1)
    assert len(wanted) > 10
    DeltaTable(str(log.target.path)).create_checkpoint()
    for entry in (tmp_path / "t/_delta_log").glob("*.json"):
        if int(entry.stem) < open_snapshot(log.target.path).version:
            entry.unlink()
    open_snapshot.__globals__["_kept"].cache_clear()
    assert log.closed() == wanted


def test_hours_before_closings_were_kept_stay_as_they_were(tmp_path: Path) -> None:
    """A lake of the last release: a watermark that is made up would be worse than none."""
    log = Log(tmp_path / "t")
    log.add(START + 5 * HOUR + 7, START, keep=False)
    assert log.closed() == []
    log.add(START + 5 * HOUR + 8, START + 1)
    assert log.closed() == []
    log.add(START + 7 * HOUR, START + 2)
    assert log.closed() == [Closing(START + n * HOUR, START + 7 * HOUR, START + 2) for n in (4, 5)]


class Stream:
    """A table with a topic, and one that reads it with its closed hours; decided from logs, without an engine."""

    def __init__(self, root: Path) -> None:
        self.source = messages()
        contract = model(day=(T.DateType(), pa.Field()), n=(T.LongType(), pa.Field(nullable=True)))
        read = {"visits": Input(self.source.id, hours_close_after=LATENESS)}
        self.hours = table("gold.hours", contract, lambda visits: visits, read)
        self.lake = Lake(engine_settings(root), {each.id: each for each in (self.source, self.hours)}, no_engine)
        self.last = ends(0, None)

    def take(self, watermark: int, *days: date) -> None:
        """A batch with a message of each of some days, or of none, as where a partition fell idle."""
        base = open_base(self.lake, self.source).main
        now = ends(self.last.batch + 1, watermark, watermark)
        known = bool(closings_of(base.snapshot, SOURCE).hours)
        rows = [{"_arrival_date": DAY + timedelta(days=9), "_event_date": day} for day in days]
        told = now.transactions(SOURCE) | dict(closed_by(self.last, now, SOURCE, known=known))
        append_batch(base.target, base.snapshot, stage_rows(base.target, rows), Commit(told))
        self.last = now

    def stale(self) -> list[date]:
        """The stale days of the reader, which are then published."""
        found = stale_days(self.lake, self.hours)
        prints = make_plan(self.lake, self.hours, found).fingerprints
        told: dict[str, Any] = {"lakehouse.run_id": "r", "lakehouse.code_version": self.hours.code_version}
        told |= {"lakehouse.inputs": {self.source.id: self.lake.snapshot(self.source.id).version}}
        for day in found:
            target = open_base(self.lake, self.hours).main.target
            files = stage_rows(target, [{"day": day, "n": 1}])
            facts = {**told, "lakehouse.metrics": {day.isoformat(): {"rows": 1}}}
            replace_days(target, ensure_table(target), files, [day], Commit({day_transaction(day): prints[day]}, facts))
        return found


def no_engine() -> SparkSession:
    raise AssertionError("deciding what is stale computes nothing")


def test_just_the_days_with_a_newly_closed_hour_are_stale(tmp_path: Path) -> None:
    """Too few, and hours at the end of a day stay open for ever; too many, and an open day is built in every turn."""
    stream, following = Stream(tmp_path), DAY + timedelta(days=1)
    stream.take(START + 23 * HOUR, DAY)
    assert stream.stale() == [DAY]
    stream.take(START + 23 * HOUR + 1)
    assert stream.stale() == [], "the watermark went on, and closed nothing"
    stream.take(START + 24 * HOUR, following)
    assert stream.stale() == [DAY, following]
    stream.take(START + 24 * HOUR + 7, following)
    assert stream.stale() == [following]
    stream.take(START + 25 * HOUR)
    assert stream.stale() == [DAY], "without a message: the hour from 23:00 is closed"
    stream.take(START + 26 * HOUR)
    assert stream.stale() == [following]
    stream.take(START + 100 * HOUR)
    assert stream.stale() == [following], "no day without messages"
    stream.take(START + 900 * HOUR)
    assert stream.stale() == []


def test_why_a_day_is_stale_is_told(tmp_path: Path) -> None:
    """Without it, a run would be there for rows that nobody finds."""
    stream = Stream(tmp_path)
    stream.take(START + 23 * HOUR, DAY)
    stream.stale()
    stream.take(START + 25 * HOUR)
    assert what_happened(stream.lake, {"gold.hours": [DAY]}) == "hours of bronze.visits were closed"


def test_a_restore_takes_closings_back(tmp_path: Path) -> None:
    """Without it, hours would count as closed by a watermark of messages that are taken again."""
    stream = Stream(tmp_path)
    stream.take(START + 23 * HOUR, DAY)
    stream.take(START + 24 * HOUR, DAY)
    source, lake = stream.source, stream.lake
    path, before = lake.path(source.id), lake.snapshot(source.id).version
    wanted = closings_of(fresh_snapshot(path), SOURCE)
    stream.take(START + 30 * HOUR, DAY)
    assert closings_of(fresh_snapshot(path), SOURCE) != wanted
    restore(lake, plan_restore(lake, source, before), by="test")
    assert closings_of(fresh_snapshot(path), SOURCE) == wanted


def test_hours_close_where_a_stream_is() -> None:
    """Without it, hours of files would wait for a watermark that never comes."""
    contract = model(day=(T.DateType(), pa.Field()))
    plain = table("silver.plain", contract, lambda visits: visits, {"visits": Input("bronze.visits")})
    read = {"plain": Input(plain.id, hours_close_after=LATENESS)}
    wrong = table("gold.wrong", contract, lambda plain: plain, read)
    (mistake,) = closing_mistakes(wrong, {plain.id: plain})
    assert "hours_close_after: expected a table with a Topic" in str(mistake)
    assert closing_mistakes(plain, {"bronze.visits": messages()}) == []


def test_lateness_is_in_full_hours() -> None:
    """Of each hour one watermark is kept: a bound within an hour could not be told from it."""
    with pytest.raises(ContractError, match=r"hours_close_after: expected full hours, 0 or more, got .*seconds=1800"):
        Input("bronze.visits", hours_close_after=timedelta(minutes=30))
