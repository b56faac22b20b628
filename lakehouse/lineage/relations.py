"""The relations of a plan: what each column is made of, and what decides the rows, from the inputs upwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyspark.sql.connect.proto as connect

from lakehouse.lineage.expressions import Message, Scope, aggregates, column_of, name_of, value_of
from lakehouse.lineage.functions import GENERATORS
from lakehouse.lineage.values import NOTHING, Column, Frame, NotDerivedError, Sources, Value, chosen, together

_JOIN, _SET = connect.Join, connect.SetOperation
_ONE_SIDED = (_JOIN.JOIN_TYPE_LEFT_SEMI, _JOIN.JOIN_TYPE_LEFT_ANTI)


def frame_of(plan: Message, inputs: Mapping[str, Frame]) -> Frame:
    """What a recorded plan gives.

    Args:
        plan: a relation of Spark Connect's protocol.
        inputs: by the name that the plan reads them under.

    Raises:
        NotDerivedError: for anything whose sources are not known for certain.
    """
    return _Reader(inputs).frame(plan)


class _Reader:
    """One reading of a plan; it remembers the frames of all plans by id, by which columns may name them."""

    def __init__(self, inputs: Mapping[str, Frame]) -> None:
        self._inputs = inputs
        self._plans: dict[int, list[Frame]] = defaultdict(list)
        self._subqueries: dict[int, Frame] = {}

    def frame(self, relation: Message) -> Frame:
        """The frame of a relation and, before it, of those below."""
        kind = relation.WhichOneof("rel_type")
        read: Callable[[Message], Frame] | None = getattr(self, f"_of_{kind}", None)
        if read is None:
            raise NotDerivedError(f"a step of the kind {kind}")
        made = read(getattr(relation, kind))
        self._plans[relation.common.plan_id].append(made)
        return made

    def _scope(self, frame: Frame) -> Scope:
        return Scope(frame, self._plans, self._subqueries)

    # ---- leaves -----------------------------------------------------------------------------------------------------

    def _of_read(self, read: Message) -> Frame:
        name = read.named_table.unparsed_identifier
        if name not in self._inputs:
            raise NotDerivedError(f"{name or 'files'}, read past the inputs")
        held = self._inputs[name]
        # Read twice it is two frames, of which each has its own columns.
        return replace(held, columns=tuple(Column(each.name, each.value) for each in held.columns))

    def _of_range(self, _: Message) -> Frame:
        return Frame((Column("id", Value()),))

    def _of_with_relations(self, several: Message) -> Frame:
        for each in several.references:
            self._subqueries[each.common.plan_id] = self.frame(each)
        return self.frame(several.root)

    # ---- columns ----------------------------------------------------------------------------------------------------

    def _of_project(self, project: Message) -> Frame:
        frame = self.frame(project.input) if project.HasField("input") else Frame(())
        if any(aggregates(each) for each in project.expressions):
            return self._grouped(frame, [], project.expressions)
        return self._selected(frame, project.expressions)

    def _selected(self, frame: Frame, expressions: Sequence[Message]) -> Frame:
        columns: list[Column] = []
        rows = frame.rows
        for each in expressions:
            kind = each.WhichOneof("expr_type")
            scope = replace(self._scope(frame), aliases=tuple(c for c in columns if c.name))
            if kind == "unresolved_star":
                columns += self._starred(each.unresolved_star, frame)
            elif _generates(each):
                made, more = self._generated(each, scope)
                columns += made
                rows |= more
            elif kind == "unresolved_attribute":
                columns.append(column_of(each.unresolved_attribute, scope))
            else:
                columns.append(Column(name_of(each), value_of(each, scope)))
        return replace(frame, columns=tuple(columns), rows=rows)

    def _starred(self, star: Message, frame: Frame) -> list[Column]:
        columns = frame.columns
        if star.HasField("unparsed_target"):
            wanted = star.unparsed_target.removesuffix(".*").lower()
            columns = tuple(each for each in columns if wanted in each.qualifiers)
        if star.HasField("plan_id"):
            ids = {c.id for held in self._plans.get(star.plan_id, ()) for c in held.columns}
            columns = tuple(each for each in columns if each.id in ids)
        if not columns:
            raise NotDerivedError(f"{star.unparsed_target or '*'}, which are no columns that are known")
        return list(columns)

    def _generated(self, expression: Message, scope: Scope) -> tuple[list[Column], Sources]:
        function = expression.alias.expr.unresolved_function if expression.HasField("alias") else None
        if function is None:
            raise NotDerivedError("the columns of explode or the like, which have no names")
        made = together(value_of(each, scope) for each in function.arguments)
        return [Column(name, made) for name in expression.alias.name], made.all

    def _of_with_columns(self, several: Message) -> Frame:
        frame = self.frame(several.input)
        columns, rows = list(frame.columns), frame.rows
        for alias in several.aliases:
            each = connect.Expression(alias=alias)
            if aggregates(each):
                raise NotDerivedError(f"the aggregate {alias.name[0]} in withColumn")
            if _generates(each):
                made, more = self._generated(each, self._scope(frame))
                rows |= more
            else:
                made = [Column(alias.name[0], value_of(each, self._scope(frame)))]
            at = [n for n, held in enumerate(columns) if held.name.lower() == alias.name[0].lower()]
            for n in at:
                columns[n] = made[0]
            columns += [] if at else made
        return replace(frame, columns=tuple(columns), rows=rows)

    def _of_with_columns_renamed(self, renamed: Message) -> Frame:
        frame = self.frame(renamed.input)
        names = dict(renamed.rename_columns_map) | {each.col_name: each.new_col_name for each in renamed.renames}
        found = {old.lower(): new for old, new in names.items()}
        return replace(frame, columns=tuple(_renamed(c, found.get(c.name.lower(), c.name)) for c in frame.columns))

    def _of_to_df(self, to_df: Message) -> Frame:
        frame = self.frame(to_df.input)
        if len(to_df.column_names) != len(frame.columns):
            raise NotDerivedError("toDF with other columns than there are")
        return replace(frame, columns=tuple(map(_renamed, frame.columns, to_df.column_names)))

    def _of_drop(self, drop: Message) -> Frame:
        frame = self.frame(drop.input)
        names = {each.lower() for each in drop.column_names}
        ids = {column_of(each.unresolved_attribute, self._scope(frame)).id for each in drop.columns}
        return replace(
            frame, columns=tuple(c for c in frame.columns if c.name.lower() not in names and c.id not in ids)
        )

    def _of_subquery_alias(self, named: Message) -> Frame:
        frame = self.frame(named.input)
        under = frozenset({named.alias.lower()})
        return replace(frame, columns=tuple(replace(each, qualifiers=under) for each in frame.columns))

    # ---- rows -------------------------------------------------------------------------------------------------------

    def _of_filter(self, kept: Message) -> Frame:
        frame = self.frame(kept.input)
        return replace(frame, rows=frame.rows | value_of(kept.condition, self._scope(frame)).all)

    def _of_drop_na(self, kept: Message) -> Frame:
        frame = self.frame(kept.input)
        looked_at = [frame.find(name) for name in kept.cols] or [each.value for each in frame.columns]
        return replace(frame, rows=frame.rows | together(looked_at).all)

    def _of_fill_na(self, filled: Message) -> Frame:
        return _once(self.frame(filled.input))

    _of_replace = _of_fill_na

    def _of_sort(self, ordered: Message) -> Frame:
        frame = self.frame(ordered.input)
        by = together(value_of(each.child, self._scope(frame)) for each in ordered.order)
        return replace(frame, order=by.all)

    def _of_repartition(self, spread: Message) -> Frame:
        return replace(self.frame(spread.input), order=NOTHING)

    _of_repartition_by_expression = _of_repartition

    def _of_hint(self, hinted: Message) -> Frame:
        return self.frame(hinted.input)

    def _of_limit(self, cut: Message) -> Frame:
        frame = self.frame(cut.input)
        if not frame.order:
            raise NotDerivedError("a limit of rows in no order")
        return replace(_once(frame), rows=frame.rows | frame.order | frame.split)

    _of_offset = _of_limit
    _of_tail = _of_limit

    def _of_deduplicate(self, kept: Message) -> Frame:
        frame = self.frame(kept.input)
        columns = list(frame.columns)
        if not kept.all_columns_as_keys:
            columns = [each for name in kept.column_names for each in frame.named(name)]
            if len(columns) < len(kept.column_names):
                raise NotDerivedError("dropDuplicates by columns that are not there")
        return _merged(frame, columns)

    def _of_aggregate(self, grouped: Message) -> Frame:
        if grouped.group_type != connect.Aggregate.GROUP_TYPE_GROUPBY:
            raise NotDerivedError("rollup, cube, pivot or grouping sets")
        return self._grouped(
            self.frame(grouped.input), grouped.grouping_expressions, grouped.aggregate_expressions
        )  # fmt: skip

    def _grouped(self, frame: Frame, by: Sequence[Message], made: Sequence[Message]) -> Frame:
        keys = self._selected(frame, by)
        if keys.rows != frame.rows or any(map(aggregates, by)):
            raise NotDerivedError("groups by explode or an aggregate")
        group = together(each.value for each in keys.columns).all
        scope = replace(self._scope(frame), keys=frozenset(each.id for each in keys.columns), group=group)
        found = [Column(name_of(each), value_of(each, scope)) for each in made]
        return Frame((*keys.columns, *found), frame.rows, group)

    # ---- several frames ---------------------------------------------------------------------------------------------

    def _of_join(self, join: Message) -> Frame:
        left, right = _once(self.frame(join.left)), _once(self.frame(join.right))
        both = Frame((*left.columns, *right.columns), left.rows | right.rows, left.split | right.split)
        if join.HasField("join_condition"):
            both = replace(both, rows=both.rows | value_of(join.join_condition, self._scope(both)).all)
        columns = self._of_using(join, left, right) if join.using_columns else both.columns
        if join.using_columns:
            used = [side.find(f"`{name}`") for side in (left, right) for name in join.using_columns]
            both = replace(both, rows=both.rows | together(used).all)
        if join.join_type in _ONE_SIDED:
            return replace(both, columns=left.columns, split=left.split)
        return replace(both, columns=columns)

    def _of_using(self, join: Message, left: Frame, right: Frame) -> tuple[Column, ...]:
        names = {each.lower() for each in join.using_columns}
        keys = []
        for name in join.using_columns:
            (one,), (other,) = left.named(name), right.named(name)
            if join.join_type == _JOIN.JOIN_TYPE_FULL_OUTER:
                keys.append(Column(one.name, chosen([], [one.value, other.value])))
            else:
                keys.append(other if join.join_type == _JOIN.JOIN_TYPE_RIGHT_OUTER else one)
        return (*keys, *(each for side in (left, right) for each in side.columns if each.name.lower() not in names))

    def _of_set_op(self, several: Message) -> Frame:
        left, right = self.frame(several.left_input), self.frame(several.right_input)
        others = _by_name(several, left, right) if several.by_name else list(right.columns)
        if several.by_name:
            names = {each.name.lower() for each in left.columns}
            left = replace(
                left,
                columns=(*left.columns, *(Column(c.name, Value()) for c in others if c.name.lower() not in names)),
            )
        if len(left.columns) != len(others):
            raise NotDerivedError("a union of frames with different columns")
        if several.set_op_type != _SET.SET_OP_TYPE_UNION:
            looked_at = together(each.value for each in (*left.columns, *others)).all
            made = replace(_once(left), rows=left.rows | right.rows | right.split | looked_at)
        else:
            columns = tuple(
                Column(one.name, _either(one.value, other.value))
                for one, other in zip(left.columns, others, strict=True)
            )
            made = Frame(columns, left.rows | right.rows, left.split | right.split)
        return made if several.is_all else _merged(made, made.columns)


def _generates(expression: Message) -> bool:
    inner = expression.alias.expr if expression.HasField("alias") else expression
    return inner.HasField("unresolved_function") and inner.unresolved_function.function_name.lower() in GENERATORS


def _renamed(column: Column, name: str) -> Column:
    return column if name == column.name else Column(name, column.value)


def _once(frame: Frame) -> Frame:
    """The frame where its rows may be there several times from now on, or not all: sums of sums are no sums then."""
    return replace(
        frame, columns=tuple(replace(c, value=replace(c.value, kind="", before=NOTHING)) for c in frame.columns)
    )


def _merged(frame: Frame, keys: Sequence[Column]) -> Frame:
    """One row for each value of some columns: whichever row it is, they and what made its rows decide that."""
    by = together(each.value for each in keys).all
    ids = {each.id for each in keys}
    around = by | frame.split

    def picked(column: Column) -> Column:
        return replace(column, value=replace(column.value, indirect=column.value.indirect | around))

    columns = tuple(each if each.id in ids else picked(each) for each in _once(frame).columns)
    return replace(frame, columns=columns, split=by, order=NOTHING)


def _either(one: Value, other: Value) -> Value:
    """The value of a row that is from one frame or from another."""
    made = chosen([], [one, other])
    kind = one.kind if one.kind == other.kind else ""
    return replace(made, kind=kind, before=one.before | other.before if kind else NOTHING)


def _by_name(several: Message, left: Frame, right: Frame) -> list[Column]:
    """The right columns in the order of the left ones, with those behind them that only the right has."""
    found: list[Column] = []
    for each in left.columns:
        same = right.named(each.name)
        if len(same) != 1 and not (several.allow_missing_columns and not same):
            raise NotDerivedError(f"a union by name, where {each.name or 'a column without a name'} is not in both")
        found.append(same[0] if same else Column(each.name, Value()))
    names = {each.name.lower() for each in left.columns}
    return [*found, *(each for each in right.columns if each.name.lower() not in names)]
