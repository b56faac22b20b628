"""The parity certificate: what is served against what Delta says, read anew from its files without the engine.

A served row carries the Delta version it was read at. So it is compared twice: with its own day as that version had it,
which finds a row that was packed, written or read wrongly; and with the entity's newest row of today's version, which
finds one that is behind. Entities that are missing, or are there and should not be, are counted over all of them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from lakehouse.contracts import Table
from lakehouse.days import end_of
from lakehouse.delta.snapshot import Snapshot
from lakehouse.online.load import source_of
from lakehouse.online.sets import FeatureSet, Record, milliseconds, moment_of, unpack
from lakehouse.online.store import OnlineStore
from lakehouse.read.lake import Lake
from lakehouse.read.reading import read_file
from lakehouse.settings import token_of

SAMPLE = 1000  # entities
LOOKS = 3  # at a table that is published while it is compared
MOST = 20  # mismatches that are kept with what they are
HIDDEN = "(hidden)"
ROW = "(row)"
Rows = Mapping[str, tuple[int, list[Any]]]
"""By key: event time and values, as JSON has them."""


@dataclass(frozen=True)
class Mismatch:
    """A difference between what is served and what Delta says.

    Attributes:
        entity: its id; of a person a token.
        feature: column; `(row)`: the row as a whole is there, or has its day, on one side only.
        served: what the store has; of personal data nothing.
        expected: what Delta has, as well.
        against: which version Delta was read at: that of the row, as known then, or the newest.
        event_time: of the served row; None where there is none.
        delta_version: that the served row carries; -1 where there is none.
        code_version: of the served row, as well; empty where there is none.
    """

    entity: str
    feature: str
    served: str
    expected: str
    against: str
    event_time: datetime | None
    delta_version: int
    code_version: str

    def text(self) -> str:
        """In one line, with where the row is from."""
        row = "no row" if self.event_time is None else (
            f"row of {self.event_time - timedelta(days=1):%Y-%m-%d}, Delta version {self.delta_version}, "
            f"code {self.code_version}"
        )  # fmt: skip
        return f"{self.entity} {self.feature}: served {self.served}, expected {self.expected} ({self.against}; {row})"


@dataclass(frozen=True)
class Certificate:
    """What a comparison came to.

    Attributes:
        table: `layer.name`.
        delta_version: the newest.
        entities: in Delta, with a row that may be used now.
        online: entities in the store.
        missing: of those of Delta, not in the store.
        extra: in the store, and not among those of Delta.
        sampled: entities whose rows were compared.
        values: that were compared, twice each where the version of the row is not the newest.
        mismatched: entities with a difference, without those that are missing or extra.
        gone: rows whose version cannot be read any more, so that only the newest was compared.
        mismatches: some of them, each with where it is from.
    """

    table: str
    delta_version: int
    entities: int
    online: int
    missing: int
    extra: int
    sampled: int
    values: int
    mismatched: int
    gone: int
    mismatches: tuple[Mismatch, ...]

    @property
    def passed(self) -> bool:
        """Whether there is no difference at all."""
        return not (self.missing or self.extra or self.mismatched)


def verify(
    lake: Lake,
    store: OnlineStore,
    table: Table,
    now: datetime,
    sample: int | None = SAMPLE,
    seed: int | None = None,
    version: int | None = None,
) -> Certificate:
    """Compare what is served of a table with Delta.

    Args:
        lake: where the table is; no engine is started.
        store: what serves.
        table: with features.
        now: the lake's moment.
        sample: entities whose rows are compared; None: all.
        seed: of the choice; None: another each time.
        version: of the table that counts as the newest; None: the newest. A stream publishes while it is compared.

    Raises:
        OnlineDownError: Redis does not answer.
        OnlineError: the table has no rows yet.
    """
    for _ in range(LOOKS):
        found = _compared(lake, store, table, now, sample, seed, version)
        # A table that was published meanwhile may have been loaded, too: what is served is of another version then.
        if found.passed or version is not None or lake.snapshot(table.id).version == found.delta_version:
            break
    return found


def _compared(
    lake: Lake,
    store: OnlineStore,
    table: Table,
    now: datetime,
    sample: int | None,
    seed: int | None,
    version: int | None,
) -> Certificate:
    source = source_of(lake, table, now, version)
    features, snapshot = source.features, source.snapshot
    known = {
        features.redis_key(parts)
        for day in source.days
        for parts in _parts(snapshot, table, features.key, day)
    }  # fmt: skip
    online = set(store.keys(features.pattern))
    missing, extra = known - online, online - known
    both = sorted(known & online)
    chosen = both if sample is None else random.Random(seed).sample(both, min(sample, len(both)))  # noqa: S311
    served = {key: unpack(value) for key, value in zip(chosen, store.values(chosen), strict=True) if value is not None}
    expected = dict[str, tuple[int, list[Any]]]()
    for day in source.days:  # the newest last
        expected |= _rows(snapshot, table, features, day, served.keys())
    judge = _Judge(lake, table, features)
    for key in sorted(missing)[:MOST]:
        judge.note(key, ROW, "nothing", "a row", "newest", None)
    for key, value in zip(some := sorted(extra)[:MOST], store.values(some), strict=True):
        judge.note(key, ROW, "a row", "nothing", "newest", None if value is None else unpack(value))
    gone = _as_known_then(judge, lake, served, snapshot)
    for key, record in served.items():
        # A load that went on meanwhile may have brought rows of a later version than the one that was looked at.
        if record.delta_version <= snapshot.version:
            judge.compare(key, record, expected[key], f"Delta version {snapshot.version}, the newest")
    return Certificate(
        table.id, snapshot.version, len(known), len(online), len(missing), len(extra), len(served), judge.values,
        len(judge.bad), gone, tuple(judge.kept),
    )  # fmt: skip


class _Judge:
    """Counts what was compared, and keeps some of the differences."""

    def __init__(self, lake: Lake, table: Table, features: FeatureSet) -> None:
        self._settings, self._features = lake.settings, features
        self._personal = {*table.privacy.person, *table.pii}
        self.kept: list[Mismatch] = []
        self.bad: set[str] = set()
        self.values = 0

    def compare(self, key: str, record: Record, expected: tuple[int, list[Any]] | None, against: str) -> None:
        self.values += len(self._features.columns)
        if expected is None or expected[0] != record.event_time:
            told = "nothing" if expected is None else f"row of {_day(expected[0])}"
            self._differs(key, ROW, f"row of {_day(record.event_time)}", told, against, record)
            return
        for name, is_there, should in zip(self._features.columns, record.values, expected[1], strict=True):
            if is_there != should and not (is_there != is_there and should != should):  # noqa: PLR0124 - NaN is NaN
                shown = (HIDDEN, HIDDEN) if name in self._personal else (str(is_there), str(should))
                self._differs(key, name, *shown, against, record)

    def _differs(self, key: str, *of: Any) -> None:
        self.bad.add(key)
        self.note(key, *of)

    def note(self, key: str, feature: str, served: str, expected: str, against: str, record: Record | None) -> None:
        if len(self.kept) < MOST:
            found = (
                (moment_of(record.event_time), record.delta_version, record.code_version) if record else (None, -1, "")
            )
            self.kept.append(Mismatch(self._shown(key), feature, served, expected, against, *found))

    def _shown(self, key: str) -> str:
        """An entity for people; of a person the token, by which who has the key finds them."""
        parts = self._features.parts_of(key)
        if not self._personal & set(self._features.key):
            return f"{self._features.entity} {', '.join(parts)}"
        if not self._settings.has_pii_key:
            return f"{self._features.entity} {HIDDEN}"
        return f"{self._features.entity} {token_of(','.join(parts), self._settings.pii_key_bytes())[:25]}"


def _as_known_then(judge: _Judge, lake: Lake, served: Mapping[str, Record], newest: Snapshot) -> int:
    """Compare rows with their day as their own version had it; returns how many cannot be, for the version is gone."""
    table, features, gone = lake.table(judge._features.table), judge._features, 0  # noqa: SLF001 - of this module
    groups: dict[tuple[int, date], set[str]] = {}
    for key, record in served.items():
        if record.delta_version != newest.version:  # the newest is compared anyway
            groups.setdefault((record.delta_version, _day(record.event_time)), set()).add(key)
    for version, days in _by_version(groups).items():
        try:
            snapshot = lake.snapshot(table.id, version)
            found = [(_rows(snapshot, table, features, day, keys), keys) for day, keys in days]
        except Exception:  # noqa: BLE001 - of a version that was tidied away, delta-rs and files fail each in its way
            gone += sum(len(keys) for _, keys in days)
            continue
        for rows, keys in found:
            for key in keys:
                judge.compare(key, served[key], rows.get(key), f"Delta version {version}, as known then")
    return gone


def _by_version(groups: Mapping[tuple[int, date], set[str]]) -> dict[int, list[tuple[date, set[str]]]]:
    found: dict[int, list[tuple[date, set[str]]]] = {}
    for (version, day), keys in groups.items():
        found.setdefault(version, []).append((day, keys))
    return found


def _day(event_time: int) -> date:
    return (moment_of(event_time) - timedelta(days=1)).date()


def _parts(snapshot: Snapshot, table: Table, columns: Iterable[str], day: date) -> Iterator[tuple[Any, ...]]:
    """The values of some columns of a day's rows."""
    names = list(columns)
    for file in snapshot.by_day(table.day_column).get(day, ()):
        found = read_file(snapshot, file, names)
        yield from zip(*(column.to_pylist() for column in found.columns), strict=True)


def _rows(snapshot: Snapshot, table: Table, features: FeatureSet, day: date, wanted: Collection[str]) -> Rows:
    """The rows of a day, of some entities."""
    event, width = milliseconds(end_of(day)), len(features.key)
    found = {}
    for row in _parts(snapshot, table, (*features.key, *features.columns), day):
        key = features.redis_key(row[:width])
        if key in wanted:
            found[key] = (event, features.stored(row[width:]))
    return found
