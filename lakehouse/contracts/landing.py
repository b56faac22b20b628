"""Landed files as the input of a bronze table."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakehouse.contracts.mistakes import Mistake, are_known, are_names, check, unless

FORMATS = ("csv", "jsonl")
PERSONAL_WORDS = (
    "phone", "telephone", "mobile", "email", "address", "street", "postcode", "zip_code", "ip", "birth", "birthday",
    "birthdate", "birth_date", "first_name", "last_name", "full_name", "customer_name", "surname", "passport", "ssn",
    "iban", "card_number", "latitude", "longitude",
)  # fmt: skip
_NAME = r"[A-Za-z][\w.-]{0,39}"


@dataclass(frozen=True)
class Landing:
    """Landed files that a bronze transform reads, one arrival day a partition.

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
        personal: words of field names whose values are never kept.
        addresses: columns that arrive as they are, since the transform makes tokens of them.
        time: the column with the event time.
        producer: a pattern for a file's name, whose first group is the producer's; None, or where it does not match:
            the source is one producer.
    """

    source: str
    format: str  # "csv" or "jsonl"
    columns: tuple[str, ...]
    personal: tuple[str, ...] = PERSONAL_WORDS
    addresses: tuple[str, ...] = ()
    time: str | None = None
    producer: str | None = None

    def __post_init__(self) -> None:
        of = f"a field of landing/{self.source}"
        check(
            unless(self.format in FORMATS, "inputs", f"a format, {' or '.join(FORMATS)}", repr(self.format),
                   "Have the source sent in one of these."),
            are_names("inputs", self.columns),
            are_known("inputs", self.addresses, self.columns, of),
            are_known("inputs", () if self.time is None else (self.time,), self.columns, of),
            _is_pattern(self.producer),
        )  # fmt: skip

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
        return unless(False, "inputs", "a pattern for the producer", f"{text!r} ({error})", "Mend the pattern.")
    return unless(groups, "inputs", "a pattern whose first group is the producer", repr(text), "Put it in brackets.")
