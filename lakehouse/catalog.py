"""All tables, found by their files: a new file in a layer's folder is a new table.

Either all tables are loaded or none: a mistake in one file is told with all others, a line each, `file:line: what`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.machinery import FileFinder
from pathlib import Path
from types import ModuleType

from lakehouse import store
from lakehouse.contracts import Landing, Table
from lakehouse.contracts.code import decides_rows, other_tables
from lakehouse.contracts.declare import VOCABULARY
from lakehouse.contracts.fitting import closing_mistakes, entity_mistakes, privacy_mistakes, slice_mistakes
from lakehouse.contracts.graph import upstream_first, with_upstream
from lakehouse.contracts.keys import upsert_mistakes
from lakehouse.contracts.late import forget_modules
from lakehouse.contracts.lineage import source_mistakes
from lakehouse.contracts.mistakes import Mistake, MistakesError, nearest, told
from lakehouse.contracts.schema_versions import lock_file, problems, read_lock, unlocked
from lakehouse.environment import source_setting
from lakehouse.errors import ContractError, SettingsError, UnknownTableError
from lakehouse.read.kept import keep_tables, kept_tables
from lakehouse.read.lake import Lake, PinnedLake, table_path
from lakehouse.settings import LAYERS, Settings, get_settings
from lakehouse.texts import near

_LOADS = 3  # times that tables are loaded before files that change meanwhile are an error
_LOOKING: ContextVar[bool] = ContextVar("looking", default=False)


@contextmanager
def looking_only() -> Iterator[None]:
    """Meanwhile `tables` may be what was kept of the files, if they are as they were: for whoever only reads logs."""
    loaded = tables.cache_info().currsize
    token = _LOOKING.set(True)
    try:
        yield
    finally:
        _LOOKING.reset(token)
        if not loaded:
            tables.cache_clear()


def look_closely() -> None:
    """From here on all that is in the files is needed, Spark and pandera with them."""
    if _LOOKING.get():
        _LOOKING.set(False)
        tables.cache_clear()


@lru_cache(maxsize=1)
def tables() -> dict[str, Table]:
    """Every table in use by `layer.name`, upstream tables first.

    A table that is taken from a database, and what only follows from it, is in use where the database's address is set
    or rows were taken before: who has no such database has no empty tables either.

    Raises:
        ContractError: for mistakes in table files (`declared`), and for columns that are not those of `schemas.json`.
    """
    settings = get_settings()
    used: dict[str, Table] = {}
    for name, table in (_kept() or _checked()).items():
        extract = table.extract
        if (
            extract
            and settings.source_url(extract.source) is None
            and not store.exists(table_path(settings.root, name))
        ):
            continue
        if all(each.table in used for each in table.upstream.values()):
            used[name] = table
    return used


def _kept() -> dict[str, Table] | None:
    if not _LOOKING.get() or _declared.cache_info().currsize:
        return None
    settings = get_settings()
    found = kept_tables(settings.root, settings.tables, LAYERS)
    return None if found is None else {each.id: each for each in found}


def _checked() -> dict[str, Table]:
    found = declared()
    _as_locked(found)
    if _LOOKING.get():
        settings = get_settings()
        keep_tables(settings.root, settings.tables, LAYERS, found.values(), [lock_file()])
    return found


def declared(home: str = "") -> dict[str, Table]:
    """Every table that has a file by `layer.name`, upstream tables first.

    Args:
        home: the package that holds them; empty: the one that LAKEHOUSE_TABLES names.

    Raises:
        ContractError: for whatever is wrong with the files, each alone and all together.
    """
    return _declared(home or get_settings().tables)


def forget_tables() -> None:
    """Look for table files again when they are next asked for; for those who add one while a process runs."""
    tables.cache_clear()
    _declared.cache_clear()


@lru_cache(maxsize=4)
def _declared(home: str) -> dict[str, Table]:
    """All tables of one state of the files.

    A file that changes between its import and the digest of it would have rows of the old code published as those of
    the new, and nobody would ever find them stale: after `git checkout` at that moment all is loaded once more.
    """
    times: dict[str, int] = {}
    for _ in range(_LOADS):
        begun, before = time.time_ns(), set(sys.modules)
        try:
            found, wrong = _loaded(home), None
        except ContractError as error:  # of half a checkout, too
            found, wrong = {}, error
        changed = _forget_changed(home, before, begun, times)
        if not changed and wrong:
            raise wrong
        if not changed:
            return found
    raise ContractError(
        f"The tables of {home}: expected files that stay as they are while they are loaded, got changes of "
        f"{', '.join(changed)}. Run it again once they are written."
    )


def _forget_changed(home: str, before: Collection[str], begun: int, times: dict[str, int]) -> list[str]:
    """The modules whose files may not be what was imported; if there are any, forget all that were imported with them.

    Args:
        home: the package that holds the tables.
        before: modules that had been imported before.
        begun: when the others began to be, nanoseconds since the epoch.
        times: when files changed that were looked at before; added to. One that is in the future by this clock, as on
            a server whose clock is ahead, did not change again if it is the same.
    """
    new = [name for name in sys.modules.keys() - before if decides_rows(name, home)]
    facts = {name: store.stat(file) for name in new if (file := getattr(sys.modules[name], "__file__", None))}
    late = {name: each.changed_ns for name, each in facts.items() if each and each.changed_ns >= begun}
    changed = sorted(name for name in late if late[name] != times.get(name))
    times |= late
    if changed:
        forget_modules(new)
    return changed


def _loaded(home: str) -> dict[str, Table]:
    found: dict[str, Table] = {}
    wrong: list[str] = []
    for layer in LAYERS:
        package = _package(home, layer)
        for module in pkgutil.iter_modules(package.__path__):
            if module.name.startswith("_") or not isinstance(module.module_finder, FileFinder):
                continue
            path = Path(module.module_finder.path) / f"{module.name}.py"
            try:
                table = _load(f"{package.__name__}.{module.name}", path)
            # One wrong file does not hide the mistakes of the others: whoever fixes one sees all that is left.
            except Exception as error:  # noqa: BLE001  # a table file may fail in any way; all are told together
                wrong.append(told(error, path, f"{home.replace('.', '/')}/{layer}/{module.name}.py", VOCABULARY))
            else:
                found[table.id] = table
    if wrong:
        raise ContractError("\n".join(wrong))
    agree(found)
    return upstream_first(found)


def _load(module: str, path: Path) -> Table:
    *_, layer, name = module.split(".")
    if mistakes := other_tables(path, module, LAYERS) if path.exists() else []:
        raise MistakesError(mistakes)
    table = getattr(importlib.import_module(module), name, None)
    if not isinstance(table, Table):
        raise ContractError(f"@table: expected a function {name}, got none. One file of {layer} is one table.")
    return table


def agree(found: Mapping[str, Table]) -> None:
    """Check what one table says of another.

    Raises:
        ContractError: with every mistake, by file and line.
    """
    _refuse(found.values(), lambda table: _between(table, found))


def _between(table: Table, found: Mapping[str, Table]) -> list[Mistake]:
    unknown = [each.table for each in table.upstream.values() if each.table not in found]
    if unknown:
        listed = ", ".join(each for each in found if each != table.id)
        return [
            Mistake("inputs", "a table", repr(each), nearest(each, found) or f"The others are {listed}.", each)
            for each in unknown
        ]
    return [
        *source_mistakes(table, found),
        *upsert_mistakes(table, found),
        *closing_mistakes(table, found),
        *slice_mistakes(table, found),
        *entity_mistakes(table, found),
        *privacy_mistakes(table, found),
    ]


def _as_locked(found: Mapping[str, Table]) -> None:
    lock = read_lock()
    # Of a table that is not locked at all only that is told; what does not follow from a lock is told first.
    new = {text.partition(":")[0]: text for text in unlocked(found.values(), lock)}

    def texts(table: Table) -> list[str]:
        return problems(table, lock.get(table.id, ())) or [text for text in [new.get(table.id)] if text]

    _refuse(found.values(), lambda table: [Mistake.plain("schema_version", each) for each in texts(table)])


def _refuse(found: Iterable[Table], mistakes_of: Callable[[Table], list[Mistake]]) -> None:
    wrong = []
    for table in found:
        if mistakes := mistakes_of(table):
            module = table.transform.__module__
            file = getattr(sys.modules.get(module), "__file__", None)
            lines = MistakesError(mistakes, f"{table.layer}/{table.name}.py")
            wrong.append(told(lines, Path(file), f"{module.replace('.', '/')}.py", VOCABULARY) if file else str(lines))
    if wrong:
        raise ContractError("\n".join(wrong))


def _package(home: str, layer: str) -> ModuleType:
    try:
        return importlib.import_module(f"{home}.{layer}")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{home}.{layer}".startswith(error.name):
            raise  # of something that a table file needs
        raise SettingsError(
            f"LAKEHOUSE_TABLES={home}: expected a package with the folders {', '.join(LAYERS)}, got no {error.name}; "
            "install it, or set the name of another."
        ) from None


def landings() -> dict[str, Landing]:
    """What lands as files, by the name of the source."""
    return {table.landing.source: table.landing for table in tables().values() if table.landing}


def get_landing(source: str) -> Landing:
    """The landed source of that name.

    Raises:
        UnknownTableError: with the sources that there are.
    """
    known = landings()
    if source in known:
        return known[source]
    hint = near(source, known, most=1, alike=0.4)
    sources = f"Sources: {', '.join(known)}." if known else "No table does."
    raise UnknownTableError(f"No table reads landed files of {source!r}.{hint} {sources}")


def get_table(name: str) -> Table:
    """The table of that name.

    Raises:
        UnknownTableError: with the nearest names.
    """
    known = tables()
    if name in known:
        return known[name]
    if name in declared():
        roots = _roots(name)
        addresses = " and ".join(source_setting(source) for source in sorted(roots))
        raise UnknownTableError(f"{name} is not in use: set {addresses}, the address of the database it is taken from.")
    hint = near(name, known, alike=0.4)
    raise UnknownTableError(f"There is no table {name!r}.{hint} Tables: {', '.join(known)}.")


def lake_with_engine(settings: Settings) -> Lake:
    """The lake for computing; its engine starts at first use."""
    from lakehouse.spark.session import start

    return Lake(settings, tables(), lambda: start(settings))


def lake_beside(lake: Lake) -> Lake:
    """The same for another thread: the session that it first asks for is its own, on the engine of the first."""
    from lakehouse.spark.session import start_beside

    return Lake(lake.settings, lake.tables, lambda: start_beside(lake.spark, lake.settings))


def lake_without_engine(settings: Settings) -> Lake:
    """The lake for reading logs; asking it for a Spark session is a mistake in this program."""
    return PinnedLake(settings, tables())


def _roots(name: str) -> set[str]:
    """The databases that a table, or what it reads, is taken from."""
    found = declared()
    extracts = (each.extract for each in with_upstream(found, found[name]))
    return {extract.source for extract in extracts if extract}
