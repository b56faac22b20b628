"""The code version of a table: a number over all code that decides its rows, so that a change rebuilds them.

What counts: the table file, the bases of its contract, every module of the same project that these import, directly or
not, and the data files that they read; `ENGINE_VERSION` for this project's own machinery; the minor versions of Spark
and of other libraries that they import. What does not: prose, formatting, the version of Python, and policy that
decides whether rows are published or what is said of them, but not which rows they are.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from lakehouse.contracts.machinery import ENGINE_VERSION, MACHINERY
from lakehouse.contracts.mistakes import Mistake
from lakehouse.contracts.syntax import meaning
from lakehouse.errors import ContractError

# Of @table: `privacy` counts, since bounds of personal values must go from the log.
POLICY = frozenset(
    {
        "owner", "grain", "conserves_rows", "quality", "quarantine", "freshness", "layout", "reconciles", "figures",
        "lineage", "compatibility", "features",
    }
)  # fmt: skip
"""Attributes of a table that cannot change its rows."""

LEFT_OUT = {"table": POLICY}
PROSE = {"Field": ("description", "title")}
# Which files there are, and when they are read, is told by the files themselves: days are built again where others are
# found.
FILES = {"Landing": ("files", "during_day", "sample")}

ENGINE = frozenset({"engine", "pyspark"})  # the parts of a code version that are no code of a project
_OWN = __name__.partition(".")[0]
_COMPILED_HERE = {"pandera"}  # its checks are only looked at; `pyspark` always counts
_TABLE = ("project", "layer", "table")  # the parts of a table file's module name
_LONGEST_NAME = 200  # characters of a text that may name a file


@dataclass(frozen=True)
class Code:
    """What decides the rows of a table, as it was when it was read.

    Attributes:
        parts: a digest of each module and data file, and the versions of engine and libraries, by name.
        whole: a digest of the table file with its policy.
        looked_for: paths that count once a data file is there, and whether there was one.
    """

    parts: Mapping[str, str]
    whole: str
    looked_for: Mapping[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def version(self) -> str:
        """Twelve hex digits."""
        return _hex(f"{name}={digest}" for name, digest in sorted(self.parts.items()))

    @property
    def project(self) -> str:
        """The same over the project's own code alone, whatever engine runs it."""
        return _hex(f"{name}={digest}" for name, digest in sorted(self.parts.items()) if name not in ENGINE)

    def changed_since(self, before: Code) -> list[str]:
        """The names of what is not what it was."""
        names = {*self.parts, *before.parts}
        return sorted(name for name in names if self.parts.get(name) != before.parts.get(name))


def read_code(transform: Callable[..., Any], model: type, reads: Collection[str] = ()) -> Code:
    """All code of a table, from the files that are there now; a process goes on with what it has loaded.

    Args:
        transform: of the table.
        model: its contract.
        reads: further data files, relative to the table file's folder.

    Raises:
        ContractError: for a module without a source file, or a data file that is not there.
    """
    home = transform.__module__
    bases = {each.__module__ for each in model.__mro__}
    parts = {"engine": str(ENGINE_VERSION), "pyspark": _minor("pyspark")}
    parts |= _digests_of(home, reads)
    found: set[str] = set()
    looked_for = {str(_file(home).parent / name): True for name in reads}
    # From the table file and its contract's bases along the imports, each module once, whatever circles they make.
    own = home.partition(".")[0]
    queue = [home, *(each for each in bases if _kind(each, own) == "project" or _in_this_package(each))]
    while queue:
        name = queue.pop()
        path = _file(name)
        if name in found:
            continue
        found.add(name)
        if path.suffix != ".py":  # compiled by the project itself
            parts[name] = _digest(path)
            continue
        text, files, imports = _read(path.read_text(encoding="utf-8"), name == home)
        parts[name] = text
        named = {path.parent / file: _is_data(path.parent / file) for file in files if _may_be_data(file)}
        looked_for |= {str(file): there for file, there in named.items()}
        parts |= {f"file {file.parent.name}/{file.name}": _digest(file) for file, there in named.items() if there}
        for each in _resolved(imports, name, path):
            kind = _kind(each, own)
            if kind == "library":
                library = each.partition(".")[0]
                # A library by its minor version: a patch is taken to decide no row, or every update would make all days
                # stale.
                parts |= {} if library in _COMPILED_HERE else {library: _minor(library)}
            elif kind == "project" and _is_module(each):
                queue.append(each)
    source = _file(home).read_text(encoding="utf-8")
    return Code(parts, _hex([meaning(ast.parse(source), decorators={}, fields={}, calls={})]), looked_for)


def _digests_of(home: str, reads: Collection[str]) -> dict[str, str]:
    """The data files that a table file declares."""
    beside = _file(home).parent
    for name in reads:
        if not (beside / name).is_file():
            raise ContractError(f"{home}: reads names {name!r}, but there is no such file in {beside}.")
    return {f"file {name}": _digest(beside / name) for name in reads}


@lru_cache(maxsize=256)
def _read(source: str, is_table: bool) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Of a module: a digest of its code, the texts that may name files, and what it imports."""
    tree = ast.parse(source)
    _without_types(tree)
    _spread_privacy(tree)
    imports = tuple(_imports(tree))
    digest = _hex([meaning(tree, decorators=LEFT_OUT, fields=PROSE, calls=FILES, unused=not is_table)])
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    files = tuple(sorted(text for text in texts if 0 < len(text) < _LONGEST_NAME and text.isprintable()))
    return digest, files, imports


def _without_types(tree: ast.Module) -> None:
    """Leave out what only type checkers see."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "attr", getattr(node.test, "id", "")) == "TYPE_CHECKING":
            node.body = []


def _spread_privacy(tree: ast.Module) -> None:
    """Read `privacy=Privacy(…)` as the three words of its earlier form: what was built under that is no older."""
    for node in ast.walk(tree):
        for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "table":
                call.keywords = [each for word in call.keywords for each in _spread(word)]


def _spread(word: ast.keyword) -> list[ast.keyword]:
    if word.arg != "privacy" or not isinstance(word.value, ast.Call):
        return [word]
    try:
        said = {each.arg: ast.literal_eval(each.value) for each in word.value.keywords}
        person, tokens, further = (tuple(said.get(each, ())) for each in ("person", "tokens", "further"))
    except (ValueError, TypeError):  # not written out: it counts as it stands
        return [word]
    columns = {"pii": tuple(dict.fromkeys((*person, *tokens, *further))), "person": person, "tokens": tokens}
    return [
        ast.keyword(name, ast.Tuple([ast.Constant(each) for each in names], ast.Load()))
        for name, names in columns.items()
        if names
    ]


def _in_this_package(module: str) -> bool:
    return module.partition(".")[0] == _OWN


def _named_in_text(node: ast.Call) -> Iterator[str]:
    """The module of `import_module("…")` or `__import__("…")`."""
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    match node.args:
        case [ast.Constant(value=str(name)), *_] if called in ("import_module", "__import__"):
            yield name


def _imports(tree: ast.AST) -> Iterator[str]:
    """Whatever the module's imports could name: modules, and names in them; a relative one begins with its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                yield from (".".join(parts[: n + 1]) for n in range(len(parts)))
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            yield from (base + ("" if base.endswith(".") else ".") + alias.name for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from _named_in_text(node)


def other_tables(path: Path, module: str, layers: Collection[str]) -> list[Mistake]:
    """Imports of other table files: a table names them as inputs, and helpers have a room of their own.

    Args:
        path: of the table file.
        module: its name.
        layers: names of the packages that hold table files.

    Raises:
        SyntaxError: the file cannot be read as Python.
    """
    found: list[Mistake] = []
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in statements:
        for name in _resolved(list(_imports(node)), module, path):
            parts = name.split(".")
            if len(parts) == len(_TABLE) and parts[0] == module.partition(".")[0] and parts[1] in layers:
                table = ".".join(parts[1:])
                do = f"Name {table} as an input, or move what both use into lakehouse/transforms."
                found.append(Mistake("import", "no other table file", name, do, line=node.lineno))
    return found


def _resolved(imports: Collection[str], module: str, path: Path) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for name in imports:
        yield importlib.util.resolve_name(name, package).rstrip(".") if name.startswith(".") else name


def counts_as_own(module: str, home: str) -> bool:
    """Whether a module is of the project of a package of tables, or of this one: what its version does not tell."""
    return _kind(module, home.partition(".")[0]) in ("project", "machinery")


def decides_rows(module: str, home: str) -> bool:
    """Whether a module may be code of the tables in a package: a table file, or a helper of one."""
    return _kind(module, home.partition(".")[0]) == "project"


def _kind(name: str, home: str) -> str:
    """Whose a name is: Python's, this project's machinery, a library's, or the table's own project's."""
    top, _, rest = name.partition(".")
    if top in sys.stdlib_module_names:
        return "python"
    if top == _OWN:
        return "machinery" if rest.partition(".")[0] in MACHINERY else "project"
    ours = top == home or not _is_installed(top) or _distributions(top) & _distributions(home)
    return "project" if ours else "library"


@lru_cache(maxsize=256)
def _is_installed(top: str) -> bool:
    found = [path for path in [_origin(top), *_folders(top)] if path]
    places = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    return any(
        places & set(Path(path).parents) or {"site-packages", "dist-packages"} & set(Path(path).parts) for path in found
    )


@lru_cache(maxsize=256)
def _distributions(top: str) -> frozenset[str]:
    return frozenset(each.metadata["Name"] for each in _packages().get(top, ()))


@lru_cache(maxsize=1)
def _packages() -> Mapping[str, list[importlib.metadata.Distribution]]:
    """By the first part of modules' names, what they are from; names of other files do no harm."""
    # As `packages_distributions` of `importlib.metadata`, which takes a quarter of a second at each start of a process.
    found: dict[str, list[importlib.metadata.Distribution]] = {}
    for each in importlib.metadata.distributions():
        for top in (each.read_text("top_level.txt") or "").split() or _installed(each):
            found.setdefault(top, []).append(each)
    return found


def _installed(distribution: importlib.metadata.Distribution) -> set[str]:
    record = distribution.read_text("RECORD") or "\n".join(map(str, distribution.files or ()))
    tops = {line.partition(",")[0].strip('"').partition("/")[0] for line in record.splitlines()}
    return tops | {name for name in map(inspect.getmodulename, tops) if name}


@lru_cache(maxsize=64)
def _minor(library: str) -> str:
    """The version of a library without what only fixes: `4.2` of `4.2.1`; empty where it has none."""
    for name in (library, *sorted(_distributions(library) if library != "pyspark" else ())):
        try:
            return ".".join(importlib.metadata.version(name).split(".")[:2])
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _is_module(name: str) -> bool:
    return _origin(name) is not None


def _may_be_data(name: str) -> bool:
    return Path(name).suffix not in ("", ".py", ".pyc")


def _is_data(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _folders(name: str) -> list[str]:
    spec = _spec(name)
    return list(spec.submodule_search_locations or ()) if spec else []


def _origin(name: str) -> str | None:
    """The file of a module; None of what is no module, or has none: a folder of modules, a part of Python itself."""
    path = getattr(sys.modules.get(name), "__file__", None)
    if path is not None:
        return str(path)
    spec = _spec(name)
    return spec.origin if spec and spec.has_location else None


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):  # before the last dot is no package: it names a function
        return None


def _file(module: str) -> Path:
    path = _origin(module)
    if path is None:
        raise ContractError(f"{module} has no source file to derive a code version from.")
    return Path(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hex(parts: Collection[str] | Iterator[str]) -> str:
    return hashlib.sha256("\x1f".join(parts).encode(errors="surrogatepass")).hexdigest()[:12]
