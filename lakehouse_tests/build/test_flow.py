"""One way through a build: what a step hands on stays as it is, and no step fills in what another one made."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakehouse.build
from lakehouse.build.audit import Audited
from lakehouse.build.base import Base
from lakehouse.build.laps import Laps
from lakehouse.build.plan import Plan
from lakehouse.build.publish import Published
from lakehouse.build.stage import Staged
from lakehouse.build.work import Work

ROOM = Path(lakehouse.build.__file__).parent
MODULES = sorted(path for path in ROOM.glob("*.py") if path.name != "__init__.py")
CHANGING = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "sort", "update",
}  # fmt: skip


def filled_in(source: str) -> list[str]:
    """Functions of a source text that change one of their parameters, with the line where they do."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        names = {each.arg for each in arguments} - {"self"}
        # A name that is bound anew is the function's own from then on.
        names -= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and _stored(node)}
        for node in (each for each in ast.walk(function) if isinstance(each, ast.stmt | ast.expr)):
            changed: list[ast.expr] = []
            match node:
                case ast.Assign(targets=targets):
                    changed = targets
                case ast.AugAssign(target=target):
                    changed = [target]
                case ast.Call(func=ast.Attribute(attr=attr) as called) if attr in CHANGING:
                    changed = [called]
            found += [
                f"{function.name}:{node.lineno}"
                for each in changed
                if isinstance(each, ast.Attribute | ast.Subscript) and _root(each) in names
            ]
    return found


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def values() -> Iterator[type]:
    """Every dataclass of the room."""
    for path in MODULES:
        module = importlib.import_module(f"lakehouse.build.{path.stem}")
        for _, each in inspect.getmembers(module, inspect.isclass):
            if dataclasses.is_dataclass(each) and each.__module__ == module.__name__:
                yield each


def test_no_step_fills_in_a_parameter() -> None:
    """Without it, who reads one function could not know what another one does to the values it hands on."""
    assert {path.stem: found for path in MODULES if (found := filled_in(path.read_text(encoding="utf-8")))} == {}
    for body in ("a.b = 1", "a[0] = 1", "a.b[0] |= 1", "a.append(1)", "a.b.update(c)"):
        assert filled_in(f"def f(a, c):\n    {body}"), body
    assert not filled_in("def f(a):\n    a = list(a)\n    a.append(1)")


def test_every_value_is_frozen() -> None:
    """Without it, a result could change after the step that gave it was over."""
    found = list(values())
    assert {Base, Plan, Work, Staged, Audited, Published, Laps} <= set(found)
    assert [each.__name__ for each in found if not each.__dataclass_params__.frozen] == []  # type: ignore[attr-defined]


def test_steps_are_simple() -> None:
    """Without it, one function could come to hold several protocols again."""
    rule = ["check", "--select", "C901", "--config", "lint.mccabe.max-complexity=10", str(ROOM)]
    done = subprocess.run([sys.executable, "-m", "ruff", *rule], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    long = [
        f"{path.stem}.{node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 50
    ]
    assert long == []


def test_laps_are_added_to_a_new_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, seconds of one phase could be told of another."""
    now = iter([10.0, 11.5, 11.75, 12.0])
    monkeypatch.setattr("lakehouse.build.laps.time.perf_counter", lambda: next(now))
    first = Laps(since=next(now))
    second = first.lap("plan").lap("stage").lap("plan")
    assert (dict(first.seconds), first.work) == ({}, 0)
    assert dict(second.seconds) == {"plan": 1.75, "stage": 0.25}
    assert second.work == 2.0
