"""What a transform reads only as it runs, data files and modules: it has to be what its version was computed from.

A process goes on with the code that it has loaded, under the version of that code. What is read later is read as it is
then. Rows of `git checkout` there and back would be published under a version that they are not of, and never be stale.

Files are seen that Python opens, not those that a library opens by itself, as Arrow's CSV reader does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.errors import ContractError

if TYPE_CHECKING:
    from lakehouse.contracts.table import Table

_OPENED: ContextVar[set[str] | None] = ContextVar("opened", default=None)


@contextmanager
def read_as_loaded(table: Table) -> Iterator[None]:
    """Within it the transform runs.

    Raises:
        ContractError: it has read a data file, or imported a module, that is not as it was when the table was loaded.
    """
    if not table.module:  # it was made without a file
        yield
        return
    if table.code.looked_for:
        _listen()
    before, opened = set(sys.modules), set[str]()
    token = _OPENED.set(opened)
    try:
        yield
    finally:
        _OPENED.reset(token)
    modules = (sys.modules.keys() - before) & table.code.parts.keys()
    files = {name for path in opened & table.code.looked_for.keys() for name in _part_names(table, Path(path))}
    changed = sorted({*modules, *files} & {*table.changed_on_disk()}) if modules or files else []
    if not changed:
        return
    forget_modules(modules)  # else the next try would take them for loaded with the table
    raise ContractError(
        f"The transform of {table.id}: expected {', '.join(changed)} as it was when this process loaded the code, but "
        "it has changed since, and was read as it is now. Nothing was published. Run it again."
    )


def forget_modules(names: Iterable[str]) -> None:
    """Have some modules loaded anew by the next import."""
    for name in names:
        package, _, last = name.rpartition(".")
        if hasattr(sys.modules.get(package), last):  # by it, `from package import module` finds the old one
            delattr(sys.modules[package], last)
        del sys.modules[name]


def _part_names(table: Table, path: Path) -> Iterator[str]:
    """How a data file may be called among the parts of the code: see `lakehouse.contracts.code`."""
    yield f"file {path.parent.name}/{path.name}"
    yield from (f"file {name}" for name in table.reads if path.match(name))


@lru_cache(maxsize=1)
def _listen() -> None:
    sys.addaudithook(_note)


def _note(event: str, details: tuple[Any, ...]) -> None:
    if event == "open" and (opened := _OPENED.get()) is not None and isinstance(details[0], str | bytes | os.PathLike):
        opened.add(os.path.abspath(os.fsdecode(details[0])))  # noqa: PTH100 - `looked_for` has no links resolved either
