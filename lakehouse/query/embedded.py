"""A checked query answered in this process, by DuckDB over the files that the tables' logs name.

It can only read: it runs one SELECT that was generated from a checked and typed tree, over views of exactly the files
of the versions asked for. DuckDB may open these files and no others, load nothing, and change no setting.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa
from filelock import FileLock, Timeout

from lakehouse import store
from lakehouse.delta.layout import table_path
from lakehouse.delta.log import readable_at
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.errors import UnsupportedTableError
from lakehouse.query.checked_query import CheckedQuery, TableUse
from lakehouse.query.kinds import Kind, arrow_type, columns_of, duckdb_type, has_fields, quoted, text
from lakehouse.query.pinning import Pinned
from lakehouse.query.scope import Relation
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.translate import translate
from lakehouse.settings import Settings

_FILE = "lake file"  # the column of a row's file, while a view is made
_MOST_FILES = 10_000  # of a table; their names stand in the query
_FAILURES = (duckdb.Error, pa.ArrowException, OSError)  # the last is what a stream of batches makes of the first
_ROWS = 100_000  # of a batch

T = TypeVar("T")
Take = Callable[[pa.RecordBatchReader], T]
"""What is made of the rows of a query, which come batch by batch; again from the first, where another way is tried."""


class _StoppedError(Exception):
    """What DuckDB or Arrow says why there are no rows, or no more."""


def answer(settings: Settings, query: CheckedQuery, read: Pinned, limit: int | None, take: Take[T]) -> T:
    """What is made of the rows of a query, which have Spark's types, and its names of columns, repeats too.

    Args:
        settings: where the lakehouse is.
        query: has passed its check.
        read: the tables it reads, with their versions.
        limit: most rows; None: all.
        take: of the rows.

    Raises:
        NotTranslatedError: where Spark has to answer; it says why.
        QueryError: for a column that is not there.
    """
    snapshots = {use.view: _snapshot(settings, use, version) for use, version in read}
    columns = {view: columns_of(each.schema.to_json()) for view, each in snapshots.items() if each.schema}
    made = translate(query.tree, columns, datetime.now(UTC).date())
    schema = pa.schema([pa.field(name or "", arrow_type(kind)) for name, kind in made.columns])
    with _spilling(settings.root) as folder:
        try:
            return _run(made, schema, snapshots, columns, folder, limit, take)
        except _StoppedError as error:
            said = str(error).splitlines()[0]
            why = "a value whose meaning it decides" if "Spark decides" in said else f"what DuckDB says of it ({said})"
            raise NotTranslatedError(why) from None


def _snapshot(settings: Settings, use: TableUse, version: int | None) -> Snapshot:
    if version is None and use.option is not None:
        raise NotTranslatedError(f"{use.table} TIMESTAMP AS OF (--as-of takes a time)")
    path = table_path(settings.root, use.table)
    try:
        found = open_snapshot(path) if version is None else readable_at(path, version)
    except UnsupportedTableError as error:
        raise NotTranslatedError(str(error)) from None
    if found.live.number > _MOST_FILES:
        raise NotTranslatedError(f"{use.table}, which has {found.live.number:,} files")
    return found


def _run(
    made: Relation,
    schema: pa.Schema,
    snapshots: dict[str, Snapshot],
    columns: dict[str, tuple[tuple[str, Kind], ...]],
    folder: Path | None,
    limit: int | None,
    take: Take[T],
) -> T:
    paths = [str(Path(each.uri) / file.path) for each in snapshots.values() for file in each.live]
    # Of a struct, a field that the first file does not have would be null of all files, and nothing would fail.
    nested = any(has_fields(kind) for each in columns.values() for _, kind in each)
    for merged in (True,) if nested else (False, True):
        with _walled(paths, folder) as engine:
            try:
                for view, each in snapshots.items():
                    rows = _rows_of(each, columns[view], merged=merged)
                    with _stopping():
                        engine.execute(f"CREATE TEMP VIEW {quoted(view)} AS {rows}")
                with closing(_batches(engine, made, schema, limit)) as batches:
                    return _awaited(engine, partial(take, pa.RecordBatchReader.from_batches(schema, batches)))
            except _StoppedError as error:
                # A file without a column that came later ends the first try, which looks at one file alone.
                if merged or "Spark decides" in str(error):
                    raise
    raise AssertionError("the second try returns or raises")


def _rows_of(snapshot: Snapshot, columns: Sequence[tuple[str, Kind]], *, merged: bool) -> str:
    """The rows of a table at one version: the files of its log, with the partition values that it has for them."""
    files = {str(Path(snapshot.uri) / file.path): file.partition for file in snapshot.live}
    empty = ", ".join(f"CAST(NULL AS {duckdb_type(kind)}) AS {quoted(name)}" for name, kind in columns)
    if not files:
        return f"SELECT {empty} LIMIT 0"
    _check_paths(files)
    stored = {name: quoted(name) for name, _ in columns} | {
        name: _by_file({path: values[place] for path, values in files.items()})
        for place, name in enumerate(snapshot.partition_by)
    }
    listed = [f"CAST({stored[name]} AS {duckdb_type(kind)}) AS {quoted(name)}" for name, kind in columns]
    names = ", ".join(text(path) for path in files)
    # The smallest and largest value that a file tells of a floating-point column leave out NaN, which is above them.
    options = f"filename = {text(_FILE)}, hive_partitioning = false, can_have_nan = true"
    rows = f"SELECT * FROM read_parquet([{names}], {options}, union_by_name = {str(merged).lower()})"
    if merged:
        rows = f"SELECT * FROM (SELECT {empty} LIMIT 0) UNION ALL BY NAME {rows}"
    return f"SELECT {', '.join(listed)} FROM ({rows})"


def _check_paths(paths: Iterable[str]) -> None:
    """A path with such a sign would be read as a pattern, and other files with it."""
    if pattern := next((path for path in paths if any(sign in path for sign in "*?[")), None):
        raise NotTranslatedError(f"the path {pattern}")


def _by_file(values: Mapping[str, str | None]) -> str:
    """A partition column, which no file holds: its value by the path of the file that a row is from."""
    pairs = ", ".join(f"{text(path)}: {'NULL' if each is None else text(each)}" for path, each in values.items())
    return f"(MAP {{{pairs}}})[{quoted(_FILE)}]"


@contextmanager
def _walled(paths: Sequence[str], folder: Path | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """An engine of its own in memory, which may read some files and nothing else."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    engine = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "memory_limit": f"{max(memory // 2**20, 512)}MiB",
            "temp_directory": str(folder or ""),
        },
    )
    try:
        engine.execute("SET TimeZone = 'UTC'")
        engine.execute("SET allowed_paths = [" + ", ".join(map(text, paths)) + "]")
        engine.execute("SET enable_external_access = false")
        engine.execute("SET lock_configuration = true")
        yield engine
    finally:
        engine.close()


def _awaited(engine: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """What a thread makes. While DuckDB works, it hears no Ctrl-C, which comes to the main thread: that one waits."""
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(work)
        try:
            return found.result()
        except KeyboardInterrupt:
            while not found.done():  # again, since what has not begun yet cannot be interrupted
                engine.interrupt()
                wait([found], timeout=0.1)
            raise


def _batches(
    engine: duckdb.DuckDBPyConnection, made: Relation, schema: pa.Schema, limit: int | None
) -> Generator[pa.RecordBatch, None, None]:
    with _stopping():
        (statement,) = engine.extract_statements(made.sql)
        if statement.type != duckdb.StatementType.SELECT:
            raise NotTranslatedError("a statement that is no query")
        reader = engine.sql(made.sql).to_arrow_reader(_ROWS if limit is None else min(limit, _ROWS))
    wanted = limit
    with reader:
        while wanted is None or wanted > 0:
            with _stopping():
                if (batch := next(reader, None)) is None:
                    return
                batch = batch.slice(0, wanted)
                columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
                typed = pa.RecordBatch.from_arrays(columns, schema=schema)
            yield typed
            wanted = None if wanted is None else wanted - batch.num_rows


@contextmanager
def _stopping() -> Iterator[None]:
    """Not around what is made of rows: a disk that is full is not the query's end."""
    try:
        yield
    except _FAILURES as error:
        raise _StoppedError(str(error) or type(error).__name__) from error


@contextmanager
def _spilling(root: Path) -> Iterator[Path | None]:
    """A folder for what does not fit in memory, for the time of a query; None where nothing can be written.

    What a killed query has left is removed by the next one: rows of a table are nobody else's to read.
    """
    above = root / "spill"
    folder, usable = above / uuid.uuid4().hex, False
    with ExitStack() as held:
        with suppress(OSError):  # who may read the tables, may not write beside them
            store.make_folder(above)  # of all who share the root: a query's own folder in it is private
            _sweep(above)
            held.enter_context(FileLock(folder.with_suffix(".lock")))
            held.callback(_removed, folder)
            store.make_folder(folder, private=True)
            usable = True
        yield folder if usable else None


def _sweep(above: Path) -> None:
    for folder in [each for each in store.listed(above) if store.is_folder(each)]:
        with suppress(Timeout, OSError), FileLock(folder.with_suffix(".lock"), timeout=0):
            _removed(folder)


def _removed(folder: Path) -> None:
    store.delete_tree(folder)
    store.delete(folder.with_suffix(".lock"))
