"""Publish: what passed its audit is made visible, in up to three commits whose order makes every kill harmless.

1. `_withdraw`: only of a build that is forced, the fingerprints of the rows that it is about to replace are taken back.
2. `_set_aside`: the rows that broke a rule replace those of their days in the quarantine.
3. `_replace`: the sound rows replace those of their days in the table, with figures and fingerprints. Where no day is
   good, `_refuse` says there what the checks found.

A day is current where table and quarantine both have the fingerprint of its inputs and code. Only a build that got
through all its commits leaves it so; after a kill anywhere before, the day is stale and the next build does it again.
What the log says is projected into the history last: that can be done at any time, and by anybody.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from lakehouse.build.audit import Audited
from lakehouse.build.base import Base, Pinned, project_commits
from lakehouse.build.laps import Laps
from lakehouse.build.work import Work
from lakehouse.checks.metrics import judged_days
from lakehouse.delta.commit import exchange_files, replace_days
from lakehouse.delta.conflicts import moved_days
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.pairing import QUARANTINE_VERSION
from lakehouse.delta.snapshot import WITHDRAWN
from lakehouse.delta.staged import QUARANTINED, VALID, StagedFile, moved
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.content import contents
from lakehouse.records.history import CHECKS_ONLY, UNPUBLISHED_CHECKS, latest_records

Facts = Mapping[str, Any]
"""What a commit says beside its files, for the history."""


@dataclass(frozen=True)
class Published:
    """What became of a build.

    Attributes:
        audited: what was judged.
        version: of the table afterwards; the one that the build started from, where nothing was committed.
        also_replaced: rows by further day that an upsert had to write.
        laps: the seconds of all.
    """

    audited: Audited
    version: int
    also_replaced: Mapping[date, int] = field(default_factory=dict)
    laps: Laps = field(default_factory=Laps)


def publish(audited: Audited) -> Published:
    """Commit the good days, and say of the others what the checks found.

    Days that another run has published since the build began are left out, and are in none of what is returned; the
    others do not wait for them. What another run publishes from here on is a conflict.

    Raises:
        PublishConflictError: another run published all of the days meanwhile, or one of those of an upsert.
        StagedFileError, SchemaMismatchError: a staged file is gone, or is not what may be committed.
    """
    audited = _without_moved(audited)
    work = audited.staged.work
    base, facts = work.base, _facts(work)
    if (side := base.side) is not None:
        # Three commits at most, in this order; each says in its docstring what a kill before and after it leaves.
        base = _withdraw(audited, facts)
        facts = {**facts, QUARANTINE_VERSION: str(_set_aside(audited, side, facts))}
    # A candidate's failures are nobody's: readers do not know it, and its days would be told as failed.
    if base.is_live and (judged := judged_days(audited.refused, work.plan.fingerprints)):
        facts = {**facts, UNPUBLISHED_CHECKS: judged}
    if audited.good:
        version = _replace(audited, base, facts)
    else:
        version = _refuse(base, facts) if UNPUBLISHED_CHECKS in facts else base.main.snapshot.version
    also = {day: audited.metrics[day].rows for day in work.also} if audited.good else {}
    return Published(audited, version, also, audited.laps.lap("commit"))


def _without_moved(audited: Audited) -> Audited:
    """Without the days that others have changed since the build began, where some are left.

    Of the days that are left none can have changed with them: each is made of the inputs alone. Days of an upsert are
    made of the whole table, so that one that has changed is a conflict of all.

    Raises:
        DecidedMeanwhileError: somebody restored or swapped the table meanwhile.
    """
    work = audited.staged.work
    if work.base.table.upsert or len(work.days) == 1:  # then the commit's own look is enough
        return audited
    moved: set[date] = set()
    for each in work.base.stores:
        moved |= moved_days(each.snapshot, open_snapshot(each.target.path), each.target.day_column, work.days)
    left = [day for day in work.days if day not in moved]
    if not moved or not left:
        return audited
    results = {day: each for day, each in audited.results.items() if day in left}
    return replace(audited, staged=replace(audited.staged, work=replace(work, days=left)), results=results)


def _facts(work: Work) -> dict[str, Any]:
    """What every commit of the build says of it."""
    return {
        **work.base.lake.facts,
        "lakehouse.run_id": work.run_id,
        "lakehouse.code_version": work.base.table.code_version,
        "lakehouse.inputs": work.plan.versions,
    }


def _fingerprints(work: Work, days: Sequence[date]) -> dict[str, int]:
    """The transactions that say what days were made from."""
    prints = work.plan.fingerprints
    return {day_transaction(day): prints[day] for day in days if day in prints}


def _same(audited: Audited) -> set[str]:
    """Names of the fingerprints that the published rows have already, as they can only of a build that is forced."""
    work = audited.staged.work
    tried = _fingerprints(work, work.days)
    return {name for name, tried_with in tried.items() if work.base.main.snapshot.transaction(name) == tried_with}


def _withdraw(audited: Audited, facts: Facts) -> Base:
    """Take back the fingerprints of the published rows that a forced build replaces; returns the base after it.

    Why: the two tables are committed one after the other, and fingerprints are all that tells whether they belong
    together. Published from the same inputs and code, the old rows have the very fingerprint of the new ones. A kill
    after the quarantine's commit would then leave new rows there beside old ones in the table, and look current.

    Killed before it: nothing has happened. Killed after it: the old rows stand, without fingerprint, so the day is
    stale and is built again. Only days that will be published are withdrawn: a day that fails keeps its good rows, and
    `_set_aside` makes it stale instead.
    """
    work = audited.staged.work
    base = work.base
    forced = sorted(_same(audited) & _fingerprints(work, audited.good).keys())
    if not forced:
        return base
    # An upsert was computed from the whole table: a change of any day makes its rows other ones.
    watched = None if base.table.upsert else work.days
    begun = Commit(dict.fromkeys(forced, WITHDRAWN), {**facts, "lakehouse.operation": "force"})
    target = base.main.target
    version = exchange_files(target, base.main.snapshot, (), (), begun, days=watched)
    # At its own version, and not what a newer publish has made of it: that must remain a conflict.
    return replace(base, main=Pinned(target, open_snapshot(target.path, version)))


def _set_aside(audited: Audited, side: Pinned, facts: Facts) -> int:
    """Commit the rows that broke a rule to the quarantine; returns its version.

    First, so that no row can get lost: were the table first, a kill in between would leave a day that looks published
    while its bad rows are nowhere. Failed days leave their rows too: there the reasons can be read.

    Killed before it: the old rows stand on both sides. Killed after it: the quarantine has the new fingerprint and the
    table the old one, so the day is stale; the next build puts the same rows here once more, in place of these.

    A failed day stays so on purpose: its rows here are not those of the published ones, and are replaced even if its
    inputs change back. In a forced build that fails, both fingerprints would be the same; then none is kept here.

    A day that failed since none of its lines is there any more has no rows to leave: those it has here are kept like
    the published ones. They are the only trace of their lines, and a day that had no others would next be emptied.
    """
    work = audited.staged.work
    table, good = work.base.table, audited.good
    kept_by_table = _same(audited) - _fingerprints(work, good).keys()
    emptied = work.arrived.emptied if work.arrived else ()
    asked = [day for day in work.days if day not in emptied]
    tried = _fingerprints(work, asked) | dict.fromkeys(kept_by_table, WITHDRAWN)
    # Where no day is good nothing is published, so the further days of an upsert keep the rows they have here, too.
    replaced = [*asked, *work.also] if good else asked
    if not replaced:
        return side.snapshot.version
    # Inside its own table's folder, where that table's vacuum finds it. Slices stay whole for the next attempt.
    folder = side.target.path / "staged" / uuid.uuid4().hex
    keep = work.fan_out is not None
    files = [moved(file, folder, keep=keep) for file in _of_days(audited, QUARANTINED, replaced)]
    failpoint(table.id, "before-quarantine-commit")
    commit = Commit(tried, facts)
    added = work.growth is not None
    version = replace_days(side.target, side.snapshot, files, replaced, commit, added=added, read_whole=table.upsert)
    failpoint(table.id, "after-quarantine-commit")
    return version


def _replace(audited: Audited, base: Base, facts: Facts) -> int:
    """Replace the good days' rows in the table, all of them in one commit; returns its version.

    The entry holds files, figures, fingerprints and the numbers that say which rows the days hold, so that none of them
    can be there without the others. Killed before it: readers see the old rows, and staged files that no log names are
    a vacuum's. Killed after it: everything is published but the history, which the next build or reader brings up.
    """
    work = audited.staged.work
    table, main = base.table, base.main
    # An upsert's further days get no fingerprint: it was not their own inputs that were asked for.
    days = [*audited.good, *work.also]
    valid = _of_days(audited, VALID, days)
    seconds = audited.laps.work
    kept = _kept_of_further_days(work)
    figures = {
        day.isoformat(): {**audited.metrics[day].as_json(), "seconds": seconds} | kept.get(day, {}) for day in days
    }
    # The gate inside looks at the files once more: one that a vacuum or a person took away meanwhile is refused.
    failpoint(table.id, "before-commit")
    added = work.growth is not None
    transactions = _fingerprints(work, audited.good) | contents(table, valid, main.snapshot, added=added)
    commit = Commit(transactions, {**facts, "lakehouse.metrics": figures})
    version = replace_days(main.target, main.snapshot, valid, days, commit, added=added, read_whole=table.upsert)
    failpoint(table.id, "after-commit")
    if base.is_live:
        project_commits(base)
    return version


def _kept_of_further_days(work: Work) -> dict[date, dict[str, Any]]:
    """By further day of an upsert, what the history goes on to say of it: its code, and what a restore turned down.

    A day that older code built is stale until it is built itself, and rows of that code are carried over in it. Were it
    told as built by this code, nobody would find it by its code, and that it is stale be taken for a change of inputs.
    Nor is a restored day built by this: it waits as before, or a sensor would build it from what was turned down.
    """
    base = work.base
    if not (base.table.upsert and base.is_live and work.also):
        return {}
    built = latest_records(base.lake.settings.root, base.table.id, work.also, figures=("tried",))
    tried = {day: {"tried": each.figures["tried"]} for day, each in built.items() if "tried" in each.figures}
    return {day: {"code_version": each.code_version, **tried.get(day, {})} for day, each in built.items()}


def _refuse(base: Base, facts: Facts) -> int:
    """Say in the table's log what the checks found where no day is good; returns the version of that commit.

    It changes no row and takes no fingerprint. Where it is killed before or after, the last good rows stand.
    """
    told = Commit(metadata={**facts, "lakehouse.operation": CHECKS_ONLY})
    version = exchange_files(base.main.target, base.main.snapshot, (), (), told, days=[])
    project_commits(base)
    return version


def _of_days(audited: Audited, route: str, days: Sequence[date]) -> list[StagedFile]:
    """The staged files of some days that take one route."""
    column, wanted = audited.staged.work.base.table.day_column, {day.isoformat() for day in days}
    return [f for f in audited.staged.files if f.route == route and f.partition[column] in wanted]
