"""Distributions of a day's published rows, from the staged files: sums, means, spread, and rows by category.

Only the columns that a contract names in `profile` are read, in batches and threads, from files just written. Figures
of several files merge exactly (counts and sums) or by Chan's parallel formula (spread), so no value is kept.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MOST_CATEGORIES = 40
OTHER = "(other)"


@dataclass
class Numbers:
    """Count, exact sum, mean, sum of squared deviations from it, and bounds, of the values that are not null."""

    count: int = 0
    total: Decimal = Decimal(0)
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, other: Numbers) -> None:
        """Merge (Chan, Golub & LeVeque 1979)."""
        if not other.count:
            return
        count = self.count + other.count
        apart = other.mean - self.mean
        self.squares += other.squares + apart * apart * self.count * other.count / count
        self.mean += apart * other.count / count
        self.count, self.total = count, self.total + other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def as_json(self) -> dict[str, Any]:
        """For the commit's metadata; the sum is exact, as text."""
        spread = math.sqrt(self.squares / self.count)
        named = {"count": self.count, "sum": str(self.total), "mean": self.mean, "stddev": spread}
        return {**named, "min": self.low, "max": self.high}


@dataclass
class Profile:
    """Numbers by numeric column, rows by value of the other columns."""

    numbers: dict[str, Numbers] = field(default_factory=dict)
    categories: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, other: Profile) -> None:
        """Merge."""
        for name, each in other.numbers.items():
            self.numbers.setdefault(name, Numbers()).add(each)
        for name, counted in other.categories.items():
            self.categories.setdefault(name, Counter()).update(counted)

    def total(self, column: str) -> Decimal:
        """Exact sum of a numeric column; 0 without values."""
        return self.numbers[column].total if column in self.numbers else Decimal(0)

    def as_json(self) -> dict[str, Any]:
        """For the commit's metadata, without what is empty."""
        numbers = {name: each.as_json() for name, each in self.numbers.items() if each.count}
        categories = {name: _largest(counted) for name, counted in self.categories.items() if counted}
        return {k: v for k, v in (("profile", numbers), ("categories", categories)) if v}


def profiles(paths: Sequence[Path], columns: Sequence[str]) -> list[Profile]:
    """A profile for each Parquet file."""
    if not columns:
        return [Profile() for _ in paths]
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) * 2)) as pool:
        return list(pool.map(lambda path: _profile(path, columns), paths))


def merged(several: Iterable[Profile]) -> Profile:
    """One profile of all."""
    whole = Profile()
    for each in several:
        whole.add(each)
    return whole


def _profile(path: Path, columns: Sequence[str]) -> Profile:
    found = Profile()
    with closing(pq.ParquetFile(path)) as file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=there):
            for name in there:
                values = batch.column(name)
                if pa.types.is_decimal(values.type) or pa.types.is_integer(values.type):
                    found.numbers.setdefault(name, Numbers()).add(_numbers(values))
                elif pa.types.is_floating(values.type):
                    found.numbers.setdefault(name, Numbers()).add(_numbers(values.filter(pc.is_finite(values))))
                else:
                    counted = pc.value_counts(values.cast(pa.string())).to_pylist()
                    found.categories.setdefault(name, Counter()).update(
                        {str(pair["values"]): pair["counts"] for pair in counted if pair["values"] is not None}
                    )
    return found


def _numbers(values: pa.Array) -> Numbers:
    count = len(values) - values.null_count
    if not count:
        return Numbers()
    floats = values.cast(pa.float64())
    mean = float(pc.mean(floats).as_py())
    bounds = pc.min_max(floats).as_py()
    squares = float(pc.variance(floats).as_py()) * count
    return Numbers(count, Decimal(str(pc.sum(values).as_py())), mean, squares, bounds["min"], bounds["max"])


def _largest(counted: Counter[str]) -> dict[str, int]:
    """The largest categories; the rest together."""
    kept = dict(counted.most_common(MOST_CATEGORIES))
    rest = counted.total() - sum(kept.values())
    return kept | ({OTHER: rest} if rest else {})
