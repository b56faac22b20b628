"""Made-up daily exports in the shape of `online_retail`, odd lines included, for a demonstration without real data."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date
from hashlib import blake2b
from itertools import product
from pathlib import Path
from random import Random

from lakehouse.errors import GeneratorError
from lakehouse.sample.days import sample_days
from lakehouse.sample.faults import first_invoice
from lakehouse.sources.landing import Landed, gzipped, put

COLUMNS = ("InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "UnitPrice", "CustomerID", "Country")

_MOST_ROWS = 10_000
_SHARES = {"cancelled": 0.018, "adjusted": 0.002, "free": 0.006, "repeated": 0.008}  # of the lines; the rest is sold
_ENOUGH_ROWS = 50  # from here on every kind of odd line occurs
_WITHOUT_CUSTOMER = 0.25
_ABROAD = {0: "Germany", 1: "France", 2: "EIRE", 3: "Spain"}  # by customer number modulo 40; the others are British
_FIRST_CUSTOMER, _CUSTOMERS = 30_000, 1_500
_OPENS, _CLOSES = 7 * 60, 20 * 60  # minutes of the day

# Commas, double quotes and trailing blanks are meant: they are what breaks a careless reader.
_PRODUCTS = tuple(
    (f"{70_001 + 37 * number}{'ABC'[number % 3] if number % 4 == 0 else ''}", name, 0.35 + number * 7 % 120 / 10)
    for number, name in enumerate(
        form.format(colour, thing)
        for colour, thing, form in product(
            ("BLUE", "GREEN", "IVORY", "COPPER", "STRIPED"),
            ("TEA TOWEL", "PLANT POT", "NIGHT LIGHT", "LUNCH TIN", "DOOR STOP", "WALL CLOCK"),
            ("{} {}", "{1}, {0}", '{} {} "HELLO"', "SMALL {} {} "),
        )
    )
)

_Lines = list[tuple[str, str, int, float]]  # stock code, description, pieces, price of a piece in pounds


def land_sample_online_retail(root: Path, start: date, days: int, rows: int, seed: int) -> list[Landed]:
    """Land made-up retail exports of `rows` lines for each of `days` days, by day; see `generate_online_retail`.

    Args:
        root: Lakehouse root.
        start: First day.
        days: Number of days, 1 or more.
        rows: Lines a day.
        seed: The same seed gives the same files.

    Raises:
        GeneratorError: `days` is less than 1, or `rows` is out of bounds.
    """
    return [
        put(
            "online_retail",
            day,
            root / "landing" / "online_retail" / f"{day}.csv.gz",
            gzipped(generate_online_retail(day, rows, seed).encode()),
        )
        for day in sample_days(start, days)
    ]


def generate_online_retail(day: date, rows: int, seed: int) -> str:
    """Make one day's export: a header and `rows` lines of CSV, in order of time, the same for the same arguments.

    From 50 lines a day up there are exact repeats of a line, `C` invoices with negative pieces, `A` adjustments and
    prices of zero (half of them with negative pieces and no description). Many lines lack a customer or quote a text.

    Args:
        day: Date of the invoices.
        rows: Lines without the header, 0 to 10,000.
        seed: Picks what is sold to whom.

    Raises:
        GeneratorError: `rows` is out of bounds.
    """
    if not 0 <= rows <= _MOST_ROWS:
        raise GeneratorError(f"online_retail sample of {day}: expected 0 to {_MOST_ROWS} rows, got {rows}")
    chance = Random(blake2b(f"{seed}|{day}|online_retail".encode()).digest())
    counts = {kind: int(rows * share) or int(rows >= _ENOUGH_ROWS) for kind, share in _SHARES.items()}
    repeats = counts.pop("repeated")
    counts["sold"] = rows - sum(counts.values()) - repeats
    invoices = [(chance.randint(_OPENS, _CLOSES), kind, lines) for kind, lines in _invoices(counts, chance)]
    table: list[tuple[object, ...]] = []
    for number, (minute, kind, lines) in enumerate(
        sorted(invoices, key=lambda invoice: invoice[0]), first_invoice(day)
    ):
        customer, country = _buyer(kind, chance)
        invoice = {"cancelled": "C", "adjusted": "A"}.get(kind, "") + str(number)
        moment = f"{day} {minute // 60:02d}:{minute % 60:02d}:00"
        table += [
            (invoice, code, name, pieces, moment, price, customer, country) for code, name, pieces, price in lines
        ]
    for place in sorted(chance.sample(range(len(table)), repeats), reverse=True):
        table.insert(place, table[place])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *table])
    return text.getvalue()


def _invoices(counts: dict[str, int], chance: Random) -> Iterator[tuple[str, _Lines]]:
    """Invoices of each kind, with that kind's number of lines in all."""
    for kind, count in counts.items():
        left = count
        while left:
            size = min(left, 3 + int(40 * chance.random() ** 2) if kind == "sold" else 1)
            left -= size
            yield kind, [_sold(kind, item, chance) for item in chance.sample(_PRODUCTS, size)]


def _sold(kind: str, item: tuple[str, str, float], chance: Random) -> tuple[str, str, int, float]:
    code, name, price = item
    pieces = chance.choice((1, 1, 2, 3, 4, 6, 6, 12, 12, 24, 48))
    if kind == "adjusted":
        return "B", "Bad debt written off", 1, chance.choice((-1, 1)) * chance.randint(5_000, 900_000) / 100
    if kind == "cancelled":
        return code, name, -pieces, round(price, 2)
    if kind == "free":
        return (code, "", -pieces, 0.0) if chance.getrandbits(1) else (code, name, pieces, 0.0)
    return code, name, pieces, round(price, 2)


def _buyer(kind: str, chance: Random) -> tuple[str, str]:
    """Customer as the export writes it (a float, or nothing) and country."""
    number = int(_CUSTOMERS * chance.random() ** 2)
    anonymous = kind in ("adjusted", "free") or (kind == "sold" and chance.random() < _WITHOUT_CUSTOMER)
    return (
        ("", "United Kingdom")
        if anonymous
        else (f"{_FIRST_CUSTOMER + number}.0", _ABROAD.get(number % 40, "United Kingdom"))
    )
