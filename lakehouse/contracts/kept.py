"""Tables as bytes, without model and transform: reading them imports neither pandera nor Spark.

Whatever else is asked of a table is worked out when it is kept. Its model, its transform and its rules' expressions are
taken from its file where somebody asks for them after all.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehouse.contracts.table import KEPT_MODULE, KEPT_SCHEMA, Table
from lakehouse.errors import ContractError

if TYPE_CHECKING:
    from pyspark.sql import Column

_IN_FILE = ("model", "transform")
_WORKED_OUT = (
    "content_day_column", "columns", "required", "profiled", "rules", "description", "code", "policy_version",
    "code_version",
)  # fmt: skip
_PLAIN = {
    ("datetime", "timedelta"), ("datetime", "date"), ("datetime", "datetime"), ("decimal", "Decimal"),
    ("builtins", "frozenset"), ("builtins", "set"),
}  # fmt: skip
_HOME = "lakehouse.contracts."


@dataclass(frozen=True)
class RuleInFile:
    """Stands for the expression of a row rule, and takes it from the table's file when it is needed."""

    table: Table
    name: str

    def __call__(self) -> Column:
        """The expression."""
        return next(each.holds for each in self.table.loaded().rules if each.name == self.name)()


def packed(tables: Iterable[Table]) -> bytes:
    """Some tables as bytes, in their order.

    Raises:
        ContractError: for a table that says something which cannot be kept: a function, or a value of a kind of its
            own.
    """
    states = []
    for table in tables:
        if not table.module:
            raise ContractError(f"{table.id} cannot be kept: it has no file.")
        said = {each.name: getattr(table, each.name) for each in fields(table) if each.name not in _IN_FILE}
        worked_out = {name: getattr(table, name) for name in _WORKED_OUT}
        worked_out["rules"] = tuple(replace(each, holds=_nothing) for each in table.rules)
        states.append({**said, **worked_out, KEPT_MODULE: table.module, KEPT_SCHEMA: table.schema.json()})
    try:
        made = pickle.dumps(states)
        same = all(
            getattr(kept, name) == state[name]
            for kept, state in zip(unpacked(made), states, strict=True)
            for name in state
            if name not in ("rules", KEPT_MODULE, KEPT_SCHEMA)
        )
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ContractError(f"The tables cannot be kept: {error}.") from error
    if not same:
        raise ContractError("The tables cannot be kept: what was read back is not what was written.")
    return made


def unpacked(made: bytes) -> list[Table]:
    """The tables that `packed` made bytes of.

    Raises:
        ContractError: these are no such bytes; nothing of them was executed.
    """
    try:
        states = _Reader(io.BytesIO(made)).load()
        return [_table(state) for state in states]
    except (pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise ContractError(f"These are no tables that were kept: {error}.") from error


def _table(state: dict[str, Any]) -> Table:
    table = object.__new__(Table)
    rules = tuple(replace(each, holds=RuleInFile(table, each.name)) for each in state["rules"])
    table.__dict__.update({**state, "rules": rules})
    return table


class _Reader(pickle.Unpickler):
    """Makes nothing but the values that a table file says: who can write the bytes can make nobody run a program."""

    def find_class(self, module: str, name: str) -> Any:
        """The class of a value."""
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module.startswith(_HOME) and (module, name) == (_nothing.__module__, _nothing.__name__):
            return _nothing
        if module.startswith(_HOME):
            found = super().find_class(module, name)
            if isinstance(found, type) and is_dataclass(found) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no value of a contract")


def _nothing() -> Column:
    raise AssertionError("a rule that was kept is in the table's file")
