"""A person's rows taken out of Delta tables, and what still remembers them taken off the disk.

Days are built again from cleaned landed files where there are any; what is left is written anew from itself, without
the person, and committed. Then files and log entries that no reader needs are removed, if they name the person.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakehouse import store
from lakehouse.checks.metrics import measure
from lakehouse.contracts import Table
from lakehouse.delta.commit import exchange_files
from lakehouse.delta.evolve import stored_schema
from lakehouse.delta.failpoints import failpoint
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import DataFile, Snapshot, fingerprint, fresh_snapshot, table_name
from lakehouse.delta.staged import CONTENT, QUARANTINED, VALID, StagedFile, new_path, read_staged
from lakehouse.delta.target import Commit, Target
from lakehouse.delta.transactions import day_transaction
from lakehouse.privacy.traces import files_under, is_number_of, names_person
from lakehouse.read.content import content_by_name
from lakehouse.read.lake import table_path
from lakehouse.records.history import latest_records
from lakehouse.settings import LAYERS
from lakehouse.sources.people import Person
from lakehouse.store import parquet

LOG = "_delta_log"
_OF_A_VERSION = re.compile(r"\.?(\d{20})\.(?:json|crc|json\.crc|checkpoint(?:\.[\w.-]+)?\.parquet(?:\.crc)?)")


def delta_tables(root: Path) -> list[Path]:
    """Every Delta table under the root, also one without a commit: a kill may have left staged files beside its log."""
    return sorted(path.parent for path in store.folders_below(root / "tables") if path.name == LOG)


def rows_by_day(path: Path, table: Table | None, person: Person) -> dict[date, int]:
    """Rows that are the person's or name them, by the day in the table's first partition column.

    Args:
        path: folder of the table.
        table: its contract; None: it has none.
        person: who.
    """
    snapshot = open_snapshot(path)
    found: dict[date, int] = {}
    for day, files in (snapshot.by_day(snapshot.partition_by[0]) if snapshot.files else {}).items():
        rows = sum(
            len(mask) - sum(mask)
            for file in files
            if names_person(path / file.path, person)
            for mask in [_kept(path, file, table, person)[1]]
        )
        if rows or any(names_person(path / file.path, person) for file in files):
            found[day] = rows
    return found


def erase_rows(root: Path, path: Path, table: Table | None, person: Person, erasure: str) -> int:
    """Write days of a table anew from themselves without the person, in one commit; returns rows gone or edited.

    Rows of the person go; where another person's row names them, only the mention does. Of tables that are not layers'
    (`ops.…`) no row goes. The days then count as stale, so that whatever can build them better does.

    Args:
        root: of the lakehouse.
        path: folder of the table.
        table: its contract; None: it has none.
        person: who.
        erasure: id of the erasure, for the history.

    Raises:
        PublishConflictError: a run committed to the table meanwhile.
    """
    snapshot = open_snapshot(path)
    # Every file is searched, but only days with one that names the person are written again.
    named = [file for file in snapshot.files if names_person(path / file.path, person)]
    if not named:
        return 0
    schema = stored_schema(snapshot)
    days = {file.partition[0] for file in named}
    # Whole days, so that a day's figures can be measured anew from what was staged.
    touched = [file for file in snapshot.files if file.partition[0] in days]
    route = QUARANTINED if path.name.endswith("_quarantine") else VALID
    folder = path / "staged" / uuid.uuid4().hex
    rows = sum(_stage_without(person, table, snapshot, file, folder, route) for file in touched)
    staged = read_staged(folder, snapshot.partition_by) if store.exists(folder) else []
    pii = ("_raw", "_error", *(table.pii if table else ()))
    # Files may hold columns beyond the table's, which the build that wrote them added; they stay.
    surplus = {name for file in staged for name in file.types} - set(schema.names)
    target = Target(path, schema, snapshot.partition_by, pii=pii, extra_columns=tuple(surplus))
    commit = Commit(
        {
            # Another number than before, and the same at each repeat: the days are stale, and what reads them is too.
            name: fingerprint([str(snapshot.transaction(name)), erasure])
            for name in [*_transactions(days), *_contents(table, snapshot, touched)]
        },
        {"lakehouse.operation": "forget", "lakehouse.run_id": erasure, **_figures(root, path, table, staged, days)},
    )
    label = table_name(path)
    # One commit for all days: no reader sees a table that names the person on some days and not on others. What it
    # replaced is still on the disk, for old versions; `purge` takes it away.
    failpoint(label, "before-erase-commit")
    exchange_files(target, snapshot, staged, touched, commit, days=None)
    failpoint(label, "after-erase-commit")
    return rows


def _stage_without(
    person: Person, table: Table | None, snapshot: Snapshot, file: DataFile, folder: Path, route: str
) -> int:
    """Write a file's rows without the person into a stage folder; returns how many rows are gone or edited."""
    left, mask, edited = _kept(Path(snapshot.uri), file, table, person)
    # A file of nobody else's rows is not written empty: a partition without files is one without rows.
    if left.num_rows:
        _write(left, folder, route, snapshot, file)
    return len(mask) - sum(mask) + edited


def _kept(path: Path, file: DataFile, table: Table | None, person: Person) -> tuple[pa.Table, list[bool], int]:
    """A file's rows without the person, which rows are kept, and how many of them were edited."""
    rows = parquet.read(path / file.path)
    # Row by row in Python, though slow: only files that name the person come this far.
    mask, edited = [True] * rows.num_rows, 0
    cells = {each.name: rows[each.name].to_pylist() for each in rows.schema if _may_name(each, person)}
    own = [name for name in (table.privacy.person if table else person.fields) if name in cells]
    # Rows of a layer are about people, also where the contract is gone: an edit would leave all else that they say.
    layered = path.parent.name in LAYERS
    new: dict[str, list[Any]] = {}
    for index in range(rows.num_rows):
        row = {name: values[index] for name, values in cells.items() if values[index] is not None}
        hits = [name for name, value in row.items() if person.in_value(value, name)]
        if not hits:
            continue
        is_number = any(isinstance(row[name], int) for name in hits)  # which no word can stand for
        if is_number or (layered and _theirs(person, hits, [row.get(name) for name in own])):
            mask[index] = False
            continue
        edited += 1
        for name in hits:
            new.setdefault(name, list(cells[name]))[index] = person.out_of_value(row[name], name)
    rows = _with_columns(rows, new)
    return (rows if all(mask) else rows.filter(pa.array(mask))), mask, edited


def _with_columns(rows: pa.Table, new: Mapping[str, list[Any]]) -> pa.Table:
    for name, values in new.items():
        position = rows.column_names.index(name)
        field = rows.schema.field(position)
        rows = rows.set_column(position, field, pa.array(values, field.type))
    return rows


def _theirs(person: Person, hits: Collection[str], ids: Collection[Any]) -> bool:
    """Whether a row that names the person is theirs, and not another's that only mentions them.

    It is by its id, by any column but the raw text, or by the raw text where it has no id.
    """
    # A technical column such as the raw line may quote somebody else; a column of the contract is about its row.
    plain = [name for name in hits if not name.startswith("_")]
    return any(map(person.is_user, ids)) or bool(plain) or not any(ids)


def _may_name(field: pa.Field, person: Person) -> bool:
    """Whether a column may name somebody: by a text, or as a number that is an id."""
    return _textual(field.type) or is_number_of(field, person)


def _textual(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_textual(kind.field(n).type) for n in range(kind.num_fields)) and not pa.types.is_map(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _write(rows: pa.Table, folder: Path, route: str, snapshot: Snapshot, file: DataFile) -> None:
    path = new_path(folder, route, snapshot.partition_by, file.partition)
    if CONTENT in rows.column_names:  # of the rows as they were
        rows = rows.drop_columns([CONTENT])
    parquet.write(rows, path)


def _days(texts: Collection[str | None]) -> list[date]:
    found = []
    for text in texts:
        try:
            found.append(date.fromisoformat(text or ""))
        except ValueError:  # a table by something else than days
            continue
    return sorted(found)


def _transactions(days: Collection[str | None]) -> list[str]:
    return [day_transaction(day) for day in _days(days)]


def _contents(table: Table | None, snapshot: Snapshot, files: Collection[DataFile]) -> list[str]:
    """What says which rows the files' partitions hold, where it is said."""
    if table is None or snapshot.uri.endswith("_quarantine"):
        return []
    names = content_by_name(table, snapshot, {file.partition for file in files})
    return sorted(name for name in names if snapshot.transaction(name) is not None)


def _figures(
    root: Path, path: Path, table: Table | None, staged: Collection[StagedFile], days: Collection[str | None]
) -> dict[str, Any]:
    """The days' figures for the history: rows as they are now, the rest as it was."""
    if table is None or path != table_path(root, table.id):
        return {}
    # What only a build can count (duplicates, rows that arrived) is taken over from the last one.
    before = latest_records(root, table.id, _days(days))
    now = measure(table, staged, _days(days))
    figures = {}
    for day, each in now.items():
        known = dict(before[day].figures) if day in before else {}
        figures[day.isoformat()] = {**known, **each.as_json(), "rows": each.rows}
    return {"lakehouse.metrics": figures}


def purge(path: Path, person: Person, older_than: float) -> tuple[int, int]:
    """Remove what no reader needs and names the person: data files and log entries; returns how many of each.

    Data files younger than `older_than` (seconds since the epoch) may be a running job's. Where a log entry goes, those
    before it go too, after a fresh checkpoint: older versions can then no longer be read. May be killed anywhere and
    called again: at each moment the table can be read and written.

    Args:
        path: folder of the table.
        person: who.
        older_than: seconds since the epoch.
    """
    name = table_name(path)
    failpoint(name, "before-purge")
    # Live files are clean already, for rows were erased before: here go those of older versions, and of killed runs.
    live = {file.path for file in open_snapshot(path).files}
    removed = 0
    for file in files_under(path):
        inside = file.relative_to(path)
        is_data = inside.parts[0] != LOG and inside.as_posix() not in live
        if is_data and _older(file, older_than) and names_person(file, person):
            store.delete(file)
            removed += 1
    told = [file for file in store.listed(path / LOG) if not store.is_folder(file) and names_person(file, person)]
    for draft in [file for file in told if _version(file) < 0 and _older(file, older_than)]:
        store.delete(draft)  # of a writer that was killed
    entries = _forget_entries(path, person, max(map(_version, told), default=-1))
    failpoint(name, "after-purge")
    return removed, entries


def later_than(root: Path, names: Collection[str], moment: float) -> dict[str, datetime]:
    """Of files, by path under the root, those that `purge` takes for a running job's, and when they are from.

    Args:
        root: of the lakehouse.
        names: paths under it.
        moment: what was given to `purge` as `older_than`.
    """
    # An entry of a log goes or stays whatever its time.
    of_jobs = [name for name in names if name.startswith("tables/") and _version(Path(name)) < 0]
    dated = {name: store.stat(root / name) for name in of_jobs}
    return {
        name: datetime.fromtimestamp(found.modified, UTC)
        for name, found in dated.items()
        if found is not None and found.modified >= moment
    }


def _older(file: Path, moment: float) -> bool:
    found = store.stat(file)
    return found is not None and found.modified < moment


def _forget_entries(path: Path, person: Person, last: int) -> int:
    """Remove a log up to a version; the newest entry stays, or no writer would know what comes next."""
    name, snapshot = table_name(path), fresh_snapshot(path)
    if last < 0 or snapshot.delta is None:
        return 0
    # Readers go by the newest entry, so it can only be replaced by a newer one.
    if last >= snapshot.version:  # the newest entry names the person: one that does not must come after it
        target = Target(path, stored_schema(snapshot), snapshot.partition_by)
        exchange_files(target, snapshot, [], [], Commit({}, {"lakehouse.operation": "forget"}), days=())
        failpoint(name, "after-clean-entry")
        snapshot = fresh_snapshot(path)
    assert snapshot.delta is not None
    assert snapshot.version > last
    # What the entries sum up to must be readable without them before the first of them goes.
    snapshot.delta.create_checkpoint()
    failpoint(name, "after-clean-checkpoint")
    kept = store.listed(path / LOG, f"{snapshot.version:020}.checkpoint*.parquet")
    # A checkpoint repeats the bounds of removed files, for as long as their tombstones are kept.
    for file in kept:
        _forget_tombstones(file, person)
    store.fsync([*kept, *store.listed(path / LOG, "_last_checkpoint")], path / LOG)  # a power cut may come now
    # The oldest first: a kill leaves no gap between the entries that are left.
    old = sorted((_version(file), file) for file in store.listed(path / LOG) if 0 <= _version(file) <= last)
    for _, file in old:
        store.delete(file)
        failpoint(name, "after-log-removal")
    return len(old)


def _forget_tombstones(checkpoint: Path, person: Person) -> None:
    """Leave out removed files whose bounds, as other writers keep them, name the person."""
    if not names_person(checkpoint, person):
        return
    rows = parquet.read(checkpoint)
    named = [each is not None and person.in_value(each) for each in rows["remove"].to_pylist()]
    # The name begins with a dot, so that no reader takes half of it for a checkpoint.
    draft = checkpoint.with_name(f".{checkpoint.name}.{uuid.uuid4().hex}")
    parquet.write(rows.filter(pa.array([not each for each in named])), draft)
    store.move(draft, checkpoint)


def _version(file: Path) -> int:
    """Of a log entry, its checksum or a checkpoint; -1 for another file, such as a draft."""
    found = _OF_A_VERSION.fullmatch(file.name)
    return int(found[1]) if found else -1


def other_columns(tables: Mapping[str, Table]) -> frozenset[str]:
    """Columns that hold no ids of people: there a number is a product, an amount or a count."""
    columns = reduce(set.union, (set(table.columns) for table in tables.values()), set[str]())
    people = reduce(set.union, (set(table.privacy.person) for table in tables.values()), set[str]())
    return frozenset(name for name in columns - people if not name.startswith("_"))


def table_at(root: Path, path: Path, tables: Mapping[str, Table]) -> Table | None:
    """The contract a Delta table was built by, or whose quarantine or candidate it is; None for `ops.…` and others.

    Args:
        root: of the lakehouse.
        path: folder of the Delta table.
        tables: contracts by name.
    """
    inside = path.relative_to(root / "tables").parts
    if len(inside) != 2 or inside[0] not in LAYERS:  # noqa: PLR2004 - layer and name
        return None
    return tables.get(f"{inside[0]}.{inside[1].removesuffix('_quarantine').removesuffix('__candidate')}")
