"""Events as the web shop sends them, one by one: real retail lines in their form, or made-up ones."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal, DecimalException
from hashlib import sha256
from itertools import count
from pathlib import Path

from lakehouse import store
from lakehouse.errors import SourceError
from lakehouse.sample.faults import Faults
from lakehouse.sample.generator import generate_events
from lakehouse.sample.retail import COLUMNS

_FILE = re.compile(r"(\d{4}-\d\d-\d\d)\.csv(\.gz)?", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)", re.ASCII)
_CENT = Decimal("0.01")
_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def retail_lines(
    folder: Path, first: date | None = None, last: date | None = None, *, shift: int = 0
) -> Iterator[bytes]:
    """The lines of retail exports as events, by day and line; one line is in memory at a time.

    Args:
        folder: holds files called `YYYY-MM-DD.csv.gz`, or `.csv`; others are passed over.
        first: day wanted; None: from the first there is.
        last: day wanted, inclusive; None: to the last there is.
        shift: days by which event times are moved, so that old lines can be of today.

    Raises:
        SourceError: there is no such file, or one has other columns.
    """
    found = [(date.fromisoformat(match[1]), name) for name in store.names(folder) if (match := _FILE.fullmatch(name))]
    days = [(day, name) for day, name in found if (first or day) <= day <= (last or day)]
    if not days:
        raise SourceError(f"{folder} has no file of these days: expected names such as 2011-01-04.csv.gz")
    for _, name in days:
        with store.opened(folder / name) as packed:
            file = gzip.GzipFile(fileobj=packed) if name.endswith(".gz") else packed
            rows = csv.DictReader(io.TextIOWrapper(file, "utf-8", "replace", newline=""), restval="")
            if tuple(rows.fieldnames or ()) != COLUMNS:
                raise SourceError(f"{folder / name} has columns {rows.fieldnames}, expected {', '.join(COLUMNS)}")
            for row in rows:
                yield retail_event(row, shift)


def retail_event(row: Mapping[str, str], shift: int = 0) -> bytes:
    """One line of a retail export as the web shop's event: `silver.transactions` makes the same of both.

    Args:
        row: its eight texts by column.
        shift: days by which its time is moved.
    """
    invoice, quantity = row["InvoiceNo"], row["Quantity"]
    kind = {"C": "cancellation", "A": "adjustment"}.get(invoice[:1], "purchase")
    texts = {
        "event_id": sha256("|".join(row[name] for name in COLUMNS).encode()).hexdigest()[:32],
        "schema_version": "1",
        "user_id": row["CustomerID"].removesuffix(".0") or None,
        "event_type": kind,
        "event_time": _moment(row["InvoiceDate"], shift),
        "order_id": invoice or None,
        "currency": "GBP",
        "payment_method": None,
        "country": row["Country"] or None,
    }
    # The amount is written by hand: as a float it would lose its decimals.
    return f'{_written(texts)[:-1]},"amount":{_amount(quantity, row["UnitPrice"])}}}'.encode()


def _moment(text: str, shift: int) -> str:
    """In ISO 8601; a text that is no time stays as it is."""
    if not (found := _MOMENT.fullmatch(text)):
        return text
    day = str(date.fromisoformat(found[1]) + timedelta(days=shift)) if shift else found[1]
    return f"{day}T{found[2]}Z"


def _amount(quantity: str, price: str) -> str:
    """A number with two decimals, as JSON; null where it cannot be read."""
    try:
        amount = (int(quantity) * Decimal(price)).quantize(_CENT, ROUND_HALF_UP)
        return f"{amount:f}" if amount.is_finite() else "null"
    except (ValueError, DecimalException):
        return "null"


def made_up_lines(first: date, rows: int, seed: int, faults: Faults | None = None) -> Iterator[bytes]:
    """The generator's events, day after day without end; one day is in memory at a time.

    Args:
        first: day.
        rows: lines a day, 1 or more.
        seed: picks the shop; see `generate_events`.
        faults: share of faulty lines, none by default.

    Raises:
        GeneratorError: a day or a number is out of range.
    """
    for number in count():
        yield from generate_events(first + timedelta(days=number), rows, seed, faults).lines
