"""The expressions of a plan: what each value is computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse.lineage.functions import (
    AGAIN,
    AGGREGATES,
    BY_ORDER,
    CHOICES,
    GENERATORS,
    KINDS,
    NULLNESS,
    PICKS,
    ROW_WISE,
    UNSTEADY,
    WINDOWED,
)
from lakehouse.lineage.values import (
    NOTHING,
    Column,
    Frame,
    NotDerivedError,
    Sources,
    Value,
    chosen,
    found_in,
    parts_of,
    together,
)

Message = Any  # a message of Spark Connect's protocol: the library types them, but not their kinds


@dataclass(frozen=True)
class Scope:
    """Where an expression stands.

    Attributes:
        frame: whose columns it may name.
        plans: by plan id the frames of all plans below, for `df["column"]`.
        subqueries: by plan id the frames of queries in expressions.
        aliases: columns of the same selection that stand before it.
        keys: where rows are grouped, ids of the columns they are grouped by; None where they are not.
        group: what those are made of.
        in_window: whether it is computed over a window.
    """

    frame: Frame
    plans: Mapping[int, Sequence[Frame]] = field(default_factory=dict)
    subqueries: Mapping[int, Frame] = field(default_factory=dict)
    aliases: tuple[Column, ...] = ()
    keys: frozenset[int] | None = None
    group: Sources = NOTHING
    in_window: bool = False


def value_of(expression: Message, scope: Scope) -> Value:
    """What an expression is computed from.

    Raises:
        NotDerivedError: for anything whose sources are not known for certain.
    """
    kind = expression.WhichOneof("expr_type")
    if kind == "expression_string":
        raise NotDerivedError('SQL in a text (write it with columns: F.col("a") == "b")')
    if kind not in _KNOWN:
        raise NotDerivedError(f"an expression of the kind {kind}")
    return _KNOWN[kind](getattr(expression, kind), scope)


def name_of(expression: Message) -> str:
    """The name that a selection gives an expression; empty where it is of Spark's own making."""
    match expression.WhichOneof("expr_type"):
        case "alias":
            return expression.alias.name[0] if len(expression.alias.name) == 1 else ""
        case "unresolved_attribute":
            return parts_of(expression.unresolved_attribute.unparsed_identifier)[-1]
    return ""


def column_of(attribute: Message, scope: Scope) -> Column:
    """The column that a name means."""
    text = attribute.unparsed_identifier
    columns = _of_plan(attribute.plan_id, scope) if attribute.HasField("plan_id") else scope.frame.columns
    try:
        found = found_in(columns, text)
    except NotDerivedError:
        if not any(each.name.lower() == parts_of(text)[0].lower() for each in scope.aliases):
            raise
        found = found_in(scope.aliases, text)
    if scope.keys is not None and found.id not in scope.keys and found.value.all:
        raise NotDerivedError(f"the column {text} beside aggregates, by which rows are not grouped")
    return found


def _of_plan(plan: int, scope: Scope) -> Sequence[Column]:
    """The columns that come from one frame, as `frame.column` means."""
    ids = {column.id for frame in scope.plans.get(plan, ()) for column in frame.columns}
    return tuple(column for column in scope.frame.columns if column.id in ids)


def aggregates(expression: Message) -> bool:
    """Whether it puts rows together, outside of windows and queries of its own."""
    return any(
        kind == "unresolved_function" and each.function_name.lower() in AGGREGATES for kind, each in _inside(expression)
    )


def _inside(expression: Message) -> Iterator[tuple[str, Message]]:
    kind = expression.WhichOneof("expr_type")
    if kind is None:
        return
    held = getattr(expression, kind)
    yield kind, held
    if kind in ("window", "subquery_expression"):
        return
    for _, value in held.ListFields():
        for each in value if hasattr(value, "add") else (value,):  # repeated messages have `add`
            if getattr(each, "DESCRIPTOR", None) is expression.DESCRIPTOR:
                yield from _inside(each)


# ---- by kind --------------------------------------------------------------------------------------------------------


def _attribute(attribute: Message, scope: Scope) -> Value:
    return column_of(attribute, scope).value


def _several(expressions: Sequence[Message], scope: Scope) -> list[Value]:
    found: list[Value] = []
    for each in expressions:
        if each.WhichOneof("expr_type") == "unresolved_star":
            found += [column.value for column in scope.frame.columns]
        else:
            found.append(value_of(each, scope))
    return found


def _function(function: Message, scope: Scope) -> Value:
    name = function.function_name.lower()
    if function.is_user_defined_function:
        raise NotDerivedError(f"the function {name}, which is registered somewhere")
    if name in UNSTEADY or (name == "unix_timestamp" and not function.arguments):
        raise NotDerivedError(f"{name}, which gives other values each time: take them from a column of an input")
    if name in AGGREGATES and not scope.in_window:
        return _aggregate(function, name, scope)
    _check_place(name, scope)
    if name in ("struct", "named_struct"):
        return _struct(function, name, scope)
    values = _several(_counted(function, name), scope)
    if name in NULLNESS:  # of a struct: whether there is one, whatever is in it
        return Value(values[0].direct, values[0].indirect)
    if name == "when":
        return _case(values)
    if name in CHOICES:
        return chosen([Value(v.direct, v.indirect) for v in values], values)
    return together(values)


def _check_place(name: str, scope: Scope) -> None:
    if name in GENERATORS:
        raise NotDerivedError(f"{name} inside of another expression")
    if name in WINDOWED and not scope.in_window:
        raise NotDerivedError(f"{name} outside of a window")


def _case(values: Sequence[Value]) -> Value:
    """Of CASE WHEN: condition and value in turn, and at the end, where their number is odd, the value of ELSE."""
    pairs = len(values) // 2 * 2
    return chosen(values[:pairs:2], [*values[1:pairs:2], *values[pairs:]])


def _counted(function: Message, name: str) -> Sequence[Message]:
    """The arguments; of `count(*)` none, since it looks at no column."""
    stars = [each for each in function.arguments if each.WhichOneof("expr_type") == "unresolved_star"]
    return [] if name == "count" and stars and not function.is_distinct else function.arguments


def _struct(function: Message, name: str, scope: Scope) -> Value:
    arguments = list(function.arguments)
    if name == "named_struct":
        names = [each.literal.string for each in arguments[::2]]
        arguments = arguments[1::2]
    else:
        names = [name_of(each) for each in arguments]
    values = _several(arguments, scope)
    if len(values) != len(names) or not all(names):
        return together(values)
    return Value(fields={n.lower(): replace(v, kind="", before=NOTHING) for n, v in zip(names, values, strict=True)})


def _aggregate(function: Message, name: str, scope: Scope) -> Value:
    if scope.keys is None:
        raise NotDerivedError(f"{name} where no rows are grouped")
    values = _several(_counted(function, name), replace(scope, keys=None))
    made = _picked(name, values) if name in PICKS and values and values[0].fields else together(values)
    by_order = scope.frame.order if name in BY_ORDER else NOTHING
    if len(values) == 1 and not function.is_distinct and values[0].kind and values[0].kind == AGAIN.get(name):
        before = values[0].before
        indirect = before
    else:
        indirect = made.indirect | scope.frame.split
        before = made.around | scope.frame.split
    kind = KINDS.get(name, "") if not function.is_distinct and not made.fields else ""
    around = indirect | scope.group
    return replace(made, direct=made.direct | by_order, indirect=around, kind=kind, before=before if kind else NOTHING)


def _picked(name: str, values: Sequence[Value]) -> Value:
    """One of several structs, whole: `max` and `min` look at all of it, the others at what they are told to look at."""
    return chosen(values if name in ("max", "min") else values[1:], values[:1])


def _udf(function: Message, scope: Scope) -> Value:
    """A function in Python, of one row or of a group: of its arguments, whatever it does with them."""
    if scope.keys is None:
        if function.python_udf.eval_type not in ROW_WISE:
            raise NotDerivedError(f"the function {function.function_name}, which is not of one row")
        return together(_several(function.arguments, scope))
    made = together(_several(function.arguments, replace(scope, keys=None)))
    return replace(made, indirect=made.indirect | scope.frame.split | scope.group)


def _window(window: Message, scope: Scope) -> Value:
    inside = replace(scope, in_window=True)
    made = value_of(window.window_function, inside)
    order = together(value_of(each.child, inside) for each in window.order_spec)
    partition = together(value_of(each, inside) for each in window.partition_spec)
    return Value(
        made.whole | order.whole,
        made.around | order.around | partition.all | scope.frame.split,
    )


def _extract(extract: Message, scope: Scope) -> Value:
    child = value_of(extract.child, scope)
    if extract.extraction.WhichOneof("expr_type") == "literal" and extract.extraction.literal.HasField("string"):
        return child.part([extract.extraction.literal.string])
    return together([child, value_of(extract.extraction, scope)])


def _update(update: Message, scope: Scope) -> Value:
    values = [value_of(update.struct_expression, scope)]
    if update.HasField("value_expression"):
        values.append(value_of(update.value_expression, scope))
    return together(values)


def _subquery(subquery: Message, scope: Scope) -> Value:
    held = scope.subqueries.get(subquery.plan_id)
    if held is None:
        raise NotDerivedError("a query in an expression that looks at the query around it")
    inside = together(_several(subquery.in_subquery_values, scope))
    made = together(column.value for column in held.columns)
    return Value(inside.whole | made.all | held.rows | held.split | held.order, inside.around)


_KNOWN: Mapping[str | None, Callable[[Message, Scope], Value]] = {
    "literal": lambda _, __: Value(),
    "unresolved_attribute": _attribute,
    "unresolved_function": _function,
    "alias": lambda alias, scope: value_of(alias.expr, scope),
    "cast": lambda cast, scope: together([value_of(cast.expr, scope)]),
    "sort_order": lambda order, scope: value_of(order.child, scope),
    # What a lambda is called with is an argument of the function around it.
    "lambda_function": lambda function, scope: value_of(function.function, scope),
    "unresolved_named_lambda_variable": lambda _, __: Value(),
    "window": _window,
    "unresolved_extract_value": _extract,
    "update_fields": _update,
    "common_inline_user_defined_function": _udf,
    "subquery_expression": _subquery,
}
