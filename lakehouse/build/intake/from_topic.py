"""Batches of messages: which ones a table takes from its topics next, and what they tell once they are staged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import SecretStr
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.build.base import Base
from lakehouse.build.intake.batch import Batch, Taken
from lakehouse.build.intake.closings import closed_by, closings_of
from lakehouse.build.intake.ends import (
    Ends,
    Newest,
    Reach,
    accepted,
    bounded,
    carried_on,
    ends_of,
    expected,
    problems,
    reach,
    spans_after,
    taken_as,
)
from lakehouse.build.intake.poison import Poison, dead_rows, is_poison, poison_in
from lakehouse.build.laps import Laps
from lakehouse.checks.batches import DEAD
from lakehouse.checks.metrics import Value
from lakehouse.contracts import Topic
from lakehouse.days import days_between, iso, micros_of
from lakehouse.delta.commit import append_batch
from lakehouse.delta.staged import StagedFile, known_file
from lakehouse.delta.target import Commit
from lakehouse.errors import SourceError
from lakehouse.sources.kafka import Brokers, arrived
from lakehouse.sources.spans import Found, Span, messages_in
from lakehouse.spark.planning import plan_for
from lakehouse.spark.transient import is_transient
from lakehouse.store import parquet
from lakehouse.texts import program

_HOUR = timedelta(hours=1)
_MESSAGE = 100  # bytes, about, as its row is kept
MOST_REASONS = 5  # of messages that are no rows, told by name
ACCEPT = "accept"  # operation of the commit that gives messages up
_SCHEMA = pa.schema(
    {
        "_topic": pa.string(),
        "_partition": pa.int32(),
        "_event_at": pa.timestamp("us", "UTC"),
        "_arrived_at": pa.timestamp("us", "UTC"),
        "_error": pa.string(),
    }
)


@dataclass(frozen=True, kw_only=True)
class TopicBatch(Batch):
    """A batch of messages.

    Attributes:
        topic: what the contract says of the source.
        brokers: where they are read.
        begun: when the batch was begun, in microseconds, by this machine's clock.
        before: where the last batch ended.
        found: the topics when the batch was begun.
        spans: the messages of the batch.
        until: how far the topics reached when the first batch of this intake was begun.
        poison: its messages on which the table's code fails.
    """

    topic: Topic
    brokers: Brokers
    begun: int
    before: Ends
    found: Mapping[str, Found]
    spans: Sequence[Span]
    until: Reach
    poison: Poison = field(default_factory=dict)

    @property
    def number(self) -> int:
        """From 1."""
        return self.before.batch + 1

    @property
    def size(self) -> int:
        """About how many bytes are read."""
        return messages_in(self.spans) * _MESSAGE

    @property
    def made_as(self) -> str | None:
        """A name for the way in which its rows are made."""
        return None if self.poison else "messages"

    @property
    def day(self) -> date:
        """On which it was begun."""
        return datetime.fromtimestamp(self.begun / 1e6, UTC).date()

    def rows(self) -> DataFrame | None:
        """The transform's rows of the messages; None where there are none."""
        return self._rows(self.spans) if self.spans else None

    def isolated(self, error: PySparkException) -> TopicBatch:
        """The batch with those messages apart on which the table's code failed."""
        return replace(self, poison=poison_in(self.spans, self._failure, error))

    def _failure(self, span: Span) -> str:
        """What the table's code fails of on some messages, without the values that Spark's message quotes.

        Raises:
            SourceError: reading them is what failed.
            PySparkException: the engine did, for now.
        """
        plan_for(self.base.lake.spark, self.base.lake.settings, messages_in([span]) * _MESSAGE)
        try:
            self._rows([span]).write.format("noop").mode("overwrite").save()
        except PySparkException as error:
            if failed := self.failed(error):
                raise failed from error
            if is_transient(error):
                raise
            return " ".join(filter(None, (type(error).__name__, error.getCondition())))
        return ""

    def _rows(self, spans: Sequence[Span]) -> DataFrame:
        table, spark = self.base.table, self.base.lake.spark  # first: the columns below need an engine
        ((parameter, _),) = table.inputs.items()
        ids = F.create_map(*[F.lit(each) for name, one in self.found.items() for each in (name, one.id)])
        rows = arrived(self.brokers.messages(spark, spans, self.before.restarts), self.topic, self.begun)
        taken = rows.withColumns(
            {
                "_topic_id": ids[F.col("_topic")],
                "_ingested_run": F.lit(self.run_id),
                "_code_version": F.lit(table.code_version),
            }
        )
        if not self.poison:
            return table.transformed(**{parameter: taken})
        apart = is_poison(self.poison)
        sound = table.transformed(**{parameter: taken.where(~apart)}).select(*table.columns)
        return sound.unionByName(dead_rows(taken.where(apart), table, self.topic, self.poison))

    def failed(self, error: Exception) -> SourceError | None:
        """What reading failed of, where it did."""
        return self.brokers.failed(error)

    def taken(self, files: Sequence[StagedFile]) -> Taken:
        """What the messages tell of lag, lateness and those that are no rows, and where the next batch begins."""
        rows = _read(files)
        newest = _newest(rows)
        ends = carried_on(self.before, self.found, self.spans, newest, self.begun, self.topic.idle_after)
        ends = replace(ends, left=self.left)
        idle = [f"{topic}/{number}" for (topic, number), position in sorted(ends.positions.items()) if position.idle]
        # A look that finds nothing adds no commit, but where a partition fell idle and the watermark can go on, or
        # where what was left is of a topic that is not read any more.
        is_news = bool(self.spans) or (ends.watermark, ends.left) != (self.before.watermark, self.before.left)
        offsets: dict[str, dict[str, list[int]]] = {}
        for span in self.spans:
            offsets.setdefault(span.topic, {})[str(span.partition)] = [span.start, span.end]
        watermark = None if ends.watermark is None else iso(ends.watermark)
        ids = {name: each.id for name, each in self.found.items()}
        return Taken(
            measured=self._measured(rows, newest),
            transactions=self._transactions(ends) if is_news else {},
            told={"taken_at": iso(self.begun), "watermark": watermark, "topics": ids, "offsets": offsets},
            shown={
                "taken_at": iso(self.begun),
                "watermark": watermark or "none yet",
                "idle": ", ".join(idle) or "none",
                "offsets": ", ".join(f"{s.topic}/{s.partition} {s.start}–{s.end - 1}" for s in self.spans) or "none",
            },
        )

    def _transactions(self, ends: Ends) -> dict[str, int]:
        """Where the next batch begins, and what hours the watermark has closed."""
        source = self.topic.source
        known = bool(closings_of(self.base.main.snapshot, source).hours)
        return ends.transactions(source) | dict(closed_by(self.before, ends, source, known=known))

    def _measured(self, rows: pa.Table, newest: Newest) -> dict[str, Value | None]:
        messages = messages_in(self.spans)
        dead, now = rows.num_rows - rows["_error"].null_count, datetime.fromtimestamp(self.begun / 1e6, UTC)
        first, late = pc.min(_micros(rows["_arrived_at"])).as_py(), self._late_by(rows, newest)
        return {
            "messages": messages,
            # Of a transaction that was given up, or of what compaction has taken, nothing is there to be read.
            "not_there": messages - rows.num_rows,
            "dead": dead,
            "dead_last_hour": dead + _dead_since(self.base, now - _HOUR, now),
            "left": self.left,
            "lag_seconds": 0.0 if first is None else max(0.0, round((self.begun - first) / 1e6, 3)),
            "late_rows": len(late),
            **_percentiles("late_by", late, 50, 99),
            **_percentiles("lateness", _lateness(rows), 50, 95, 99),
            **_reasons(rows["_error"]),
        }

    def _late_by(self, rows: pa.Table, newest: Newest) -> list[float]:
        """By how many seconds the rows that were late are behind what was expected of their partition."""
        late: list[float] = []
        for topic, number in newest:
            bound = expected(self.before, topic, number)
            if bound is not None:
                mine = pc.and_(pc.equal(rows["_topic"], topic), pc.equal(rows["_partition"], number))
                times = _micros(rows.filter(mine)["_event_at"]).drop_null()
                late += [(bound - each) / 1e6 for each in pc.filter(times, pc.less(times, bound)).to_pylist()]
        return late


def plan_messages(base: Base, url: SecretStr, run_id: str, *, until: Reach | None, laps: Laps) -> TopicBatch:
    """Ask the brokers how far the topics reach, and decide how many messages to read.

    Args:
        base: a table with a topic.
        url: of its brokers.
        run_id: recorded in the commit.
        until: where to end at the latest; None: where the topics end now.
        laps: the seconds so far.

    Raises:
        SourceDownError: no broker answers at the moment.
        SourceError: messages not taken yet are gone, or a topic or the source's name is not that of the last batch.
    """
    topic = base.table.topic
    assert topic is not None
    brokers = Brokers(url, topic)
    before = ends_of(base.main.snapshot, topic.source)
    # Before the brokers are asked: whatever they say is not older than this.
    begun = micros_of(datetime.now(UTC))
    found = brokers.found()
    if renamed := taken_as(base.main.snapshot, topic.source, found):
        raise SourceError(
            f"{base.table.id}: {'; '.join(renamed)}. Nothing was taken. Give the source its name again, as Topic has "
            "it, or the table a new one."
        )
    if why := problems(before, found):
        raise SourceError(
            f"{base.table.id}: {'; '.join(why)}. Nothing was taken. Where it cannot be fixed at the brokers, "
            f"go on without these messages: {program()} stream accept {base.table.id} --reason …"
        )
    spans = spans_after(before, found, until)
    chosen = bounded(spans, topic.messages_per_batch)
    left = messages_in(spans) - messages_in(chosen)
    return TopicBatch(
        base=base,
        run_id=run_id,
        laps=laps.lap("plan"),
        left=left,
        topic=topic,
        brokers=brokers,
        begun=begun,
        before=before,
        found=found,
        spans=chosen,
        until=reach(found) if until is None else until,
    )


def accept_loss(base: Base, url: SecretStr, *, who: str, reason: str) -> list[str]:
    """Let the next batch go on though messages are gone or topics were made anew; returns in words what is given up.

    What is given up stays in the table's log, with who did so and why. Nothing is committed where nothing is missing.

    Args:
        base: a table with a topic.
        url: of its brokers.
        who: decided so.
        reason: why.

    Raises:
        PublishConflictError: a batch was taken meanwhile.
        SourceDownError, SourceError: see `plan_messages`.
    """
    topic = base.table.topic
    assert topic is not None
    ends, given_up = accepted(ends_of(base.main.snapshot, topic.source), Brokers(url, topic).found())
    if given_up:
        told = {
            "lakehouse.operation": ACCEPT,
            "lakehouse.who": who,
            "lakehouse.reason": reason,
            "lakehouse.given_up": given_up,
        }
        append_batch(base.main.target, base.main.snapshot, [], Commit(ends.transactions(topic.source), told))
    return given_up


def _read(files: Sequence[StagedFile]) -> pa.Table:
    """The few columns of the batch that its figures are made of; rows of one batch are bounded."""
    read = [parquet.read(file.path, _SCHEMA.names).select(_SCHEMA.names).cast(_SCHEMA) for file in files]
    return pa.concat_tables(read) if read else _SCHEMA.empty_table()


def _micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.int64())


def _newest(rows: pa.Table) -> Newest:
    found = rows.group_by(["_topic", "_partition"]).aggregate([("_event_at", "max"), ("_arrived_at", "max")])
    event, arrival = _micros(found["_event_at_max"]).to_pylist(), _micros(found["_arrived_at_max"]).to_pylist()
    keys = zip(found["_topic"].to_pylist(), found["_partition"].to_pylist(), strict=True)
    return dict(zip(keys, zip(event, arrival, strict=True), strict=True))


def _dead_since(base: Base, since: datetime, until: datetime) -> int:
    """Messages that are no rows and arrived between two moments: by footers, but for files that begin before them."""
    snapshot, found = base.main.snapshot, 0
    by_day = snapshot.by_day(base.table.day_column)
    for file in (file for day in days_between(since.date(), until.date()) for file in by_day.get(day, ())):
        told = known_file(base.main.target.path, snapshot.partition_by, file)
        low, high = (bounds.get("_arrived_at") for bounds in (told.low, told.high))
        if told.nulls.get("_error") == told.rows or (high is not None and high < since):
            continue
        if "_error" in told.nulls and low is not None and low >= since:
            found += told.rows - told.nulls["_error"]
        else:  # merged of older and newer ones
            rows = parquet.read(told.path, ["_error", "_arrived_at"])
            dead = pc.and_(rows["_error"].is_valid(), pc.greater_equal(rows["_arrived_at"], since))
            found += pc.sum(dead).as_py() or 0
    return found


def _reasons(errors: pa.ChunkedArray) -> dict[str, int]:
    """By reason, the most frequent first, how many messages are no rows: `dead/<reason>`."""
    counted = {each["values"]: each["counts"] for each in pc.value_counts(errors.drop_null()).to_pylist()}
    most = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_REASONS]
    return {f"{DEAD}{reason}": count for reason, count in most}


def _lateness(rows: pa.Table) -> pa.Array:
    """By how many seconds messages arrived after their events; before them, where a producer's clock is ahead."""
    seconds = pc.divide(pc.subtract(_micros(rows["_arrived_at"]), _micros(rows["_event_at"])).cast(pa.float64()), 1e6)
    return seconds.drop_null().combine_chunks()


def _percentiles(name: str, seconds: Sequence[float] | pa.Array, *percents: int) -> dict[str, float]:
    if not len(seconds):
        return {}
    found = pc.quantile(pa.array(seconds), q=[percent / 100 for percent in percents]).to_pylist()
    return {f"{name}_p{n}_seconds": round(value, 3) for n, value in zip(percents, found, strict=True)}
