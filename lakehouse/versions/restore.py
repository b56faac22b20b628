"""Restore: a table, or some days of it, becomes again what an older version holds, in one commit that copies nothing.

The files of that version get second names, which the log then has, and each day's fingerprint goes back to the one that
belongs to them: so the next run knows whether the day is current, and downstream tables see that their input has
changed. Second names, because a vacuum may have begun that will remove the first ones: it cannot know of the new.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.build.intake.ends import waiting_again
from lakehouse.build.older_reads import keep_reads
from lakehouse.build.stale import as_made_by
from lakehouse.contracts import Table
from lakehouse.delta.commit import exchange_files
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.log import LogEntry, days_of, entries, figures_in_log, gone_files, snapshot_at, versions
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.pairing import QUARANTINE_VERSION, quarantine_at
from lakehouse.delta.snapshot import AGAIN, WITHDRAWN, DataFile, Snapshot, table_name
from lakehouse.delta.staged import live_file
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import days_of_transactions
from lakehouse.errors import HistoryGoneError, LakehouseError
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.records.history import RESTORE, project_history
from lakehouse.versions.refusals import refuse_columns, refuse_taken, refuse_torn

_NAMED = 5  # versions named in one message


@dataclass(frozen=True)
class Exchange:
    """How one folder gets from what it holds to what it shall hold: files to name again, files to let go.

    Attributes:
        target: the table, or its quarantine.
        base: what it holds.
        wanted: what it shall hold.
        added, removed: the difference.
        transactions: values that go back, by application id.
        days: the days asked for; None: all.
    """

    target: Target
    base: Snapshot
    wanted: Snapshot
    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    transactions: Mapping[str, int]
    days: Collection[date] | None

    @property
    def nothing(self) -> bool:
        """True where it holds that already."""
        return not (self.added or self.removed or self.transactions or self.changes_columns)

    @property
    def changes_columns(self) -> bool:
        """Whether the table's columns go back as well: only a whole table's can."""
        if self.days is not None or self.wanted.schema is None or self.base.schema is None:
            return False
        return bool(self.wanted.schema != self.base.schema)

    @property
    def touched(self) -> set[date]:
        """Days that change, by their rows or by their fingerprint."""
        return days_of([*self.added, *self.removed]) | days_of_transactions(self.transactions)


@dataclass(frozen=True)
class Restore:
    """What a restore would do, or did.

    Attributes:
        table: the table.
        version: the version whose content comes back.
        main, side: the table and its quarantine; None where it has none.
        code_versions: by day, the code that made the rows that come back; a day without rows then has none.
        committed: the version that the restore made; None where it wrote nothing.
    """

    table: Table
    version: int
    main: Exchange
    side: Exchange | None
    code_versions: Mapping[date, str] = field(default_factory=dict)
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    committed: int | None = None

    @property
    def nothing(self) -> bool:
        """True where table and quarantine hold that content already."""
        return self.main.nothing and (self.side is None or self.side.nothing)

    @property
    def days(self) -> list[date]:
        """Days of the table that change, its quarantine's included."""
        return sorted(self.main.touched | (self.side.touched if self.side else set()))

    @property
    def rows(self) -> tuple[int, int]:
        """Rows that come back, and rows that go."""
        return sum(f.rows for f in self.main.added), sum(f.rows for f in self.main.removed)


def plan_restore(lake: Lake, table: Table, version: int, days: Collection[date] | None = None) -> Restore:
    """What restoring would change, after making sure that it can be done; writes nothing.

    Args:
        lake: where the table is; no engine is used.
        table: the table; its quarantine goes with it, to what it held when that version was committed.
        version: whose content comes back.
        days: only these daily partitions; None: the whole table, its columns included.

    Raises:
        HistoryGoneError: the version does not exist, or files it needs were removed by a vacuum.
        UndoRefusedError: the days cannot be put back apart from others.
    """
    # Everything is looked at before anything is written: what cannot be put back whole is refused here.
    target, side_target = targets(lake, table)
    base, wanted = lake.snapshot(table.id), snapshot_at(target.path, version)
    between = list(entries(target.path, version + 1, base.version, base.partition_by))
    if days is not None:
        refuse_taken(table)
        refuse_columns(table, base, wanted)
        if table.upsert:
            refuse_torn(table, between, set(days))
    main = _restoring(target, base, wanted, between, days)
    if table.topic is not None:
        main = replace(main, transactions=waiting_again(main.transactions, base, wanted, table.topic.source))
    side = None
    if side_target is not None and lake.snapshot(table.quarantine_id).version >= 0:
        side = _restoring_side(lake, table, side_target, version, days)
    # A vacuum may have taken files of the older version: better to say so now than to commit a table with holes.
    for each in (side, main):
        if each is not None and (gone := gone_files(each.target.path, each.added)):
            raise _gone(each, gone)
    figures = figures_in_log(wanted, table.day_column, main.touched)
    # By day, for the history: rows that come back are of the code that made them, not of today's.
    codes = {date.fromisoformat(day): str(found["code_version"]) for day, found in figures.items()}
    return Restore(table, version, main, side, codes, figures)


def _restoring_side(lake: Lake, table: Table, target: Target, version: int, days: Collection[date] | None) -> Exchange:
    """The quarantine back to what belonged to that version of its table, which the table's own commit names."""
    base = lake.snapshot(table.quarantine_id)
    before = quarantine_at(lake.path(table.id), version, target.path)
    then = Snapshot(base.uri, -1) if before is None else snapshot_at(target.path, before)
    since = entries(target.path, 0 if before is None else before + 1, base.version, base.partition_by)
    return _restoring(target, base, then, list(since), days)


def restore(lake: Lake, plan: Restore, *, by: str, reason: str = "") -> Restore:
    """Carry out a planned restore: the quarantine first, then the table, each in one commit.

    A crash in between leaves the days of the two with different fingerprints, so that a run would build them again;
    restoring once more ends the work. Where all is as wanted already, nothing is written.

    Args:
        lake: where the table is.
        plan: what to do; its snapshots are what it is done on.
        by: who restores, for the history.
        reason: why, for the history.

    Raises:
        PublishConflictError: another run published one of the days meanwhile.
        HistoryGoneError: a file was removed meanwhile; the table is as it was.
    """
    facts: dict[str, Any] = {
        "lakehouse.operation": RESTORE,
        "lakehouse.restored_version": str(plan.version),
        "lakehouse.by": by,
        "lakehouse.reason": reason,
    }
    name = plan.table.id
    # New names for files of both before either commit: killed here, second names are left that no log refers to, and a
    # vacuum removes them.
    side, main = None if plan.side is None else named_again(plan.side), named_again(plan.main)
    belongs = {}
    if side is not None:
        # The table's entry names the version of its quarantine: a later restore to this one finds what belongs
        # together.
        belongs[QUARANTINE_VERSION] = str(side.base.version)
        if not side.nothing:
            failpoint(name, "before-quarantine-restore")
            belongs[QUARANTINE_VERSION] = str(commit_exchange(side, facts))
            failpoint(name, "after-quarantine-restore")
    committed = None
    if not main.nothing:
        committed = commit_exchange(main, {**facts, **belongs, "lakehouse.metrics": _told(lake, plan)})
        failpoint(name, "after-restore")
        project_history(lake.settings.root, lake.snapshot(name), name)
    return replace(plan, committed=committed)


def _told(lake: Lake, plan: Restore) -> dict[str, Mapping[str, Any]]:
    """The figures of the days, and what else they could be made from now: no run is to do so by itself."""
    if plan.table.taken is not None:
        return dict(plan.figures)
    # A lake of its own: what was accepted late is in the quarantine's log, which was put back a moment ago.
    fresh = Lake(lake.settings, lake.tables, lambda: lake.spark)
    # A day that goes was made by no code. It is kept away as today's reads it, which is still known once code changes.
    gone = {day for day, code in plan.code_versions.items() if not code and not plan.figures[str(day)]["rows"]}
    codes = {**plan.code_versions, **dict.fromkeys(gone, plan.table.code_version)}
    try:
        keep_reads(lake, plan.table)
        now = as_made_by(fresh, plan.table, codes)
    except (LakehouseError, OSError):  # of an input, which is no reason to leave this table as it is
        return dict(plan.figures)
    return {
        str(day): {**plan.figures[str(day)], "code_version": codes[day], "tried": tried} for day, tried in now.items()
    }


def _restoring(
    target: Target, base: Snapshot, wanted: Snapshot, between: Sequence[LogEntry], days: Collection[date] | None
) -> Exchange:
    # By first names: a file that was restored before has another path and the same rows.
    have, want = of_days(base.files, days), of_days(wanted.files, days)
    return Exchange(
        target,
        base,
        wanted,
        [file for name, file in want.items() if name not in have],
        [file for name, file in have.items() if name not in want],
        _set_back(base, wanted, between, days),
        days,
    )


def _set_back(
    base: Snapshot, wanted: Snapshot, between: Sequence[LogEntry], days: Collection[date] | None
) -> dict[str, int]:
    """The transactions that were set since, as they were: of some days those that are named after them."""
    # What was set for a day is named after it: `day/2011-03-04`, its fingerprint, and what was accepted late.
    texts = None if days is None else {day.isoformat() for day in days}
    set_since = {name for entry in between for name in entry.transactions}
    transactions = {}
    for name in sorted(n for n in set_since if texts is None or n.rpartition("/")[2] in texts):
        then = wanted.transaction(name)
        if then != base.transaction(name):
            # A log cannot forget a transaction: what was not set then is set to what stands for none.
            transactions[name] = WITHDRAWN if then is None else then
    return transactions


def of_days(files: Collection[DataFile], days: Collection[date] | None) -> dict[str, DataFile]:
    """The files of some days (None: all) by their first names."""
    texts = None if days is None else {day.isoformat() for day in days}
    return {file.first_name: file for file in files if texts is None or file.partition[0] in texts}


def named_again(change: Exchange) -> Exchange:
    """The exchange, once its files have second names in the table's folder, younger than any vacuum that is on.

    Raises:
        HistoryGoneError: where a file is not there any more.
    """
    name, folder, added = table_name(change.target.path), f"staged/{uuid.uuid4().hex}{AGAIN}", []
    for file in change.added:
        # A second name in a folder of its own: the live one may still have the first, and a log never names a path
        # twice.
        path = folder + file.first_name  # by which a later restore or swap knows it
        try:
            store.link(Path(change.wanted.uri) / file.path, change.target.path / path)
        except FileNotFoundError:
            raise _gone(change, [file]) from None
        added.append(file._replace(path=path, logged_path=None, folder=str(change.target.path)))
    if added:
        failpoint(name, "after-names")
    return replace(change, added=added)


def commit_exchange(change: Exchange, facts: Mapping[str, Any]) -> int:
    """Commit an exchange whose files are in the table's folder; returns its version.

    Raises:
        HistoryGoneError: a file was taken away during the commit; the table was put back to what it was.
    """
    version = _commit(change, facts)
    # A file may have been taken away between its last check and the commit. An entry cannot be taken back, so another
    # one puts the table back to what it was.
    if gone := gone_files(change.target.path, change.added):
        before = {name: change.base.transaction(name) for name in change.transactions}
        back = Exchange(
            change.target,
            open_snapshot(change.target.path, version),
            change.base,
            change.removed,
            change.added,
            {name: WITHDRAWN if number is None else number for name, number in before.items()},
            change.days,
        )
        figures = figures_in_log(change.base, change.target.day_column, change.touched)
        why = f"version {version} lost {gone[0].path}"
        _commit(back, {**facts, "lakehouse.reason": f"put back: {why}", "lakehouse.metrics": figures})
        raise _gone(change, gone)
    return version


def _commit(change: Exchange, facts: Mapping[str, Any]) -> int:
    folder = change.target.path
    added = [live_file(folder, change.base.partition_by, each) for each in change.added]
    days = None if change.days is None else sorted(change.days)
    commit = Commit(change.transactions, facts)
    schema = change.wanted.schema if change.changes_columns else None
    return exchange_files(change.target, change.base, added, change.removed, commit, days=days, schema=schema)


def _gone(change: Exchange, gone: Sequence[DataFile]) -> HistoryGoneError:
    name = table_name(change.target.path)
    readable = [str(each.entry.version) for each in versions(change.target.path) if each.readable]
    listed = ", ".join(readable[:_NAMED]) + (", …" if len(readable) > _NAMED else "")
    again = f"lakehouse backfill --force --select {name.removesuffix('_quarantine')} --from DAY --to DAY"
    otherwise = f"Otherwise build the days again: {again}"
    if any(each.startswith("intake/") for each in change.wanted.transactions()):
        otherwise = "No build makes its rows again: it takes from its source only what it has not taken"
    return HistoryGoneError(
        f"{name} version {change.wanted.version} cannot be restored: {len(gone)} of the {len(change.added)} files that "
        f"would come back were removed by a vacuum, among them {gone[0].path}. The table is as it was. Versions whose "
        f"files are all there: {listed}. {otherwise}"
    )
