"""Reading features online: one question to Redis for all entities and tables that are asked for.

    client = OnlineClient(redis_url(settings), feature_sets(tables()))
    [vector] = client.get_online_features([{"user_id": "17841"}], ["gold.user_features"])
    vector["gold.user_features:rolling_7d_amount"].value

A value that is not there is never a zero: each feature says whether it is present, missing or stale.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic_core import from_json

from lakehouse.errors import UnknownTableError, UsageError
from lakehouse.online.address import connect, connect_async, failed
from lakehouse.online.sets import HEAD, FeatureSet, moment_of

PRESENT, MISSING, STALE = "present", "missing", "stale"
SECONDS = 1.0  # that Redis has for an answer to a reader
_HEAD = HEAD.size
_MOST_PLANS = 1000  # lists of features that are kept: who asks over HTTP can make up any number of them


class Feature(NamedTuple):
    """One feature of one entity.

    Attributes:
        status: `present`; `missing`: there is no row; `stale`: there is one, and it may not be used any more.
        value: None unless it is present; a present feature may be null, too.
        row: what the row says of itself; None where there is none.
    """

    status: str
    value: Any
    row: Row | None


class Row(NamedTuple):
    """Where a row is from.

    Attributes:
        event_milliseconds: end of its day, since 1970.
        delta_version: of the table at which it was read.
        code: version of the code that made it.
    """

    event_milliseconds: int
    delta_version: int
    code: bytes

    @property
    def event_time(self) -> datetime:
        """From when on it may be used, UTC."""
        return moment_of(self.event_milliseconds)

    @property
    def code_version(self) -> str:
        """Of the code that made it."""
        return self.code.decode().rstrip("\0")


class Vector(Mapping[str, Feature]):
    """The features of one entity, by `layer.name:column`, table by table in the order in which they were asked for.

    Args:
        parts: what was asked of each table.
        found: what came of it: status, what the row says of itself, and all its values, decoded.
    """

    __slots__ = ("_found", "_parts")

    def __init__(self, parts: Sequence[_Part], found: Sequence[_Found]) -> None:
        self._parts, self._found = parts, found

    def __getitem__(self, name: str) -> Feature:
        """The feature of that name.

        Raises:
            KeyError: it was not asked for.
        """
        for part, (status, head, cells) in zip(self._parts, self._found, strict=True):
            if (place := part.places.get(name)) is not None:
                return Feature(status, None if cells is None else cells[place], None if head is None else Row(*head))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        for part in self._parts:
            yield from part.places

    def __len__(self) -> int:
        """How many were asked for."""
        return sum(len(part.places) for part in self._parts)

    def values_present(self) -> dict[str, Any]:
        """Those that are present."""
        made: dict[str, Any] = {}
        for part, (_, _, cells) in zip(self._parts, self._found, strict=True):
            if cells is not None:
                values = cells if part.chosen is None else part.chosen(cells)
                made.update(zip(part.places, values))  # noqa: B905 - as many by the plan; to count costs a tenth
        return made

    def required(self) -> dict[str, Any]:
        """All values.

        Raises:
            UsageError: with the features that are missing or stale.
        """
        for status, _, _ in self._found:
            if status != PRESENT:
                bad = [f"{name} is {each.status}" for name, each in self.items() if each.status != PRESENT]
                raise UsageError(f"Not all features are present: {', '.join(bad)}.")
        return self.values_present()


_Found = tuple[str, tuple[int, int, bytes] | None, list[Any] | None]
_NOTHING: _Found = (MISSING, None, None)


@dataclass(frozen=True, slots=True)
class _Part:
    """What is asked of one table.

    Attributes:
        features: of the table.
        places: of each feature in the row, by the name it is answered by.
        chosen: takes these out of a row; None: they are the whole row.
        decoders: of columns that are not as JSON has them, with their places.
        ttl: milliseconds for which a row may be used.
    """

    features: FeatureSet
    places: Mapping[str, int]
    chosen: Callable[[Sequence[Any]], Sequence[Any]] | None
    decoders: Sequence[tuple[int, Callable[[Any], Any]]]
    ttl: int


class _Client:
    """What is to be asked for which features, made once for each list of them; and what is made of the answer."""

    def __init__(self, url: str, sets: Mapping[str, FeatureSet], clock: Callable[[], float]) -> None:
        from redis import RedisError

        self.sets, self._url, self._clock, self._failed = sets, url, clock, RedisError
        self._made: dict[tuple[str, ...], tuple[_Part, ...]] = {}

    def _plan(self, wanted: Sequence[str]) -> tuple[_Part, ...]:
        name = tuple(wanted)
        if (made := self._made.get(name)) is None:
            made = self._planned(name)
            if len(self._made) >= _MOST_PLANS:
                self._made.clear()
            self._made[name] = made
        return made

    def _planned(self, wanted: tuple[str, ...]) -> tuple[_Part, ...]:
        columns: dict[str, list[str]] = {}
        for each in wanted:
            table, _, column = each.partition(":")
            if table not in self.sets:
                raise UnknownTableError(f"No features of {table!r} are online. There are: {', '.join(self.sets)}.")
            known = list(self.sets[table].columns)
            if column and column not in known:
                raise UsageError(f"{table} has no feature {column!r}. It has: {', '.join(known)}.")
            columns.setdefault(table, []).extend([column] if column else known)
        if not columns:
            raise UsageError("No features were asked for: name tables, or columns as layer.name:column.")
        keys = {(self.sets[table].entity, *self.sets[table].key.items()) for table in columns}
        if len(keys) > 1:
            raise UsageError(f"Features of different entities cannot be asked for together: {', '.join(columns)}.")
        return tuple(self._part(self.sets[table], list(dict.fromkeys(names))) for table, names in columns.items())

    def _part(self, features: FeatureSet, names: Sequence[str]) -> _Part:
        order = {name: place for place, name in enumerate(features.columns)}
        places = [order[name] for name in names]
        decoders = [(order[name], decode) for name in names if (decode := features.decoders[name]) is not None]
        ttl = features.ttl // timedelta(milliseconds=1)
        [first, *_] = places
        chosen: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        if places != list(range(len(order))):
            chosen = itemgetter(*places) if len(places) > 1 else lambda cells: (cells[first],)
        named = {f"{features.table}:{name}": place for name, place in zip(names, places, strict=True)}
        return _Part(features, named, chosen, decoders, ttl)

    @staticmethod
    def _keys(plan: Sequence[_Part], entities: Iterable[Mapping[str, Any]]) -> list[str]:
        features = plan[0].features  # all are about one entity, by the same columns
        ends, found = [part.features.suffix for part in plan], []
        for each in entities:
            try:
                start = features.key_start([each[name] for name in features.key])
            except KeyError as error:
                names = ", ".join(features.key)
                raise UsageError(f"An entity has no {error.args[0]!r}; it is meant by {names}.") from None
            found += [start + end for end in ends]
        return found

    def _answer(self, plan: Sequence[_Part], packed: Sequence[Any], max_age: timedelta | None) -> list[Vector]:
        now = int(self._clock() * 1000)
        oldest = None if max_age is None else max_age // timedelta(milliseconds=1)
        step, made = len(plan), []
        for number, value in enumerate(packed):
            made.append(_NOTHING if value is None else _found(plan[number % step], value, now, oldest))
        if step == 1:
            return [Vector(plan, (each,)) for each in made]
        return [Vector(plan, made[first : first + step]) for first in range(0, len(made), step)]


def _found(part: _Part, packed: bytes, now: int, oldest: int | None) -> _Found:
    head = HEAD.unpack_from(packed)
    age = now - head[0]
    if age > part.ttl or (oldest is not None and age > oldest):
        return STALE, head, None
    cells = from_json(packed[_HEAD:])
    for place, decode in part.decoders:
        if (cell := cells[place]) is not None:
            cells[place] = decode(cell)
    return PRESENT, head, cells


class OnlineClient(_Client):
    """Reads features; one client serves many threads.

    Args:
        url: of Redis (`lakehouse.online.address.redis_url`).
        sets: what can be asked for, by table (`lakehouse.online.sets.feature_sets`).
        clock: seconds since 1970; of a lake whose data has ended, the end of its last day.
        seconds: that Redis has for an answer.
    """

    def __init__(
        self,
        url: str,
        sets: Mapping[str, FeatureSet],
        clock: Callable[[], float] = time.time,
        seconds: float = SECONDS,
    ) -> None:
        super().__init__(url, sets, clock)
        self._redis = connect(url, seconds)

    def get_online_features(
        self, entities: Sequence[Mapping[str, Any]], features: Sequence[str], max_age: timedelta | None = None
    ) -> list[Vector]:
        """The features of entities, in the order of these.

        Args:
            entities: each by its key columns, such as {"user_id": "17841"}.
            features: `layer.name:column`, or `layer.name` for all of a table.
            max_age: what is older counts as stale, also where it could be used for longer.

        Raises:
            UsageError: an entity lacks a key column, or has a value of another type in it; or there is no such feature.
            UnknownTableError: there is no such table with features.
            OnlineDownError: Redis does not answer.
            OnlineRefusedError: it does, and does not take the login, say.
        """
        plan = self._plan(features)
        keys = self._keys(plan, entities)
        if not keys:
            return []
        try:
            packed = self._redis.mget(keys)
        except self._failed as error:
            raise failed(self._url, error) from None
        return self._answer(plan, packed, max_age)

    def answers(self) -> bool:
        """Whether Redis does."""
        try:
            return bool(self._redis.ping())
        except self._failed:
            return False

    def close(self) -> None:
        """End the connections."""
        self._redis.close()


class AsyncOnlineClient(_Client):
    """As `OnlineClient`, for asyncio."""

    def __init__(
        self,
        url: str,
        sets: Mapping[str, FeatureSet],
        clock: Callable[[], float] = time.time,
        seconds: float = SECONDS,
    ) -> None:
        super().__init__(url, sets, clock)
        self._redis = connect_async(url, seconds)

    async def get_online_features(
        self, entities: Sequence[Mapping[str, Any]], features: Sequence[str], max_age: timedelta | None = None
    ) -> list[Vector]:
        """As `OnlineClient.get_online_features`.

        Args:
            entities: each by its key columns.
            features: `layer.name:column`, or `layer.name`.
            max_age: what is older counts as stale.

        Raises:
            OnlineDownError: Redis does not answer.
            OnlineRefusedError: it does, and does not take the login, say.
        """
        plan = self._plan(features)
        keys = self._keys(plan, entities)
        if not keys:
            return []
        try:
            packed = await self._redis.mget(keys)
        except self._failed as error:
            raise failed(self._url, error) from None
        return self._answer(plan, packed, max_age)

    async def answers(self) -> bool:
        """Whether Redis does."""
        try:
            return bool(await self._redis.ping())
        except self._failed:
            return False

    async def close(self) -> None:
        """End the connections."""
        await self._redis.aclose()
