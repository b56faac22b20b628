"""Blue-green: a table is built anew beside the live one, compared with it, and put in its place in one commit.

The candidate is built by the same code and passes the same checks as the live table, in folders of its own that no
reader knows by name. It serves for whatever is too risky to do in place: changed logic, bounds or lateness.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.build.build import build
from lakehouse.build.result import BuildResult
from lakehouse.contracts import Table
from lakehouse.delta.commit import ensure_table, exchange_files
from lakehouse.delta.evolve import new_columns
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.log import days_of, entries, figures_in_log
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.pairing import QUARANTINE_VERSION
from lakehouse.delta.snapshot import WITHDRAWN, Snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction, days_of_transactions
from lakehouse.errors import SchemaMismatchError, UndoRefusedError
from lakehouse.privacy.alone import no_erasure
from lakehouse.read.content import content_names
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.records.history import project_history
from lakehouse.versions.overtaken import days_alone, overtaken_days
from lakehouse.versions.refusals import refuse_other_partitions
from lakehouse.versions.restore import Exchange, commit_exchange, named_again, of_days

_NAMED = 5  # days named in one message
# Facts of a candidate's commits: what the live table was then.
_LIVE, _LIVE_ID = "lakehouse.live_version", "lakehouse.live_id"


class CandidateLake(Lake):
    """The lake as the build of a candidate sees it: the table and its quarantine are in folders of their own.

    What is read of other tables, and which late rows were accepted, is the live lake's.
    """

    def __init__(self, lake: Lake, table: Table) -> None:
        super().__init__(lake.settings, lake.tables, lambda: lake.spark)
        # Folders beside the table's, which no contract names: to all other code they are not there.
        self._moved = {table.id: f"{table.id}__candidate", table.quarantine_id: f"{table.id}__candidate_quarantine"}

    def path(self, name: str) -> Path:
        """Folder of a table."""
        return super().path(self._moved.get(name, name))

    def snapshot(self, name: str, version: int | None = None) -> Snapshot:
        """What the live table's log holds."""
        return open_snapshot(super().path(name), version)


@dataclass(frozen=True)
class Candidate:
    """A candidate as it is now.

    Attributes:
        main, side: it and its quarantine.
        beside: by day, the version of the live table when the candidate's day was built.
        beside_ids: by day, Delta's id of the live table then; "" of an earlier release, which noted none.
        failed: days that did not pass their audit; they are not part of it.
        facts: run, code version and inputs of its newest build.
    """

    table: Table
    main: Snapshot
    side: Snapshot | None
    beside: Mapping[date, int]
    beside_ids: Mapping[date, str]
    failed: Sequence[date]
    facts: Mapping[str, Any]

    @property
    def days(self) -> list[date]:
        """Its days, those without rows included."""
        return sorted(self.beside)


@dataclass(frozen=True)
class Swap:
    """What a swap did.

    Attributes:
        days: days that have the candidate's content now.
        kept: days of the live table that the candidate does not have.
        rows_before, rows: rows of the replaced files, and of those in their place.
        before, committed: version of the live table before and after; no version after where there was nothing to do.
    """

    days: Sequence[date]
    kept: Sequence[date]
    rows_before: int
    rows: int
    before: int
    committed: int | None


def build_candidate(lake: Lake, table: Table, days: Collection[date], *, run_id: str) -> BuildResult:
    """Build days of the candidate by today's code, from the inputs of now; its unchanged days are left alone.

    Args:
        lake: where the tables are and what computes them.
        table: the live table.
        days: the daily partitions; of an upsert table, all that the live one has.
        run_id: recorded in the commits.

    Raises:
        UndoRefusedError: there is no live table, it takes batches from outside or has other partition columns, an
            upsert table's candidate would lack some of its days, or the candidate is one of a contract before.
        BusyError: an erasure is on.
    """
    if table.taken is not None:
        # What was taken once may be gone there, and which batch comes next is in the live table's log alone.
        raise UndoRefusedError(
            f"{table.id}: it takes rows from a topic or a database, which come once, and to the live table alone. "
            "Build a candidate of a table that reads it."
        )
    live = lake.snapshot(table.id)
    if live.version < 0:
        raise UndoRefusedError(f"{table.id} was never built, so there is nothing to stand beside. Build it itself.")
    refuse_other_partitions(table, live, table.partition_by)
    # Rows of an upsert table move between days: a candidate of some days cannot be put beside the others.
    missing = sorted(set(live.by_day(table.day_column)) - set(days))
    if table.upsert and missing:
        raise UndoRefusedError(_torn(table, missing))
    beside = CandidateLake(lake, table)
    _refuse_old_columns(beside, table)
    # Each commit of the candidate names the live version of its time: a swap asks by it what was published since.
    beside.facts = {"lakehouse.operation": "candidate", _LIVE: str(live.version), _LIVE_ID: str(live.table_id)}
    # It is no run, which an erasure would wait for: it could publish people whom it read before they were forgotten.
    with no_erasure(lake.settings.root, run_id):
        built = build(beside, table, days, run_id=run_id)
        _confirm(beside, table, live, built.with_status("unchanged"))
    return built


def _refuse_old_columns(beside: CandidateLake, table: Table) -> None:
    """Of a live table, folders would be moved away and kept; a candidate is made to be dropped."""
    target, _ = targets(beside, table)
    there = open_snapshot(target.path)
    try:
        if there.exists:
            new_columns(target.path, target.schema, target.partition_by, there)
    except SchemaMismatchError as error:
        raise UndoRefusedError(
            f"The candidate of {table.id} was built before its contract changed, and does not have its columns. Remove "
            f"it with `lakehouse candidate drop {table.id}`, and build it again."
        ) from error


def _confirm(beside: CandidateLake, table: Table, live: Snapshot, unchanged: Collection[date]) -> None:
    """Note that days which were left alone are what today's inputs and code give, whatever the live table was before.

    Otherwise a swap refuses them for what was published since, and to build them again, as it says, changes nothing.
    """
    candidate = open_candidate(beside, table)
    now = (live.version, str(live.table_id))
    days = [day for day in unchanged if (candidate.beside.get(day), candidate.beside_ids.get(day)) != now]
    prints = {name: candidate.main.transaction(name) for name in map(day_transaction, days)}
    same = {name: value for name, value in prints.items() if value is not None}
    if same:
        target, _ = targets(beside, table)
        exchange_files(target, candidate.main, (), (), Commit(same, beside.facts), days=days)


def open_candidate(lake: Lake, table: Table) -> Candidate:
    """The candidate of a table.

    Raises:
        UndoRefusedError: where there is none.
    """
    beside_lake = lake if isinstance(lake, CandidateLake) else CandidateLake(lake, table)
    main = open_snapshot(beside_lake.path(table.id))
    if main.version < 0:
        raise UndoRefusedError(f"{table.id} has no candidate. Build one: lakehouse candidate build {table.id}")
    side = open_snapshot(beside_lake.path(table.quarantine_id)) if table.rules else None
    beside: dict[date, int] = {}
    ids: dict[date, str] = {}
    facts: Mapping[str, Any] = {}
    for entry in entries(beside_lake.path(table.id), 0, main.version, main.partition_by):
        # A compaction of the candidate says nothing of when its days were built.
        if _LIVE in entry.facts:
            days = days_of_transactions(entry.transactions) | days_of([*entry.added.values(), *entry.removed.values()])
            beside.update(dict.fromkeys(days, int(entry.facts[_LIVE])))
            ids.update(dict.fromkeys(days, entry.facts.get(_LIVE_ID, "")))
            facts = entry.facts if "lakehouse.code_version" in entry.facts else facts  # of a build, not a note
    tried: set[date] = set()
    if side is not None and side.version >= 0:
        for entry in entries(beside_lake.path(table.quarantine_id), 0, side.version, side.partition_by):
            # A day that failed its audit has a fingerprint in the quarantine, and none in the table.
            tried |= days_of_transactions(entry.transactions)
    return Candidate(table, main, side, beside, ids, sorted(tried - set(beside)), facts)


def swap(lake: Lake, table: Table, *, by: str, reason: str = "", force: bool = False) -> Swap:
    """Make the candidate's files the content of the live table's days: the quarantine first, then one commit for all.

    The files are linked into the live table's folder, so the candidate stays until it is dropped. Days that it does not
    have stay as they are. A crash anywhere is made good by running it again; `lakehouse restore` to the version before
    swaps back.

    Args:
        lake: where the tables are; no engine is used.
        table: the live table.
        by: who, for the history.
        reason: why, for the history.
        force: replace days that have changed in the live table since the candidate was built.

    Raises:
        UndoRefusedError: the live table has changed since, or the columns do not allow it; nothing was written.
        PublishConflictError: a run published one of the days meanwhile.
    """
    candidate = open_candidate(lake, table)
    target, side_target = targets(lake, table)
    live = lake.snapshot(table.id)
    # Days that only the live table has stay: then the swap is of days, and the columns must suit both.
    kept = days_alone(live, candidate)
    _refuse(table, live, candidate, kept, force=force)
    _refuse_old_columns(CandidateLake(lake, table), table)
    days = candidate.days if kept else None
    if kept:
        live = ensure_table(target)  # columns that the candidate adds are nulls in the days that stay
    main = _swapping(target, live, candidate.main, candidate, days)
    side = None if side_target is None else _swapping_side(lake, side_target, candidate, days)
    # Both have their files under second names before either commits: what fails up to here has changed nothing.
    main, side = named_again(main), None if side is None else named_again(side)
    facts = {
        **{k: candidate.facts[k] for k in ("lakehouse.run_id", "lakehouse.code_version") if k in candidate.facts},
        "lakehouse.inputs": candidate.facts.get("lakehouse.inputs", "{}"),
        "lakehouse.operation": "swap",
        "lakehouse.candidate_version": str(candidate.main.version),
        "lakehouse.by": by,
        "lakehouse.reason": reason,
    }
    committed = _commit(lake, candidate, main, side, facts)
    before, after = (sum(f.rows for f in files) for files in (main.removed, main.added))
    return Swap(candidate.days, kept, before, after, main.base.version, committed)


def _swapping_side(lake: Lake, target: Target, candidate: Candidate, days: Collection[date] | None) -> Exchange | None:
    """The exchange of the quarantine; None where the candidate has none."""
    if candidate.side is None or candidate.side.version < 0:
        return None
    live = lake.snapshot(candidate.table.quarantine_id)
    if days or live.version < 0:
        live = ensure_table(target)
    return _swapping(target, live, candidate.side, candidate, days)


def _commit(
    lake: Lake, candidate: Candidate, main: Exchange, side: Exchange | None, facts: Mapping[str, Any]
) -> int | None:
    """Commit the exchanges; returns the live table's version, None where it holds the candidate's files already.

    The quarantine goes first: killed in between, the table is what it was, with rows of the candidate in quarantine
    that running it again takes for done. The table's commit names the quarantine's version that belongs to it.
    """
    table, belongs = candidate.table, {}
    if side is not None:
        belongs[QUARANTINE_VERSION] = str(side.base.version)
        if not side.nothing:
            failpoint(table.id, "before-quarantine-swap")
            belongs[QUARANTINE_VERSION] = str(commit_exchange(side, facts))
            failpoint(table.id, "after-quarantine-swap")
    if main.nothing:
        return None
    figures = figures_in_log(candidate.main, table.day_column, candidate.days)
    committed = commit_exchange(main, {**facts, **belongs, "lakehouse.metrics": figures})
    failpoint(table.id, "after-swap")
    project_history(lake.settings.root, lake.snapshot(table.id), table.id)
    return committed


def drop_candidate(lake: Lake, table: Table) -> bool:
    """Remove the candidate's folders; True where there was one. What was swapped in stays, whole."""
    beside = CandidateLake(lake, table)
    found = False
    # The quarantine first: a candidate whose table is there is one, with or without its quarantine.
    for name in (table.quarantine_id, table.id):
        path = beside.path(name)
        doomed = path.with_name(f"{path.name}__dropped")
        found |= store.exists(path) or store.exists(doomed)
        store.delete_tree(doomed)  # what a killed drop has left
        if store.exists(path):
            store.move(path, doomed)  # at once, so that a half-removed candidate is never taken for one
            store.delete_tree(doomed, strict=True)
    return found


def _refuse(table: Table, live: Snapshot, candidate: Candidate, kept: Sequence[date], *, force: bool) -> None:
    if live.version < 0 or not candidate.beside:
        raise UndoRefusedError(f"{table.id}: its candidate has no day that passed its audit; there is nothing to swap.")
    refuse_other_partitions(table, live, candidate.main.partition_by)
    if table.upsert and kept:
        raise UndoRefusedError(_torn(table, kept))
    changed = overtaken_days(live, candidate)
    if changed and not force:
        raise UndoRefusedError(
            f"{table.id}: {len(changed)} day(s) were published after the candidate's were built: {_listed(changed)}. "
            f"Build those again (lakehouse candidate build {table.id} --from {changed[0]} --to {changed[-1]}) and "
            "compare, or --force to lose what was published. A stream that publishes these days has to be ended first. "
            "Nothing was written."
        )


def _swapping(
    target: Target, live: Snapshot, wanted: Snapshot, candidate: Candidate, days: Collection[date] | None
) -> Exchange:
    have, want = of_days(live.files, days), of_days(wanted.files, days)
    names = {*map(day_transaction, candidate.days), *content_names(candidate.table, wanted, candidate.days)}
    prints = {name: wanted.transaction(name) for name in sorted(names)}
    # A day may have been swapped in from a candidate that does not say what its rows are: then nobody knows.
    prints |= {n: WITHDRAWN for n, v in prints.items() if v is None and n not in map(day_transaction, candidate.days)}
    return Exchange(
        target,
        live,
        wanted,
        [file for name, file in want.items() if name not in have],
        [file for name, file in have.items() if name not in want],
        {name: value for name, value in prints.items() if value is not None and value != _held(live, name)},
        days,
    )


def _held(live: Snapshot, name: str) -> int:
    found = live.transaction(name)
    return WITHDRAWN if found is None else found


def _torn(table: Table, days: Sequence[date]) -> str:
    return (
        f"{table.id}: its rows move between days, so its candidate must hold every day that the live table has; it "
        f"lacks {_listed(days)}. Build the whole of it: lakehouse candidate build {table.id}"
    )


def _listed(days: Sequence[date]) -> str:
    return ", ".join(map(str, days[:_NAMED])) + (f", … ({len(days)} days)" if len(days) > _NAMED else "")
