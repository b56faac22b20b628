"""The checks of a table compared with what alerts know of them: what no event has told of, and what is over.

Events say at once what a run found. Whether it is over, and what changed without a run (a restore, a swap, a file that
was withdrawn), is told by the table's own log, from which `lakehouse status` and Dagster's checks come too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakehouse.build.verdicts import Verdict
from lakehouse.checks.audit import check_names
from lakehouse.contracts import Table
from lakehouse.days import is_younger
from lakehouse.orchestration.alerts.events import FIRST_LOOK_BACK
from lakehouse.orchestration.alerts.message import ERROR, WARN
from lakehouse.orchestration.alerts.problems import Failure, Key, Observed, Problem


def key_of(table: str, verdict: Verdict) -> Key:
    """Under which alerts know a verdict."""
    return table, verdict.check, str(verdict.day or "")


def failure_of(table: str, verdict: Verdict) -> Failure:
    """A verdict as alerts tell it."""
    return Failure(key_of(table, verdict), ERROR if verdict.blocking else WARN, verdict.found)


def is_settling(verdict: Verdict, now: float, settles_in: float) -> bool:
    """Whether the events of the run that found it may still be on their way: told by both, it would count twice."""
    return bool(verdict.run_id) and verdict.at is not None and is_younger(verdict.at.timestamp(), now, settles_in)


def not_told(
    table: Table, failed: Sequence[Verdict], known: Mapping[Key, Problem], now: float, settles_in: float = 0.0
) -> list[Observed]:
    """What a table's checks add to what is known to fail, and what of it is over.

    Args:
        table: the table.
        failed: its checks that fail.
        known: the problems so far.
        now: seconds since the epoch; what has failed for longer than alerts look back is remembered and not told.
        settles_in: seconds for which what a run has found is left to its events.
    """
    failing = {key_of(table.id, each): each for each in failed}
    new: dict[tuple[str, bool], Observed] = {}
    for key, each in failing.items():
        if key not in known and not is_settling(each, now, settles_in):
            at = each.at.timestamp() if each.at else now
            old = at < now - FIRST_LOOK_BACK
            seen = new.setdefault((each.run_id, old), Observed(each.run_id, at, silent=old))
            seen.failures[key] = failure_of(table.id, each)
    names = check_names(table)
    over = {key for key in known if key[0] == table.id and key[1] in names and key not in failing}
    return [*new.values(), *([Observed("", now, passed=over)] if over else [])]
