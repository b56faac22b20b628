"""Column lineage: what each column is computed from. Declared in table files, and proven by perturbation in tests."""

from __future__ import annotations

from collections.abc import Mapping

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
