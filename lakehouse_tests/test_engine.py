"""Nobody changes what decides rows without saying whether rows can differ; and the number means the same everywhere."""

from __future__ import annotations

import ast
import hashlib

import pytest

from lakehouse.contracts.code import POLICY
from lakehouse.contracts.machinery import ENGINE_VERSION, MACHINERY
from lakehouse.contracts.syntax import meaning
from lakehouse.contracts.table import Table
from lakehouse.settings import LAYERS
from lakehouse_tests.engine import COMMAND, PACKAGE, now, recorded


def test_a_change_of_the_machinery_is_thought_about() -> None:
    """Without it, a better reader would leave every published day as the worse one made it, for ever."""
    old, new = recorded(), now()
    names = sorted({*old["modules"], *new["modules"]})
    changed = [name for name in names if old["modules"].get(name) != new["modules"].get(name)]
    if changed and old["version"] == ENGINE_VERSION:
        pytest.fail(
            f"Changed: {', '.join(changed)}. Raise ENGINE_VERSION in lakehouse/contracts/machinery.py if rows can "
            "differ now (every day is then of older code, and `lakehouse backfill --older-code` builds it); then renew "
            f"this record with `{COMMAND}`.",
            pytrace=False,
        )
    assert old == new, f"Renew the record with `{COMMAND}`."


def test_all_that_is_no_table_is_machinery() -> None:
    """Without it, a new package of the project would count for every table that imports it, or for none."""
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - {"__init__", "transforms", *LAYERS} == MACHINERY


def test_policy_names_attributes() -> None:
    """Without it, a renamed attribute would count again, and rebuild every table that sets it."""
    attributes = set(Table.__dataclass_fields__)
    assert attributes >= POLICY
    assert attributes - POLICY == {
        "layer", "name", "model", "transform", "inputs", "partition_by", "key", "keep_first_by", "unique_within",
        "upsert", "allowed_lateness", "clock", "privacy", "schema_version", "reads",
    }, "a new attribute decides rows, or belongs to POLICY in lakehouse/contracts/code.py"  # fmt: skip


# As Python 3.11.7, 3.12.1 and 3.13.0 have it. What their own texts differ in: f-strings, empty fields, new fields.
EVERYTHING = '''"""Prose."""
from __future__ import annotations
x, w, n = 1, 5, "é\\u2028𝒳\\U0001FAE9\\U0001CC00"
s = f"a{x!r:>{w}}b" "c" f"{x=}" f'{ x = :.2f}' f"{{}}{x:{{}}}" if 0 else f"" "q" u"z"
t = f"""{x:
}""" f"{'a' + 'b'}{x:%Y-%m}" rf"\\d{x}\\n" f"{x}{w}" ''
def f(a, /, b: int = 1, *c: str, d=None, e, **k) -> None:
    "prose"
    async def g():
        await z
    match a:
        case {"a": 1, **r} | [1, *_] | None: pass
        case A(b=1) as q if q: return
    try: 1
    except* E as e: raise X from e
    with (open(1) as u, open(2)): {**a, 1: 2}; lambda *a, b=1: (yield)
    return [i async for i in z if i], {1, 2}, 1.5e300, 1j, ..., b"\\xff", -0.0, (a := 3), a[1:2, ::3], not a
class C(B, metaclass=M):
    a: int = 1
    @dec(1, owner=2)
    @staticmethod
    def m(self): """prose"""
'''


def digest(source: str) -> str:
    text = meaning(ast.parse(source), decorators={}, fields={}, calls={})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_module_means_the_same_in_every_python() -> None:
    """Without it, years of days would be built again by whoever takes the next version of Python."""
    assert digest(EVERYTHING) == "e2825b21bf1c"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 'a'", "x = 'b'"),
        ("x = 'a'", "x = b'a'"),
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = (1,)", "x = 1"),
        ("x = None", "x = ..."),
        ("x = f'{y}'", "x = f'{y!r}'"),
        ("x = f'{y}a'", "x = f'a{y}'"),
        ("x = {**a, 1: 2}", "x = {None: a, 1: 2}"),
        ("def f(a, b=1): return a", "def f(a=1, *, b): return a"),
        ("def f(*, a, b=1): return a", "def f(*, a=1, b): return a"),
        ("x = a - b - c", "x = a - (b - c)"),
        ("if a:\n    b()\nc()", "if a:\n    b()\n    c()"),
        ("import a.b", "import a.c as b"),
        ("x[1:]", "x[:1]"),
    ],
)
def test_what_means_something_else_is_another_text(one: str, other: str) -> None:
    """Without it, a change of code would pass for a change of its form."""
    assert digest(one) != digest(other)
