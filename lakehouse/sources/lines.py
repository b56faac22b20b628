"""The lines of landed files as a frame: one row a line, with its file, arrival day and number.

A small file is one row that Spark splits: nothing leaves the engine. A large one would be in memory several times over
on that way (50 MB ended an engine of 2 GB, with its neighbours), so an engine on this machine has Python read it piece
by piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.contracts.landing import UTF_8
from lakehouse.spark.session import literal_path

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    import pyarrow as pa

    from lakehouse.contracts import Landing
    from lakehouse.sources.landing import LandingFile

_PIECE = 2 << 20  # bytes that a worker has in memory at once; a line is never cut


def lines_of(
    spark: SparkSession, at_once: Sequence[LandingFile], in_pieces: Sequence[LandingFile], landing: Landing, root: Path
) -> DataFrame:
    """One row a line: `_source_file` (relative to the root), `_arrival_date`, `_source_row` (from 1) and `_line`.

    Args:
        spark: the engine.
        at_once: files that Spark splits.
        in_pieces: files that Python reads; of both together, one or more.
        landing: how their names tell the day of arrival, and the encoding of their text.
        root: of the lakehouse.
    """
    frames = [_split(spark, [file.path for file in at_once], landing)] if at_once else []
    if in_pieces:
        placed = [(str(f.path), f.path.relative_to(root).as_posix(), f.arrival_date) for f in in_pieces]
        frames.append(_in_pieces(spark, placed, landing.encoding))
    return reduce(DataFrame.unionByName, frames)


def _split(spark: SparkSession, paths: Sequence[Path], landing: Landing) -> DataFrame:
    # A whole file a row keeps line positions; the split below is lazy and streams through the rest of the stage.
    files = spark.read.text([literal_path(p) for p in paths], wholetext=True)
    path = F.col("_metadata.file_path")
    relative = F.concat(F.lit("landing/"), F.element_at(F.split(path, "/landing/"), -1))
    text = F.col("value") if landing.encoding == UTF_8 else text_of(F.col("value").cast("binary"), landing.encoding)
    body = F.regexp_replace(text, r"\r?\n\z", "")
    # Spark gives paths as URLs. A plus sign in them is itself, which `url_decode` would take for a space.
    decoded = F.url_decode(F.replace(relative, F.lit("+"), F.lit("%2B")))
    # Hadoop reads an empty file as one empty value: no line, not an empty line.
    placed = files.where(F.length("value") > 0).select(
        decoded.alias("_source_file"), _day_of(decoded, landing).alias("_arrival_date"), body.alias("_body")
    )
    # In a second step, so that what is the same for a whole file is not computed for each line.
    split = F.posexplode(F.split("_body", r"\r?\n")).alias("_position", "_line")
    lines = placed.select("_source_file", "_arrival_date", split)
    return lines.select(
        "_source_file", "_arrival_date", "_line", (F.col("_position") + 1).cast("long").alias("_source_row")
    )


def _day_of(path: Column, landing: Landing) -> Column:
    """The arrival day of a file from its path, by the first of the source's patterns that fits."""
    days = []
    for names in landing.names:
        expression = "^" + "/".join([*map(re.escape, ("landing", landing.source)), *names.parts]) + "$"
        year, month, day = (F.regexp_extract(path, expression, place) for place in names.places)
        days.append(F.try_to_date(F.concat_ws("-", year, month, day)))
    return F.coalesce(*days)


def _in_pieces(spark: SparkSession, placed: list[tuple[str, str, date]], encoding: str) -> DataFrame:
    files = spark.createDataFrame(placed, "path string, _source_file string, _arrival_date date")
    lines = files.mapInArrow(
        _reader(_PIECE), "_source_file string, _arrival_date date, _source_row long, _bytes binary"
    )
    return lines.select(
        "_source_file", "_arrival_date", text_of(F.col("_bytes"), encoding).alias("_line"), "_source_row"
    )


def text_of(content: Column, encoding: str = UTF_8) -> Column:
    """Bytes as text. Those that are none become U+FFFD, so that names of people around them are still found."""
    if encoding != UTF_8:
        # Of ISO-8859-1, the byte is the character's number, and Spark knows it everywhere; of others it may not.
        theirs = bytes(range(256)).decode(encoding, "replace")
        byte_by_byte = bytes(range(256)).decode("iso-8859-1")
        return F.translate(F.decode(content, "ISO-8859-1"), byte_by_byte[128:], theirs[128:])
    text = content.cast("string")
    # A pattern makes the text of them that it makes of a small file.
    return F.when(F.is_valid_utf8(text), text).otherwise(F.regexp_replace(text, r"\z", ""))


def _reader(piece: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker's Python does; a function within one is sent to it whole, and imports nothing of this package."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gzip
        import io

        import pyarrow as pa

        for batch in batches:
            for file in batch.to_pylist():
                opened = gzip.open if file["path"].endswith(".gz") else open
                with opened(file["path"], "rb") as content, io.BufferedReader(content) as stream:
                    number = 1
                    while found := stream.readlines(piece):
                        # The end of a line is no part of it, and of an unended one a carriage return is.
                        lines = [e[:-1].removesuffix(b"\r") if e.endswith(b"\n") else e for e in found]
                        after = number + len(lines)
                        yield pa.RecordBatch.from_pydict(
                            {
                                "_source_file": pa.repeat(file["_source_file"], len(lines)),
                                "_arrival_date": pa.repeat(pa.scalar(file["_arrival_date"]), len(lines)),
                                "_source_row": pa.array(range(number, after), pa.int64()),
                                "_bytes": pa.array(lines, pa.binary()),
                            }
                        )
                        number = after

    return read
