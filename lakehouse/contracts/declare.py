"""`@table`: what a table file says of its table, checked word by word."""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse.contracts.clock import Clock
from lakehouse.contracts.extract import Extract
from lakehouse.contracts.features import Features
from lakehouse.contracts.figures import Count, Figure, Sum
from lakehouse.contracts.fitting import (
    arrival_mistakes,
    batch_mistakes,
    column_mistakes,
    cut_mistakes,
    feature_mistakes,
    figure_mistakes,
)
from lakehouse.contracts.keys import key_mistakes
from lakehouse.contracts.landing import Landing
from lakehouse.contracts.mistakes import Mistake, are_known, are_names, check, is_at_least, is_days, unless
from lakehouse.contracts.policy import Anomalies, Freshness, Layout, Privacy, Quality, Quarantine, Volume
from lakehouse.contracts.slices import SliceBy
from lakehouse.contracts.table import COMPATIBILITY, Input, Table
from lakehouse.contracts.topic import Topic
from lakehouse.lazy import T
from lakehouse.settings import LAYERS

if TYPE_CHECKING:
    import pandera.pyspark as pa
    from pyspark.sql import DataFrame

# What Dagster takes: with any other owner it loads none of the tables.
_OWNER = re.compile(r"team:.+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
MOST_DIGITS = 38  # of a decimal, for Delta and Spark
# Columns that staging adds.
RESERVED = ("route", "_failed_rules", "_copies", "_first", "_content", "_beaten")
NO_QUALITY, NO_QUARANTINE, NO_FRESHNESS = Quality(), Quarantine(), Freshness()
NO_PRIVACY, NO_LAYOUT = Privacy(), Layout()

Inputs = Mapping[str, Input | Landing | Extract | Topic]


def table(  # noqa: PLR0913  # one parameter for each thing a table file may say: an editor completes them
    *,
    model: type[pa.DataFrameModel],
    inputs: Inputs,
    partition_by: str | tuple[str, ...],
    owner: str,
    grain: str,
    key: tuple[str, ...] = (),
    keep_first_by: tuple[str, ...] = (),
    unique_within: str | timedelta = "day",
    conserves_rows: bool = False,
    upsert: bool = False,
    clock: Clock | None = None,
    allowed_lateness: timedelta | None = None,
    quality: Quality = NO_QUALITY,
    quarantine: Quarantine = NO_QUARANTINE,
    freshness: Freshness = NO_FRESHNESS,
    privacy: Privacy = NO_PRIVACY,
    layout: Layout = NO_LAYOUT,
    figures: Mapping[str, Figure] | None = None,
    reconciles: Mapping[str, str] | None = None,
    lineage: Mapping[str, str | tuple[str, ...]] | None = None,
    schema_version: int = 1,
    compatibility: str = "backward",
    features: Features | None = None,
    reads: tuple[str, ...] = (),
) -> Callable[[Callable[..., DataFrame]], Table]:
    """Declare the decorated pure function as the transform of the table its file is named after.

    `Table` explains each of these words. A column of an input is written as `parameter.column`, where there is one
    input as `column` alone.

    Args:
        model: the contract: columns, types, nullability, row rules.
        inputs: what is read, by parameter name of the function.
        partition_by: the day column (a date), then further physical partition columns.
        owner: `team:…` or an e-mail address.
        grain: what one row is.
        key: columns that identify a row; checked on every publish.
        keep_first_by: order in which, of rows of one key, the first is kept; empty: two rows of one key fail the day.
        unique_within: "day", or the days in which rows of one key are repeats.
        conserves_rows: True where each input row by itself becomes a published, quarantined or duplicate row.
        upsert: True where rows of one key may come from several days.
        clock: the event time, bounded against the arrival of the row.
        allowed_lateness: how long after their day rows may arrive; None: any time.
        quality: what a day's rows have to be like, all together.
        quarantine: how many rows may be set aside, and for how long.
        freshness: when a day has to be there.
        privacy: the columns that are about people.
        layout: how days lie in files, and how a build of them may be cut.
        figures: by name, sums and counts of a day that are plotted.
        reconciles: own numeric column → column of an input whose sum it must equal.
        lineage: output column → columns of inputs that decide its values, where those are not of its name.
        schema_version: number of the present columns.
        compatibility: what a change of the columns must leave possible.
        features: that the rows are features of an entity, point in time.
        reads: data files that the transform reads, relative to the table file's folder.

    Raises:
        MistakesError: where file, function, parameters, columns or policy do not fit together; every mistake is told.
    """

    def declare(transform: Callable[..., DataFrame]) -> Table:
        layer, file = ["", *transform.__module__.split(".")][-2:]
        where = f"{layer}/{file}.py"
        check(_misnamed(transform, layer, file, inputs), where=where)
        check(_unfit_words(model, inputs, allowed_lateness), where=where)
        lists = {"key": key, "keep_first_by": keep_first_by, "reads": reads}
        check(*(are_names(word, value) for word, value in lists.items()), where=where)
        check(*(_is_one(own, read) for own, read in (reconciles or {}).items()), where=where)
        sums = {own: _sources(inputs, "reconciles", own, read) for own, read in (reconciles or {}).items()}
        columns = {own: _sources(inputs, "lineage", own, read) for own, read in (lineage or {}).items()}
        check(*(found for _, found in [*sums.values(), *columns.values()]), where=where)
        made = Table(
            layer,
            file,
            model,
            transform,
            inputs,
            owner,
            grain,
            (partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
            key=key,
            keep_first_by=keep_first_by,
            unique_within=unique_within,
            conserves_rows=conserves_rows,
            upsert=upsert,
            clock=clock,
            allowed_lateness=allowed_lateness,
            quality=quality,
            quarantine=quarantine,
            freshness=freshness,
            privacy=privacy,
            layout=layout,
            figures=figures or {},
            reconciles={own: source for own, ((source, *_), _) in sums.items()},
            lineage={own: tuple(read) for own, (read, _) in columns.items()},
            schema_version=schema_version,
            compatibility=compatibility,
            features=features,
            reads=reads,
        )
        check(_wrong(made), where=where)
        if transform.__module__ in sys.modules:
            _ = made.code_version  # now: later the file may not be what was loaded
        return made

    return declare


GROUPS = {"quality": Quality, "quarantine": Quarantine, "freshness": Freshness, "privacy": Privacy, "layout": Layout}
VALUES = (*GROUPS.values(), Volume, Anomalies, Clock, SliceBy, Features, Input, Landing, Extract, Topic, Sum, Count)
VOCABULARY = {each.__name__: {name: name for name in inspect.signature(each).parameters} for each in VALUES} | {
    "table": {
        **{
            f"{n}": f"{g}={group.__name__}({n}=…)"
            for g, group in GROUPS.items()
            for n in inspect.signature(group).parameters
        },
        **{name: name for name in inspect.signature(table).parameters},
    }
}
"""The keywords of `@table` and of its values, and how each is written."""


def _misnamed(transform: Callable[..., DataFrame], layer: str, file: str, inputs: Inputs) -> list[Mistake]:
    parameters, name, given = list(inspect.signature(transform).parameters), transform.__name__, list(map(str, inputs))
    return [
        *unless(layer in LAYERS and file == name, "@table", f"a function named after its file, in {', '.join(LAYERS)}",
                f"{name} in {layer}/{file}.py", "One file is one table: rename one of them."),
        *unless(sorted(parameters) == sorted(given), "inputs", f"the parameters of {name} ({', '.join(parameters)})",
                ", ".join(given) or "none", "Name each input as the parameter that it is for."),
    ]  # fmt: skip


def _unfit_words(model: object, inputs: Inputs, lateness: object) -> Iterator[Mistake]:
    """Words of another kind than theirs: what comes later would fail of them without a name."""
    import pandera.pyspark as pa  # the table file has imported it

    is_model = isinstance(model, type) and issubclass(model, pa.DataFrameModel)
    yield from unless(
        is_model, "model", "a model of pandera.pyspark", model,
        "Write `import pandera.pyspark as pa`, then `class Sales(pa.DataFrameModel):`, and model=Sales.",
    )  # fmt: skip
    for each, read in inputs.items():
        yield from unless(
            isinstance(read, Input | Landing | Extract | Topic), "inputs", f"an Input of a table for {each}", read,
            'Write Input("silver.orders"); a bronze table has a Landing, Extract or Topic.',
        )  # fmt: skip
    yield from unless(
        lateness is None or is_days(lateness, 0), "allowed_lateness", "whole days, 0 or more", lateness,
        "Write it as timedelta(days=45).",
    )  # fmt: skip


def _sources(
    inputs: Inputs, word: str, own: str, read: str | tuple[str, ...]
) -> tuple[list[tuple[str, str]], list[Mistake]]:
    """Columns of inputs as table and column, and what is wrong with how they are written."""
    several = (read,) if isinstance(read, str) else read
    if mistakes := are_names(word, several):
        return [], mistakes
    found: list[tuple[str, str]] = []
    for text in several:
        parameter, _, column = text.rpartition(".")
        if not parameter and len(inputs) == 1:
            (parameter,) = inputs
        if parameter in inputs:
            found.append((source_of(inputs[parameter]), column))
        else:
            names = " or ".join(f"{each}.{column}" for each in inputs)
            mistakes += unless(False, word, f"a column of an input for {own}", repr(text), f"Write {names}.", text)
    return found, mistakes


def _is_one(own: str, read: object) -> list[Mistake]:
    do = "Write the column of the input whose sum it has to equal."
    return unless(isinstance(read, str), "reconciles", f"one column of an input for {own}", read, do, own)


def source_of(read: Input | Landing | Extract | Topic) -> str:
    """What lineage calls an input: the table, else where files, rows or messages come from."""
    if isinstance(read, Input):
        return read.table
    kind = {Landing: "landing", Extract: "database", Topic: "topic"}[type(read)]
    return f"{kind}.{read.source}"


def _wrong(made: Table) -> Iterator[Mistake]:
    _ = made.rules  # what cannot be compiled is refused where the file is loaded
    unknown = list(_unknown_columns(made))
    yield from unknown
    if unknown:  # the rest looks at these columns
        return
    yield from _unfit_columns(made)
    yield from column_mistakes(made)
    yield from _unfit_values(made)
    yield from _unfit_inputs(made)
    yield from key_mistakes(made)
    yield from figure_mistakes(made)
    yield from arrival_mistakes(made)
    yield from batch_mistakes(made)
    yield from cut_mistakes(made)
    yield from feature_mistakes(made)


def _unknown_columns(made: Table) -> Iterator[Mistake]:
    named = {
        "partition_by": made.partition_by,
        "key": made.key,
        "clock": (made.clock.column,) if made.clock else (),
        # Beside its columns a table may order by where its rows come from: `_source_file` and the like.
        "keep_first_by": tuple(c for c in made.keep_first_by if not c.startswith("_")),
        "quality.max_null_rate": tuple(made.quality.max_null_rate),
        "quality.profile": made.quality.profile,
        "quality.max_shares": _shared(made),
        "privacy.person": made.privacy.person,
        "privacy.tokens": made.privacy.tokens,
        "privacy.further": made.privacy.further,
        "reconciles": tuple(made.reconciles),
        "lineage": tuple(made.lineage),
    }
    rules = tuple(each.name for each in made.rules)
    yield from are_known("quarantine.max_ages", made.quarantine.max_ages, rules, f"a row rule of {made.model.__name__}")
    for word, columns in named.items():
        yield from are_known(word, columns, made.columns, f"a column of {made.model.__name__}")


def _unfit_columns(made: Table) -> Iterator[Mistake]:
    model, day = made.model.__name__, made.schema[made.day_column].dataType
    yield from unless(
        isinstance(day, T.DateType), "partition_by", "a date as the first column: the day of a row",
        f"{made.day_column} ({day.simpleString()})", "Name the day column first.", made.day_column,
    )  # fmt: skip
    taken = [name for name in made.columns if name in RESERVED]
    listed = f"none of the columns that staging adds ({', '.join(RESERVED)})"
    yield from unless(not taken, "model", listed, ", ".join(taken), f"Rename yours in {model}.")
    folded = Counter(name.casefold() for name in made.columns)
    twice = [name for name in made.columns if folded[name.casefold()] > 1]
    yield from unless(
        not twice, "model", "names that differ by more than case", ", ".join(twice), f"Rename one of them in {model}.",
        *twice[-1:],
    )  # fmt: skip
    for each in made.schema.fields:
        kind = each.dataType
        yield from unless(
            not isinstance(kind, T.DecimalType) or kind.precision <= MOST_DIGITS, each.name,
            f"a decimal of at most {MOST_DIGITS} digits", kind.simpleString(), "Write T.DecimalType(18, 2).", each.name,
        )  # fmt: skip
    for word, columns, why in (
        ("partition_by", made.partition_by, "whose values are in file names"),
        ("quality.profile", made.quality.profile, "whose values are kept with each commit"),
        ("reconciles", made.reconciles, "whose sums are kept with each commit"),
        ("quality.max_shares", _shared(made), "whose sums are kept with each commit"),
    ):
        held = sorted(set(columns) & set(made.pii))
        yield from unless(not held, word, f"no personal data, {why}", ", ".join(held), "Take it out.", *held[:1])
    for word, own in [("reconciles", o) for o in made.reconciles] + [("quality.max_shares", o) for o in _shared(made)]:
        kind = made.schema[own].dataType
        yield from unless(
            isinstance(kind, T.NumericType), word, "a numeric column, which has a sum",
            f"{own} ({kind.simpleString()})", "Name another column.", own,
        )  # fmt: skip


def _shared(made: Table) -> tuple[str, ...]:
    """The columns of `max_shares`."""
    return tuple(name for own, (of, _) in made.quality.max_shares.items() for name in (own, of))


def _unfit_values(made: Table) -> Iterator[Mistake]:
    yield from unless(
        _OWNER.fullmatch(str(made.owner or "")), "owner", "team:… or an e-mail address", made.owner or "nothing",
        "Say who is asked about it.",
    )  # fmt: skip
    yield from unless(made.grain, "grain", "what one row is", "nothing", 'Say it in words: "one order".')
    yield from is_at_least("schema_version", made.schema_version, 1)
    yield from unless(
        made.compatibility in COMPATIBILITY, "compatibility", f"one of {', '.join(COMPATIBILITY)}",
        repr(made.compatibility), "Leave it out for backward.",
    )  # fmt: skip


def _unfit_inputs(made: Table) -> Iterator[Mistake]:
    yield from unless(
        len(made.inputs) == 1 or len(made.upstream) == len(made.inputs), "inputs",
        "tables, or one landed source, one database table or one Topic, and nothing else", ", ".join(made.inputs),
        "Read each source in a bronze table of its own.",
    )  # fmt: skip
    yield from unless(
        not made.taken or not made.lineage, "lineage", "none, where rows are taken as they are",
        ", ".join(made.lineage), "Take it out.",
    )  # fmt: skip
    landed = sorted({name for name, _ in made.reconciles.values() if name.partition(".")[0] not in LAYERS})
    yield from unless(
        not landed, "reconciles", "a column of an input that is a table", ", ".join(landed),
        "Lines of landed files are counted by `lakehouse reconcile` without being asked: take it out.",
    )  # fmt: skip
