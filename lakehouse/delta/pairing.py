"""Which version of a quarantine belongs to a version of its table: what their commits say, and not the clock.

The rows that a run quarantines are committed before those it publishes, each in a log of its own, by machines whose
clocks may differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from lakehouse.delta.log import LogEntry, entries, oldest_entry, read_entry, version_before
from lakehouse.delta.opening import open_snapshot

QUARANTINE_VERSION = "lakehouse.quarantine_version"
"""In a commit of a table: the version of its quarantine that was committed with it."""


def quarantine_at(main: Path, version: int, side: Path) -> int | None:
    """The version of a quarantine that belongs to a version of its table; None where there was none yet.

    It holds what was quarantined with every commit up to that version. Commits that do not name it, being older than
    that habit, are matched by run and transactions; where none can be, the clock decides.

    Args:
        main: folder of the table.
        version: of the table.
        side: folder of its quarantine.
    """
    newest = open_snapshot(side).version
    if newest < 0:
        return None
    runs: Mapping[str, list[LogEntry]] | None = None
    found = []
    # All commits up to the version, for the newest of them may say nothing of the quarantine, as a compaction does.
    for number in range(version, max(oldest_entry(main), 0) - 1, -1):
        entry = read_entry(main, number)
        if QUARANTINE_VERSION in entry.facts:
            found.append(int(entry.facts[QUARANTINE_VERSION]))
        elif "lakehouse.run_id" in entry.facts:
            runs = _by_run(side, newest) if runs is None else runs
            committed = entry.transactions.items()
            own = runs.get(str(entry.facts["lakehouse.run_id"]), [])
            found += [each.version for each in own if committed <= each.transactions.items()][-1:]
    if found:
        # Never beyond what is there: the quarantine may have been moved away and begun anew.
        return min(max(found), newest)
    return version_before(side, read_entry(main, version).time)


def _by_run(side: Path, newest: int) -> Mapping[str, list[LogEntry]]:
    found: dict[str, list[LogEntry]] = defaultdict(list)
    for entry in entries(side, max(oldest_entry(side), 0), newest):
        found[str(entry.facts.get("lakehouse.run_id", ""))].append(entry)
    return found
