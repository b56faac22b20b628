"""Row rules: pandera's field checks and named boolean expressions, compiled once to Spark columns.

A rule's name is API (checks, quarantine and dashboards refer to it), so it follows from the column and the kind of
check, never from a threshold.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from operator import or_
from types import CodeType
from typing import TYPE_CHECKING, Any

from lakehouse.errors import ContractError
from lakehouse.lazy import F, T
from lakehouse.pairs import in_pairs

if TYPE_CHECKING:
    import pandera.pyspark as pa
    from pyspark.sql import Column

NOT_TOO_LATE = "not_too_late"
_LONGEST_TEXT = 60


class RuleMethod(classmethod):
    """A class method of a contract that is a row rule."""


def rule(method: Any = None) -> Any:
    """Mark a contract's class method as a row rule: it returns a boolean column, its name is the rule's name.

    A row passes only where the expression is TRUE; NULL is a failure, since missing evidence is no proof.

    Raises:
        ContractError: it is called with something else, such as the rule in words, or with nothing.
    """
    if not callable(method):
        got = "none" if method is None else repr(method)
        raise ContractError(
            f"@rule: expected the method below it, got {got}. Write @rule alone; the method's name is the rule's name, "
            "and its docstring says it in words."
        )
    return RuleMethod(method)


@dataclass(frozen=True)
class Rule:
    """One row rule: `holds()` builds a column that is TRUE (never NULL) for rows that pass, and reads `columns`."""

    name: str
    describes: str
    holds: Callable[[], Column]
    columns: frozenset[str] = frozenset()


def _in_range(c: Column, s: Mapping[str, Any]) -> Column:
    low = c >= s["min_value"] if s["include_min"] else c > s["min_value"]
    high = c <= s["max_value"] if s["include_max"] else c < s["max_value"]
    both: Column = low & high
    return both


def _str_length(c: Column, s: Mapping[str, Any]) -> Column:
    size = F.length(c)
    if s.get("exact_value") is not None:
        exact: Column = size == s["exact_value"]
        return exact
    holds = F.lit(True)
    if s.get("min_value") is not None:
        holds = holds & (size >= s["min_value"])
    if s.get("max_value") is not None:
        # Letters are counted one by one, bytes are not, and there are never fewer: of most texts these say enough.
        holds = holds & ((F.octet_length(c) <= s["max_value"]) | (size <= s["max_value"]))
    return holds


def _anchored(pattern: Any) -> str:
    text = str(getattr(pattern, "pattern", pattern))
    # pandera matches at the beginning of a text, Spark anywhere in it.
    return text if text.startswith("^") else f"^{text}"


# pandera's check name → (ending of the rule's name, column expression from the check's statistics)
_FIELD_CHECKS: dict[str, tuple[str, Callable[[Column, Mapping[str, Any]], Column]]] = {
    "equal_to": ("as_expected", lambda c, s: c == s["value"]),
    "not_equal_to": ("not_forbidden", lambda c, s: c != s["value"]),
    "greater_than": ("above_minimum", lambda c, s: c > s["min_value"]),
    "greater_than_or_equal_to": ("at_least_minimum", lambda c, s: c >= s["min_value"]),
    "less_than": ("below_maximum", lambda c, s: c < s["max_value"]),
    "less_than_or_equal_to": ("at_most_maximum", lambda c, s: c <= s["max_value"]),
    "in_range": ("within_bounds", _in_range),
    "isin": ("known", lambda c, s: c.isin(list(s["allowed_values"]))),
    "notin": ("not_forbidden", lambda c, s: ~c.isin(list(s["forbidden_values"]))),
    "str_matches": ("well_formed", lambda c, s: c.rlike(_anchored(s["pattern"]))),
    "str_contains": ("containing", lambda c, s: c.rlike(str(getattr(s["pattern"], "pattern", s["pattern"])))),
    "str_startswith": ("prefixed", lambda c, s: c.startswith(s["string"])),
    "str_endswith": ("suffixed", lambda c, s: c.endswith(s["string"])),
    "str_length": ("length_within_bounds", _str_length),
}


def compile_rules(model: type[pa.DataFrameModel], skip: frozenset[str] = frozenset()) -> tuple[Rule, ...]:
    """Compile a pandera model's nullability, field checks and `@rule` methods.

    A column that must not be null and has no check yields `<column>_present`; one with checks fails them where it is
    null, so that one defect has one name. A nullable column's checks pass where it is null, as in pandera.

    Args:
        model: the contract's pandera model.
        skip: columns whose presence is guaranteed otherwise (partition columns); their checks stay.

    Raises:
        ContractError: for a check that cannot be compiled, or two rules of one name.
    """
    schema = _schema(model)
    _refuse_what_has_no_rule(model, schema)
    rules: list[Rule] = []
    for name, column in schema.columns.items():
        if not column.nullable and not column.checks and name not in skip:
            rules.append(Rule(f"{name}_present", f"{name} is not null", partial(_present, name), frozenset({name})))
        rules += [
            _field_rule(name, check.name, check.statistics or {}, bool(column.nullable), model.__name__)
            for check in column.checks
        ]
    rules += _of_methods(model, schema.columns)
    names = [each.name for each in rules]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ContractError(f"{model.__name__} declares the rule(s) {', '.join(twice)} more than once; rename one.")
    return tuple(rules)


def _of_methods(model: type[pa.DataFrameModel], columns: Mapping[str, Any]) -> Iterator[Rule]:
    """The `@rule` methods of a model and its bases, the bases' first; a subclass may override a rule."""
    declared = [
        n for klass in reversed(model.__mro__) for n, each in vars(klass).items() if isinstance(each, RuleMethod)
    ]
    for name in dict.fromkeys(declared):
        method = getattr(model, name)
        text = " ".join((method.__doc__ or name.replace("_", " ")).split()).rstrip(".")
        yield Rule(name, text, partial(_proven, method, f"{model.__name__}.{name}"), _read_by(method, columns))


def _read_by(method: Any, columns: Collection[str]) -> frozenset[str]:
    """The columns a rule's method can name: the contract's, and technical ones, which begin with `_`."""
    # A rule builds its column anew each time and may name columns in any text, so its code is read: too many names do
    # no harm, one too few would leave a column out of what is read and told.
    words = _words(method.__func__.__code__, method.__doc__)
    return frozenset(each for each in words if each in columns or re.match("_[a-z]", each))


def _words(code: CodeType, besides: str | None) -> set[str]:
    """The words in a function's texts, but one, and the attributes it reads."""
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, str) and each != besides:
            found |= set(re.findall(r"\w+", each))
        elif isinstance(each, CodeType):
            found |= _words(each, besides)
    return found


def lateness_rule(day_column: str, days: int, accepted: Mapping[date, date] | None = None) -> Rule:
    """The rule that a row arrives at most `days` days after its day; rows without an arrival date are never late.

    Args:
        day_column: the row's day.
        days: allowed lateness.
        accepted: by day, the last arrival date whose late rows a person has accepted.
    """

    def holds() -> Column:
        day, arrival = F.col(day_column), F.col("_arrival_date")
        in_time = [F.date_diff(arrival, day) <= days]
        for late_day, through in sorted((accepted or {}).items()):
            in_time.append((day == F.lit(late_day)) & (arrival <= F.lit(through)))
        return F.coalesce(in_pairs(or_, in_time), F.lit(True))

    text = f"the row arrives at most {days} days after its day"
    return Rule(NOT_TOO_LATE, text, holds, frozenset({day_column, "_arrival_date"}))


def _present(column: str) -> Column:
    return F.col(column).isNotNull()


def _proven(method: Callable[[], Column], shown: str) -> Column:
    try:
        # Only a boolean can be a condition of WHEN: COALESCE would have a text cast, and the run fail of its first row.
        return F.when(method(), F.lit(True)).otherwise(F.lit(False))
    except (TypeError, ValueError, AttributeError, NameError) as error:  # of the method itself: no row was seen yet
        raise ContractError(
            f"{shown} gives no rule ({error}). A @rule method takes `cls` alone and returns a boolean column: "
            '`return (F.col("a") > 0) & (F.col("b") > 0)`.'
        ) from error


def _schema(model: type[pa.DataFrameModel]) -> Any:
    """The model's pandera schema.

    Raises:
        ContractError: for a column of a type that pandera does not know, such as a structure, or takes for another.
    """
    from pandera.engines.pyspark_engine import Engine

    _refuse_misread(model)
    try:
        return model.to_schema()
    except TypeError as error:
        for name, (told, _) in model.__fields__.items():
            try:
                Engine.dtype(told.raw_annotation)
            except TypeError:
                raise ContractError(
                    f"{model.__name__}.{name}: no column can be of the type {told.raw_annotation}. Write one of "
                    "pyspark.sql.types, such as T.LongType(). Instead of a structure, have its fields as columns of "
                    "their own, or an array of structures: T.ArrayType(T.StructType([…]))."
                ) from error
        raise


def _refuse_misread(model: type[pa.DataFrameModel]) -> None:
    """Refuse what pandera silently takes for another type than is written."""
    misread: dict[type, str] = {
        bytes: "bytes, which pandera takes for a whole number of one byte. Write T.BinaryType().",
        T.TimestampNTZType: "TimestampNTZType, which pandera takes for TimestampType. Write T.TimestampType(): a "
        "moment in UTC, or T.StringType() for a time without a zone.",
    }
    for name, (told, _) in model.__fields__.items():
        written = told.raw_annotation
        if why := misread.get(written if isinstance(written, type) else type(written)):
            raise ContractError(f"{model.__name__}.{name}: no column can be of the type {why}")


def _refuse_what_has_no_rule(model: type[pa.DataFrameModel], schema: Any) -> None:
    if schema.checks:
        names = ", ".join(str(check.name) for check in schema.checks)
        raise ContractError(
            f"{model.__name__} has check(s) of the whole frame: {names}. Write a @rule method for what holds of a row, "
            "or set a bound in @table for what holds of a day."
        )
    if schema.unique:
        raise ContractError(f"{model.__name__} sets unique={schema.unique}; name the columns as key= of @table.")


def _field_rule(column: str, check: str | None, statistics: Mapping[str, Any], nullable: bool, model: str) -> Rule:
    if check not in _FIELD_CHECKS:
        raise ContractError(
            f"{model}.{column}: the pandera check {check!r} has no column form. Known: {', '.join(_FIELD_CHECKS)}; "
            "or write it as a @rule method that returns a boolean column."
        )
    ending, build = _FIELD_CHECKS[check]
    limits = ", ".join(f"{k}={_short(v)}" for k, v in statistics.items())

    def holds() -> Column:
        # Of a null every comparison is null: what that counts as is decided here, once for all checks.
        return F.coalesce(build(F.col(column), statistics), F.lit(nullable))

    return Rule(f"{column}_{ending}", f"{column} {check.replace('_', ' ')} ({limits})", holds, frozenset({column}))


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)
    return textwrap.shorten(text, _LONGEST_TEXT, placeholder="…")
