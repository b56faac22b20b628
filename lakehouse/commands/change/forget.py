"""`lakehouse forget`: a person taken out of every file under the root, and the proof by a scan of all of them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, print_json, quiet_warnings, say
from lakehouse.errors import CHECKS_FAILED, LakehouseError, UsageError
from lakehouse.settings import Settings, get_settings, token_of
from lakehouse.store.disk import sync
from lakehouse.texts import counted

if TYPE_CHECKING:
    from lakehouse.contracts import Table
    from lakehouse.sources.people import Person

Days = dict[str, set[date]]


class BusyError(LakehouseError):
    """Something else is at work on the lakehouse."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "forget",
        cls=Command,
        epilog=examples(
            "lakehouse forget --user 17841 --dry-run", "lakehouse forget --user u000012 --email ann@example.com"
        ),
    )(forget)


def forget(
    user: Annotated[str | None, typer.Option("--user", help="Id of the person, as `user_id` or `CustomerID`.")] = None,
    emails: Annotated[list[str] | None, typer.Option("--email", help="An e-mail address; may be repeated.")] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go; write nothing.")] = False,
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the runs' log.")] = False,
) -> None:
    """Erase a person from landed files, tables, quarantines, history, logs and events, and scan all files for them.

    Days that held the person are built again; everybody else's rows come out the same. Files that are landed later are
    read without the person. May be killed and run again at any time. Older versions of the changed days are gone.
    """
    from lakehouse.catalog import tables
    from lakehouse.privacy.erase import clean_landing

    settings, contracts = get_settings(), tables()
    quiet_warnings()
    person = _person(settings, contracts, user, emails or ())
    if dry_run:
        landed = clean_landing(settings.root, contracts, person, dry_run=True)
        found = {"landed_files": landed.files, "landed_lines": landed.lines, "lines_mended": landed.mended}
        held = _held(settings, contracts, person)
        tables_found = [{"table": name, "rows": sum(days.values()), "days": len(days)} for name, days in held.items()]
        if as_json:
            print_json({**found, "tables": tables_found})
            return
        say(f"{counted(landed.lines, 'line')} of {counted(landed.files, 'landed file')}; {landed.mended} to mend.")
        for each in tables_found:
            say(f"  {each['table']}: {each['rows']} rows of {each['days']} days")
        say("Dry run: nothing was written.")
        return
    with _alone(settings):
        counts, hits = _erase(settings, contracts, person, user, emails or (), verbose)
    if as_json:
        print_json({**counts, "hits": hits})
    else:
        say(
            f"{counts['landed_lines']:,} landed lines, {counts['rows_rewritten']:,} rows rewritten, "
            f"{counts['days_built']:,} days built again, {counts['files_removed']:,} old files removed."
        )
        say(f"Scanned {counted(counts['files_scanned'], 'file')}: {counted(len(hits), 'hit')}.")
        for name in hits:
            say(f"  still named in {name}")
    if hits or counts["days_failed"]:
        if counts["days_failed"]:
            say(f"{counted(counts['days_failed'], 'day')} could not be built again: lakehouse backfill --touched")
        raise typer.Exit(CHECKS_FAILED)


def _person(settings: Settings, contracts: Mapping[str, Table], user: str | None, emails: Collection[str]) -> Person:
    from lakehouse.privacy.erase import other_columns
    from lakehouse.sources.people import PERSON_FIELDS, Person, canonical_address, canonical_id

    known = canonical_id(user) if user is not None else None
    # An id that is an address is a token in tables, as any address.
    own = [known] if known and "@" in known else []
    addresses = frozenset(canonical_address(each) for each in (*emails, *own))
    if known == "" or not (known or addresses):
        raise UsageError("Say who is to be forgotten: --user ID, --email ADDRESS or both.")
    if wrong := [each for each in addresses if "@" not in each.strip("@")]:
        raise UsageError(f"{len(wrong)} of the --email values is no e-mail address.")
    tokens = frozenset(each.split(":")[1] for each in _tokens(settings, addresses))
    fields = {*PERSON_FIELDS, *(name for each in contracts.values() for name in each.privacy.person)}
    return Person(known, addresses, tokens, other_columns(contracts), frozenset(fields))


def _tokens(settings: Settings, addresses: Collection[str]) -> list[str]:
    """The tokens of addresses under every key."""
    keys = [settings.pii_key_bytes(), *settings.pii_old_keys_bytes().values()] if addresses else []
    return [token_of(each, key) for each in sorted(addresses) for key in keys]


def _erase(
    settings: Settings,
    contracts: Mapping[str, Table],
    person: Person,
    user: str | None,
    emails: Collection[str],
    verbose: bool,
) -> tuple[dict[str, int], list[str]]:
    from lakehouse.commands.progress import Terminal
    from lakehouse.delta.snapshot import open_snapshot
    from lakehouse.privacy.erase import clean_landing, delta_tables, erase_rows, purge, table_of
    from lakehouse.privacy.scan import clean_rest, scan
    from lakehouse.read.key_index import index_folder
    from lakehouse.records.erasures import BEGUN, DONE, Erasure, erasures, marks_key, note
    from lakehouse.records.history import fold
    from lakehouse.runs.running import run_stale
    from lakehouse.sources.people import person_mark

    root, key = settings.root, marks_key(settings)
    marks = [*([person_mark("user", user, key)] if user else []), *(person_mark("email", e, key) for e in emails)]
    name = hashlib.sha256("/".join(sorted(marks)).encode()).hexdigest()[:16]
    name += f"-{sum(1 for each in erasures(root) if each.state == DONE and each.id.startswith(name))}"
    # An id that is an address comes from a database as its token.
    marks += [person_mark("user", token, key) for token in _tokens(settings, person.emails)]
    note(root, Erasure(name, BEGUN, tuple(marks)))

    journal = root / "privacy" / f"{name}.json"
    only = _touched(settings, contracts, person, _read_journal(journal))
    _write_journal(journal, only)
    landed = clean_landing(root, contracts, person)
    terminal = Terminal(settings, verbose=verbose)
    report = run_stale(settings, list(contracts), only=only, listener=terminal)
    reports = [report]
    if report.interrupted:
        raise KeyboardInterrupt
    rows = sum(erase_rows(root, p, table_of(root, p, contracts), person, name) for p in delta_tables(root))
    if rows:  # what no landed file could give again was written from itself, and what depends on it is stale now
        reports.append(run_stale(settings, list(contracts), only=only, listener=terminal))
        rows += sum(erase_rows(root, p, table_of(root, p, contracts), person, name) for p in delta_tables(root))

    _refuse_runs(settings)
    older_than = time.time()  # a run that begins now reads a lake without the person
    for path in delta_tables(root):
        contract = table_of(root, path, contracts)
        if contract is not None and path.name == contract.name:
            fold(root, open_snapshot(path), contract.id)
    shutil.rmtree(index_folder(root), ignore_errors=True)  # it knows keys of files that are gone
    purged = [purge(path, person, older_than) for path in delta_tables(root)]
    cleaned = clean_rest(root, contracts, person)
    scanned, hits = scan(root, contracts, person)
    built = {(n, day) for each in reports for n, t in each.tables.items() for day in t.published}
    failed = {(n, day) for n, t in reports[-1].tables.items() for day in (*t.failed, *t.skipped)}
    counts = {
        "landed_files": landed.files,
        "landed_lines": landed.lines,
        "lines_mended": landed.mended,
        "rows_rewritten": rows,
        "days_built": len(built),
        "days_failed": len(failed),
        "files_removed": sum(files for files, _ in purged),
        "log_entries_removed": sum(entries for _, entries in purged),
        "other_files_mended": cleaned,
        "files_scanned": scanned,
    }
    if not hits:
        os.sync()  # what was removed does not come back with a power cut
        note(root, Erasure(name, DONE, tuple(marks), counts))
        journal.unlink(missing_ok=True)
    return counts, hits


def _held(settings: Settings, contracts: Mapping[str, Table], person: Person) -> dict[str, dict[date, int]]:
    """Days that hold rows of the person, with their number, by table."""
    from lakehouse.delta.snapshot import table_name
    from lakehouse.privacy.erase import days_of, delta_tables, table_of

    found = {}
    for path in delta_tables(settings.root):
        days = days_of(path, table_of(settings.root, path, contracts), person)
        if days:
            found[table_name(path)] = days
    return found


def _touched(settings: Settings, contracts: Mapping[str, Table], person: Person, known: Days) -> Days:
    """The days of each table that hold the person or are computed from days that do."""
    from lakehouse.build.plan import read_by
    from lakehouse.delta.marks import day_transaction
    from lakehouse.delta.snapshot import open_snapshot
    from lakehouse.privacy.erase import clean_landing
    from lakehouse.read.lake import table_path

    landed = clean_landing(settings.root, contracts, person, dry_run=True).days
    held = _held(settings, contracts, person)
    only: Days = {}
    content: Days = {}
    for name, contract in contracts.items():
        own = {*known.get(name, ()), *landed.get(name, ()), *held.get(name, ()), *held.get(f"{name}_quarantine", ())}
        own |= {
            reader
            for each in contract.upstream.values()
            for day in content.get(each.table, ())
            for reader in read_by(contract, each, day)
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
        found = json.loads(path.read_text())
        return {name: {date.fromisoformat(day) for day in days} for name, days in found.items()}
    return {}


def _write_journal(path: Path, only: Days) -> None:
    """Which days are to be built, before anything changes: a process that is killed leaves no other sign of them."""
    draft = path.with_suffix(".draft")
    with draft.open("w") as file:
        json.dump({name: sorted(map(str, days)) for name, days in only.items()}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync(path.parent)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """No other erasure and no run, until the end of the block as far as erasures are concerned."""
    folder = settings.root / "privacy"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError("Another `lakehouse forget` is on; wait for its end.") from None
        _refuse_runs(settings)
        yield


def _refuse_runs(settings: Settings) -> None:
    """A run that has read a day before could publish the person again, and its staged files would be removed."""
    from dagster import DagsterRunStatus, RunsFilter

    from lakehouse.orchestration.instance import opened_instance
    from lakehouse.runs.running import close_abandoned

    on = [
        DagsterRunStatus.QUEUED,
        DagsterRunStatus.NOT_STARTED,
        DagsterRunStatus.STARTING,
        DagsterRunStatus.STARTED,
        DagsterRunStatus.CANCELING,
    ]
    with opened_instance(settings) as instance:
        close_abandoned(instance, say)
        runs = [run.run_id[:8] for run in instance.get_runs(filters=RunsFilter(statuses=on))]
    if runs:
        raise BusyError(f"The run(s) {', '.join(runs)} are on. Wait for their end or cancel them, then run it again.")
