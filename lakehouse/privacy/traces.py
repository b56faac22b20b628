"""Where a person is named in the files under the root: each kind of file is decoded, nothing is taken on trust."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse import store
from lakehouse.errors import LakehouseError
from lakehouse.privacy.sqlite_pages import not_alive
from lakehouse.sources.people import Person, parsed
from lakehouse.sources.people_in_lines import Lines
from lakehouse.store import parquet

_SQLITE = b"SQLite format 3\0"
_LOG, _SCHEMA = "_delta_log", "schemaString"  # the columns of a table as its contract has them, with descriptions
PATIENCE = 30.0  # seconds to wait for an event store


class TraceError(LakehouseError):
    """A file that names a person cannot be edited."""


def files_under(root: Path) -> Iterator[Path]:
    """Every file, hidden ones too."""
    return store.walk(root, gone_ok=True)


def names_person(
    path: Path, person: Person, lines: Lines | None = None, others: Callable[[bytes], bytes] | None = None
) -> bool:
    """Whether a file, or its name, names the person; False where it is gone meanwhile.

    Args:
        path: of the file.
        person: who.
        lines: of a landed file, how its lines are read.
        others: leaves out of a file's bytes what is known to be about somebody else.
    """
    try:
        if person.in_text(path.name, strict=True):
            return True
        with store.opened(path) as file:
            head = file.read(len(_SQLITE))
        # By their first bytes, not their names: a log may be called anything.
        if head == _SQLITE:
            return _in_database(path, person)
        if head[:4] == b"PAR1":
            return _in_parquet(path, person)
        content = unpacked(path)
    except FileNotFoundError:
        return False
    if lines is not None:
        return lines.name(content, person)
    # Any other file is read as text, line by line, and each line as JSON where it is.
    text = (content if others is None else others(content)).decode("utf-8", "replace")
    return person.may_be_in(text) and any(person.in_value(_of_rows(path, parsed(line))) for line in text.splitlines())


def _of_rows(path: Path, line: Any) -> Any:
    """An entry of a table's log without the table's columns: what they are called and described as is about nobody."""
    match line:
        case {"metaData": dict(told)} if path.parent.name == _LOG:
            return {**line, "metaData": {name: value for name, value in told.items() if name != _SCHEMA}}
    return line


def unpacked(path: Path) -> bytes:
    """A file's bytes, unpacked as far as they can be."""
    if path.suffix != ".gz":
        return store.read(path)
    parts: list[bytes] = []
    try:
        with store.opened(path) as packed, gzip.GzipFile(fileobj=packed) as file:
            while chunk := file.read(1 << 16):
                parts.append(chunk)
    except (EOFError, OSError, zlib.error):
        # Not a byte could be unpacked: then the file itself is searched, packed as it is.
        if not parts:
            return store.read(path)
    return b"".join(parts)


def is_number_of(field: pa.Field, person: Person) -> bool:
    """Whether a column holds ids of people as numbers."""
    return field.name in person.ids and bool(pa.types.is_integer(field.type))


def _in_parquet(path: Path, person: Person) -> bool:
    try:
        with parquet.opened(path) as file:
            numbers = [f.name for f in file.schema_arrow if is_number_of(f, person)]
            texts = [f.name for f in file.schema_arrow if pa.types.is_nested(f.type) or _is_text(f.type)]
            table = file.read([*texts, *numbers])
    # A half file has no footer to read columns by, but it has the bytes.
    except pa.ArrowInvalid:  # cut short by a crash
        return person.in_bytes(store.read(path))
    if any(person.is_user(each) for name in numbers for each in pc.unique(table[name]).to_pylist()):
        return True
    return any(
        person.in_value(text, name)
        for column in texts
        for name, text in _texts(column, table[column].combine_chunks(), person)
        if not (path.parent.name == _LOG and name == _SCHEMA)  # see `_of_rows`
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))


def _texts(name: str, values: pa.Array, person: Person) -> Iterator[tuple[str, str]]:
    """Distinct texts of a column that may name the person, those in lists, maps and structs too."""
    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], kind)
    if _is_text(kind) and not pa.types.is_dictionary(kind):
        found = [text for text in pc.unique(values).to_pylist() if text]
        if person.may_be_in("\n".join(found)):
            yield from ((name, text) for text in found)
    elif pa.types.is_dictionary(kind):
        yield from _texts(name, values.dictionary, person)
    elif pa.types.is_map(kind):
        yield from _texts(name, values.keys, person)
        yield from _texts(name, values.items, person)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _texts(name, pc.list_flatten(values), person)
    elif pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            yield from _texts(kind.field(position).name, values.field(position), person)


def without_person(path: Path, person: Person, patience: float = PATIENCE) -> bool:
    """Take the person out of a log, an event store or another file that is no table's; True where anything changed.

    Args:
        path: of the file.
        person: who is forgotten.
        patience: seconds to wait for an event store that is in use.

    Raises:
        TraceError: the event store is in use.
    """
    if not names_person(path, person):
        return False
    if database := _database_of(path):
        return _out_of_database(database, person, patience)
    content = store.read(path)
    lines = content.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    left = "".join(_line_without(line, person) for line in lines).encode("utf-8", "surrogateescape")
    store.put(path, left, keep_mode=True)
    return left != content


def _line_without(line: str, person: Person) -> str:
    if not person.may_be_in(line):
        return line
    loaded = parsed(line)
    if isinstance(loaded, str):
        return person.out_of_text(line)
    return json.dumps(person.out_of_value(loaded), ensure_ascii=False) + line[len(line.rstrip("\r\n")) :]


def _in_database(path: Path, person: Person) -> bool:
    with closing(_opened(path)) as database:
        if any(_names(value, person) for *_, value in _cells(database)):
            return True
    # Deleted rows stay where no cell is. Bytes of living cells are not searched: lengths, or two cells side by side,
    # may look like a short id.
    return any(person.in_bytes(part) for part in not_alive(store.read(path)))


def _out_of_database(path: Path, person: Person, patience: float) -> bool:
    try:
        with closing(_opened(path, patience)) as database:
            # Overwritten, not just marked as free; VACUUM and the checkpoint then leave no old page in file or log.
            database.execute("PRAGMA secure_delete = ON")
            texts = [cell for cell in _cells(database) if isinstance(cell[-1], str) and _names(cell[-1], person)]
            for table, column, row, value in texts:
                database.execute(
                    f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?',  # noqa: S608 - its own names
                    (person.out_of_value(value), row),
                )
            database.commit()
            database.execute("VACUUM")
            (is_read, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        raise _in_use(path, str(error)) from None
    if is_read:
        raise _in_use(path, "it is being read")
    return True


def _in_use(path: Path, why: str) -> TraceError:
    return TraceError(f"{path.name} is in use ({why}). Stop `lakehouse dev` and what else uses it.")


def _database_of(path: Path) -> Path | None:
    """The SQLite file that a file is, or is the journal of, which is edited by way of it alone; None: neither."""
    found = path.with_name(path.name.removesuffix("-wal") or path.name)
    if not store.exists(found):
        return None
    with store.opened(found) as file:
        return found if file.read(len(_SQLITE)) == _SQLITE else None


def _opened(path: Path, patience: float = PATIENCE) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=patience)


def _names(value: Any, person: Person) -> bool:
    """Whether a cell names the person."""
    if isinstance(value, bytes):
        return person.in_bytes(_inflated(value))
    return isinstance(value, str) and person.may_be_in(value) and person.in_value(value)


def _inflated(value: bytes) -> bytes:
    """What Dagster packed, such as its snapshots of jobs: packed, a short id is in it by chance, and no other is."""
    try:
        return zlib.decompress(value)
    except zlib.error:
        return value


def _cells(database: sqlite3.Connection) -> Iterator[tuple[str, str, int, Any]]:
    """Table, column, row and value of every cell."""
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        for row, *cells in database.execute(f'SELECT rowid, * FROM "{table}"'):  # noqa: S608 - its own names
            for column, value in zip(columns, cells, strict=True):
                yield table, column, row, value
