"""Landed files as the input of a bronze table."""

from __future__ import annotations

from dataclasses import dataclass

FORMATS = ("csv", "jsonl")
PERSONAL_WORDS = (
    "phone", "telephone", "mobile", "email", "address", "street", "postcode", "zip_code", "ip", "birth", "birthday",
    "birthdate", "birth_date", "first_name", "last_name", "full_name", "customer_name", "surname", "passport", "ssn",
    "iban", "card_number", "latitude", "longitude",
)  # fmt: skip


@dataclass(frozen=True)
class Landing:
    """Landed files that a bronze transform reads, one arrival day a partition.

    Fields beyond `columns` are kept in `_rescued`, except the values of those that have a word of `personal` in their
    names: they are left out, in broken lines too.
    """

    source: str
    format: str  # "csv" or "jsonl"
    columns: tuple[str, ...]
    personal: tuple[str, ...] = PERSONAL_WORDS
