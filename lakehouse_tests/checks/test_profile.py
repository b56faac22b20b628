"""Distributions of published rows: exact where sums are, mergeable, and safe for every value a column can hold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.checks.profile import MOST_CATEGORIES, OTHER, Numbers, merged, profiles
from lakehouse.store import parquet

AMOUNTS = st.lists(st.decimals(-1_000_000, 1_000_000, places=2, allow_nan=False), min_size=1, max_size=40)


def numbers(folder: Path, values: Sequence[Decimal | None]) -> Numbers:
    """The profile of a column, through a file."""
    path = folder / "part.parquet"
    pq.write_table(pa.table({"amount": pa.array(values, pa.decimal128(18, 2))}), path)
    return profiles([path], ["amount", "not there"])[0].numbers["amount"]


@given(several=st.lists(AMOUNTS, min_size=1, max_size=4))
def test_files_merge_to_what_one_file_would_give(
    several: list[list[Decimal]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without it, a day in two files would have another mean or sum than the same day compacted to one."""
    folder = tmp_path_factory.mktemp("parts")
    paths = []
    for n, values in enumerate(several):
        paths.append(folder / f"{n}.parquet")
        pq.write_table(pa.table({"amount": pa.array(values, pa.decimal128(18, 2))}), paths[-1])
    whole = [value for values in several for value in values]
    found = merged(profiles(paths, ["amount"])).as_json()["profile"]["amount"]
    floats = [float(value) for value in whole]
    assert (found["count"], Decimal(found["sum"])) == (len(whole), sum(whole))
    assert found["mean"] == pytest.approx(statistics.fmean(floats), abs=1e-6)
    assert found["stddev"] == pytest.approx(statistics.pstdev(floats), abs=1e-3)
    assert (found["min"], found["max"]) == (min(floats), max(floats))
    logs = [math.copysign(math.log1p(abs(each)), each) for each in floats]
    assert found["log_mean"] == pytest.approx(statistics.fmean(logs), abs=1e-9)


def test_sums_are_exact(tmp_path: Path) -> None:
    """Without it, reconciliation would find differences that only floating point makes."""
    cent = Decimal("0.01")
    assert numbers(tmp_path, [cent] * 1000 + [Decimal("1000000.00")]).total == Decimal("1000010.00")
    assert numbers(tmp_path, [None, cent, None]).count == 1
    assert numbers(tmp_path, [None]).total == 0


HUGE = Decimal("99999999999999999999.123456789012345678")


@pytest.mark.parametrize(
    ("values", "total"),
    [
        (pa.array([HUGE] * 3 + [None], pa.decimal128(38, 18)), Decimal("299999999999999999997.370370367037037034")),
        (
            pa.array([HUGE.copy_negate()] * 3, pa.decimal128(38, 18)),
            Decimal("-299999999999999999997.370370367037037034"),
        ),
        (pa.array([2**62] * 3, pa.int64()), Decimal(3 * 2**62)),
        (pa.array([-(2**63), -1], pa.int64()), Decimal(-(2**63) - 1)),
        (pa.array([100, 100], pa.int8()), Decimal(200)),
    ],
)
def test_sums_beyond_the_digits_of_their_column_are_exact(values: pa.Array, total: Decimal, tmp_path: Path) -> None:
    """Without it, the sum of three large amounts would be negative, and a count of 2**53 would fail its day."""
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path in paths:
        pq.write_table(pa.table({"amount": values, "shop": ["a"] * len(values)}), path)
    found = merged(profiles(paths, ["amount"], [("amount", "shop")]))
    with localcontext(Context(prec=60)):
        assert found.total("amount") == found.groups[("amount", "shop")]["a"] == 2 * total


def test_not_a_number_spoils_nothing(tmp_path: Path) -> None:
    """Without it, one NaN would make the mean of its day, and the log entry that holds it, unreadable."""
    path = tmp_path / "part.parquet"
    values = [1.0, 3.0, math.nan, math.inf, None]
    pq.write_table(pa.table({"price": pa.array(values, pa.float64())}), path)
    found = profiles([path], ["price"])[0].as_json()["profile"]["price"]
    assert (found["count"], found["mean"], found["max"]) == (2, 2.0, 3.0)


def test_of_many_values_the_largest_are_named(tmp_path: Path) -> None:
    """Without it, a column with a value a row would put each of them into the log."""
    path = tmp_path / "part.parquet"
    values = ["GBP"] * 5 + [f"X{n}" for n in range(MOST_CATEGORIES + 10)] + [None]
    pq.write_table(pa.table({"currency": values}), path)
    counted = profiles([path], ["currency"])[0].as_json()["categories"]["currency"]
    assert (counted["GBP"], counted[OTHER], len(counted)) == (5, 11, MOST_CATEGORIES + 1)
    assert sum(counted.values()) == len(values) - 1


@given(several=st.lists(AMOUNTS, min_size=1, max_size=3))
def test_sums_by_value_are_exact_whatever_the_files(
    several: list[list[Decimal]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without it, revenue in pounds could hold a cent of the revenue in euros, or depend on how a day is stored."""
    folder, expected = tmp_path_factory.mktemp("groups"), dict[str, Decimal]()
    for n, values in enumerate(several):
        currency = [("GBP", "EUR", None)[k % 3] for k in range(len(values))]
        for name, value in zip(currency, values, strict=True):
            if name:
                expected[name] = expected.get(name, Decimal(0)) + value
        columns = {"amount": pa.array(values, pa.decimal128(18, 2)), "currency": pa.array(currency, pa.string())}
        pq.write_table(pa.table(columns), folder / f"{n}.parquet")
    found = merged(profiles(sorted(folder.iterdir()), [], [("amount", "currency"), ("amount", "not there")]))
    assert found.groups == {("amount", "currency"): expected}


def test_a_file_is_read_once_but_one_that_took_its_name_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a stream would read the whole day again for every batch, or judge it by figures of other rows."""
    opened: list[Path] = []
    really = parquet.opened

    def counted(path: Path) -> pq.ParquetFile:
        opened.append(path)
        return really(path)

    monkeypatch.setattr(parquet, "opened", counted)
    assert numbers(tmp_path, [Decimal(1)]).total == 1
    path = tmp_path / "part.parquet"
    assert profiles([path], ["amount", "not there"])[0].numbers["amount"].total == 1
    assert len(opened) == 1
    path.unlink()
    assert numbers(tmp_path, [Decimal(2)]).total == 2
    assert profiles([path], ["amount"], {("amount", "amount")})[0].groups
    assert len(opened) == 3


def test_sums_beyond_all_numbers_of_both_signs_are_no_error(tmp_path: Path) -> None:
    """Without it, a day of two files with such doubles could not be published: their sums have no sum."""
    paths = [tmp_path / "up.parquet", tmp_path / "down.parquet"]
    for path, sign in zip(paths, (1, -1), strict=True):
        pq.write_table(pa.table({"x": [sign * 1.7e308] * 2}), path)
    numbers = merged(profiles(paths, ["x"])).numbers["x"]
    assert numbers.count == 4
    assert numbers.total.is_nan()
    assert numbers.as_json()["sum"] == "NaN"
