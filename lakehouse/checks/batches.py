"""Checks of batches from a source outside: what a database or topics showed of themselves, and of delays.

All of them only warn: what has arrived is taken, and what comes too late or is no row is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakehouse.checks.metrics import HIDDEN, WARNS_ONLY, DayMetrics, Outcome, Value
from lakehouse.contracts import Table
from lakehouse.contracts.extract import EXACT

DEAD = "dead/"  # figures by the reason why messages cannot be read as rows
MOST_LATE = 0.01  # share of a batch's rows behind the watermark


def batch_checks(table: Table) -> dict[str, str]:
    """The checks of a table that takes batches, with what each one means."""
    if table.extract:
        apart = table.extract.clock_apart
        return {
            "commit_lag": f"No transaction takes more than {table.extract.lag} from updated_at to its commit",
            "database_clock": f"The database's clock and this machine's are at most {apart} apart{WARNS_ONLY}",
        }
    if table.topic:
        return {
            "stream_lag": f"Messages are taken within {table.topic.max_lag} of their arrival{WARNS_ONLY}",
            "dead_letters": f"At most {table.topic.max_dead} messages an hour cannot be read as rows{WARNS_ONLY}",
            "late_rows": f"At most {MOST_LATE:.0%} of a batch's rows are behind the watermark{WARNS_ONLY}",
        }
    return {}


def _commit_lag(table: Table, m: DayMetrics) -> Outcome:
    assert table.extract is not None
    lag, source = table.extract.lag.total_seconds(), m.source
    late, behind, running = (source.get(name) for name in ("late_rows", "late_by_seconds", "open_seconds"))
    # Two signs that a transaction takes longer than the lag: rows that came after it, and one that still runs.
    told = [f"{late} row(s) were committed {behind} s or more after their {table.extract.updated_at}"] if late else []
    if isinstance(running, float) and running > lag:
        told.append(f"a transaction that has written has been open for {running:.1f} s: its rows will be late")
    exceeded = bool(told)
    if source.get("open_transactions") == HIDDEN:
        told.append("the role cannot see how long others' transactions run: GRANT pg_read_all_stats")
    exact = table.extract.mode == EXACT
    if exceeded:
        told.append(
            f"the mode lag with {lag:g} s would rely on luck here; this table's mode, exact, does not"
            if exact
            else f"more than the lag of {lag:g} s: what the overlap still found was added, what is later is missed; "
            "raise lag, or use the mode exact"
        )
    text = "; ".join(told) or f"nothing seen that took longer than {lag:g} s"
    values: dict[str, Value] = {"lag_seconds": lag, **{k: v for k, v in source.items() if v is not None}}
    return Outcome("commit_lag", m.day, exact or not exceeded, text, blocking=False, values=values)


def _database_clock(table: Table, m: DayMetrics) -> Outcome:
    """The database is the producer of its times; what the question itself took is in its favour."""
    assert table.extract is not None
    ahead, within = (m.source.get(name) for name in ("clock_ahead_seconds", "clock_within_seconds"))
    if not isinstance(ahead, float) or not isinstance(within, float):
        return Outcome("database_clock", m.day, True, "not measured", blocking=False)
    name = f"the clock of the database in {table.extract.setting}"
    side = "ahead of" if ahead > 0 else "behind"
    text = f"{name} is {abs(ahead):.1f} s {side} this machine's, give or take {within:.1f} s"
    passed = abs(ahead) - within <= table.extract.clock_apart.total_seconds()
    text += "" if passed else "; one of the two is wrong: have it set (NTP)"
    return Outcome("database_clock", m.day, passed, text, blocking=False)


def _stream_lag(table: Table, m: DayMetrics) -> Outcome:
    assert table.topic is not None
    lag, left = _number(m, "lag_seconds"), _number(m, "left")
    bound = table.topic.max_lag.total_seconds()
    text = (
        f"the oldest message of the batch had arrived {lag:g} s before" if m.source.get("messages") else "nothing new"
    )
    text += f"; {left:,.0f} more are waiting" if left else ""
    text += (
        "" if lag <= bound else f"; the bound is {bound:g} s: run the stream more often, or give the engine more cores"
    )
    return Outcome("stream_lag", m.day, lag <= bound, text, blocking=False, values=_values(m, "lag_seconds", "left"))


def _dead_letters(table: Table, m: DayMetrics) -> Outcome:
    assert table.topic is not None
    hour, bound = _number(m, "dead_last_hour"), table.topic.max_dead
    reasons = {name: value for name, value in m.source.items() if name.startswith(DEAD) and value is not None}
    why = ", ".join(f"{name.removeprefix(DEAD)} {count}" for name, count in reasons.items())
    text = f"{_number(m, 'dead'):g} of the batch{f' ({why})' if why else ''}, {hour:g} within an hour (at most {bound})"
    text += "" if hour <= bound else "; `lakehouse quarantine list` shows them by reason: ask the producer"
    values = _values(m, "dead", "dead_last_hour") | reasons
    return Outcome("dead_letters", m.day, hour <= bound, text, blocking=False, values=values)


def _late_rows(_: Table, m: DayMetrics) -> Outcome:
    late, rows = _number(m, "late_rows"), _number(m, "messages")
    p50, p99 = (m.source.get(f"late_by_p{n}_seconds") for n in (50, 99))
    text = f"{late:g} of {rows:g}" + (f", half of them by {p50} s or less, 99 % by {p99} s or less" if late else "")
    values = _values(m, "late_rows", "late_by_p50_seconds", "late_by_p99_seconds")
    return Outcome("late_rows", m.day, late <= MOST_LATE * rows, text, blocking=False, values=values)


def _number(m: DayMetrics, name: str) -> float:
    found = m.source.get(name)
    return float(found) if isinstance(found, int | float) else 0.0


def _values(m: DayMetrics, *names: str) -> dict[str, Value]:
    return {name: value for name in names if (value := m.source.get(name)) is not None}


BATCH_CHECKS: Mapping[str, Callable[[Table, DayMetrics], Outcome]] = {
    "commit_lag": _commit_lag,
    "database_clock": _database_clock,
    "stream_lag": _stream_lag,
    "dead_letters": _dead_letters,
    "late_rows": _late_rows,
}
"""By name of the check, what judges it."""
