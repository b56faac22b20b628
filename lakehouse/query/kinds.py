"""Types as Spark has them, and what they are to DuckDB and to Arrow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from lakehouse.query.sql_text import NotTranslatedError

MOST_DIGITS = 38  # of a decimal
_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 20}  # digits of each as a decimal, by Spark's reckoning


@dataclass(frozen=True)
class Kind:
    """A type by Spark's name.

    Attributes:
        name: as in Delta's schema: long, decimal, string, timestamp, struct.
        precision, scale: of a decimal.
        parts: fields of a struct; `element` of an array; `key` and `value` of a map.
    """

    name: str
    precision: int = 0
    scale: int = 0
    parts: tuple[tuple[str, Kind], ...] = ()

    @property
    def is_integer(self) -> bool:
        """Whether it is a whole number."""
        return self.name in _INTEGERS

    @property
    def is_number(self) -> bool:
        """Whether it is exact or of 64-bit floating point."""
        return self.is_integer or self.name in ("decimal", "double")

    def __str__(self) -> str:
        """As people write it: decimal(18,2), array<string>."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        inner = ", ".join(f"{name}: {kind}" if self.name == "struct" else str(kind) for name, kind in self.parts)
        return f"{self.name}<{inner}>" if inner else {"long": "bigint", "integer": "int"}.get(self.name, self.name)


NULL, BOOLEAN, STRING, DATE, TIMESTAMP = (Kind(name) for name in ("void", "boolean", "string", "date", "timestamp"))
INTEGER, LONG, DOUBLE = (Kind(name) for name in ("integer", "long", "double"))
_PLAIN = {
    "boolean": ("BOOLEAN", pa.bool_()),
    "byte": ("TINYINT", pa.int8()),
    "short": ("SMALLINT", pa.int16()),
    "integer": ("INTEGER", pa.int32()),
    "long": ("BIGINT", pa.int64()),
    "float": ("FLOAT", pa.float32()),
    "double": ("DOUBLE", pa.float64()),
    "string": ("VARCHAR", pa.string()),
    "binary": ("BLOB", pa.binary()),
    "date": ("DATE", pa.date32()),
    # A point in time is kept as its UTC time without a zone: no function of DuckDB can then apply another zone.
    "timestamp": ("TIMESTAMP", pa.timestamp("us", "UTC")),
    "timestamp_ntz": ("TIMESTAMP", pa.timestamp("us")),
}
_SQL = {
    "BOOLEAN": "boolean", "TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long",
    "DOUBLE": "double", "TEXT": "string", "VARCHAR": "string", "DATE": "date", "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP": "timestamp",
}  # fmt: skip


def decimal(precision: int, scale: int) -> Kind:
    """A decimal.

    Raises:
        NotTranslatedError: where Spark would have to give up digits after the point.
    """
    if precision > MOST_DIGITS:
        raise NotTranslatedError(f"a decimal of {precision} digits")
    return Kind("decimal", precision, scale)


def of_delta(said: str | Mapping[str, Any]) -> Kind:
    """A type of a Delta schema."""
    if isinstance(said, str):
        if said.startswith("decimal("):
            precision, scale = said.removeprefix("decimal(").rstrip(")").split(",")
            return Kind("decimal", int(precision), int(scale))
        if said not in _PLAIN:
            raise NotTranslatedError(f"the type {said}")
        return Kind(said)
    match said["type"]:
        case "array":
            return Kind("array", parts=(("element", of_delta(said["elementType"])),))
        case "map":
            return Kind("map", parts=(("key", of_delta(said["keyType"])), ("value", of_delta(said["valueType"]))))
        case "struct":
            return Kind("struct", parts=tuple((each["name"], of_delta(each["type"])) for each in said["fields"]))
    raise NotTranslatedError(f"the type {said['type']}")


def columns_of(schema: str) -> tuple[tuple[str, Kind], ...]:
    """Columns of a table by its schema in a Delta log, which is JSON."""
    return of_delta(json.loads(schema)).parts


def has_fields(kind: Kind) -> bool:
    """Whether it is a struct, or has one inside."""
    return kind.name == "struct" or any(has_fields(each) for _, each in kind.parts)


def of_sql(said: exp.DataType) -> Kind:
    """A type that a query names."""
    name = said.this.name if isinstance(said.this, exp.DataType.Type) else str(said.this)
    if name == "DECIMAL":
        digits = [int(each.name) for each in said.expressions]
        return decimal(*(digits + [10, 0][len(digits) :]))
    if name not in _SQL or said.expressions:
        raise NotTranslatedError(f"the type {said.sql('spark')}")
    return Kind(_SQL[name])


def duckdb_type(kind: Kind) -> str:
    """The type's name in DuckDB."""
    if kind.name in _PLAIN:
        return _PLAIN[kind.name][0]
    inner = [duckdb_type(each) for _, each in kind.parts]
    match kind.name:
        case "decimal":
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case "array":
            return f"{inner[0]}[]"
        case "map":
            return f"MAP({inner[0]}, {inner[1]})"
        case "struct":
            fields = ", ".join(f"{quoted(name)} {each}" for (name, _), each in zip(kind.parts, inner, strict=True))
            return f"STRUCT({fields})"
    raise NotTranslatedError("a column of nulls alone")


def arrow_type(kind: Kind) -> pa.DataType:
    """The type as Spark gives it to Arrow."""
    if kind.name in _PLAIN:
        return _PLAIN[kind.name][1]
    inner = [arrow_type(each) for _, each in kind.parts]
    match kind.name:
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "array":
            return pa.list_(inner[0])
        case "map":
            return pa.map_(*inner)
        case "struct":
            return pa.struct([(name, each) for (name, _), each in zip(kind.parts, inner, strict=True)])
    raise NotTranslatedError("a column of nulls alone")


def quoted(name: str) -> str:
    """A name in DuckDB's SQL."""
    if "\0" in name:
        raise NotTranslatedError("a zero character")
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text literal in DuckDB's SQL, in which a backslash is itself."""
    if "\0" in value:
        raise NotTranslatedError("a zero character")
    return "'" + value.replace("'", "''") + "'"


def as_decimal(kind: Kind) -> Kind:
    """The decimal that Spark takes a whole number for."""
    return kind if kind.name == "decimal" else Kind("decimal", _INTEGERS[kind.name], 0)


def wider(one: Kind, other: Kind) -> Kind:
    """The type that Spark brings two to.

    Raises:
        NotTranslatedError: where there is none that both engines agree on.
    """
    if other in (one, NULL):
        return one
    if one == NULL:
        return other
    if one.is_number and other.is_number:
        if "double" in (one.name, other.name):
            return DOUBLE
        if one.is_integer and other.is_integer:
            return one if _INTEGERS[one.name] > _INTEGERS[other.name] else other
        a, b = as_decimal(one), as_decimal(other)
        scale = max(a.scale, b.scale)
        return decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    if {one.name, other.name} == {"date", "timestamp"}:
        return TIMESTAMP
    raise NotTranslatedError(f"{one} beside {other}")
