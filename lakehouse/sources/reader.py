"""Landed files as a frame of raw text rows: every line has its file and position, nothing is dropped.

Files are first probed on the driver (threads over whole files: gzip checksum, header, line count), so that one broken
file is named and set aside instead of failing the job that reads its neighbours.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import reduce
from pathlib import Path
from typing import BinaryIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse import store
from lakehouse.contracts import Landing, Table
from lakehouse.contracts.landing import SEPARATORS
from lakehouse.contracts.schema_versions import added_later, read_lock
from lakehouse.settings import get_settings
from lakehouse.sources.json_lines import BYTE_ORDER_MARK, clean, json_rows
from lakehouse.sources.landing import LandingFile
from lakehouse.sources.lines import LARGE, MANY, lines_of
from lakehouse.spark.config import is_here
from lakehouse.transforms.addresses import SIGNS, without_addresses
from lakehouse.transforms.columns import (
    PERSONAL,
    TokenKey,
    masked,
    may_hold_address,
    personal_field,
    token_key,
)

_CHUNK = 1 << 20
_GZIP = 31  # zlib's number for data in gzip's format
_SIGNS = [sign.encode() for sign in SIGNS]
_LONGEST_SIGN = max(map(len, _SIGNS)) - 1  # bytes of one that may be in the chunk before
MOST_LINES = 2_000_000  # of one file: of lines that are set aside, the driver holds 400 bytes each for the record
LARGEST_FILE = 1 << 30  # bytes uncompressed; on a cluster a file is one row on its way through Spark, of 2 GiB at most

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


@dataclass(frozen=True)
class Probe:
    """What a landed file turned out to be: its lines of data, its header, and why it cannot be read (or None).

    Its `size` is in bytes, uncompressed. Where no sign of an e-mail address is in the file (`signs`), its columns need
    not be looked at for one.
    """

    file: LandingFile
    lines: int
    header: tuple[str, ...]
    problem: str | None
    signs: bool = True
    size: int = 0

    @property
    def large(self) -> bool:
        """Whether an engine on this machine reads it in pieces."""
        return self.size >= LARGE or self.lines >= MANY


def probe(
    files: Iterable[LandingFile], landing: Landing, optional: Collection[str] = (), chunk: int = _CHUNK
) -> list[Probe]:
    """Look at every file once, in threads; never raises for what a file holds.

    Args:
        files: landed files.
        landing: what they should be.
        optional: columns that a CSV file may lack, since they were added after it was written.
        chunk: bytes that are looked at at once.
    """
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) * 2)) as pool:
        return list(pool.map(lambda file: _probe(file, landing, optional, chunk), files))


def probe_of(table: Table, files: Iterable[LandingFile]) -> list[Probe]:
    """As `probe`, of a landed table's files: one from before a column was there is whole without it."""
    assert table.landing is not None
    return probe(files, table.landing, added_later(table, read_lock().get(table.id, ())) or ())


def _probe(file: LandingFile, landing: Landing, optional: Collection[str], size_of_chunk: int) -> Probe:
    if problem := unfit(file):
        return Probe(file, 0, (), problem)
    try:
        seen = _seen(file.path, size_of_chunk)
    except (EOFError, OSError, zlib.error) as error:
        return Probe(file, 0, (), f"{file.path.name} {_unseen(error)}")
    for number, most, what in ((seen.size, LARGEST_FILE, "bytes uncompressed"), (seen.lines, MOST_LINES, "lines")):
        if number > most:
            return Probe(file, 0, (), f"{file.path.name} has {number} {what}, at most {most}; split it")
    if landing.format != "csv":
        return Probe(file, seen.lines, (), None, seen.signs, seen.size)
    if seen.first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Probe(file, 0, (), f"{file.path.name} is UTF-16 text; land it as UTF-8")
    text = seen.first.split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r").removeprefix(BYTE_ORDER_MARK)
    try:
        header = tuple(next(csv.reader(io.StringIO(text), delimiter=landing.separator), ()))
    except csv.Error:  # its fields are in no message: of a file without a header, they are somebody's
        why = "a carriage return within it; end lines with a line feed" if "\r" in text else "too long a field"
        return Probe(file, 0, (), f"{file.path.name} has no CSV header: its first line has {why}; land it again")
    if problem := _wrong_header(header, landing, optional, empty=not seen.size):
        return Probe(file, 0, header, f"{file.path.name} {problem}")
    return Probe(file, seen.lines - 1, header, None, seen.signs, seen.size)


@dataclass
class _Seen:
    """What one pass over a file's bytes finds: lines, uncompressed bytes, the first line, signs of an address."""

    lines: int = 0
    size: int = 0
    first: bytes = b""
    signs: bool = False


def _seen(path: Path, size_of_chunk: int) -> _Seen:
    """Go once through a file, whatever its size, in chunks: it is never in memory as a whole."""
    found, ended, before = _Seen(), True, b""
    with store.opened(path) as stream:
        for chunk in _chunks(stream, size_of_chunk, packed=path.suffix == ".gz"):
            # The header may be longer than a chunk.
            if b"\n" not in found.first:
                found.first += chunk
            found.lines += chunk.count(b"\n")
            found.size += len(chunk)
            ended = chunk.endswith(b"\n")
            # A sign may lie across two chunks.
            found.signs = found.signs or any(sign in before + chunk for sign in _SIGNS)
            before = chunk[-_LONGEST_SIGN:]
    # A last line without its end of line is a line.
    found.lines += 0 if ended else 1
    return found


def _chunks(stream: BinaryIO, most: int, *, packed: bool) -> Iterator[bytes]:
    """A file's bytes, unpacked, so many at once at most and none of them empty.

    Python's `gzip` passes over zeros behind the end of the data, at which the engine fails; so they are refused here.

    Raises:
        EOFError: the packed data is cut short.
        zlib.error: it is none, or something else follows it.
    """
    member, ended = None, False
    left = stream.read(most)
    while left:
        if packed:
            # Of a single byte, zlib itself would say that it is cut short.
            if member is None and not left.startswith(b"\x1f"):
                follow = "other bytes follow its data, such as zeros that fill it up"
                raise zlib.error(follow if ended else "it does not begin as gzip does")
            member = member or zlib.decompressobj(_GZIP)
            chunk = member.decompress(left, most)
            left, ended = member.unused_data or member.unconsumed_tail, member.eof
            member = None if ended else member
        else:
            chunk, left = left, b""
        if chunk:
            yield chunk
        left = left or stream.read(most)
    if member is not None:
        raise EOFError


def _wrong_header(header: Sequence[str], landing: Landing, optional: Collection[str], *, empty: bool) -> str | None:
    missing = [name for name in landing.columns if name not in header and name not in optional]
    if missing:
        found = "nothing, the file is empty" if empty else _header_text(header, landing)
        for sign, told in SEPARATORS.items():
            if len(header) == 1 and sign in header[0] and not {*landing.columns}.isdisjoint(header[0].split(sign)):
                found += f", separated by {told}; if all its files are, give its Landing separator={sign!r}"
        return f"lacks the column(s) {', '.join(missing)}; its header holds {found}"
    if len(set(header)) != len(header):
        found = _header_text([name for name in header if header.count(name) > 1], landing)
        return f"names a column twice in its header: {found}"
    return None


def _header_text(names: Sequence[str], landing: Landing) -> str:
    """Known names of a header, others counted: of a file without one, they are a person's first row."""
    known = [name for name in dict.fromkeys(names) if name in landing.columns]
    others = len({name for name in names if name not in landing.columns})
    told = [", ".join(known)] if known else []
    return " and ".join([*told, *([f"{others} unknown name(s)"] if others else [])])


def _unseen(error: Exception) -> str:
    """Why a file could not be read to its end, and what to do."""
    match error:
        case FileNotFoundError():
            return "was removed while it was read; land the file again, or build the day without it"
        case OSError(errno=int() as number):  # of the system; what gzip says has no number
            return f"cannot be read ({os.strerror(number).lower()}); make it readable for whoever runs the lakehouse"
        case EOFError():
            return "ends early: its gzip data is cut short; land the file again"
    return f"is not readable gzip ({error}); land the file again"


def unfit(file: LandingFile) -> str | None:
    """Why a file must not even be opened; None where it may."""
    name = printable(file.path.name)
    if name != file.path.name:
        why = "is not UTF-8, which the engine cannot open" if "\ufffd" in name else "holds an e-mail address"
        return f"{name} has a name that {why}; rename it"
    zone = next(folder for folder in file.path.parents if folder.name == file.source)
    if not store.is_inside(file.path, zone):
        return f"{name} is reached by a link that leads out of the landing zone; land a copy of the file"
    return None


def printable(name: str) -> str:
    """A file's name as text without addresses; bytes that are no UTF-8 show as unknown."""
    return without_addresses(name.encode(errors="surrogateescape").decode(errors="replace"))


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
