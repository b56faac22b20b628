"""What is known of a frame while its plan is read: of each column, and of the rows, which input columns decide them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from lakehouse.contracts.lineage import Source
from lakehouse.errors import LakehouseError
from lakehouse.texts import near

Sources = frozenset[Source]
NOTHING: Sources = frozenset()
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_fresh = count().__next__


class NotDerivedError(LakehouseError):
    """A plan holds something whose sources are not known for certain; the text says what."""


class NoColumnError(NotDerivedError):
    """A plan names a column that is not there: Spark would refuse it, too."""


@dataclass(frozen=True)
class Value:
    """What the values of a column are made of.

    Attributes:
        direct: input columns that they are computed from; of a struct: those that decide which struct it is.
        indirect: input columns that decide which rows are computed together.
        fields: of a struct its fields, by name.
        kind: `sum`, `max` and the like, where several rows of it may be put together by the same function again.
        before: of such a value the indirect columns that remain then: not the groups that it was first computed in.
    """

    direct: Sources = NOTHING
    indirect: Sources = NOTHING
    fields: Mapping[str, Value] = field(default_factory=dict)
    kind: str = ""
    before: Sources = NOTHING

    @property
    def whole(self) -> Sources:
        """All that it is computed from, the fields of a struct included."""
        return self.direct.union(*(each.whole for each in self.fields.values()))

    @property
    def around(self) -> Sources:
        """All that decides which rows are computed together."""
        return self.indirect.union(*(each.around for each in self.fields.values()))

    @property
    def all(self) -> Sources:
        """Whatever can change it."""
        return self.whole | self.around

    def part(self, names: Sequence[str]) -> Value:
        """A field of a field … of it; where its fields are not known, all of it."""
        if not names:
            return self
        # Not known what a field is made of: then of all that the struct is, which names too much and never too little.
        inner = self.fields.get(names[0].lower())
        if inner is None:
            return together([self])
        return replace(
            inner, direct=inner.direct | self.direct, indirect=inner.indirect | self.indirect, kind="", before=NOTHING
        ).part(names[1:])


def together(values: Iterable[Value]) -> Value:
    """What is computed from several values."""
    several = list(values)
    return Value(NOTHING.union(*(v.whole for v in several)), NOTHING.union(*(v.around for v in several)))


def chosen(by: Iterable[Value], among: Sequence[Value]) -> Value:
    """One of several values, whole: of structs with the same fields it is such a struct again."""
    # A null beside structs (`CASE … ELSE NULL`) has no sources, and does not hide what their fields are.
    deciding, structs = together(by), [each for each in among if each.all]
    names = {tuple(each.fields) for each in structs}
    if len(names) != 1 or names == {()}:
        return together([deciding, *among])
    return Value(
        deciding.direct.union(*(each.direct for each in structs)),
        deciding.indirect.union(*(each.indirect for each in structs)),
        {name: chosen([], [each.fields[name] for each in structs]) for name in names.pop()},
    )


@dataclass(frozen=True)
class Column:
    """A column of a frame.

    Attributes:
        name: empty where Spark gives it one of its own making, by which it cannot be found here.
        value: what it is made of.
        qualifiers: names of the frame before which its own may be written.
        id: equal where it is the same column passed on, as Spark's expression ids are.
    """

    name: str
    value: Value
    qualifiers: frozenset[str] = frozenset()
    id: int = field(default_factory=_fresh)


@dataclass(frozen=True)
class Frame:
    """The columns of a relation, and what decides its rows.

    Attributes:
        columns: in order.
        rows: input columns that decide which rows there are.
        split: input columns by whose values input rows were put together into its rows.
        order: input columns by which it is sorted.
    """

    columns: tuple[Column, ...]
    rows: Sources = NOTHING
    split: Sources = NOTHING
    order: Sources = NOTHING

    def find(self, text: str) -> Value:
        """The column of a name, or a field of it."""
        return found_in(self.columns, text).value

    def named(self, name: str) -> list[Column]:
        """The columns of a name, as it is written without backticks."""
        return [each for each in self.columns if each.name.lower() == name.lower()]


def found_in(columns: Sequence[Column], text: str) -> Column:
    """The one column that a name means; of a field of a struct a column with its value.

    Raises:
        NoColumnError: there is none.
        NotDerivedError: there is more than one.
    """
    parts = parts_of(text)
    name, rest = parts[0].lower(), parts[1:]
    # `a.b` is column b of the frame a, if there is one, before it is field b of a column a: as Spark resolves it.
    found = [(c, rest[1:]) for c in columns if rest and name in c.qualifiers and rest[0].lower() == c.name.lower()]
    found = found or [(c, rest) for c in columns if c.name and c.name.lower() == name]
    if not found:
        of = ", ".join(sorted({table for column in columns for table, _ in column.value.whole}))
        meant = near(text, sorted({column.name for column in columns if column.name}), most=1, alike=0.6)
        hints = "; ".join(filter(None, (of and f"of {of}", meant.replace(" Did", "did"))))
        where = f" ({hints})" if hints else ""
        raise NoColumnError(f"the column {text}, which is in none of the columns before it{where}")
    # The same column passed on twice is one; two columns of one name are not, and Spark refuses them as well.
    if len({column.id for column, _ in found}) > 1:
        raise NotDerivedError(f"the column {text}, which may be one of several")
    column, fields = found[0]
    return Column(fields[-1], column.value.part(fields)) if fields else column


def parts_of(text: str) -> list[str]:
    """The parts of a name with dots; what stands in backticks is one part."""
    return [quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(text)] or [text]
