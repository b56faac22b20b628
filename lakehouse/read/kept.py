"""What was read of the table files, kept under the root: who only looks at logs need not import pandera, pandas, Spark.

It is used only where everything that decides it is as it was: each source file of the tables, of what they import and
of this package, by its content; the data files that they name; which files there are in the layers' folders; which
packages are installed, by version; and Python. Anything else, a file that cannot be read too, means that the tables are
loaded, as if nothing were kept. The folder may be removed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.contracts.code import counts_as_own
from lakehouse.contracts.kept import packed, unpacked
from lakehouse.contracts.table import Table
from lakehouse.errors import ContractError

LONG = 300.0  # seconds
SETTLED = 2.0  # seconds: the coarsest clock that times of files are of; what is younger may be written once more


def kept_tables(root: Path, home: str, layers: Collection[str]) -> list[Table] | None:
    """The tables as they were kept, upstream first; None where they have to be loaded.

    Args:
        root: of the lakehouse.
        home: the package that holds them.
        layers: names of its folders of table files.
    """
    try:
        head, _, body = store.read(_place(root, home)).partition(b"\n")
        made_of = json.loads(head)
        if made_of["of"] != _digest(body) or made_of["around"] != _around(home, layers):
            return None
        if any(_of_file(path) != digest for path, digest in made_of["files"].items()):
            return None
        found = unpacked(body)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ContractError):
        return None
    return found if all(each.module == f"{home}.{each.layer}.{each.name}" for each in found) else None


def keep_tables(
    root: Path, home: str, layers: Collection[str], tables: Collection[Table], reads: Iterable[Path]
) -> None:
    """Keep loaded tables, where it is sure that their files are what was loaded.

    Args:
        root: of the lakehouse; nothing is written where it is not there.
        home: the package that holds them.
        layers: names of its folders of table files.
        tables: all of them, upstream first.
        reads: further files that they were checked against.
    """
    own = {path for name, path in _loaded().items() if counts_as_own(name, home)}
    looked_for = {path for table in tables for path in table.code.looked_for}
    files = sorted({*own, *looked_for, *map(str, reads)})
    digests = {path: _of_file(path) for path in files}
    if not store.exists(root) or not _older_than_this_process(files):
        return
    with suppress(OSError, ContractError):  # what cannot be kept is loaded each time
        body = packed(tables)
        made_of = {"of": _digest(body), "around": _around(home, layers), "files": digests}
        place = _place(root, home)
        store.make_folder(place.parent)
        store.put(place, json.dumps(made_of).encode() + b"\n" + body)


def _place(root: Path, home: str) -> Path:
    """One for each checkout that looks at this lake, so that two of them do not take turns."""
    who = _digest("\x1f".join([home, *_folders(home), sys.prefix]).encode())
    return root / "cache" / "tables" / f"{who[:16]}.kept"


def _around(home: str, layers: Collection[str]) -> Mapping[str, Any]:
    """What decides the tables beside the content of known files."""
    folders = _folders(home)
    places = [f"{folder}/{layer}" for folder in folders for layer in layers]
    packages = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    versions = "\n".join(
        name for folder in packages for name in _names(folder) if name.endswith((".dist-info", ".pth"))
    )
    return {
        "python": sys.version,
        "folders": folders,
        "there": {place: [name for name in _names(place) if name != "__pycache__"] for place in places},
        "installed": _digest(versions.encode()),
    }


def _folders(home: str) -> list[str]:
    try:
        spec = find_spec(home)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


def _names(folder: str) -> list[str]:
    try:
        return sorted(store.names(Path(folder)))
    except OSError:
        return []


def _loaded() -> dict[str, str]:
    """The source files of the modules that this process has imported."""
    found = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {name: str(path) for name, path in found.items() if path and name != "__main__"}


def _older_than_this_process(files: Iterable[str]) -> bool:
    """Whether no file was touched since shortly before this process began: else another text may have been imported."""
    begun = time.time() - _age() - SETTLED
    facts = [store.stat(Path(path)) for path in files]
    return all(max(each.modified_ns, each.changed_ns) < begun * 1e9 for each in facts if each is not None)


def _age() -> float:
    """Seconds since this process began; where the system does not say, more than a look at a lake takes."""
    try:
        ticks = int(store.read_text(Path("/proc/self/stat")).rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return LONG


def _of_file(path: str) -> str:
    """A digest of a file's content; empty where there is none."""
    try:
        return _digest(store.read(Path(path)))
    except OSError:
        return ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
