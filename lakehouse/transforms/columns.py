"""Money, times and tokens as Spark columns."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.settings import get_settings, key_id
from lakehouse.transforms.addresses import ADDRESS, AT, MASK, SIGNS

PERSONAL = "<personal>"  # stands where a value was left out
_BLOCK = 64  # bytes of a SHA-256 block
_LONG_NUMBER = 21  # characters: a point and 20 digits; a text no longer has no digit too many
_LONGEST_NUMBER = 1000  # characters; ten times the digits take a hundred times as long to read, and millions minutes
_FAR_EXPONENT = "(?s)[eE].{5}"  # of -1000 or 1000 and beyond: 1e-30000000 takes ten seconds, a digit more minutes
_SECONDS = 17  # where seconds begin in a time, or its offset where it has none
# Spark's own cast also takes years, dates, times of day (of the day it runs on) and time zones by name. It takes times
# before the year 1 or after 9999 too, which Python and others that read tables do not know: some by their offset.
_BEYOND = r"0000|0001-01-01[^+]*[+]|9999-12-31[^-]*-"
_INSTANT = rf"^(?!{_BEYOND})" r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?$"
# What stands in place of a time where units were mixed up: a number, or a time in a year of five or more digits.
_NUMBER = r"[+-]?\d{1,20}(\.\d{1,9})?([eE][+-]?\d{1,3})?"
_LONG_YEAR = r"[+-]?\d{5,9}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?"


def money(value: Column) -> Column:
    """Text or number as `decimal(18,2)`, rounded half up; null where it is no number."""
    # Digits beyond the cast's scale would be rounded twice, by the cast and to cents. Of a float, 20 count at most;
    # of texts with more, those are cut off.
    text = value.cast("string")
    exact = F.when(F.length(text) > _LONG_NUMBER, F.regexp_replace(text, r"(\.\d{20})\d+", "$1")).otherwise(text)
    return F.round(of_few_digits(exact).try_cast("decimal(38,20)"), 2).try_cast("decimal(18,2)")


def of_few_digits(text: Column) -> Column:
    """The text of a number; null where it may have so many digits that one line could hold up a build for hours."""
    has_exponent = text.contains("e") | text.contains("E")  # few have, and to look for that costs little
    return F.when(~((F.length(text) > _LONGEST_NUMBER) | (has_exponent & text.rlike(_FAR_EXPONENT))), text)


def utc_timestamp(text: Column) -> Column:
    """ISO-8601 date and time as an instant; null for any other text. Without an offset it is UTC, as the session is."""
    # Java's OffsetDateTime leaves out seconds that are zero. Spark takes such a time, but not with an offset.
    short = F.substring(text, _SECONDS, 1).isin("Z", "+", "-")
    full = F.when(short, F.concat(F.substring(text, 1, _SECONDS - 1), F.lit(":00"), F.substring(text, _SECONDS, 6)))
    return F.when(text.rlike(_INSTANT), F.coalesce(full, text)).try_cast("timestamp")


def unread_time(text: Column) -> Column:
    """The text of a time that cannot be read but shows what was meant, a number or a far too long year; else null."""
    return F.when(text.rlike(rf"^({_NUMBER}|{_LONG_YEAR})$"), text)


def day_of(moment: Column) -> Column:
    """The UTC date of an instant."""
    return moment.cast("date")


def with_event_date(
    rows: DataFrame, event_time: str, arrival: str = "_arrival_date", days_back: int = 400, days_ahead: int = 1
) -> DataFrame:
    """The rows with `_event_date`: the date of an event time in text, or the arrival date where that is implausible.

    Rows with no event time, or one outside `[arrival - days_back, arrival + days_ahead]`, stay with the arrival day,
    where the row rules judge them; a broken clock thus never makes a partition of its own.

    Args:
        rows: with the columns named below.
        event_time: text column with the time.
        arrival: date column with the arrival day.
        days_back: how many days before its arrival an event may have happened.
        days_ahead: how many days after its arrival a clock may say it happened.
    """
    # A column of its own is computed once; within one expression it would be parsed three times a row.
    dated = rows.withColumn("_day", day_of(utc_timestamp(F.col(event_time))))
    plausible = F.col("_day").between(F.date_sub(arrival, days_back), F.date_add(arrival, days_ahead))
    return dated.withColumn("_event_date", F.when(plausible, F.col("_day")).otherwise(F.col(arrival))).drop("_day")


@dataclass(frozen=True)
class TokenKey:
    """The key of tokens as the engine is given it: a plan that makes many takes one, which is read once for all.

    Attributes:
        id: of the key.
        pads: struct of the inner and the outer block that are hashed before a text.
    """

    id: str
    pads: Column


def token_key() -> TokenKey:
    """The present key (`lakehouse keys list`). No plan shows it: not a page, an event log or an error."""
    key = get_settings().pii_key_bytes()
    padded = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    return TokenKey(
        key_id(key), as_data({"inner": bytes(b ^ 0x36 for b in padded), "outer": bytes(b ^ 0x5C for b in padded)})
    )


def token(text: Column, key: TokenKey | None = None) -> Column:
    """`<key id>:<HMAC-SHA-256 of a text, 64 hex digits>`, null for null (RFC 2104, from two nested SHA-256).

    Args:
        text: what must not be readable.
        key: one that other tokens of the plan are made with, too; None: `token_key()`.
    """
    key = key or token_key()
    inner = F.sha2(F.concat(key.pads.getField("inner"), F.encode(text, "UTF-8")), 256)
    return F.concat(F.lit(f"{key.id}:"), F.sha2(F.concat(key.pads.getField("outer"), F.unhex(inner)), 256))


def as_data(values: Mapping[str, bytes | int]) -> Column:
    """A struct of constants that are data, not literals.

    Plans print literals, and of rows their columns alone. The engine's compiled code has numbers written into it, and
    is compiled anew for each other one.
    """
    # In a thread other than the engine's, the active one is the one engine of the process.
    session = SparkSession.active()
    kind = pa.struct(
        [(name, pa.binary() if isinstance(value, bytes) else pa.int64()) for name, value in values.items()]
    )
    return session.createDataFrame(pa.table({"pads": pa.array([values], kind)})).scalar()


def masked(text: Column) -> Column:
    """Raw text with whatever looks like an e-mail address replaced, since raw text has no PII columns."""
    return F.when(may_hold_address(text), F.regexp_replace(text, f"(?U){ADDRESS}", MASK)).otherwise(text)


def may_hold_address(text: Column) -> Column:
    """Quick: False only where no e-mail address can be in the text."""
    return reduce(or_, (text.contains(sign) for sign in SIGNS))


def without_address(text: Column, possible: Column | None = None, key: TokenKey | None = None) -> Column:
    """The text, or its token where an e-mail address is in it: rows that differ by it still do, and ids stay ids.

    An address alone becomes the token that it has in a column of addresses, however it is written.

    Args:
        text: of a column that should hold no address.
        possible: where this is false the text is not looked at, as where a whole line has no address; None: it is.
        key: as `token` takes it.
    """
    # The pattern costs fifty times what looking for its signs does: of a line with an address, most columns have none.
    may = may_hold_address(text) if possible is None else possible & may_hold_address(text)
    found = may & text.rlike(f"(?U){ADDRESS}")
    return F.when(found, token(F.lower(F.trim(F.regexp_replace(text, AT, "@"))), key)).otherwise(text)


def personal_field(words: Sequence[str]) -> str:
    """A pattern (Java's and Python's) for a JSON field, colon included, whose name has one of some words in it.

    `phone` is in `phone`, `Phone`, `customer_phone`, `phoneNumber` and `phone-numbers`, not in `phonetics`.
    """
    alternatives = "|".join(re.escape(word).replace("_", "[ _-]?") for word in words)
    before, after = r"(?:[\w -]*(?:[ _-]|(?<=[a-z0-9])(?=[A-Z])))?", r"s?(?:(?:[ _-]|(?=[A-Z]))[\w -]*)?"
    return rf'"{before}(?i:{alternatives}){after}"\s*:'


def without_personal(line: Column, words: Sequence[str]) -> Column:
    """A line that may be broken JSON, with the values of its personal fields replaced."""
    value = r'(?:"(?:[^"\\]|\\.)*+"?|[^\s,}\]]++)'
    return F.regexp_replace(line, rf"({personal_field(words)}\s*){value}", f'$1"{PERSONAL}"') if words else line
