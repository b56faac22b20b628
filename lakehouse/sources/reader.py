"""Landed files as a frame of raw text rows: every line has its file and position, nothing is dropped.

The files have been looked at before (`lakehouse.sources.probe`): what cannot be read comes as one row that says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Landing
from lakehouse.settings import get_settings
from lakehouse.sources.json_lines import clean, json_rows
from lakehouse.sources.lines import lines_of
from lakehouse.sources.probe import Probe, printable
from lakehouse.spark.config import is_here
from lakehouse.transforms.addresses import without_addresses
from lakehouse.transforms.columns import (
    PERSONAL,
    TokenKey,
    masked,
    may_hold_address,
    personal_field,
    token_key,
)

_MOST_FIELDS = 20_000  # of a CSV line; beyond 20,480 the parser does not refuse the line, it fails the job

LINE = ("_arrival_date", "_source_file", "_source_row")  # where a line is from
LINE_SCHEMA = [
    T.StructField("_rescued", T.StringType()),
    T.StructField("_arrival_date", T.DateType()),
    T.StructField("_source_file", T.StringType()),
    T.StructField("_source_row", T.LongType()),
    T.StructField("_raw", T.StringType()),
    T.StructField("_error", T.StringType()),
]


def read_lines(
    spark: SparkSession, probes: Sequence[Probe], landing: Landing, root: Path, run_id: str, code_version: str
) -> DataFrame:
    """One row a line of the readable files, and one row an unreadable file.

    Columns: the landing's columns as raw text, then `_rescued` (JSON of what fits no column), `_arrival_date`,
    `_source_file` (relative to the root), `_source_row` (line number, from 1), `_raw` (the line, where it could not
    be parsed), `_error` (why), `_ingested_run` and `_code_version`. Several rows never share a line; where a quoted
    field holds a line break, the line that it begins on is therefore broken. E-mail addresses are replaced in all of
    them but the landing's `addresses`, in `_rescued` and `_raw` the values of its `personal` fields too.

    Args:
        spark: the engine.
        probes: one file or more, as `probe` found them.
        landing: how their lines are read.
        root: of the lakehouse.
        run_id: recorded in each row.
        code_version: recorded in each row.
    """
    unreadable, alike = [p for p in probes if p.problem], dict[tuple[tuple[str, ...], bool], list[Probe]]()
    frames = [_unreadable(spark, unreadable, landing, root)] if unreadable else []
    for each in probes:
        if not each.problem:
            alike.setdefault((each.header, each.signs), []).append(each)
    key = token_key() if any(signs for _, signs in alike) else None
    # Files of one header are read together: each plan has the columns of its own files, in their order.
    frames += [_readable(spark, p, landing, root, key if signs else None) for (_, signs), p in alike.items()]
    whole = reduce(DataFrame.unionByName, frames)
    return whole.withColumns({"_ingested_run": F.lit(run_id), "_code_version": F.lit(code_version)})


def _readable(
    spark: SparkSession, probes: Sequence[Probe], landing: Landing, root: Path, key: TokenKey | None
) -> DataFrame:
    """The rows of files with one header; without a key no address is looked for."""
    here = is_here(get_settings().spark_url)  # the Python of workers elsewhere may lack what it takes to read in pieces
    in_pieces = [p.file for p in probes if here and p.large]
    at_once = [p.file for p in probes if not (here and p.large)]
    lines = lines_of(spark, at_once, in_pieces, landing, root)
    if key is not None:
        lines = lines.withColumn("_at", may_hold_address(F.col("_line")))
    if landing.format == "csv":
        return _csv_rows(lines, landing, probes[0].header, key)
    return json_rows(lines, landing, key, LINE)


def _schema(landing: Landing) -> T.StructType:
    return T.StructType([*[T.StructField(c, T.StringType()) for c in landing.columns], *LINE_SCHEMA])


def _csv_rows(lines: DataFrame, landing: Landing, header: tuple[str, ...], key: TokenKey | None) -> DataFrame:
    names = {name: f"c{i}" for i, name in enumerate(header)}
    schema = T.StructType([T.StructField(c, T.StringType()) for c in (*names.values(), "after", "bad")])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad", "emptyValue": "", "nullValue": ""}
    options["escape"] = '"'  # a quote within quotes is doubled (RFC 4180); a backslash is itself
    # One more field, empty, stands behind the line: a quoted one that does not end on it takes its separator. By itself
    # the parser takes such a field for whole. Fields are counted only where a line is long enough to have too many.
    # Bytes are an upper bound of fields, and cheap.
    options["sep"], separator = landing.separator, F.lit(landing.separator)
    size = F.octet_length("_line")
    few = (size < _MOST_FIELDS) | (size - F.octet_length(F.replace("_line", separator, F.lit(""))) < _MOST_FIELDS)
    parsed = F.from_csv(
        F.when(few, F.concat("_line", separator)),
        schema.simpleString().removeprefix("struct<").removesuffix(">").replace(":", " "),
        options,
    )
    # The header is line 1, so the numbers of the others are those that an editor shows.
    rows = lines.where(F.col("_source_row") > 1).withColumn("_p", parsed)
    wrong = ~few | F.col("_p.bad").isNotNull() | F.col("_p.after").isNotNull() | (F.trim("_line") == "")
    error = f"not a CSV line of {len(header)} fields"
    is_open = F.length(F.regexp_replace("_line", '[^"]', "")) % 2 == 1
    why = F.when(is_open, f"{error}: its quotes do not close, as where a field holds a line break").otherwise(error)
    extra = [name for name in header if name not in landing.columns]
    personal = re.compile(personal_field(landing.personal)) if landing.personal else None
    values = [
        F.when(F.col(f"_p.{names[n]}").isNotNull(), PERSONAL) if personal and personal.match(f'"{n}":')
        else F.col(f"_p.{names[n]}")
        for n in extra
    ]  # fmt: skip
    named = [v.alias(without_addresses(n)) for v, n in zip(values, extra, strict=True)]  # plans show names
    rescued = F.to_json(F.struct(*named)) if extra else F.lit(None)
    return rows.select(
        *[
            clean(F.col(f"_p.{names[c]}"), c, landing.addresses, key)
            if c in names
            else F.lit(None).cast("string").alias(c)
            for c in landing.columns
        ],
        masked(rescued.cast("string")).alias("_rescued"),
        "_arrival_date",
        "_source_file",
        "_source_row",
        F.when(wrong, masked(F.col("_line"))).alias("_raw"),
        F.when(wrong, why).alias("_error"),
    )


def _unreadable(spark: SparkSession, probes: Sequence[Probe], landing: Landing, root: Path) -> DataFrame:
    blank = (None,) * (len(landing.columns) + 1)
    rows: list[tuple[str | date | None, ...]] = [
        (*blank, p.file.arrival_date, printable(p.file.path.relative_to(root).as_posix()), None, None, p.problem)
        for p in probes
    ]
    return spark.createDataFrame(rows, _schema(landing))
