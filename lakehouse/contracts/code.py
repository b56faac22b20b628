"""The code version of a table: a number over the source that decides its rows, so that a change rebuilds them."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from pathlib import Path

from lakehouse.errors import ContractError


def code_version(modules: set[str]) -> str:
    """Twelve hex digits over the modules and the transform helpers they import.

    Raises:
        ContractError: for a module without a source file.
    """
    digest = hashlib.sha256()
    for name in sorted(_with_transforms(modules)):
        digest.update(_normalised(_source(name)).encode())
    return digest.hexdigest()[:12]


def _with_transforms(modules: set[str]) -> set[str]:
    """The modules and all of `lakehouse.transforms` that they import, directly or not."""
    found: set[str] = set()
    queue = list(modules)
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += [each for each in _imports(name) if ".transforms." in f".{each}." and _is_module(each)]
    return found


def _imports(module: str) -> set[str]:
    """Whatever a module's import statements could name: modules, and names in them."""
    package = module if _file(module).name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return names


def _is_module(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what is before the last dot is no package: it names a function or a constant
        return False


def _source(module: str) -> str:
    return _file(module).read_text(encoding="utf-8")


def _file(module: str) -> Path:
    loaded = sys.modules.get(module)
    path = getattr(loaded, "__file__", None)
    if path is None:
        spec = importlib.util.find_spec(module)
        path = spec.origin if spec else None
    if path is None:
        raise ContractError(f"{module} has no source file to derive a code version from.")
    return Path(path)


def _normalised(source: str) -> str:
    """The syntax tree as text, without docstrings, so that prose and formatting do not count as a change."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
