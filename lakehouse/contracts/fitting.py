"""What the words of one table ask of each other: judged once the table is whole, and its inputs with it.

A word that can be judged alone refuses itself when it is made (`lakehouse.contracts.policy` and the like). Here are the
rest: whether figures, slices, personal columns and what is taken from a database fit its columns, key and inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from lakehouse.contracts.extract import TAKEN
from lakehouse.contracts.features import feature_tables
from lakehouse.contracts.figures import Figure, Sum, columns_of
from lakehouse.contracts.lineage import sources as sources_of
from lakehouse.contracts.mistakes import Mistake, are_known, unless
from lakehouse.contracts.table import Table
from lakehouse.contracts.topic import MESSAGE
from lakehouse.lazy import T

_ARRIVAL = "_arrival_date"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# What Spark takes in a name for a part of a nested column, or for the end of the name, and what tears a line apart.
_NO_NAME = r"[.`\x00-\x1f]"
# Keys that each partition's metadata has of its own.
OF_THE_ASSET = frozenset(
    {"rows_in", "quarantined", "duplicates", "status", "checks", "commit_version", "preview", "report"}
)


def surplus(table: Table, given: Iterable[str]) -> list[str]:
    """The columns that a transform gives and the contract does not know: they would be dropped in silence.

    Those of the engine, and what a transform needs on its way, begin with an underscore.

    Args:
        table: the contract.
        given: names of columns.
    """
    return [name for name in given if name not in table.columns and not name.startswith("_")]


def column_mistakes(made: Table) -> Iterator[Mistake]:
    """What is wrong with the names of a table's columns, and with the types of those that its policy names."""
    strange = [name for name in made.columns if not name.strip() or re.search(_NO_NAME, name)]
    yield from unless(
        not strange, "model", "column names without a point, a backtick or a line break",
        ", ".join(map(repr, strange)),
        f'Rename them in {made.model.__name__} and in the transform: F.col("`a.b`").alias("a_b").', *strange[:1],
    )  # fmt: skip
    kinds = {each.name: each.dataType for each in made.schema.fields}
    found = "which `lakehouse forget` finds"
    for word, columns, fits, wanted, remedy in (
        ("quality.profile", made.quality.profile, _has_spread, "columns of numbers, texts, dates or booleans",
         "Take it out."),
        ("privacy.person", made.privacy.person, _is_id, f"texts or whole numbers, {found}", "Make the column a text."),
        ("privacy.tokens", made.privacy.tokens, _is_text, f"texts, {found}", "Make the column a text."),
    ):  # fmt: skip
        unfit = [name for name in columns if not fits(kinds[name])]
        told = ", ".join(f"{name} ({kinds[name].simpleString()})" for name in unfit)
        yield from unless(not unfit, word, wanted, told, remedy, *unfit[:1])


def _is_text(kind: T.DataType) -> bool:
    return isinstance(kind.elementType if isinstance(kind, T.ArrayType) else kind, T.StringType)


def _is_id(kind: T.DataType) -> bool:
    return _is_text(kind) or isinstance(kind, T.IntegralType)


def _has_spread(kind: T.DataType) -> bool:
    return not isinstance(kind, T.BinaryType | T.ArrayType | T.MapType | T.StructType)


def batch_mistakes(made: Table) -> list[Mistake]:
    """What a table that takes batches, from a database or from topics, lacks, or has too much."""
    if made.taken is None:
        return []
    names, needed = ", ".join(each.name for each in made.rules), TAKEN if made.extract else MESSAGE
    return [
        *unless(set(needed) <= set(made.columns), "model", f"the columns {', '.join(needed)} of taken rows",
                ", ".join(made.columns), "Add those that are missing."),
        *unless(not made.rules, "model", "no row rules, since what was taken cannot be taken again",
                names, "Declare them in the table that reads this one."),
    ]  # fmt: skip


def arrival_mistakes(made: Table) -> list[Mistake]:
    """A bronze table that is not first by the day of arrival: its builds are of arrival days, and replace those."""
    if (made.landing is None and made.taken is None) or _ARRIVAL not in made.columns:
        return []
    return unless(
        made.day_column == _ARRIVAL, "partition_by",
        f"{_ARRIVAL} as the first column of a bronze table, which is built by the day of arrival",
        ", ".join(made.partition_by), f'Write partition_by=("{_ARRIVAL}", "_event_date").', made.day_column,
    )  # fmt: skip


def figure_mistakes(table: Table) -> list[Mistake]:
    """What is wrong with a table's figures."""
    held = {name: table.schema[name].dataType for name in columns_of(table.figures) if name in table.columns}
    return [
        *are_known("figures", columns_of(table.figures), table.columns, f"a column of {table.model.__name__}"),
        *unless(not set(held) & set(table.pii), "figures", "no personal data, since figures are kept with each commit",
                ", ".join(sorted(set(held) & set(table.pii))), "Take it out."),
        *(each for name, figure in table.figures.items() for each in _mistakes(table, name, figure, held)),
    ]  # fmt: skip


def _mistakes(table: Table, name: str, figure: Figure, held: Mapping[str, T.DataType]) -> list[Mistake]:
    found = unless(
        _NAME.fullmatch(name) and name not in OF_THE_ASSET, "figures",
        f"a name of small letters, digits and _, and none that the asset has ({', '.join(sorted(OF_THE_ASSET))})",
        repr(name), "Choose another name.", name,
    )  # fmt: skip
    if not isinstance(figure, Sum):
        return found
    summed, by = held.get(figure.column, T.LongType()), held.get(figure.by, T.StringType())
    exact = isinstance(summed, T.DecimalType | T.LongType | T.IntegerType)
    sound = isinstance(by, T.StringType) and figure.by not in table.partition_by
    return [
        *found,
        *unless(exact, "figures", f"a decimal or whole-number column for the Sum {name}",
                f"{figure.column} ({summed.simpleString()})", "Sum another column, or Count.", figure.column),
        *unless(sound, "figures", f"a text column that is no partition column for by= of the Sum {name}",
                f"{figure.by} ({by.simpleString()})", "Leave by= out, or name another column.", figure.by),
    ]  # fmt: skip


def cut_mistakes(made: Table) -> list[Mistake]:
    """What is wrong with how a table says it may be cut."""
    cut = made.layout.slice_by
    if cut is None:
        return []
    word, key = "layout.slice_by", ", ".join(made.key) or "none"
    kinds = {c: made.schema[c].dataType for c in cut.columns if c in made.columns}
    fractions = [c for c, kind in kinds.items() if isinstance(kind, T.FloatType | T.DoubleType)]
    reads_tables = len(made.upstream) == len(made.inputs) and not made.upsert
    return [
        *unless(cut.columns and set(cut.columns) <= set(made.key), word, f"columns of the key ({key})",
                ", ".join(cut.columns) or "none", "Rows of one key must be in one slice: name some of the key."),
        *unless(not fractions, word, "no fractions, of which equal ones can have different hashes",
                ", ".join(fractions), "Name other columns of the key."),
        *unless(reads_tables, word, "a table that reads tables and is no upsert", made.id, "Leave slice_by out."),
        *are_known(word, cut.reads, tuple(made.inputs), "an input of the transform"),
    ]  # fmt: skip


def feature_mistakes(made: Table) -> list[Mistake]:
    """What is wrong with how a table says that it holds features."""
    said = made.features
    if said is None:
        return []
    day, key = made.day_column, ", ".join(made.key) or "none"
    rest = tuple(name for name in made.key if name != day)
    return [
        *are_known("features.key", said.key, made.columns, f"a column of {made.model.__name__}"),
        *unless(said.key and set(said.key) == set(rest) and day in made.key, "features.key",
                f"the table's key ({key}) but for its day, {day}, which has to be in it",
                ", ".join(said.key) or "none", "A row is of one entity and one day: fix key= or the key of Features."),
        *unless(made.partition_by == (day,), "features", "a table that is partitioned by its day alone",
                ", ".join(made.partition_by), "Take the further columns out of partition_by."),
        *unless(said.columns(made), "features", "a column beside the key", "none", "Add what is known of the entity."),
    ]  # fmt: skip


def entity_mistakes(table: Table, found: Mapping[str, Table]) -> list[Mistake]:
    """Other keys than those of the first table of the same entity.

    Args:
        table: the one that is judged.
        found: all tables by `layer.name`.
    """
    said = table.features
    first = next(iter(feature_tables(found.values(), said.entity)), table) if said else table
    if said is None or first.features is None or first is table:
        return []

    def key_of(of: Table, key: tuple[str, ...]) -> str:
        return ", ".join(f"{name} {of.schema[name].dataType.simpleString()}" for name in key)

    wanted, got = key_of(first, first.features.key), key_of(table, said.key)
    return unless(wanted == got, "features.key", f"the key of {said.entity}, as {first.id} has it ({wanted})", got,
                  "Use the same columns and types, or name another entity.")  # fmt: skip


def closing_mistakes(table: Table, sources: Mapping[str, Table]) -> list[Mistake]:
    """Inputs whose closed hours are asked for, and that no stream feeds.

    Args:
        table: what is built.
        sources: tables by `layer.name`, its inputs among them.
    """
    return [
        mistake
        for each in table.upstream.values()
        if each.hours_close_after is not None
        for mistake in unless(
            sources[each.table].topic is not None, "hours_close_after", "a table with a Topic, whose watermark closes",
            each.table, "Leave it out, or read the table that takes the messages.", each.table,
        )
    ]  # fmt: skip


def slice_mistakes(table: Table, sources: Mapping[str, Table]) -> list[Mistake]:
    """Inputs that are cut and do not have the columns: of another type, equal values have other hashes.

    Args:
        table: what is built.
        sources: tables by `layer.name`, its inputs among them.
    """
    cut, found = table.layout.slice_by, []
    for name in cut.reads if cut else ():
        source = sources[table.upstream[name].table]
        for column in cut.columns if cut else ():
            wanted = table.schema[column].dataType.simpleString()
            held = source.schema[column].dataType.simpleString() if column in source.columns else "no such column"
            found += unless(
                held == wanted, "layout.slice_by", f"{wanted} for {column} in the input {name} ({source.id})", held,
                f"Leave {name} out of `reads`: each slice then reads what Spark cannot leave out by itself.",
            )  # fmt: skip
    return found


def privacy_mistakes(table: Table, found: Mapping[str, Table]) -> list[Mistake]:
    """Personal columns that are none in the table before or behind: there `lakehouse forget` would find nobody.

    A column of several sources is personal if one of them is. What is only computed from personal columns, such as the
    number of people, need not be: so behind a table the name decides. So it does before one for further columns: a text
    may be personal that is put together from others, of which none is.

    Args:
        table: the one that is judged.
        found: all tables by `layer.name`.
    """
    read = {
        name: [(found[source], column) for source, column in each if source in found]
        for name, each in sources_of(table, found).items()
    }
    mistakes: list[Mistake] = []
    for word in ("person", "tokens", "further"):
        for name in getattr(table.privacy, word):
            before = [(each, column) for each, column in read[name] if word != "further" or column == name]
            bare = [f"{each.id}.{column}" for each, column in before if column not in each.pii]
            mistakes += unless(
                not bare or any(column in each.pii for each, column in read[name]), f"privacy.{word}",
                f"{name} to be personal where it comes from", f"{', '.join(bare)}, not personal there",
                "Name it there too, in privacy=Privacy(…).", name,
            )  # fmt: skip
    for name in table.columns:
        held = [each.id for each, column in read[name] if column == name and name in each.pii]
        mistakes += unless(
            name in table.pii or not held, "privacy", f"{name} among the personal columns, as in {', '.join(held)}",
            ", ".join(table.pii) or "none",
            "Name it in privacy=Privacy(…), or give another name to what is not personal.",
        )  # fmt: skip
    return mistakes
