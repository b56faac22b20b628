"""Column lineage: what each column is computed from. Declared in table files, and proven by perturbation in tests."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse.contracts.mistakes import Mistake, are_known, unless
from lakehouse.contracts.table import Table

Source = tuple[str, str]  # table (or `landing.<source>`) and column


def sources(table: Table, upstream: Mapping[str, Table]) -> dict[str, tuple[Source, ...]]:
    """The input columns whose values decide the values of each column: as declared, else those of the same name.

    Args:
        table: the table.
        upstream: its input tables by name; more do no harm.
    """
    found: dict[str, tuple[Source, ...]] = {}
    landing = table.landing
    for name in table.columns:
        if name in table.lineage:
            found[name] = tuple(
                (source, column)
                for source, declared in table.lineage[name]
                for column in (upstream[source].columns if declared == "*" else (declared,))
            )
        elif landing is not None:
            found[name] = ((f"landing.{landing.source}", name),) if name in landing.columns else ()
        else:
            read = dict.fromkeys(each.table for each in table.upstream.values())
            found[name] = tuple((source, name) for source in read if name in upstream[source].columns)
    return found


def grouping(table: Table, upstream: Mapping[str, Table]) -> tuple[Source, ...]:
    """The input columns that decide which input rows make one row: those that the key is computed from.

    Every column of the table depends on them, which `sources` does not repeat. None where one row is made of one row.
    """
    if table.landing is not None or table.conserves_rows:
        return ()
    found = sources(table, upstream)
    return tuple(dict.fromkeys(source for column in table.key for source in found[column]))


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
    for own, (source, column) in table.reconciles.items():
        if unknown := are_known("reconciles", {column}, columns[source], f"a column of {source}"):
            found += unknown
        else:
            found += unless(
                column in upstream[source].profiled, "reconciles", f"a column of {source} with kept sums, for {own}",
                f"{column}, which is not in its profile", f"Add it to quality=Quality(profile=…) in {source}.", column,
            )  # fmt: skip
    return list(dict.fromkeys(found))
