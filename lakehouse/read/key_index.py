"""On which days each key of an upsert table has events, kept together, so that one more day does not open every file.

A cache, not a part of the table: an entry is about data files, which never change and have names of their own, so what
it says of files that are live is true whenever it was written, and files that no entry is about are read themselves.
It may be removed at any time.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse import store
from lakehouse.contracts.keys import EVENT_DAYS
from lakehouse.contracts.table import Table
from lakehouse.delta.snapshot import DataFile, Snapshot, table_name
from lakehouse.delta.staged import IN_TWO_STEPS
from lakehouse.read.lake import Lake
from lakehouse.spark.session import literal_path
from lakehouse.store.disk import keep_group

ROWS_A_FILE = 1_000_000
_FILE = "_file"
_ABOUT = "_files.json"  # Spark reads no file whose name begins so


@dataclass(frozen=True)
class _IndexEntry:
    path: Path
    files: frozenset[str]


def index_folder(root: Path) -> Path:
    """Where the entries of all tables are."""
    return root / "cache" / "keys"


def days_of_keys(lake: Lake, table: Table, snapshot: Snapshot) -> DataFrame:
    """The key and the event days of every live row of an upsert table or its quarantine; a row may come twice.

    Args:
        lake: where the tables are, and the bounds of the index.
        table: the contract.
        snapshot: the version of the table, or of its quarantine, that is meant.
    """
    # A cache outlives an erasure unless somebody thinks of it; this one never learns the names.
    if set(table.key) & set(table.pii):  # what a person may ask to have removed is kept in tables alone
        return _of_files(lake, table, snapshot, snapshot.files).drop(_FILE)
    folder = index_folder(lake.settings.root) / table_name(Path(snapshot.uri))
    live = {file.path: file for file in snapshot.files}
    chosen, loose = _choose(folder, live.keys())
    bounds = lake.key_index
    if len(loose) > bounds.most_files or len(chosen) > bounds.most_entries:
        merged = chosen if len(chosen) > bounds.most_entries else []
        frame = _rows(lake, table, snapshot, merged, [live[path] for path in loose], live.keys())
        about = {*loose, *(path for each in merged for path in each.files if path in live)}
        _write(frame, folder, about, sum(live[path].rows for path in about))
        chosen, loose = _choose(folder, live.keys())
        # After the new entry has its name: killed before this, old and new stand side by side and say the same.
        _tidy(folder, {each.path for each in chosen}, bounds.kept_seconds)
    return _rows(lake, table, snapshot, chosen, [live[path] for path in loose], live.keys()).drop(_FILE)


def _choose(folder: Path, live: Collection[str]) -> tuple[list[_IndexEntry], list[str]]:
    """Entries that are mostly about live files, as few as cover what they can, and the files that are in none."""
    left = set(live)
    chosen = []
    for entry in sorted(_entries(folder), key=lambda each: -len(each.files)):
        useful = entry.files & left
        # An entry of which more than half is about files that are gone costs more to read than it spares.
        if 2 * len(useful) > len(entry.files):
            chosen.append(entry)
            left -= entry.files
    return chosen, sorted(left)


def _entries(folder: Path) -> list[_IndexEntry]:
    """Every entry that is whole: it is renamed into its place with the list of its files."""
    found = []
    for path in store.listed(folder, "[!.]*"):
        try:
            found.append(_IndexEntry(path, frozenset(json.loads(store.read_text(path / _ABOUT)))))
        except (OSError, ValueError):  # taken away meanwhile, or damaged: its files are read themselves
            continue
    return found


def _rows(
    lake: Lake,
    table: Table,
    snapshot: Snapshot,
    entries: Sequence[_IndexEntry],
    loose: Sequence[DataFile],
    live: Collection[str],
) -> DataFrame:
    frames = [_of_files(lake, table, snapshot, loose)] if loose else []
    if entries:
        kept = lake.spark.read.schema(_schema(table)).parquet(*[literal_path(each.path) for each in entries])
        # A file that a restore has brought back has another path with the same end, and the same rows.
        dead = sorted(
            {_short(table, path) for each in entries for path in each.files if path not in live}
            - {_short(table, path) for path in live}
        )
        frames.append(kept.where(~F.col(_FILE).isin(dead)) if dead else kept)
    return reduce(DataFrame.unionByName, frames)


def _of_files(lake: Lake, table: Table, snapshot: Snapshot, files: Sequence[DataFile]) -> DataFrame:
    rows = lake.read_files(table, snapshot, files)
    name = F.substring_index(F.col("_metadata.file_path"), "/", -len(table.partition_by) - 1).alias(_FILE)
    return rows.select(*table.key, EVENT_DAYS, name)


def _short(table: Table, path: str) -> str:
    """The end of a file's path, by which rows of an entry say where they are from: unique by its writer's id."""
    return "/".join(path.split("/")[-len(table.partition_by) - 1 :])


def _schema(table: Table) -> T.StructType:
    kept = [field for field in table.schema.fields if field.name in {*table.key, EVENT_DAYS}]
    return T.StructType([*kept, T.StructField(_FILE, T.StringType())])


def _write(frame: DataFrame, folder: Path, about: Collection[str], rows: int) -> None:
    """Add an entry; killed anywhere, it is not there, and after a power cut it is not empty."""
    draft = folder / f".{uuid.uuid4()}"
    frame.coalesce(1 + rows // ROWS_A_FILE).write.options(**IN_TWO_STEPS).parquet(str(draft))
    keep_group(draft)
    store.write(draft / _ABOUT, json.dumps(sorted(about)))
    # Whole and on the disk before it has the name that readers look for.
    store.fsync(store.listed(draft), draft)
    store.move(draft, folder / draft.name[1:])


def _tidy(folder: Path, used: Collection[Path], kept_seconds: float) -> None:
    """Remove entries that are of no use any more, and drafts of killed runs, once nobody can be reading them."""
    for path in store.listed(folder):
        found = store.stat(path)
        if path not in used and found is not None and time.time() - found.modified > kept_seconds:
            store.delete_tree(path)
