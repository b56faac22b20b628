"""Figures of a stream for Prometheus: served on one address of this machine while the stream runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from lakehouse.build.intake.ends import ends_of, is_idle
from lakehouse.days import micros_of
from lakehouse.read.lake import Lake
from lakehouse.runs.stream import Turn

_SECONDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
GAUGES: Mapping[str, tuple[str, str]] = {
    "batch/left": ("lakehouse_stream_backlog_messages", "Messages that were there and not in the last batch"),
    "batch/lag_seconds": ("lakehouse_stream_lag_seconds", "Age of the oldest message of the last batch when it began"),
    "batch/lateness_p50_seconds": ("lakehouse_stream_lateness_p50_seconds", "From event to arrival, half of a batch"),
    "batch/lateness_p95_seconds": ("lakehouse_stream_lateness_p95_seconds", "From event to arrival, 95 % of a batch"),
    "batch/lateness_p99_seconds": ("lakehouse_stream_lateness_p99_seconds", "From event to arrival, 99 % of a batch"),
    "batch/dead_last_hour": ("lakehouse_stream_dead_letters_hour", "Messages of the last hour that cannot be read"),
}


class StreamMetrics:
    """The figures, by table; each turn is added to them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        at = self.registry
        self._messages = Counter("lakehouse_stream_messages", "Messages taken", ["table"], registry=at)
        self._dead = Counter("lakehouse_stream_dead_letters", "Messages that cannot be read", ["table"], registry=at)
        self._late = Counter("lakehouse_stream_late_rows", "Rows behind the watermark", ["table"], registry=at)
        self._batch = Histogram(
            "lakehouse_stream_batch_seconds", "From plan to commit of a batch", ["table"], buckets=_SECONDS, registry=at
        )
        self._built = Histogram(
            "lakehouse_stream_build_seconds",
            "Of a table that reads the stream",
            ["table"],
            buckets=_SECONDS,
            registry=at,
        )
        self._failed = Counter("lakehouse_stream_failed_days", "Days that were not published", ["table"], registry=at)
        self._retries = Counter("lakehouse_stream_retries", "Turns that were tried again", registry=at)
        self._gauges = {key: Gauge(named[0], named[1], ["table"], registry=at) for key, named in GAUGES.items()}
        of_partition = ["table", "topic", "partition"]
        self._offset = Gauge("lakehouse_stream_offset", "Next offset", of_partition, registry=at)
        self._event = Gauge("lakehouse_stream_event_time_seconds", "Newest event time", of_partition, registry=at)
        self._idle = Gauge(
            "lakehouse_stream_idle", "1 where the partition holds back no watermark", of_partition, registry=at
        )
        self._watermark = Gauge("lakehouse_stream_watermark_seconds", "Watermark, since 1970", ["table"], registry=at)
        self._last = Gauge("lakehouse_stream_last_turn_seconds", "When the last turn ended, since 1970", registry=at)

    def serve(self, port: int) -> None:
        """Answer at `http://127.0.0.1:PORT/metrics` until the process ends."""
        start_http_server(port, addr="127.0.0.1", registry=self.registry)

    def retried(self) -> None:
        """Count a turn that is tried again."""
        self._retries.inc()

    def add(self, lake: Lake, turn: Turn) -> None:
        """Take a turn in, and where it left each partition."""
        for name, result in turn.taken.items():
            facts = result.facts
            self._messages.labels(name).inc(facts.get("batch/messages", 0))
            self._dead.labels(name).inc(facts.get("batch/dead", 0))
            self._late.labels(name).inc(facts.get("batch/late_rows", 0))
            for key, gauge in self._gauges.items():
                gauge.labels(name).set(facts.get(key, 0))
            if facts.get("batch/messages"):  # else it was a look
                self._batch.labels(name).observe(sum(result.seconds.values()))
            # After each look: where all is quiet, a batch without messages moves the watermark on.
            self._positions(lake, name, left=bool(facts.get("batch/left")))
        for name, result in turn.built.items():
            self._built.labels(name).observe(sum(result.seconds.values()))
            self._failed.labels(name).inc(len(result.with_status("failed")))
        self._last.set(time.time())

    def _positions(self, lake: Lake, name: str, *, left: bool) -> None:
        topic = lake.table(name).topic
        assert topic is not None
        ends, now = ends_of(lake.snapshot(name), topic.source), micros_of(datetime.now(UTC))
        if ends.watermark is not None:
            self._watermark.labels(name).set(ends.watermark / 1e6)
        for (of, number), position in ends.positions.items():
            labels = (name, of, str(number))
            self._offset.labels(*labels).set(position.offset)
            # A batch that leaves messages says which partitions are idle; of a look without any, nothing is kept.
            idle = bool(position.idle) if left else is_idle(position, now, topic.idle_after, taken=True)
            self._idle.labels(*labels).set(idle)
            if position.event is not None:
                self._event.labels(*labels).set(position.event / 1e6)
