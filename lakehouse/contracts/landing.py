"""Landed files as the input of a bronze table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache

from lakehouse.contracts.mistakes import Mistake, are_known, are_names, check, unless
from lakehouse.days import EARLIEST, LATEST, is_between
from lakehouse.errors import ContractError

FORMATS = ("csv", "jsonl")
UTF_8 = "utf-8"
# Beside it, those that write a character as one byte, and ASCII as ASCII: a line ends where its bytes say so.
ENCODINGS = (UTF_8, "windows-1252", "iso-8859-1", "iso-8859-15", "windows-1250", "iso-8859-2", "windows-1251")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
PERSONAL_WORDS = (
    "phone", "telephone", "mobile", "email", "address", "street", "postcode", "zip_code", "ip", "birth", "birthday",
    "birthdate", "birth_date", "first_name", "last_name", "full_name", "customer_name", "surname", "passport", "ssn",
    "iban", "card_number", "latitude", "longitude",
)  # fmt: skip
_NAME = r"[A-Za-z][\w.-]{0,39}"
_DAY = re.compile(r"\{day(?::([^{}]*))?\}")
_DIRECTIVES = {"%Y": r"(\d{4})", "%m": r"(\d\d)", "%d": r"(\d\d)"}


@dataclass(frozen=True)
class FileNames:
    """How the files of a source are called, and which day each belongs to.

    Attributes:
        pattern: a path under the source's folder: `{day}` stands for its arrival day as YYYY-MM-DD, `{day:%d%m%Y}` for
            one that is written otherwise, `*` for any text without a slash, `[.gz]` for `.gz` or nothing.
    """

    pattern: str

    def __post_init__(self) -> None:
        """Refuse a pattern that tells no day.

        Raises:
            ContractError: where it has not exactly one day, made of %Y, %m and %d once each.
        """
        days = [found or "%Y-%m-%d" for found in _DAY.findall(self.pattern)]
        if len(days) != 1 or sorted(re.findall("%.", days[0])) != sorted(_DIRECTIVES) or "/" in days[0]:
            raise ContractError(
                f"The files of a landed source are called as {{day}}.csv.gz or {{day:%Y%m%d}}/*.jsonl are: expected "
                f"one day of %Y, %m and %d, got {self.pattern!r}."
            )

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """A regular expression for each folder and at last the file; one of them has the groups of the day."""
        return tuple(_expression(part) for part in self.pattern.split("/"))

    @cached_property
    def places(self) -> tuple[int, int, int]:
        """Which groups are year, month and day, from 1."""
        found = _DAY.search(self.pattern)
        order = re.findall("%.", (found and found[1]) or "%Y-%m-%d")
        year, month, day = (order.index(each) + 1 for each in _DIRECTIVES)
        return year, month, day

    def day_of(self, name: str, depth: int) -> tuple[bool, date | None]:
        """Whether a name fits at a depth, from 0, and the day that it tells there, if it does."""
        return _day_of(self, name, depth)


@lru_cache(maxsize=100_000)  # the same names are looked at several times a run
def _day_of(names: FileNames, name: str, depth: int) -> tuple[bool, date | None]:
    found = re.fullmatch(names.parts[depth], name, re.ASCII)
    if found is None or not found.re.groups:
        return found is not None, None
    try:
        day = date(*(int(found[place]) for place in names.places))
    except ValueError:  # the thirtieth of February
        return False, None
    # No lake has a partition for others: a file of such a day is told as one that no table reads.
    return (True, day) if is_between(day, EARLIEST, LATEST) else (False, None)


def _expression(part: str) -> str:
    """Names that begin with `.` or `_` are files in the making."""
    text = ""
    for piece in re.split(r"(\{day[^{}]*\}|\*|\[[^\]]*\])", part):
        if found := _DAY.fullmatch(piece):
            text += re.sub(
                r"(%.)|([^%]+)",
                lambda each: _DIRECTIVES[each[1]] if each[1] else re.escape(each[2]),
                found[1] or "%Y-%m-%d",
            )
        else:
            left_out = piece.startswith("[")
            literal = re.escape(piece[1:-1] if left_out else piece)
            text += "[^/]*" if piece == "*" else f"(?:{literal})?" if left_out else literal
    return f"(?![._]){text}"


@dataclass(frozen=True)
class Landing:
    """Landed files that a bronze transform reads, one arrival day a partition.

    All that the lakehouse has to know of a source stands here: a new one needs no line elsewhere.

    Fields beyond `columns` are kept in `_rescued`, except the values of those that have a word of `personal` in their
    names: they are left out, in broken lines too.

    No e-mail address is kept: a text with one becomes its token as it is read, in every column but `addresses`, and in
    `_rescued` and broken lines the address is replaced.

    A **producer** is whoever writes files and dates events by a clock of its own. What it controls is the name of its
    files within a day, so that is what names it.

    Attributes:
        source: names the folder of the landing zone.
        format: `csv` or `jsonl`.
        columns: the fields that become columns, as text.
        optional: those of them that a CSV file may lack, as where the source has renamed or dropped one; null then.
        personal: words of field names whose values are never kept.
        addresses: columns that arrive as they are, since the transform makes tokens of them.
        time: the column with the event time.
        producer: a pattern for a file's name, whose first group is the producer's; None, or where it does not match:
            the source is one producer.
        files: how its files are called under the source's folder, such as `{day}.csv.gz` or `{day}/*.jsonl` (see
            `FileNames`); empty: `{day}.<format>[.gz]` and `{day}/*.<format>[.gz]`.
        during_day: files of a day come while it is on: it is built as they come, and is open until it is over (UTC);
            else the files of today wait until then.
        separator: what is between the fields of a CSV line: `,`, `;`, a tab or `|`.
        encoding: of CSV files: `utf-8`, or an older one with a byte a character, such as `windows-1252`.
        sample: `module:function` that makes files for a demonstration (see `lakehouse.sources.samples`); None: none.
    """

    source: str
    format: str  # "csv" or "jsonl"
    columns: tuple[str, ...]
    personal: tuple[str, ...] = PERSONAL_WORDS
    addresses: tuple[str, ...] = ()
    time: str | None = None
    producer: str | None = None
    files: tuple[str, ...] = ()
    during_day: bool = False
    separator: str = ","
    encoding: str = UTF_8
    optional: tuple[str, ...] = ()
    sample: str | None = None

    @cached_property
    def names(self) -> tuple[FileNames, ...]:
        """How its files are called.

        Raises:
            ContractError: for a pattern that tells no day.
        """
        usual = (f"{{day}}.{self.format}[.gz]", f"{{day}}/*.{self.format}[.gz]")
        return tuple(map(FileNames, self.files or usual))

    def __post_init__(self) -> None:
        of = f"a field of landing/{self.source}"
        check(
            unless(self.format in FORMATS, "inputs", f"a format, {' or '.join(FORMATS)}", repr(self.format),
                   "Have the source sent in one of these."),
            unless(self.separator in SEPARATORS, "inputs", f"a separator, one of {', '.join(map(repr, SEPARATORS))}",
                   repr(self.separator), "Have the source sent with one of these."),
            unless(self.format == "csv" or self.separator == ",", "inputs", "a separator of CSV files alone",
                   f"{self.separator!r} for {self.format}", "Leave it out."),
            unless(self.encoding in ENCODINGS, "inputs", f"an encoding, one of {', '.join(map(repr, ENCODINGS))}",
                   repr(self.encoding), "Have the source sent in one of these."),
            unless(self.format == "csv" or self.encoding == UTF_8, "inputs", "an encoding of CSV files alone",
                   f"{self.encoding!r} for {self.format}", "Leave it out: JSON is UTF-8."),
            unless(self.format == "csv" or not self.optional, "inputs", "optional columns of CSV files alone",
                   f"{self.optional!r} for {self.format}", "Leave it out: a line of JSON may lack any field."),
            unless(not self.optional or {*self.columns} - {*self.optional}, "inputs", "a column that each file has",
                   f"all of them in optional={self.optional!r}", "Leave one out: by it a header is known."),
            are_names("inputs", self.columns),
            are_known("inputs", self.optional, self.columns, of),
            are_known("inputs", self.addresses, self.columns, of),
            are_known("inputs", () if self.time is None else (self.time,), self.columns, of),
            _is_pattern(self.producer),
            are_names("inputs", self.files),
        )  # fmt: skip
        _ = self.names  # a pattern that tells no day is refused where it is written

    def producer_of(self, path: str) -> str:
        """Whose file it is: `source/producer`, or the source alone.

        Names end up in figures and messages: one that does not look like a name is not told.
        """
        found = re.fullmatch(self.producer, path.rpartition("/")[2]) if self.producer else None
        if found is None:
            return self.source
        return f"{self.source}/{found[1] if re.fullmatch(_NAME, found[1], re.ASCII) else '(other)'}"


def _is_pattern(text: str | None) -> list[Mistake]:
    try:
        groups = 1 if text is None else re.compile(text).groups
    except re.error as error:
        return unless(False, "inputs", "a pattern for the producer", f"{text!r} ({error})", "Fix the pattern.")
    return unless(groups, "inputs", "a pattern whose first group is the producer", repr(text), "Put it in brackets.")
