"""Lineage derived from transforms, in a process of its own: Python's functions of columns are Spark Connect's there.

It takes no engine and no data. Tables are handed to it by name, with the columns of what they read; it answers with
what each column is computed from, or with what it does not understand.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakehouse.contracts import Rule, Table
from lakehouse.contracts.derived import NOT_GIVEN, NOT_WANTED, Derived, Source
from lakehouse.contracts.fitting import surplus
from lakehouse.contracts.lineage import one_by_one
from lakehouse.contracts.table import CLOSING
from lakehouse.contracts.topic import MESSAGE
from lakehouse.errors import ContractError
from lakehouse.lineage.recording import recorded
from lakehouse.lineage.values import Frame, NoColumnError, NotDerivedError
from lakehouse.read.targets import provenance
from lakehouse.sources.reader import LINE_SCHEMA
from lakehouse.spark.options import REMOTE

Inputs = Mapping[str, Sequence[tuple[str, Source | None]]]
# Closed hours (`lakehouse.build.intake.closings`): which of a message's own columns decides on them.
_CLOSING = dict(zip(CLOSING, ("_event_at", "_arrived_at"), strict=True))
_WRITTEN_BY_READER = (*(field.name for field in LINE_SCHEMA), "_ingested_run", "_code_version")


def derive(tables: Iterable[Table], known: Mapping[str, Table]) -> dict[str, Derived]:
    """The lineage of tables, by name; those that are taken from a database as they are have none.

    Args:
        tables: whose.
        known: their input tables by name; more do no harm.

    Raises:
        ContractError: a rule of one of them gives no column, or the process that derives it broke down.
    """
    wanted = [table for table in tables if table.taken is None]
    return {table.id: _read(table, each) for table, each in zip(wanted, _asked(wanted, known), strict=True)}


def not_given(tables: Iterable[Table]) -> dict[str, tuple[str, ...]]:
    """By name of a table that takes messages, the columns of its contract that its transform does not give.

    Args:
        tables: of any kind; what is the matter with others is told with their lineage.

    Raises:
        ContractError: a rule of one of them gives no column, or the process that looks at them broke down.
    """
    wanted = [table for table in tables if table.topic is not None]
    return {table.id: tuple(each["lacks"]) for table, each in zip(wanted, _asked(wanted, {}), strict=True)}


def _asked(tables: Sequence[Table], known: Mapping[str, Table]) -> list[dict[str, Any]]:
    """What a process of its own says of the transforms and rules, in the order of the tables."""
    if not tables:
        return []
    asked = [
        {"module": each.transform.__module__, "name": each.name, "inputs": inputs_of(each, known)} for each in tables
    ]
    # A transform that asks for the key of tokens gets one: none is made under the root for this.
    env = {**os.environ, REMOTE: "1", "LAKEHOUSE_PII_KEY": __name__}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(  # this module, by the Python that runs
        [sys.executable, "-m", __name__], input=json.dumps(asked), env=env, text=True, capture_output=True, check=False
    )
    if ended.returncode:
        raise ContractError(f"Lineage could not be derived:\n{ended.stderr.strip()}")
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    if broken := [f"{table.id}: {text}" for table, each in zip(tables, found, strict=True) for text in each["rules"]]:
        raise ContractError("\n".join(broken))
    return found


def inputs_of(table: Table, known: Mapping[str, Table]) -> Inputs:
    """By parameter the columns that a transform finds and what lineage calls them; of a file or message, its fields."""
    if table.landing is not None:
        source = f"landing.{table.landing.source}"
        landed: list[tuple[str, Source | None]] = [(c, (source, c)) for c in table.landing.columns]
        return {name: [*landed, *((each, None) for each in _WRITTEN_BY_READER)] for name in table.inputs}
    if table.topic is not None:
        fields = dict.fromkeys([*table.topic.columns, *_WRITTEN_BY_READER, *MESSAGE])
        return {name: [(each, None) for each in fields] for name in table.inputs}
    return {
        name: [
            *((column, (each.table, column)) for column in known[each.table].columns),
            *((added, (each.table, read)) for added, read in _CLOSING.items() if each.hours_close_after is not None),
        ]
        for name, each in table.upstream.items()
    }


def derived(table: Table, inputs: Inputs) -> Derived:
    """The lineage of one table, in this process.

    Args:
        table: whose.
        inputs: as `inputs_of` gives them.
    """
    try:
        frame = recorded(table.transform, inputs)
        if lacks := _lacking(table, frame):
            return Derived(table.code.project, refused=f"no {', '.join(lacks)} {NOT_GIVEN}")
        if more := surplus(table, [each.name for each in frame.columns]):
            return Derived(table.code.project, refused=f"{', '.join(more)} {NOT_WANTED}")
        values = {name: frame.find(f"`{name}`") for name in table.columns}
    except NotDerivedError as error:
        return Derived(table.code.project, refused=str(error))
    except Exception as error:  # noqa: BLE001  # a transform may fail in any way without an engine
        return Derived(table.code.project, refused=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    order = {source: n for n, source in enumerate(s for each in inputs.values() for _, s in each)}
    by_key = frozenset[Source]().union(*(values[name].whole for name in table.key if not one_by_one(table)))
    rows = (frame.rows | frame.split) - by_key

    def listed(sources: Iterable[Source], own: str = "") -> tuple[Source, ...]:
        return tuple(sorted(sources, key=lambda each: (each[1] != own, order[each])))

    columns = {name: listed(value.whole | (value.around - by_key - rows), name) for name, value in values.items()}
    return Derived(table.code.project, columns, listed(rows))


def lacking(table: Table, inputs: Inputs) -> list[str]:
    """The columns of the contract that the transform does not give, in this process; none where that is not known.

    Args:
        table: whose.
        inputs: as `inputs_of` gives them.
    """
    try:
        return _lacking(table, recorded(table.transform, inputs))
    except Exception:  # noqa: BLE001  # as above
        return []


def _lacking(table: Table, frame: Frame) -> list[str]:
    return [name for name in (*table.columns, *table.beside) if not frame.named(name)]


def broken_rules(table: Table, inputs: Inputs) -> list[str]:
    """Why rules of a table give no column, or read one that is not there, in this process; no engine is needed for it.

    Args:
        table: whose.
        inputs: as `inputs_of` gives them.
    """
    try:
        given = [each.name for each in recorded(table.transform, inputs).columns]
    except Exception:  # noqa: BLE001  # as above
        given = None
    return [text for rule in table.rules if (text := _broken(rule, given))]


def _broken(rule: Rule, given: Sequence[str] | None) -> str:
    """What is wrong with a rule over these columns (None: not known); empty: nothing that can be told without rows."""
    try:
        rule.holds()
    except ContractError as error:
        return str(error)
    if given is None:
        return ""
    there = dict.fromkeys([*given, *provenance().names])
    try:
        recorded(lambda rows: rows.select(rule.holds()), {"rows": [(name, None) for name in there]})
    except NoColumnError as error:
        return f"The rule {rule.name} reads {error}. A rule reads the columns that the transform gives."
    except NotDerivedError:
        pass  # whatever it does, it may be right
    return ""


def _read(table: Table, found: Mapping[str, Any]) -> Derived:
    columns = {name: tuple((t, c) for t, c in sources) for name, sources in found["columns"].items()}
    return Derived(table.code.project, columns, tuple((t, c) for t, c in found["rows"]), found["refused"])


def _answer() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # a transform may print
    found = []
    for each in json.load(sys.stdin):
        table = getattr(importlib.import_module(each["module"]), each["name"])
        inputs = {
            name: [(column, (source[0], source[1]) if source else None) for column, source in columns]
            for name, columns in each["inputs"].items()
        }
        told = {"lacks": lacking(table, inputs)} if table.topic is not None else vars(derived(table, inputs))
        found.append({**told, "rules": broken_rules(table, inputs)})
    json.dump(found, answers)


if __name__ == "__main__":
    _answer()
