"""`lakehouse training-set`: labels with the features that were valid at their time, as a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, engine_output_aside, iso, print_json, say
from lakehouse.errors import UsageError
from lakehouse.settings import get_settings
from lakehouse.texts import counted


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "training-set",
        cls=Command,
        epilog=examples(
            "lakehouse training-set --labels labels.csv --features gold.user_features --out training.parquet",
            "lakehouse training-set --labels labels.parquet --time asked_at "
            "--features gold.user_features:rolling_7d_amount,gold.user_fraud_features --out training.parquet",
            "lakehouse training-set --labels labels.csv --features gold.user_features --as-known-then --out t.parquet",
            "lakehouse training-set --labels labels.csv --versions training.parquet.json --out again.parquet",
        ),
    )(training_set)


def training_set(
    *,
    labels: Annotated[
        Path,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="CSV or Parquet file, or folder of a Delta table: the entity's key, a time, and any other columns.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The Parquet file to write.")],
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features",
            metavar="TABLE[:FEATURE]",
            help="All features of a table, or one of them. Several with commas, or given several times.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="COLUMN", help="Column with the time of a label, UTC without offset. Default: event_time."
        ),
    ] = None,
    as_known_then: Annotated[
        bool,
        typer.Option(
            "--as-known-then",
            help="Use only what had been published by the label's time; what was corrected later stays as it was.",
        ),
    ] = False,
    versions: Annotated[
        Path | None,
        typer.Option(
            "--versions",
            metavar="RECORD",
            help="Make the training set of this record again, from the same versions: a .json written beside one, or "
            "the Parquet file.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file where it is there already, and its record.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Join labels with the features that were valid at their time, and write them with a record of all that was read.

    Per table it is the newest row whose day had ended by then and that is not older than the table's ttl. Without one
    the features are null, and <table>__missing is true.
    """
    from lakehouse.catalog import lake_with_engine
    from lakehouse.delta.log import oldest_entry, read_entry
    from lakehouse.features.request import parse_features
    from lakehouse.features.written import read_manifest, write_training_set

    if versions and (features or time or as_known_then):
        raise UsageError(
            "--versions says which features, time and way: leave out --features, --time and --as-known-then."
        )
    settings = get_settings()
    lake = lake_with_engine(settings)
    again = read_manifest(versions) if versions else None
    asked = again.features if again else tuple(features or ())
    parse_features(asked, lake.tables)  # before an engine starts
    with engine_output_aside(settings):
        made = write_training_set(
            lake,
            labels,
            out,
            features=asked,
            time=time or "event_time",
            as_known_then=as_known_then,
            again=again,
            replace=replace,
        )
    if as_json:
        print_json({"file": str(made.file), "rows": made.rows, "missing": made.missing})
        return
    say(f"{counted(made.rows, 'label')} in {made.file}; what they were made of is in {made.file.name}.json.")
    for name, missing in made.missing.items():
        say(f"{name}: {counted(made.rows - missing, 'label')} with features, {missing:,} without.")
        if as_known_then and missing == made.rows:
            begun = read_entry(lake.path(name), oldest_entry(lake.path(name)), ()).time
            say(f"{name} was first published at {iso(begun)}: what labels ask for before that was not known then.")
