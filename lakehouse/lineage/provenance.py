"""Where rows come from: their commit, the input rows they are made of, and so on down to file and line.

Nothing is stored for it. A commit says which versions it read; those are read again, and what is found is proven by
computing the rows once more from nothing but the input rows named.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.build.late import accepted_through, rules_for
from lakehouse.build.recompute import (
    PLACE,
    Row,
    by_identity,
    differing,
    matching,
    place,
    recomputed,
)
from lakehouse.contracts import Rule, Table
from lakehouse.contracts.keys import EVENT_DAYS
from lakehouse.delta.log import days_of, oldest_entry, read_entry, snapshot_at
from lakehouse.errors import HistoryGoneError
from lakehouse.lineage.contributing import PLACES, Made, Maker
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import RESTORE, records
from lakehouse.sources.landing import landing_files
from lakehouse.sources.probe import probe_of
from lakehouse.sources.reader import read_lines

_MOST_ATTEMPTS = 4  # older commits that are tried where the newest does not give the row


@dataclass
class Step:
    """Some rows of one table, and how they were made.

    Attributes:
        table: the contract.
        name: the table, or its quarantine.
        version: the version the rows were read at.
        rows: the rows, personal data included: whoever shows them leaves it out.
        commits: what published them, by day.
        inputs: the rows they were made of, by table; empty for landed rows, whose file and line are in the row.
        places: `file:line` of each row, where it is made of one landed line; of a message, partition and offset.
        repeats: rows left out as repeats of these, as `file:line`.
        differences: what came out otherwise when it was computed again from `inputs`; None: that was not possible.
        notes: what a reader has to know, such as a version that is gone.
    """

    table: Table
    name: str
    version: int
    rows: Sequence[Row]
    commits: Mapping[date, DayRecord]
    inputs: list[Step] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    repeats: list[str] = field(default_factory=list)
    differences: list[str] | None = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def quarantined(self) -> bool:
        """Whether the rows are in quarantine."""
        return self.name != self.table.id


class Tracer:
    """Traces rows of a lake; the log of each table is read once."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._records = cache(lambda name: records(lake.settings.root, name))

    def trace(
        self, table: Table, rows: Sequence[Row], version: int | None = None, *, quarantined: bool = False
    ) -> Step:
        """Follow rows of a table back to landed files, messages, or the rows that were taken from a database.

        Args:
            table: the contract.
            rows: with all their columns.
            version: the version they were read at; None: the newest.
            quarantined: whether they are in the table's quarantine.
        """
        name = table.quarantine_id if quarantined else table.id
        at = self._lake.snapshot(name).version if version is None else version
        step = Step(table, name, at, rows, self._commits(table, name, rows, at))
        if unknown := sorted({row[table.day_column] for row in rows} - set(step.commits)):
            step.notes.append(f"the log no longer says which commit published {', '.join(map(str, unknown))}")
        if table.landing is not None:
            self._from_files(step)
        elif table.taken is not None:
            # What was taken from outside is where it ends: a topic forgets, and a database has other rows by now.
            step.places = [place(row) for row in rows] if table.topic is not None else []
            step.differences = None
        else:
            self._from_tables(step)
        return step

    def _commits(self, table: Table, name: str, rows: Sequence[Row], version: int) -> dict[date, DayRecord]:
        days = {row[table.day_column] for row in rows}
        if name != table.id:
            path = self._lake.path(name)
            found = {day: quarantine_record(path, table, day, version) for day in days}
            return {day: record for day, record in found.items() if record is not None}
        return {each.day: each for each in self._records(name) if each.day in days and each.version <= version}

    def _from_files(self, step: Step) -> None:
        """Read the rows' lines once more from the landing zone."""
        table, root = step.table, self._lake.settings.root
        landing = table.landing
        assert landing is not None
        step.places = [place(row) for row in step.rows]
        # Only where these rows arrived: to list the whole landing zone would take longer with each year.
        days = [row["_arrival_date"] for row in step.rows]
        landed = {f.path.relative_to(root).as_posix(): f for f in landing_files(root, landing, min(days), max(days))}
        wanted = {row["_source_file"] for row in step.rows}
        # One that is there still is read no more where the Landing has other names or another format by now.
        unread = {name for name in wanted - set(landed) if store.exists(root / name)}
        if gone := sorted(wanted - set(landed) - unread):
            step.notes.append(f"no longer in the landing zone: {', '.join(gone)}")
        if unread:
            step.notes.append(f"no longer read by this table's Landing: {', '.join(sorted(unread))}")
        there = [row for row in step.rows if row["_source_file"] in landed]
        # None, not empty: nothing was computed again, so nobody can say that it came out the same.
        if not there:
            step.differences = None
            return
        probes = probe_of(table, [landed[name] for name in sorted(wanted & set(landed))])
        lines = read_lines(self._lake.spark, probes, landing, root, "", table.code_version)
        ident = by_identity(PLACE)
        lines = matching(lines, self._lake, PLACES, {ident(row) for row in there})
        (parameter,) = table.inputs
        again = recomputed(table, {parameter: lines}, step.quarantined)
        step.differences = _flat(differing(table, there, again, PLACE))

    def _from_tables(self, step: Step) -> None:
        groups: dict[tuple[tuple[tuple[str, int], ...], ...], list[Row]] = defaultdict(list)
        for row in step.rows:
            groups[self._versions_tried(step, row)].append(row)
        picked: dict[tuple[str, int], list[Row]] = {}
        places: dict[tuple[Any, ...], str] = {}
        maker = Maker(self._lake, step.table, self._rules(step), quarantined=step.quarantined)
        for tried, rows in groups.items():
            best = _made(maker, rows, [dict(versions) for versions in tried[:_MOST_ATTEMPTS]])
            for name, found in best.picked.items():
                known = picked.setdefault((name, best.versions[name]), [])
                # Rows that two groups are made of are followed once.
                known += [row for row in found if row not in known] if known else found
            places |= best.places
            step.repeats += best.repeats
            step.notes += [note for note in best.notes if note not in step.notes]
            assert step.differences is not None
            step.differences += _flat(best.differences)
        name_of = by_identity(maker.ident(step.rows[0]))
        step.places = [places[name_of(row)] for row in step.rows if name_of(row) in places]
        step.inputs = [
            self.trace(self._lake.table(name), rows, version) for (name, version), rows in picked.items() if rows
        ]

    def _rules(self, step: Step) -> Sequence[Rule]:
        """The row rules as they stood: late rows that were accepted since then are no reason to be in quarantine."""
        table = step.table
        if not table.rules:
            return table.rules
        side = self._lake.snapshot(table.quarantine_id)
        if step.quarantined and step.commits:
            side = snapshot_at(self._lake.path(step.name), max(each.version for each in step.commits.values()))
        return rules_for(table, accepted_through(table, side, {row[table.day_column] for row in step.rows}))

    def _versions_tried(self, step: Step, row: Row) -> tuple[tuple[tuple[str, int], ...], ...]:
        """The input versions that the row may be made of, the likeliest first.

        A restored day, and a row that an upsert carried over, are older than the commit that last published their day.
        """
        own = step.commits.get(row[step.table.day_column])
        days = {row[step.table.day_column], *(row.get(EVENT_DAYS) or ())}
        older = [each for each in self._records(step.table.id) if each.day in days and each.version <= step.version]
        back = self._brought_back(step.table, own, older)
        all_known = [*([own] if own else []), *([back] if back else []), *reversed(older)]
        tried = [tuple(sorted(each.inputs.items())) for each in all_known if each.inputs]
        return tuple(dict.fromkeys(tried)) or ((),)

    def _brought_back(self, table: Table, own: DayRecord | None, older: Sequence[DayRecord]) -> DayRecord | None:
        """What first published a day that was restored; None for another day, or where the log no longer says it."""
        found = own
        while found is not None and found.operation == RESTORE:
            try:
                facts = read_entry(self._lake.path(table.id), found.version).facts
            except HistoryGoneError:
                return None
            restored = int(facts["lakehouse.restored_version"])
            found = next((each for each in reversed(older) if each.version <= restored and each.day == found.day), None)
        return found


def _made(maker: Maker, rows: Sequence[Row], tried: Sequence[Mapping[str, int]]) -> Made:
    """The first attempt that gives the rows; where none does, the likeliest, with what differs."""
    attempts = []
    # The likeliest versions nearly always give the rows; each further try computes the day once more.
    for loosely in (False, True):
        for versions in tried:
            attempts.append(maker.make(rows, versions, loosely=loosely))
            if not attempts[-1].differences:
                return attempts[-1]
        # File and line are certain: there is no other row to look for.
        if attempts[0].places:
            break
    return attempts[0]


def quarantine_record(path: Path, table: Table, day: date, version: int) -> DayRecord | None:
    """The newest commit up to a version that put rows of a day into a table's quarantine; None where its log is gone.

    A quarantine keeps no figures, so the log entries themselves are looked through, the newest first.

    Args:
        path: folder of the quarantine.
        table: the contract.
        day: of the table's day column.
        version: of the quarantine; the newest that counts.
    """
    for number in range(version, max(oldest_entry(path), 0) - 1, -1):
        entry = read_entry(path, number, table.partition_by)
        if entry.changes_rows and day in days_of(entry.added.values()):
            facts = entry.facts
            inputs = facts.get("lakehouse.inputs")
            return DayRecord(
                table.quarantine_id,
                day,
                number,
                entry.time,
                str(facts.get("lakehouse.run_id", "")),
                str(facts.get("lakehouse.code_version", "")),
                entry.operation,
                (json.loads(inputs) if isinstance(inputs, str) else inputs) or {},
                {},
            )
    return None


def _flat(differences: Mapping[str, Sequence[str]]) -> list[str]:
    return [each for found in differences.values() for each in found]
