"""JSON lines as raw text columns: each value as it was written, nothing dropped, personal fields never kept.

Landed files and messages of a topic are both read by this.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import add
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.pairs import in_pairs
from lakehouse.sources.probe import BYTE_ORDER_MARK
from lakehouse.transforms.columns import (
    PERSONAL,
    TokenKey,
    masked,
    may_hold_address,
    personal_field,
    without_address,
    without_personal,
)

# A number of a JSON line that is in no string, after everything before it; Spark would read a float and lose digits.
_NUMBER = r'\G([^"0-9-]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"0-9-]*+)*+)(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)'
_MARK = "\ufdd0"  # stands before a number that was made a string; Unicode keeps this character for such inner use
_MARKED = rf'"{_MARK}([^"]*)"'
# The parser takes a letter of another script for the hexadecimal digit that its last byte would be.
_BROKEN_ESCAPE = r"(?<!\\)(?:\\\\)*+\\u(?![0-9a-fA-F]{4})"
# Half of a character, as of a text that was cut in the middle of one: the engine's texts cannot hold it.
_FIRST_HALF, _SECOND_HALF = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = rf"((?<!\\)(?:\\\\)*+)(?:{_FIRST_HALF}(?!{_SECOND_HALF})|(?<!{_FIRST_HALF}){_SECOND_HALF})"


class Fields(Protocol):
    """What a source says of the fields of its lines (`lakehouse.contracts.landing`, `lakehouse.contracts.topic`)."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields that become columns."""

    @property
    def personal(self) -> tuple[str, ...]:
        """Words of names of fields that are never kept."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The columns that arrive as they are."""


def json_rows(lines: DataFrame, fields: Fields, key: TokenKey | None, beside: Sequence[str]) -> DataFrame:
    """One row a line: the fields as text, `_rescued`, the columns beside, and `_raw` and `_error` of what is no object.

    Args:
        lines: with `_line`, and `_at` where there is a key: whether the line may hold an address.
        fields: which of them become columns, and which are personal.
        key: of the tokens that stand for addresses; None: no line has one.
        beside: columns of the lines that are kept as they are.
    """
    # Numbers become marked strings, so that they stay as written. A sentinel behind the line shows whether the parser
    # came to its end: by itself it takes `{} {}` and `{} rubbish` for their first object. A byte order mark before
    # the first is no part of it: a file begins with one, and so does one that was put behind another.
    escaped = F.col("_line").contains("\\u")  # few lines have an escape at all
    text = F.when(escaped & F.col("_line").rlike(_HALF), F.regexp_replace("_line", _HALF, "$1\ufffd"))
    text = F.ltrim(text.otherwise(F.col("_line")), F.lit(BYTE_ORDER_MARK))
    line = F.regexp_replace(text, F.lit(_NUMBER), F.lit(f'$1"{_MARK}$2"'))
    array = F.concat(F.lit("["), line, F.lit(f',{{"{_MARK}":""}}]'))
    options = {"mode": "PERMISSIVE", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    rows = lines.withColumn("_a", F.from_json(array, "array<map<string,string>>", options))
    rows = rows.withColumn("_p", F.get("_a", F.lit(0)))
    known = F.array(*[F.lit(c) for c in fields.columns])
    # Most lines have known fields alone, once each; only of others the names are compared one by one, which is slow.
    found = in_pairs(add, [F.map_contains_key("_p", c).cast("int") for c in fields.columns])
    rows = rows.withColumn("_more", F.size("_p") > found)
    unknown = F.when(F.col("_more"), F.map_filter("_p", lambda key, _: ~F.array_contains(known, key)))
    whole = (F.size("_a") == 2) & F.map_contains_key(F.get("_a", F.lit(1)), _MARK) & F.col("_p").isNotNull()  # noqa: PLR2004
    # Which of the two values was meant, nobody can know: the line is set aside as it is.
    twice = F.col("_more") & (F.size("_p") > F.size(F.array_distinct(F.map_keys("_p"))))
    broken = escaped & F.col("_line").rlike(_BROKEN_ESCAPE)
    error = F.when(~F.coalesce(whole, F.lit(False)) | broken, "not a JSON object").when(twice, "names a field twice")
    rows = rows.withColumn("_error", error)
    sound = F.col("_error").isNull()
    personal = personal_field(fields.personal) if fields.personal else "$^"

    def kept(name: Column, value: Column) -> Column:
        # A nested object is kept as one text: whole, or not at all.
        hidden = F.concat(F.lit('"'), name, F.lit('":')).rlike(personal) | value.rlike(personal)
        return F.when(value.isNotNull() & hidden, F.lit(PERSONAL)).otherwise(_as_written(value))

    # Values are columns of their own before they are looked at: within an expression each look would read them anew.
    values = {c: f"_v{n}" for n, c in enumerate(fields.columns)}
    rows = rows.withColumns({v: F.when(sound, F.col("_p").getItem(c)) for c, v in values.items()})
    rows = rows.withColumns({v: _as_written(F.col(v)) for v in values.values()})
    # Most signs of an address are in its own column: the others are looked at one by one only if one of them has any.
    others = [F.col(v) for c, v in values.items() if c not in fields.addresses]
    if key is not None and others:
        rows = rows.withColumn("_at", F.col("_at") & may_hold_address(F.concat_ws(" ", *others)))
    return rows.select(
        *[clean(F.col(v), c, fields.addresses, key) for c, v in values.items()],
        F.when(sound & (F.size(unknown) > 0), masked(F.to_json(F.transform_values(unknown, kept)))).alias("_rescued"),
        *beside,
        F.when(~sound, masked(without_personal(F.col("_line"), fields.personal))).alias("_raw"),
        "_error",
    )


def clean(value: Column, name: str, addresses: Collection[str], key: TokenKey | None) -> Column:
    """A column of a line without addresses; most lines (`_at`) have no sign of one, and of most files none (no key).

    Args:
        value: the column's text.
        name: of the column.
        addresses: the columns that stay as they are.
        key: of the tokens that stand for addresses; None: there are none.
    """
    if key is not None and name not in addresses:
        value = without_address(value, F.col("_at"), key)
    return value.alias(name)


def _as_written(value: Column) -> Column:
    """A field's text with its marked numbers as the file has them."""
    # A field that is a number is its mark and the number; numbers within an object or a list are found by pattern.
    bare = F.translate(F.regexp_replace(value, _MARKED, "$1"), _MARK, "")
    number = F.when(value.startswith(_MARK), F.translate(value, _MARK, ""))
    return number.when(value.contains(_MARK), bare).otherwise(value)
