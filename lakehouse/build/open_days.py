"""Days that are not over: a table that a stream feeds, directly or not, is built again as rows of today come.

An open day is published like any other, whenever something of it comes, and its checks judge what is there. That it is
not complete yet is told beside it; it closes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from lakehouse.build.intake.ends import ends_of
from lakehouse.contracts import Table, Topic
from lakehouse.days import end_of
from lakehouse.read.lake import Lake


def open_until(lake: Lake, table: Table, day: date, now: datetime) -> datetime | None:
    """Until when rows of a day are waited for: its end, UTC, and the time that messages have to be taken (`max_lag`).

    None where the day is closed, where no stream feeds the table, or where none was ever taken.

    Args:
        lake: where the tables are.
        table: whose day.
        day: the daily partition.
        now: a time of day decides.
    """
    ends = end_of(day)
    if now >= ends + timedelta(days=1):  # most days, for which no log has to be read
        return None
    closes = [ends + topic.max_lag for name, topic in _topics(lake, table) if _is_on(lake, name, topic)]
    return max((each for each in closes if now < each), default=None)


def _topics(lake: Lake, table: Table) -> Iterator[tuple[str, Topic]]:
    if table.topic is not None:
        yield table.id, table.topic
    for each in table.upstream.values():
        yield from _topics(lake, lake.table(each.table))


def _is_on(lake: Lake, name: str, topic: Topic) -> bool:
    return ends_of(lake.snapshot(name), topic.source).batch > 0
