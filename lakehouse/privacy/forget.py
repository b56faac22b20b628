"""A person taken out of every file under the root, and the proof by a scan of all of them.

The protocol; whoever runs it again after a kill begins at the first step, and each finds done what was done:

1. The ledger says that the erasure has begun: what is landed from then on is read without the person.
2. A journal names the days to build, for once the landed files are clean nothing else tells which these were.
3. Landed files are written without the person, and the days are built again.
4. What no landed file could give again is written anew from itself, and what depends on it is built again.
5. No run is on, so that none can have read the person before: old files and log entries that name them are removed,
   the rows of features online too, and whatever else names them is edited.
6. All files are searched. Only if none names the person, and no build made their rows again, are the removals flushed,
   the ledger says done, and the journal goes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path

from lakehouse import store
from lakehouse.build.made_from import touched_days
from lakehouse.contracts import Table
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import table_name
from lakehouse.delta.transactions import day_transaction
from lakehouse.errors import LakehouseError
from lakehouse.privacy.alone import alone
from lakehouse.privacy.erase import (
    delta_tables,
    erase_rows,
    later_than,
    other_columns,
    purge,
    rows_by_day,
    table_at,
)
from lakehouse.privacy.landed import clean_landing
from lakehouse.privacy.online import forget_online
from lakehouse.privacy.scan import clean_rest, scan
from lakehouse.read.key_index import index_folder
from lakehouse.read.lake import table_path
from lakehouse.records.erasures import BEGUN, DONE, Erasure, erasures, hmac_key, note
from lakehouse.records.history import project_history
from lakehouse.settings import Settings, token_of
from lakehouse.sources.people import PERSON_FIELDS, Person, canonical_address, canonical_id, person_hmac

Days = Mapping[str, Collection[date]]
"""Days by table."""


class NobodyError(LakehouseError):
    """It is not said who is to be forgotten."""


@dataclass(frozen=True)
class Built:
    """What a run of stale days came to, as pairs of table and day: published, and failed or skipped."""

    published: frozenset[tuple[str, date]]
    behind: frozenset[tuple[str, date]]


@dataclass(frozen=True)
class Runs:
    """What an erasure needs of whoever starts runs.

    Attributes:
        build: builds those of the days that are stale; KeyboardInterrupt where somebody stopped it.
        refuse: raises `BusyError` while a run is on.
    """

    build: Callable[[Days], Built]
    refuse: Callable[[], None]


@dataclass(frozen=True)
class Forgotten:
    """What an erasure did.

    Attributes:
        counts: how much was found, changed and removed, by the words of the ledger.
        hits: files that still name the person, by path under the root.
        spared: those that were left since they are dated later than the removal, as files of a running job are; by
            path, with the date.
        back: by table, rows of the person that its builds made again from what it reads, and would make again.
    """

    counts: Mapping[str, int]
    hits: Sequence[str]
    spared: Mapping[str, datetime] = field(default_factory=dict)
    back: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """Who is to be forgotten: as somebody said it (`user`, `emails`), and as files may name them."""

    user: str | None
    emails: Sequence[str]
    person: Person


def subject(settings: Settings, contracts: Mapping[str, Table], user: str | None, emails: Sequence[str]) -> Subject:
    """Who is meant, with every form in which files may name them.

    Args:
        settings: the keys of tokens.
        contracts: all tables by name; their columns say where ids of people are.
        user: id, as `user_id` or `CustomerID`; None where it is not known.
        emails: addresses.

    Raises:
        NobodyError: where nobody is named, or an address is none.
    """
    known = canonical_id(user) if user is not None else None
    # An id that is an address is a token in tables, as any address.
    own = [known] if known and "@" in known else []
    addresses = frozenset(canonical_address(each) for each in (*emails, *own))
    _check_named(known, addresses)
    tokens = frozenset(each.split(":")[1] for each in _tokens(settings, addresses))
    ids = frozenset(name for each in contracts.values() for name in each.privacy.person)
    person = Person(known, addresses, tokens, other_columns(contracts), ids | frozenset(PERSON_FIELDS), ids)
    return Subject(user, emails, person)


def _check_named(known: str | None, addresses: Collection[str]) -> None:
    if known == "" or not (known or addresses):
        raise NobodyError("Say who is to be forgotten: --user ID, --email ADDRESS or both.")
    if wrong := [each for each in addresses if "@" not in each.strip("@")]:
        raise NobodyError(f"{len(wrong)} of the --email values is no e-mail address.")


def _tokens(settings: Settings, addresses: Collection[str]) -> list[str]:
    """The tokens of addresses under every key."""
    keys = [settings.pii_key_bytes(), *settings.pii_old_keys_bytes().values()] if addresses else []
    return [token_of(each, key) for each in sorted(addresses) for key in keys]


def held(settings: Settings, contracts: Mapping[str, Table], person: Person) -> dict[str, dict[date, int]]:
    """By table, the days that hold rows of the person or name them, with their number.

    Args:
        settings: where the lakehouse is.
        contracts: by name.
        person: who.
    """
    found = {}
    for path in delta_tables(settings.root):
        days = rows_by_day(path, table_at(settings.root, path, contracts), person)
        if days:
            found[table_name(path)] = days
    return found


def forget(settings: Settings, contracts: Mapping[str, Table], who: Subject, runs: Runs) -> Forgotten:
    """Take a person out of everything under the root. May be killed anywhere and called again.

    Args:
        settings: where the lakehouse is, and its keys.
        contracts: all tables by name, upstream first.
        who: the person.
        runs: how days are built, and runs refused meanwhile.

    Raises:
        BusyError: another erasure or a run is on; nothing was changed by this one.
        TraceError: an event store is in use.
    """
    with alone(settings.root):
        runs.refuse()
        return _forget(settings, contracts, who, runs)


def _forget(settings: Settings, contracts: Mapping[str, Table], who: Subject, runs: Runs) -> Forgotten:
    root, person = settings.root, who.person
    begun = _begun(settings, who)
    note(root, begun)

    # Before anything is written anew: once files are clean, nothing else tells which days they were about.
    journal = root / "privacy" / f"{begun.id}.json"
    days = _touched(settings, contracts, person, _read_journal(journal))
    _write_journal(journal, days)
    # The source first: whatever is built from now on is built without the person, also by others.
    landed = clean_landing(root, contracts, person)
    # Built from what landed, as any day: other people's rows come out as they were, checks and figures included.
    built = [runs.build(days)]
    erased, back = _erase_rows(root, contracts, person, begun.id), Counter[str]()
    if erased:  # what no landed file could give again was written from itself, and what depends on it is stale now
        built.append(runs.build(days))
        # Every table was without the person: these rows were made from an id that no form of the person's fits.
        back = _erase_rows(root, contracts, person, begun.id)

    runs.refuse()
    older_than = time.time()  # a run that begins now reads a lake without the person
    # Old versions last, when no live file names the person any more: time travel ends for what is purged.
    removed, entries = _purge(root, contracts, person, older_than)
    online = forget_online(settings, contracts, person)
    cleaned = clean_rest(root, contracts, person)
    # The proof does not trust the steps above: every file under the root is opened once more.
    scanned, hits = scan(root, contracts, person)
    counts = {
        "landed_files": landed.files,
        "landed_lines": landed.lines,
        "lines_edited": landed.edited,
        "rows_rewritten": (erased + back).total(),
        "days_built": len(frozenset[tuple[str, date]]().union(*(each.published for each in built))),
        "days_failed": len(built[-1].behind),
        "files_removed": removed,
        "log_entries_removed": entries,
        "online_rows_removed": online,
        "other_files_edited": cleaned,
        "files_scanned": scanned,
    }
    if not hits and not back:
        store.fsync_all()  # before the ledger says done: what was removed must not come back with a power cut
        note(root, replace(begun, state=DONE, counts=counts))
        store.delete(journal)
    return Forgotten(counts, hits, later_than(root, hits, older_than), back)


def _begun(settings: Settings, who: Subject) -> Erasure:
    """The entry of the ledger; the same for the same person until the erasure is done, so that a repeat goes on."""
    key = hmac_key(settings)
    hmacs = [*([person_hmac("user", who.user, key)] if who.user else [])]
    hmacs += [person_hmac("email", each, key) for each in who.emails]
    # The same person gives the same name, so that a repeat after a kill goes on with the erasure that is open.
    name = hashlib.sha256("/".join(sorted(hmacs)).encode()).hexdigest()[:16]
    # An erasure that is done is not taken up again: who comes back and goes again has a new one.
    before = sum(1 for each in erasures(settings.root) if each.state == DONE and each.id.startswith(name))
    # An id that is an address comes from a database as its token.
    # Both forms, since the filter of later landings sees whichever the source holds.
    hmacs += [person_hmac("user", token, key) for token in _tokens(settings, who.person.emails)]
    return Erasure(f"{name}-{before}", BEGUN, tuple(hmacs))


def _erase_rows(root: Path, contracts: Mapping[str, Table], person: Person, erasure: str) -> Counter[str]:
    """Rewrite live files without the person; returns the rows that are gone or edited by table, where there are any."""
    rows = Counter[str]()
    for path in delta_tables(root):
        rows[table_name(path)] += erase_rows(root, path, table_at(root, path, contracts), person, erasure)
    return +rows


def _purge(root: Path, contracts: Mapping[str, Table], person: Person, older_than: float) -> tuple[int, int]:
    """Remove old files and log entries that name the person; returns how many of each."""
    for path in delta_tables(root):
        contract = table_at(root, path, contracts)
        if contract is not None and path.name == contract.name:
            # What the entries say of days is kept before they go.
            project_history(root, open_snapshot(path), contract.id)
    store.delete_tree(index_folder(root))  # it knows keys of files that are gone
    purged = [purge(path, person, older_than) for path in delta_tables(root)]
    return sum(files for files, _ in purged), sum(entries for _, entries in purged)


def _touched(settings: Settings, contracts: Mapping[str, Table], person: Person, known: Days) -> dict[str, set[date]]:
    """The days of each table that hold the person or are computed from days that do.

    Args:
        settings: where the lakehouse is.
        contracts: all tables by name, upstream first.
        person: who.
        known: days that an earlier attempt found; the files that told of them may be clean by now.
    """
    landed = clean_landing(settings.root, contracts, person, dry_run=True).days
    rows = held(settings, contracts, person)
    only: dict[str, set[date]] = {}
    content: dict[str, set[date]] = {}
    for name, contract in contracts.items():
        own = {*known.get(name, ()), *landed.get(name, ()), *rows.get(name, ()), *rows.get(f"{name}_quarantine", ())}
        own |= {
            reader
            for each in contract.upstream.values()
            for day in content.get(each.table, ())
            for reader in touched_days(contract, each, day)
        }
        snapshot = open_snapshot(table_path(settings.root, name))
        own = {day for day in own if snapshot.transaction(day_transaction(day)) is not None}  # others were never built
        only[name] = content[name] = own
        if contract.content_day_column != contract.day_column:
            by_event_day = snapshot.by_day(contract.content_day_column)
            texts = {day.isoformat() for day in own}
            content[name] = {day for day, files in by_event_day.items() if any(f.partition[0] in texts for f in files)}
    return only


def _read_journal(path: Path) -> Days:
    with suppress(FileNotFoundError, ValueError):
        found = json.loads(store.read_text(path))
        return {name: {date.fromisoformat(day) for day in days} for name, days in found.items()}
    return {}


def _write_journal(path: Path, days: Days) -> None:
    """Which days are to be built, before anything changes: a process that is killed leaves no other sign of them."""
    store.put(path, json.dumps({name: sorted(map(str, each)) for name, each in days.items()}), flush=True)
    store.fsync([path.parent])
