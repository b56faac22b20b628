"""The id of an entity: one text for each value of its key columns, in whatever form a reader has the value.

A service has texts, and pandas makes 17841.0 of 17841 where another row has none. Were the id what each of these looks
like, the entity would be missing, and nobody would be told why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from lakehouse.contracts.figures import EXACT
from lakehouse.errors import UsageError

Text = Callable[[Any], str]

_WHOLE = re.compile(r"[+-]?[0-9]+")
_EXACT_UP_TO = 2**53  # what a float holds of whole numbers; a larger one may be another than was meant


def text_of(kind: str) -> Text | None:
    """How a value of a key column is written in an id; None: by such a type no entity is told.

    Args:
        kind: Spark's name of the column's type, such as `decimal(10,2)`.
    """
    if kind.startswith("decimal"):
        return _fixed(int(kind.rstrip(")").partition(",")[2] or 0))
    return _TEXTS.get(kind)


def entity_id(parts: list[str]) -> str:
    """The key columns' texts, joined by commas.

    What is no letter, digit or `_.-~` is escaped, so that no two entities share one.
    """
    return ",".join([each if each.isalnum() and each.isascii() else quote(each, safe="") for each in parts])


def written(column: str, kind: str, text: Text, value: Any) -> str:
    """The text of one value.

    Args:
        column: its name, for messages: these never repeat the value, which may be a person.
        kind: of the column.
        text: what `text_of` says of the kind.
        value: as a reader has it, or a row.

    Raises:
        UsageError: the value is null, or none of that type.
    """
    if value is None:
        raise UsageError(f"An entity's {column} is null: nobody is meant by that.")
    try:
        return text(value)
    except (ValueError, TypeError, ArithmeticError):
        raise UsageError(
            f"An entity's {column} is a {kind}: what was given ({type(value).__name__}) is none. Give it as the "
            "table has it, or as text."
        ) from None


def _string(value: Any) -> str:
    if isinstance(value, float | bytes | bool | list | tuple | dict):  # 17841.0 is nobody, nor is "['17841']"
        raise TypeError
    text = str(value)
    text.encode()  # raises for half a character, as JSON's "\ud800" or a terminal's bytes give: no column holds one
    return text


def _whole(value: Any) -> str:
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise ValueError
        return str(int(value))
    if isinstance(value, bool) or (isinstance(value, float) and abs(value) > _EXACT_UP_TO):
        raise TypeError
    number = int(value)
    if number != value:
        raise ValueError
    return str(number)


def _fixed(scale: int) -> Text:
    unit = Decimal(1).scaleb(-scale)

    def text(value: Any) -> str:
        number = Decimal(str(value))
        made = number.quantize(unit, context=EXACT)
        if made != number:
            raise ValueError
        return f"{made or abs(made):f}"  # there is one zero

    return text


def _date(value: Any) -> str:
    if isinstance(value, str):
        return date.fromisoformat(value).isoformat()
    if isinstance(value, datetime):  # as pandas has dates
        if value.time() != time.min or value.utcoffset():
            raise ValueError
        return value.date().isoformat()
    if not isinstance(value, date):
        raise TypeError
    return value.isoformat()


def _moment(value: Any) -> str:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, datetime):
        raise TypeError
    return str(found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC))


def _truth(value: Any) -> str:
    told = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    if told not in (True, False):
        raise ValueError
    return str(bool(told))


_TEXTS: dict[str, Text] = {
    "string": _string,
    "date": _date,
    "timestamp": _moment,
    "boolean": _truth,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _whole),
}
