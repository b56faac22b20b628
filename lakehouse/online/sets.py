"""A table of features as the online store holds it: its keys, and its rows packed into one text each.

    user:17841:gold.user_features@1-0123456789ab   key: entity, id (columns joined by `,`), table, version of its rows
    <event time><Delta version><code version>[…]    value: 8, 8 and 12 bytes, then the features as JSON in their order

The event time of a row is the end of its day, from which on it may be used. The version is that of the columns and of
the code that made the rows: rows of a new definition are under other keys than those of the old one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from lakehouse.contracts.features import feature_tables
from lakehouse.days import micros_of
from lakehouse.errors import OnlineError, UsageError
from lakehouse.online.keys import Text, entity_id, text_of, written

if TYPE_CHECKING:
    from lakehouse.contracts import Table

HEAD = struct.Struct(">qq12s")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Codec = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]


def milliseconds(moment: datetime) -> int:
    """Since 1970."""
    return micros_of(moment) // 1000


def moment_of(number: int) -> datetime:
    """The moment so many milliseconds after 1970, UTC."""
    return _EPOCH + timedelta(milliseconds=number)


# How a value goes into JSON, and how it comes out; None: as it is. By the beginning of Spark's name of the type.
_CODECS: Mapping[str, Codec] = {
    "decimal": (str, Decimal),
    "timestamp": (micros_of, lambda number: _EPOCH + timedelta(microseconds=number)),
    "date": (date.isoformat, date.fromisoformat),
    **dict.fromkeys(("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double"), (None, None)),
}


class Record(NamedTuple):
    """A row as it is stored.

    Attributes:
        event_time: end of the row's day, milliseconds since 1970.
        delta_version: of the table that was read.
        code_version: of the code that made the row.
        values: the features in their order, as JSON has them.
    """

    event_time: int
    delta_version: int
    code_version: str
    values: list[Any]


@dataclass(frozen=True)
class FeatureSet:
    """A table's features, as they are stored.

    Attributes:
        table: `layer.name`.
        entity: whom the rows are about.
        key: columns that identify the entity, with Spark's name of the type.
        columns: features in their order, with Spark's name of the type.
        ttl: how long after its event time a row may be used.
        schema_version: of the columns.
        code_version: of the code that makes the rows, 12 digits.
    """

    table: str
    entity: str
    key: Mapping[str, str]
    columns: Mapping[str, str]
    ttl: timedelta
    schema_version: int
    code_version: str

    @classmethod
    def of(cls, table: Table) -> FeatureSet:
        """That of a table which holds features.

        Raises:
            UsageError: it holds none.
            OnlineError: a column has a type that is not served, or by which no entity is told.
        """
        said = table.features
        if said is None:
            raise UsageError(f"{table.id} holds no features: @table(features=Features(…)) says that a table does.")
        types = {each.name: each.dataType.simpleString() for each in table.schema.fields}
        columns = {name: types[name] for name in said.columns(table)}
        for name, kind in columns.items():
            if _codec(kind) is None:
                raise OnlineError(
                    f"{table.id}: column {name} is of type {kind}, which is not served online. Leave it out (a name "
                    "that begins with _), or make columns of numbers, texts, moments or truth values of it."
                )
        key = {name: types[name] for name in said.key}
        for name, kind in key.items():
            if text_of(kind) is None:
                raise OnlineError(
                    f"{table.id}: the key column {name} is of type {kind}, by which no entity is told online. Make a "
                    "text or a whole number of it in the transform."
                )
        return cls(table.id, said.entity, key, columns, said.ttl, table.schema_version, table.code_version)

    @property
    def version(self) -> str:
        """Of what the rows mean: of the columns and of the code."""
        return f"{self.schema_version}-{self.code_version}"

    @cached_property
    def suffix(self) -> str:
        """What ends all its keys."""
        return f":{self.table}@{self.version}"

    @property
    def pattern(self) -> str:
        """Matches its keys, as Redis' SCAN takes it."""
        return f"{self.entity}:*{self.suffix}"

    @property
    def floor(self) -> str:
        """Key of what its newest load has read: no entity is called so."""
        return f"@load{self.suffix}"

    @cached_property
    def encoders(self) -> tuple[Callable[[Any], Any] | None, ...]:
        """How each feature goes into JSON; None: as it is."""
        return tuple((_codec(kind) or (None, None))[0] for kind in self.columns.values())

    @cached_property
    def decoders(self) -> dict[str, Callable[[Any], Any] | None]:
        """How each feature comes out of JSON; None: as it is."""
        return {name: (_codec(kind) or (None, None))[1] for name, kind in self.columns.items()}

    @cached_property
    def key_texts(self) -> tuple[tuple[str, str, Text], ...]:
        """Of each key column its name, its type, and how its values are written."""
        return tuple((name, kind, text_of(kind) or str) for name, kind in self.key.items())

    def redis_key(self, parts: Iterable[Any]) -> str:
        """The key of an entity, by the values of its key columns.

        Raises:
            UsageError: a value is null, or none of its column's type.
        """
        return self.key_start(parts) + self.suffix

    def key_start(self, parts: Iterable[Any]) -> str:
        """What the keys of an entity begin with, in all tables about it; as `redis_key`."""
        texts = [written(*column, each) for column, each in zip(self.key_texts, parts, strict=True)]
        return f"{self.entity}:{entity_id(texts)}"

    def parts_of(self, redis_key: str) -> tuple[str, ...]:
        """The values of the key columns, as texts."""
        middle = redis_key.removeprefix(f"{self.entity}:").removesuffix(self.suffix)
        return tuple(unquote(each) for each in middle.split(","))

    def pack(self, event_time: int, delta_version: int, values: Sequence[Any]) -> bytes:
        """A row as it is stored.

        Args:
            event_time: milliseconds since 1970.
            delta_version: of the table that was read.
            values: the features in their order, as Spark or Arrow has them.
        """
        head = HEAD.pack(event_time, delta_version, self.code_version.encode())
        return head + json.dumps(self.stored(values), separators=(",", ":"), ensure_ascii=False).encode()

    def stored(self, values: Sequence[Any]) -> list[Any]:
        """The features as JSON has them."""
        return [
            value if encode is None or value is None else encode(value)
            for value, encode in zip(values, self.encoders, strict=True)
        ]


def unpack(packed: bytes) -> Record:
    """What was packed."""
    event_time, delta_version, code = HEAD.unpack_from(packed)
    return Record(event_time, delta_version, code.decode().rstrip("\0"), json.loads(packed[HEAD.size :]))


def parsed_key(redis_key: str) -> tuple[str, tuple[str, ...]] | None:
    """Table and key values that a key of a row of any version says; None for another key."""
    match redis_key.split(":"):
        case [entity, parts, end] if "@" in end and entity != "@load":
            return end.partition("@")[0], tuple(unquote(each) for each in parts.split(","))
    return None


def feature_sets(tables: Mapping[str, Table]) -> dict[str, FeatureSet]:
    """All that can be served, by table; one that cannot is told where it is loaded (`FeatureSet.of`)."""
    found = {}
    for each in feature_tables(tables.values()):
        with suppress(OnlineError):
            found[each.id] = FeatureSet.of(each)
    return found


def _codec(kind: str) -> Codec | None:
    return _CODECS.get(kind.partition("(")[0])
