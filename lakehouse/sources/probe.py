"""What each landed file turns out to be before Spark reads it: its lines, its header, and why it cannot be read.

Files are looked at by the driver, in threads over whole files, so that one broken file is named and set aside instead
of failing the job that reads its neighbours.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lakehouse import store
from lakehouse.contracts import Landing, Table
from lakehouse.contracts.landing import SEPARATORS, UTF_8
from lakehouse.contracts.lineage import sources
from lakehouse.contracts.schema_versions import added_later, read_lock
from lakehouse.sources.landing import LandingFile
from lakehouse.transforms.addresses import SIGNS, without_addresses

BYTE_ORDER_MARK = "\ufeff"
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LARGE = 8 << 20  # bytes uncompressed from which a file is read in pieces; the other way takes seven times its size
MANY = 200_000  # lines from which it is, too: each takes a hundred bytes there, were it empty
_CHUNK = 1 << 20
_GZIP = 31  # zlib's number for data in gzip's format
_SIGNS = [sign.encode() for sign in SIGNS]
_LONGEST_SIGN = max(map(len, _SIGNS)) - 1  # bytes of one that may be in the chunk before
MOST_LINES = 2_000_000  # of one file: of lines that are set aside, the driver holds 400 bytes each for the record
LARGEST_FILE = 1 << 30  # bytes uncompressed; on a cluster a file is one row on its way through Spark, of 2 GiB at most


@dataclass(frozen=True)
class Probe:
    """What a landed file turned out to be: its lines of data, its header, and why it cannot be read (or None).

    Its `size` is in bytes, uncompressed. Where no sign of an e-mail address is in the file (`signs`), its columns need
    not be looked at for one. `doubt` says why its text may not be what was meant.
    """

    file: LandingFile
    lines: int
    header: tuple[str, ...]
    problem: str | None
    signs: bool = True
    size: int = 0
    doubt: str | None = None

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
        optional: columns that a CSV file may lack beside those that its Landing names, since they were added later.
        chunk: bytes that are looked at at once.
    """
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) * 2)) as pool:
        return list(pool.map(lambda file: _probe(file, landing, optional, chunk), files))


def probe_of(table: Table, files: Iterable[LandingFile]) -> list[Probe]:
    """As `probe`, of a landed table's files: one from before a column was there is whole without it."""
    assert table.landing is not None
    return probe(files, table.landing, _added_fields(table, table.landing))


def _added_fields(table: Table, landing: Landing) -> set[str]:
    """The fields that came later: by the columns of their names, else by those that alone are computed from them."""
    later = set(added_later(table, read_lock().get(table.id, ())) or ())
    if not later:
        return later
    used = {field for _, field in (table.derived.rows if table.derived else ())} | set(table.columns)
    made: dict[str, set[str]] = {}
    for column, fields in sources(table, {}).items():
        for _, field in fields:
            made.setdefault(field, set()).add(column)
    renamed = {name for name in landing.columns if name not in used and made.get(name) and made[name] <= later}
    return later | renamed


def _probe(file: LandingFile, landing: Landing, optional: Collection[str], size_of_chunk: int) -> Probe:
    if problem := unfit(file):
        return Probe(file, 0, (), problem)
    try:
        # Of JSON, a line with such bytes is as a rule no JSON, and set aside by itself.
        seen = _seen(file.path, size_of_chunk, {UTF_8, landing.encoding} if landing.format == "csv" else ())
    except (EOFError, OSError, zlib.error) as error:
        return Probe(file, 0, (), f"{file.path.name} {_unseen(error)}")
    for number, most, what in ((seen.size, LARGEST_FILE, "bytes uncompressed"), (seen.lines, MOST_LINES, "lines")):
        if number > most:
            return Probe(file, 0, (), f"{file.path.name} has {number} {what}, at most {most}; split it")
    if landing.format != "csv":
        return Probe(file, seen.lines, (), None, seen.signs, seen.size)
    if problem := _marked(seen.first, landing.encoding):
        return Probe(file, 0, (), f"{file.path.name} {problem}")
    text = seen.first.split(b"\n", 1)[0].decode(landing.encoding, "replace").rstrip("\r").removeprefix(BYTE_ORDER_MARK)
    try:
        header = tuple(next(csv.reader(io.StringIO(text), delimiter=landing.separator), ()))
    except csv.Error:  # its fields are in no message: of a file without a header, they are somebody's
        why = "a carriage return within it; end lines with a line feed" if "\r" in text else "too long a field"
        return Probe(file, 0, (), f"{file.path.name} has no CSV header: its first line has {why}; land it again")
    if problem := _wrong_header(header, landing, optional, empty=not seen.size):
        return Probe(file, 0, header, f"{file.path.name} {problem}")
    doubt = _doubt(seen, landing.encoding)
    told = f"{file.path.name} {doubt}" if doubt else None
    return Probe(file, seen.lines - 1, header, None, seen.signs, seen.size, told)


def _marked(first: bytes, encoding: str) -> str | None:
    """Why a CSV file cannot be in an encoding: its byte order mark is of another one."""
    if first.startswith(UTF_16_MARKS):
        return f"is UTF-16 text; land it as {encoding}"
    if first.startswith(codecs.BOM_UTF8) and encoding != UTF_8:
        return f"is UTF-8 by its first bytes; land it as {encoding}, or correct its Landing's encoding"
    return None


class _Text:
    """Whether the chunks of a file are text of an encoding."""

    def __init__(self, encoding: str) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self.fits = True

    def add(self, chunk: bytes, *, final: bool = False) -> None:
        """Take the next chunk. ASCII is text of every encoding here; to see that takes next to no time."""
        if self.fits and (final or not chunk.isascii() or self._decoder.getstate()[0]):
            try:
                self._decoder.decode(chunk, final)
            except UnicodeDecodeError:
                self.fits = False


@dataclass
class _Seen:
    """What one pass over a file's bytes finds: lines, uncompressed bytes, the first line, signs of an address.

    Its bytes are `ascii` throughout or not, and texts of encodings or not.
    """

    texts: Mapping[str, _Text]
    lines: int = 0
    size: int = 0
    first: bytes = b""
    signs: bool = False
    ascii: bool = True


def _seen(path: Path, size_of_chunk: int, encodings: Iterable[str]) -> _Seen:
    """Go once through a file, whatever its size, in chunks: it is never in memory as a whole."""
    found, ended, before = _Seen({name: _Text(name) for name in encodings}), True, b""
    with store.opened(path) as stream:
        for chunk in _chunks(stream, size_of_chunk, packed=path.suffix == ".gz"):
            # The header may be longer than a chunk.
            if b"\n" not in found.first:
                found.first += chunk
            found.lines += chunk.count(b"\n")
            found.size += len(chunk)
            ended = chunk.endswith(b"\n")
            # A sign may lie across two chunks. For one byte Python looks twenty times as fast as for several.
            if not found.signs:
                seen = before + chunk
                found.signs = any(sign[:1] in seen and sign in seen for sign in _SIGNS)
            before = chunk[-_LONGEST_SIGN:]
            found.ascii = found.ascii and chunk.isascii()
            for text in found.texts.values():
                text.add(chunk)
    for text in found.texts.values():
        text.add(b"", final=True)
    # A last line without its end of line is a line.
    found.lines += 0 if ended else 1
    return found


def _doubt(seen: _Seen, encoding: str) -> str | None:
    """Why a CSV file that can be read may be in another encoding than its source is said to write."""
    if not seen.texts[encoding].fits:
        return (
            f"has bytes that are no {encoding}, which became U+FFFD; if all its files are so, give its Landing their "
            "encoding, such as encoding='windows-1252'"
        )
    if encoding != UTF_8 and not seen.ascii and seen.texts[UTF_8].fits:
        return f"is UTF-8 by its bytes, and was read as {encoding}; land it in that, or correct its Landing's encoding"
    return None


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
    missing = [name for name in landing.columns if name not in {*header, *optional, *landing.optional}]
    if missing:
        found = "nothing, the file is empty" if empty else _header_text(header, landing)
        for sign, told in SEPARATORS.items():
            if len(header) == 1 and sign in header[0] and not {*landing.columns}.isdisjoint(header[0].split(sign)):
                found += f", separated by {told}; if all its files are, give its Landing separator={sign!r}"
        # A file with none of its columns is empty, another's or without a header: to let it lack them helps nobody.
        if not {*landing.columns}.isdisjoint(header):
            found += f"; if its files may lack that, write optional={tuple(missing)!r} in its Landing"
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
