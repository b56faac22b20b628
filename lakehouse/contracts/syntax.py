"""Python source as a text that is the same for all that means the same: whatever its prose, its formatting, its Python.

`ast.dump` and the tokens of f-strings differ from one Python version to the next; this text does not, so that days
built by one need not be built again by another.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_PROSE = {
    "ctx",
    "kind",
    "type_comment",
    "type_ignores",
}  # fields of a syntax tree that follow from others, or from prose

Keywords = Mapping[str, Collection[str]]
"""By name of a function, keywords of its calls that do not count."""


def meaning(tree: ast.Module, *, decorators: Keywords, fields: Keywords, calls: Keywords, unused: bool = True) -> str:
    """The text of a parsed module; the tree is changed.

    Args:
        tree: the module.
        decorators: keywords left out of calls that decorate a function.
        fields: keywords left out of calls that are the values of annotated names in a class.
        calls: keywords left out of all calls.
        unused: whether imports that nothing uses count; other modules may use them from here.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            _without(node.decorator_list, decorators)
        if isinstance(node, ast.Call):
            _without([node], calls)
        if isinstance(node, ast.ClassDef):
            _without([each.value for each in node.body if isinstance(each, ast.AnnAssign)], fields)
    if not unused:
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                node.names = [each for each in node.names if each.name == "*" or _bound(each) in used]
    return _text(tree)


def _without(calls: Collection[ast.expr | None], keywords: Keywords) -> None:
    for call in calls:
        if isinstance(call, ast.Call):
            left_out = keywords.get(getattr(call.func, "id", getattr(call.func, "attr", "")), ())
            call.keywords = [each for each in call.keywords if each.arg not in left_out]


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _text(value: Any) -> str:
    if isinstance(value, ast.AST):
        fields = [f"{name}={_text(each)}" for name, each in sorted(_fields(value)) if each is not None and each != []]
        return f"{type(value).__name__}({','.join(fields)})"
    if isinstance(value, list):
        return f"[{','.join(_text(each) for each in value if not _is_nothing(each))}]"
    return f"{type(value).__name__}:{value!a}"  # repr leaves to Python's version of Unicode what it escapes


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    for name, value in ast.iter_fields(node):
        if name in _PROSE or (name == "names" and value == []):
            continue
        if isinstance(node, ast.JoinedStr) and name == "values":
            yield name, _merged(value)
        elif isinstance(value, list):
            yield name, [each for each in value if not _is_nothing(each)]
        else:
            yield name, value


def _merged(values: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string with neighbouring texts as one: how they are split is Python's own business."""
    merged: list[ast.expr] = []
    for each in values:
        last = merged[-1] if merged else None
        if isinstance(each, ast.Constant) and isinstance(last, ast.Constant):
            merged[-1] = ast.Constant(str(last.value) + str(each.value))
        else:
            merged.append(each)
    return [each for each in merged if not (isinstance(each, ast.Constant) and each.value == "")]


def _is_nothing(statement: Any) -> bool:
    """Docstrings and other texts that stand alone, `pass`, and imports of which nothing is left."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Import | ast.ImportFrom) and not statement.names
    )
