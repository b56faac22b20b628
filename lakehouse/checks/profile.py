"""Distributions of a day's published rows, from the staged files: sums, means, spread, and rows by category.

Only the columns that a contract names in `profile` are read, in batches and threads, from files just written. Figures
of several files merge exactly (counts and sums) or by Chan's parallel formula (spread), so no value is kept.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse import store
from lakehouse.contracts.figures import EXACT, added
from lakehouse.store import parquet

MOST_CATEGORIES = 40
OTHER = "(other)"
_KNOWN = 512  # files whose profiles a process keeps: a stream adds to days that have up to fifty


@dataclass(frozen=True)
class Moments:
    """Mean, and sum of squared deviations from it."""

    mean: float = 0.0
    squares: float = 0.0

    def merged(self, count: int, other: Moments, others: int) -> Moments:
        """Both together (Chan, Golub & LeVeque 1979).

        Args:
            count: values behind these moments.
            other: the other moments.
            others: values behind those.
        """
        if not others:
            return self
        apart, both = other.mean - self.mean, count + others
        return Moments(
            self.mean + apart * others / both, self.squares + other.squares + apart * apart * count * others / both
        )


@dataclass
class Numbers:
    """Of the values that are not null: count, exact sum, bounds, moments, and moments on the log scale.

    The log scale is sign(x) · ln(1 + |x|): there a few huge orders do not move the mean of a day, and a change of unit
    moves it as far for small values as for large ones.
    """

    count: int = 0
    total: Decimal = Decimal(0)
    low: float = math.inf
    high: float = -math.inf
    plain: Moments = Moments()
    log: Moments = Moments()

    def add(self, other: Numbers) -> None:
        """Merge."""
        self.plain = self.plain.merged(self.count, other.plain, other.count)
        self.log = self.log.merged(self.count, other.log, other.count)
        self.count, self.total = self.count + other.count, added((self.total, other.total))
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def as_json(self) -> dict[str, Any]:
        """For the commit's metadata; the sum is exact, as text."""
        return {
            "count": self.count,
            "sum": str(self.total),
            "mean": self.plain.mean,
            "stddev": math.sqrt(self.plain.squares / self.count),
            "log_mean": self.log.mean,
            "log_stddev": math.sqrt(self.log.squares / self.count),
            "min": self.low,
            "max": self.high,
        }


@dataclass
class Profile:
    """Numbers by numeric column, rows by value of the other columns, and sums of a column by value of another."""

    numbers: dict[str, Numbers] = field(default_factory=dict)
    categories: dict[str, Counter[str]] = field(default_factory=dict)
    groups: dict[tuple[str, str], dict[str, Decimal]] = field(default_factory=dict)

    def add(self, other: Profile) -> None:
        """Merge."""
        for name, each in other.numbers.items():
            self.numbers.setdefault(name, Numbers()).add(each)
        for name, counted in other.categories.items():
            self.categories.setdefault(name, Counter()).update(counted)
        for pair, sums in other.groups.items():
            mine = self.groups.setdefault(pair, {})
            for value, total in sums.items():
                mine[value] = added((mine.get(value, Decimal(0)), total))

    def total(self, column: str) -> Decimal:
        """Exact sum of a numeric column; 0 without values."""
        return self.numbers[column].total if column in self.numbers else Decimal(0)

    def as_json(self) -> dict[str, Any]:
        """For the commit's metadata, without what is empty."""
        numbers = {name: each.as_json() for name, each in self.numbers.items() if each.count}
        categories = {name: _largest(counted) for name, counted in self.categories.items() if counted}
        return {k: v for k, v in (("profile", numbers), ("categories", categories)) if v}


def profiles(paths: Sequence[Path], columns: Sequence[str], grouped: Collection[tuple[str, str]] = ()) -> list[Profile]:
    """A profile for each Parquet file, with the sums of some columns by the values of others; callers share them.

    A day that is added to is judged by all of its files: those that this process has read before are not read again.

    Args:
        paths: of the files.
        columns: of numbers or of few values.
        grouped: pairs of a numeric column and the column it is summed by.
    """
    if not columns and not grouped:
        return [Profile() for _ in paths]
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) * 2)) as pool:
        asked = tuple(columns), frozenset(grouped)
        return list(pool.map(lambda path: _profile(path, store.stat(path), *asked), paths))


def merged(several: Iterable[Profile]) -> Profile:
    """One profile of all."""
    whole = Profile()
    for each in several:
        whole.add(each)
    return whole


@lru_cache(maxsize=_KNOWN)
def _profile(
    path: Path, _facts: store.Facts | None, columns: tuple[str, ...], grouped: frozenset[tuple[str, str]]
) -> Profile:
    found = Profile()
    with parquet.opened(path) as file:
        stored = set(file.schema_arrow.names)
        there = [name for name in columns if name in stored]
        pairs = [pair for pair in grouped if stored.issuperset(pair)]
        for batch in file.iter_batches(columns=list(dict.fromkeys([*there, *chain(*pairs)]))):
            for pair in pairs:
                found.add(Profile(groups={pair: _sums(batch, *pair)}))
            for name in there:
                _add_column(found, name, batch.column(name))
    return found


def _add_column(found: Profile, name: str, values: pa.Array) -> None:
    """Numbers by their sum, mean and spread; other values by how many rows have each."""
    if pa.types.is_floating(values.type):
        # One NaN or infinity would make sum, mean and spread of the day unknown.
        values = values.filter(pc.is_finite(values))
    if pa.types.is_decimal(values.type) or pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        found.numbers.setdefault(name, Numbers()).add(_numbers(values))
        return
    counted = pc.value_counts(values.cast(pa.string())).to_pylist()
    found.categories.setdefault(name, Counter()).update(
        {str(pair["values"]): pair["counts"] for pair in counted if pair["values"] is not None}
    )


def _sums(batch: pa.RecordBatch, column: str, by: str) -> dict[str, Decimal]:
    """Exact sums of a column by the value of another; rows without such a value count under none."""
    numbers = batch.column(column)
    summable = _summable(numbers, pc.min_max(numbers).as_py())
    rows = pa.table({"value": batch.column(by), "number": summable}).group_by("value")
    return {
        each["value"]: Decimal(str(each["number_sum"]))
        for each in rows.aggregate([("number", "sum")]).to_pylist()
        if each["value"] is not None and each["number_sum"] is not None
    }


def _numbers(values: pa.Array) -> Numbers:
    count = len(values) - values.null_count
    if not count:
        return Numbers()
    floats = values.cast(pa.float64(), safe=False)  # beyond 2**53 a whole number has the nearest one
    # Signed log(1 + |x|): defined for refunds and zeros, and amounts are about normal in it.
    logs = pc.multiply(pc.sign(floats), pc.log1p(pc.abs(floats)))
    bounds = pc.min_max(values).as_py()  # of the values themselves: Arrow's cast of decimals is off by a bit
    total = Decimal(str(pc.sum(_summable(values, bounds)).as_py()))
    return Numbers(
        count, total, float(bounds["min"]), float(bounds["max"]), _moments(floats, count), _moments(logs, count)
    )


def _summable(values: pa.Array, bounds: Mapping[str, Any]) -> pa.Array:
    """The values, in a type of more digits where their sum may have too many: Arrow's would begin anew below zero."""
    is_decimal = pa.types.is_decimal(values.type)
    if not (is_decimal or pa.types.is_integer(values.type)):
        return values
    scale = values.type.scale if is_decimal else 0
    most = max(abs(Decimal(each or 0)) for each in bounds.values()).scaleb(scale, EXACT) * len(values)
    return values if most < (10**38 if is_decimal else 2**63) else values.cast(pa.decimal256(76, scale))


def _moments(values: pa.Array, count: int) -> Moments:
    # Mean and sum of squared deviations: what can be added up over files without losing digits.
    return Moments(float(pc.mean(values).as_py()), float(pc.variance(values).as_py()) * count)


def _largest(counted: Counter[str]) -> dict[str, int]:
    """The largest categories; the rest together."""
    kept = dict(counted.most_common(MOST_CATEGORIES))
    rest = counted.total() - sum(kept.values())
    return kept | ({OTHER: rest} if rest else {})
