"""Column lineage: what each column is computed from.

It is derived from the transform where that is exact (`lakehouse.lineage.derive`), declared in the table file where it
is not, and proven by perturbation in tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakehouse.contracts.derived import NO_FRAME, NOT_GIVEN, NOT_WANTED, Derived, Source
from lakehouse.contracts.mistakes import Mistake, are_known, unless
from lakehouse.contracts.table import Table

_TO_DO = {
    NOT_GIVEN: "Give them there; or take them, or what needs the arrival (clock, allowed_lateness), out of the table.",
    NOT_WANTED: "Leave them out at its end, or add them to the model; what it needs on the way begins with `_`.",
    NO_FRAME: "End it with `return` and the frame.",
}


def sources(table: Table, upstream: Mapping[str, Table]) -> dict[str, tuple[Source, ...]]:
    """The input columns whose values decide the values of each column: as declared, else as derived, else by name.

    Args:
        table: the table.
        upstream: its input tables by name; more do no harm.
    """
    found: dict[str, tuple[Source, ...]] = {}
    derived = table.derived.columns if table.derived else {}
    for name in table.columns:
        # What a person has declared counts first: it says what the code cannot, such as a function in Python.
        if name in table.lineage:
            found[name] = tuple(
                (source, column)
                for source, declared in table.lineage[name]
                for column in (upstream[source].columns if declared == "*" else (declared,))
            )
        elif name in derived:
            found[name] = _there(derived[name], table, upstream)
        else:
            found[name] = _of_its_name(name, table, upstream)
    return found


def _of_its_name(name: str, table: Table, upstream: Mapping[str, Table]) -> tuple[Source, ...]:
    landing = table.landing
    if landing is not None:
        return ((f"landing.{landing.source}", name),) if name in landing.columns else ()
    read = dict.fromkeys(each.table for each in table.upstream.values())
    return tuple((source, name) for source in read if name in upstream[source].columns)


def _there(found: Iterable[Source], table: Table, upstream: Mapping[str, Table]) -> tuple[Source, ...]:
    """Those that are there still: lineage that was derived from older code may name others."""
    columns = {each.table: upstream[each.table].columns for each in table.upstream.values()}
    if table.landing is not None:
        columns[f"landing.{table.landing.source}"] = table.landing.columns
    return tuple((source, column) for source, column in found if column in columns.get(source, ()))


def lost_sources(table: Table, upstream: Mapping[str, Table]) -> list[str]:
    """What the kept lineage of a table names and its inputs no longer have, as `layer.table.column`.

    Args:
        table: the table.
        upstream: its input tables by name; more do no harm.
    """
    if table.derived is None:
        return []
    named = dict.fromkeys(
        [*(source for each in table.derived.columns.values() for source in each), *table.derived.rows]
    )
    there = set(_there(named, table, upstream))
    return [f"{source}.{column}" for source, column in named if (source, column) not in there]


def one_by_one(table: Table) -> bool:
    """Whether each row is made of one input row."""
    return table.landing is not None or table.conserves_rows


def grouping(table: Table, upstream: Mapping[str, Table]) -> tuple[Source, ...]:
    """The input columns that decide which input rows make one row: those of the key, of filters, joins and groups.

    Every column of the table depends on them, which `sources` does not repeat. None where one row is made of one row.
    """
    rows = _there(table.derived.rows, table, upstream) if table.derived else ()
    if one_by_one(table):
        return rows
    found = sources(table, upstream)
    return tuple(dict.fromkeys([*(source for column in table.key for source in found[column]), *rows]))


def source_mistakes(table: Table, upstream: Mapping[str, Table]) -> list[Mistake]:
    """Columns of inputs that a table names and that are not there, or whose sums nobody keeps.

    Args:
        table: the table.
        upstream: its input tables by name; more do no harm.
    """
    fields = {f"landing.{table.landing.source}": table.landing.columns} if table.landing else {}
    columns = fields | {each.table: upstream[each.table].columns for each in table.upstream.values()}
    found: list[Mistake] = []
    for read in table.lineage.values():
        for source, column in read:
            known = columns[source]
            found += are_known("lineage", {column} - {"*"}, known, f"a column of {source}")
    # One mistake at a time: beside a column that is not there, what the transform reads would be told as wrong too.
    found += [] if found else lineage_mistakes(table, upstream, table.derived if table.derived_now else None)
    for own, (source, column) in table.reconciles.items():
        if unknown := are_known("reconciles", {column}, columns[source], f"a column of {source}"):
            found += unknown
        else:
            found += unless(
                column in upstream[source].profiled, "reconciles", f"a column of {source} with kept sums, for {own}",
                f"{column}, which is not in its profile", f"Add it to quality=Quality(profile=…) in {source}.", column,
            )  # fmt: skip
    return list(dict.fromkeys(found))


def lineage_mistakes(table: Table, upstream: Mapping[str, Table], derived: Derived | None) -> list[Mistake]:
    """Where declared lineage does not fit the transform, and where some has to be declared.

    Args:
        table: the table.
        upstream: its input tables by name; more do no harm.
        derived: its lineage as its present code has it; None where nobody knows.
    """
    if derived is None:
        return []
    found: list[Mistake] = []
    if do := next((do for ending, do in _TO_DO.items() if derived.refused.endswith(ending)), None):
        return [Mistake.plain("transform", f"the transform has {derived.refused}. {do}")]
    if derived.refused:
        bare = [c for c in table.columns if c not in table.lineage and not _of_its_name(c, table, upstream)]
        told = f"lineage: the transform has {derived.refused}, so the sources of {', '.join(bare)} are not derived."
        do = f'If it is right, declare them: lineage={{"{bare[0]}": …}}.' if bare else ""
        return [Mistake.plain("lineage", f"{told} {do}")] if bare else []
    around = (*derived.rows, *grouping(table, upstream))
    for name, read in sources(table, upstream).items():
        if name not in table.lineage:
            continue  # it is derived; what was kept of older code, or goes by names, says nothing of this transform
        unread = [f"{t}.{c}" for t, c in read if (t, c) not in (*derived.columns.get(name, read), *around)]
        looked_at = ", ".join(f"{t}.{c}" for t, c in derived.columns.get(name, ())) or "no input column"
        do = "Leave it out: it is derived. Declare less only where a value does not depend on what is looked at."
        expected = f"of {name} what the transform computes it from ({looked_at})"
        found += unless(not unread, "lineage", expected, ", ".join(unread), do, name)
    return found
