"""`lakehouse connect`: how to open the tables from other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import console, say
from lakehouse.delta.layout import table_path
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.staged import ROUTE
from lakehouse.errors import UsageError
from lakehouse.query.names import built_names
from lakehouse.settings import get_settings
from lakehouse.spark.options import DELTA
from lakehouse.texts import near, program

_SPARK = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",  # as in spark/ivy.xml, which a test compares
    **DELTA,
    "spark.sql.session.timeZone": "UTC",
}


class Tool(StrEnum):
    """What can open the tables."""

    DUCKDB = "duckdb"
    POLARS = "polars"
    PANDAS = "pandas"
    SPARK = "spark"
    TRINO = "trino"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "connect",
        cls=Command,
        epilog=examples("lakehouse connect", "lakehouse connect gold.daily_revenue --for polars"),
    )(connect)


def connect(
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="Default: the first of gold.")] = None,
    tool: Annotated[Tool | None, typer.Option("--for", help="Only for this tool. Default: all.")] = None,
) -> None:
    """Print how to open a table from DuckDB, Polars, pandas, Spark and Trino.

    The tables are plain Delta tables without features that a reader must know.
    """
    settings = get_settings()
    known = built_names(settings)
    if not known:
        raise UsageError(f"Nothing was built yet in {settings.root}. Begin with: {program()} demo")
    if name is None:
        name = next((each for each in known if each.startswith("gold.")), known[0])
    if name not in known:
        raise UsageError(f"There is no table {name} to open.{near(name, known)} Tables: {', '.join(known)}.")
    path = table_path(settings.root, name)
    has_routes = any(f"/{ROUTE}=" in file.path for file in open_snapshot(path).files)
    out = console()
    for each in [tool] if tool else list(Tool):
        out.print(f"{'--' if each is Tool.TRINO else '#'} {each}", markup=False)
        out.print(snippet(each, name, path, has_routes), markup=False, end="\n\n")
    say("These tools read. Tables are changed by their transforms and a backfill alone.")


def snippet(tool: Tool, name: str, path: Path, has_routes: bool) -> str:
    """What opens a table from a tool: Python, or for Trino SQL.

    Args:
        tool: which.
        name: `layer.table`.
        path: its folder.
        has_routes: files of it are in a folder `route=valid`, as where an engine of another user has written them.
    """
    layer, _, short = name.partition(".")
    opened = f'from deltalake import DeltaTable\n\n{short} = DeltaTable("{path}")'
    match tool:
        case Tool.DUCKDB:
            # Closed, or a thread of its own now and then aborts the program at its end.
            ask = f'with duckdb.connect() as db:\n    db.sql("FROM {short} SELECT count(*)").show()'
            own = f"# In DuckDB's own shell, with its extension: INSTALL delta; LOAD delta; FROM delta_scan('{path}');"
            return f"import duckdb\n{opened}.to_pyarrow_dataset()\n{ask}\n{own}"
        case Tool.POLARS:
            if not has_routes:
                return f'import polars as pl\n\n{short} = pl.scan_delta("{path}")\nprint({short}.head().collect())'
            # scan_delta takes `route=valid` in a path for a partition column, and fails. By way of a dataset of
            # pyarrow's, one program in twenty is aborted at its end.
            asked = f"SELECT * FROM {short}"  # noqa: S608  # a table of the lake
            found = f'QueryBuilder().register("{short}", DeltaTable("{path}")).execute("{asked}")'
            return (
                f"import polars as pl\nfrom deltalake import DeltaTable, QueryBuilder\n\nfound = {found}\n"
                f"{short} = pl.DataFrame(found.read_all())\nprint({short}.head())"
            )
        case Tool.PANDAS:
            # With threads, three programs in forty are aborted at their end; without, none of 140.
            rows = "to_pyarrow_dataset().to_table(use_threads=False)"
            return f"{opened}.{rows}.to_pandas()\nprint({short}.head())"
        case Tool.SPARK:
            set_up = "".join(f'\n    .config("{name}", "{value}")' for name, value in _SPARK.items())
            return (
                f"from pyspark.sql import SparkSession\n\nspark = (\n    SparkSession.builder{set_up}\n"
                f'    .getOrCreate()\n)\n{short} = spark.read.format("delta").load("{path}")\n{short}.show()'
            )
        case Tool.TRINO:
            return (
                "-- A catalog `lake` of Trino's Delta connector, with delta.register-table-procedure.enabled=true\n"
                f"CREATE SCHEMA IF NOT EXISTS lake.{layer};\n"
                f"CALL lake.system.register_table('{layer}', '{short}', 'local://{path}');\n"
                f"SELECT count(*) FROM lake.{layer}.{short};"
            )
