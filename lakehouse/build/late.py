"""Late rows: how late rows come, which were later than allowed, and taking those in after all.

A row that arrives later than the contract allows breaks the rule `not_too_late`. It is kept in quarantine with its file
and line, so that numbers that were reported do not move by themselves. Accepting a day's late rows is an application
transaction in the quarantine table's log, and part of the day's fingerprint: the day becomes stale, and is built like
any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import date
from pathlib import Path

from lakehouse.contracts import Rule, Table
from lakehouse.contracts.rules import NOT_TOO_LATE, lateness_rule
from lakehouse.delta.commit import append
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.staged import FAILED_RULES
from lakehouse.delta.target import Commit
from lakehouse.read.lake import Lake
from lakehouse.store import parquet


def accepted_through(table: Table, side: Snapshot, days: Iterable[date]) -> dict[date, date]:
    """By day, the last arrival date whose late rows were accepted; days without such are left out.

    Args:
        table: whose late rows.
        side: its quarantine, whose log keeps what was accepted.
        days: the days to look at.
    """
    if table.allowed_lateness is None or table.landing:
        return {}
    # A transaction is a number: the day's ordinal. What was accepted only ever grows.
    found = {day: side.transaction(late_transaction(day)) for day in days}
    return {day: date.fromordinal(number) for day, number in found.items() if number}


def late_transaction(day: date) -> str:
    """Application id under which a quarantine's log keeps what was accepted of a day."""
    return f"late/{day.isoformat()}"


def rules_for(table: Table, accepted: Mapping[date, date]) -> tuple[Rule, ...]:
    """The table's rules, where the one on lateness knows what was accepted."""
    if not accepted or table.allowed_lateness is None:
        return table.rules
    late = lateness_rule(table.day_column, table.allowed_lateness.days, accepted)
    return tuple(late if each.name == NOT_TOO_LATE else each for each in table.rules)


def late_rows(lake: Lake, table: Table, days: Collection[date] | None = None) -> dict[date, tuple[int, date]]:
    """By day, how many rows are in quarantine for being late and for nothing else, and their last arrival date.

    Args:
        lake: where the tables are; the files of the quarantine are read, without an engine.
        table: whose late rows.
        days: only these; None: all.
    """
    snapshot = lake.snapshot(table.quarantine_id)
    found: dict[date, tuple[int, date]] = {}
    for day, files in sorted(snapshot.by_day(table.day_column).items()):
        if days is not None and day not in days:
            continue
        for file in files:
            # Two columns, without an engine: `lakehouse late show` answers at once, and personal values stay unread.
            rows = parquet.read(Path(snapshot.uri) / file.path, [FAILED_RULES, "_arrival_date"]).to_pylist()
            # A row that broke another rule too would stay in quarantine, accepted or not.
            late = [row["_arrival_date"] for row in rows if row[FAILED_RULES] == [NOT_TOO_LATE]]
            if late:
                number, last = found.get(day, (0, date.min))
                found[day] = number + len(late), max(last, *late)
    return found


def accept(lake: Lake, table: Table, through: Mapping[date, date], facts: Mapping[str, str]) -> int:
    """Accept late rows; nothing is published by it, but the days are stale afterwards. A repeat changes nothing.

    Args:
        lake: where the tables are.
        table: whose late rows.
        through: by day, the last arrival date to accept.
        facts: who and why, for the commit.

    Raises:
        PublishConflictError: other writers of the quarantine won every attempt.
    """
    from lakehouse.read.targets import targets  # Spark's types come with it, and most look at what was accepted only

    _, side = targets(lake, table)
    assert side is not None

    def accepting(current: Snapshot) -> Commit:
        """What was accepted is never taken back: not what somebody else accepts at the same moment either."""
        before = accepted_through(table, current, through)
        # The larger of both, at each try anew: of two people who accept at once, neither takes back what the other let
        # in.
        latest = {day: max(arrival, before.get(day, arrival)) for day, arrival in through.items()}
        transactions = {late_transaction(day): arrival.toordinal() for day, arrival in latest.items()}
        return Commit(transactions, {"lakehouse.operation": "accept late rows", **facts})

    return append(side, [], accepting)
