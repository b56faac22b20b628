"""The made-up retail export: the real one's columns and defects, none of its rows."""

import csv
import io
from collections import Counter
from datetime import date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.errors import GeneratorError
from lakehouse.sample.retail import generate_online_retail

DAY = date(2026, 3, 2)


def read(text: str) -> list[dict[str, str]]:
    """The lines after the header, by column."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


@settings(max_examples=25, deadline=None)
@given(day=st.dates(), rows=st.integers(0, 300), seed=st.integers())
def test_the_same_arguments_make_the_same_text(day: date, rows: int, seed: int) -> None:
    """With exactly as many lines as asked for, all of that day."""
    text = generate_online_retail(day, rows, seed)
    assert generate_online_retail(day, rows, seed) == text
    lines = read(text)
    assert len(lines) == text.count("\n") - 1 == rows
    assert {line["InvoiceDate"][:10] for line in lines} <= {day.isoformat()}


@pytest.mark.parametrize("rows", [50, 500, 5000])
def test_every_oddity_of_the_real_data_occurs(rows: int) -> None:
    """From 50 lines up: what the pipeline must quarantine, drop as a repeat or read past is there every day."""
    text = generate_online_retail(DAY, rows, 7)
    lines = read(text)
    kinds = Counter(line["InvoiceNo"][0] if not line["InvoiceNo"].isdigit() else "sold" for line in lines)
    assert kinds["C"] >= max(1, rows // 100)
    assert kinds["A"] >= 1
    assert all(int(line["Quantity"]) < 0 for line in lines if line["InvoiceNo"].startswith("C"))
    assert all(line["StockCode"] == "B" for line in lines if line["InvoiceNo"].startswith("A"))
    repeated = Counter(tuple(line.values()) for line in lines)
    assert sum(count - 1 for count in repeated.values()) == max(1, rows * 8 // 1000)
    assert any(float(line["UnitPrice"]) == 0 for line in lines)
    assert any(not line["CustomerID"] for line in lines)
    assert ',"' in text
    assert '""' in text


def test_values_are_written_as_in_the_real_export() -> None:
    """Floats for prices and customers, whole pieces, times to the minute, in order."""
    lines = read(generate_online_retail(DAY, 2000, 7))
    times = [datetime.strptime(line["InvoiceDate"], "%Y-%m-%d %H:%M:00") for line in lines]  # noqa: DTZ007
    assert times == sorted(times)
    assert all(line["CustomerID"] == "" or line["CustomerID"].endswith(".0") for line in lines)
    assert all(line["UnitPrice"] == repr(float(line["UnitPrice"])) for line in lines)
    assert all(line["Quantity"] == str(int(line["Quantity"])) for line in lines)
    assert all(len(line["InvoiceNo"].lstrip("CA")) == 6 for line in lines)
    assert 0.15 < sum(line["CustomerID"] == "" for line in lines) / len(lines) < 0.4
    assert 0.8 < sum(line["Country"] == "United Kingdom" for line in lines) / len(lines) < 1


def test_invoice_numbers_are_of_one_day() -> None:
    """No number twice in a year, even on the fullest days."""
    seen: dict[str, date] = {}
    for number in range(0, 366, 5):
        day = DAY + timedelta(days=number)
        for line in read(generate_online_retail(day, 10_000 if number < 10 else 100, 7)):
            assert seen.setdefault(line["InvoiceNo"].lstrip("CA"), day) == day


@pytest.mark.parametrize("rows", [-1, 10_001])
def test_an_impossible_number_of_rows_is_refused(rows: int) -> None:
    """More lines a day could run out of invoice numbers."""
    with pytest.raises(GeneratorError, match=f"expected 0 to 10000 rows, got {rows}"):
        generate_online_retail(DAY, rows, 7)
