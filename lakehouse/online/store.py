"""The online store: rows that are put in, found and taken out, each step whole whoever else is at work."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakehouse.errors import OnlineDownError, OnlineError
from lakehouse.online.address import connect, failed
from lakehouse.online.scripts import BEGIN, PUT, SWEEP
from lakehouse.online.sets import FeatureSet
from lakehouse.texts import counted

if TYPE_CHECKING:
    from redis import Redis

EVERYTHING = 2**53 - 1  # an event time that is never reached: a load of the whole table has read up to there
NEVER = -1  # when a row goes that does not go by itself
ROWS_A_CALL = 250  # in one script: a millisecond or two, in which nobody else is served
CALLS_AT_ONCE = 8  # on their way together
WAITS = (0.1, 0.3, 1.0, 2.0, 4.0)  # seconds before each further attempt; then the store is down
PATTERN_COUNT = 1000
MARK = "@holding"  # no entity is called so


@dataclass(frozen=True)
class Put:
    """What became of rows.

    Attributes:
        written: put into the store.
        same: there already, of the same event time and version.
        older: than what is there; not written.
    """

    written: int = 0
    same: int = 0
    older: int = 0

    def __add__(self, other: Put) -> Put:
        """Both together."""
        return Put(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


class OnlineStore:
    """The store at an address.

    Args:
        url: of Redis; it may hold a password, and is shown to nobody.
        waits: seconds before each further attempt where Redis does not answer.
    """

    def __init__(self, url: str, waits: Sequence[float] = WAITS) -> None:
        self._url, self._waits = url, waits
        self._redis: Redis = connect(url)

    def __repr__(self) -> str:
        """Without the address, which may hold a password."""
        return "OnlineStore(…)"

    def close(self) -> None:
        """End the connections."""
        self._redis.close()

    def instance(self) -> str:
        """Id of the running server: after a restart another one, and what it held last may be lost."""
        return str(self._tried(lambda: self._redis.info("server"))["run_id"])

    def holding(self) -> str:
        """`instance`, and an id of what it holds: another one once all was flushed. Written where it is missing."""
        # A flush leaves the server as it is, and takes the mark along.
        self._tried(lambda: self._redis.set(MARK, uuid.uuid4().hex, nx=True))
        return f"{self.instance()} {self._tried(lambda: self._redis.get(MARK))!r}"

    def pushed_out(self) -> int:
        """How many keys the running server has pushed out so far, of whomever, because it was full."""
        return int(self._tried(lambda: self._redis.info("stats"))["evicted_keys"])

    def refuse_pushed_out(self, table: str, before: int) -> None:
        """Refuse a server that is full and makes room by itself: it took every row, and some are missing all the same.

        Args:
            table: that was loaded.
            before: what `pushed_out` said before that.

        Raises:
            OnlineError: it has pushed out more; whose keys they were, it does not say.
        """
        if (keys := self.pushed_out() - before) > 0:
            raise OnlineError(
                f"Redis is full: it pushed out {counted(keys, 'key')} while {table} was loaded, so rows may be missing "
                "(lakehouse online verify). Give it more memory and the maxmemory-policy noeviction, and load again."
            )

    def now(self) -> int:
        """By the server's clock, milliseconds since 1970."""
        seconds, micros = self._tried(self._redis.time)
        return int(seconds) * 1000 + int(micros) // 1000

    def begin(self, features: FeatureSet, version: int, known: int, table_id: str) -> int:
        """Begin a load: from now on none of an older version writes what this one has read.

        Args:
            features: what is loaded.
            version: of the Delta table.
            known: event time up to which the load reads everything.
            table_id: the Delta table's own id.

        Returns:
            The version of the newest load, which may be a later one.

        Raises:
            OnlineError: the store holds rows of another Delta table of this name.
            OnlineDownError: Redis does not answer.
            OnlineRefusedError: it does, and does not take this: it is full, say.
        """
        found = int(self._tried(lambda: self._redis.eval(BEGIN, 1, features.floor, version, known, table_id)))
        if found < 0:
            raise OnlineError(
                f"{features.table} was made anew since it was loaded: versions of the two tables cannot be compared. "
                f"Load it from nothing: lakehouse online rebuild {features.table}"
            )
        return found

    def put(
        self, features: FeatureSet, rows: Iterable[tuple[str, int, bytes]], version: int, known: int | None = None
    ) -> Put:
        """Put rows in, each only where it is newer than what is there.

        Args:
            features: whose rows they are.
            rows: key, when it goes (milliseconds since 1970, by the server's clock; `NEVER`: not by itself), and
                packed value.
            version: of the Delta table they were read at; the packed value says it, too.
            known: event time up to which the caller has read the whole table at that version; None: not the whole.

        Raises:
            OnlineDownError: Redis does not answer; some of the rows may be in. To put all again does no harm.
            OnlineRefusedError: it does, and does not take them; some may be in.
        """
        done, left = Put(), iter(rows)
        limit = -1 if known is None else known
        while chunk := list(islice(left, ROWS_A_CALL * CALLS_AT_ONCE)):
            for found in self._tried(lambda chunk=chunk: self._sent(features, chunk, version, limit)):  # type: ignore[misc]
                done += Put(*found)
        return done

    def _sent(
        self, features: FeatureSet, rows: Sequence[tuple[str, int, bytes]], version: int, known: int
    ) -> list[list[int]]:
        with self._redis.pipeline(transaction=False) as pipe:
            for first in range(0, len(rows), ROWS_A_CALL):
                part = rows[first : first + ROWS_A_CALL]
                keys = [features.floor, *(row[0] for row in part)]
                pipe.eval(PUT, len(keys), *keys, version, known, *(each for row in part for each in row[1:]))
            return pipe.execute()

    def sweep(self, features: FeatureSet, version: int, known: int, oldest: int = 0) -> int:
        """Remove rows of older versions that a load of everything did not find, and old rows; returns how many.

        Args:
            features: what was loaded, all of it.
            version: of the Delta table.
            known: event time up to which it was read.
            oldest: event time before which no row may be used any more.
        """
        removed = 0
        for keys in self.key_chunks(features.pattern):
            removed += int(
                self._tried(lambda keys=keys: self._redis.eval(SWEEP, len(keys), *keys, version, known, oldest))  # type: ignore[misc]
            )
        return removed

    def drop(self, features: FeatureSet) -> int:
        """Remove all rows of a table's present version, and what is known of its loads; returns how many rows."""
        return self.remove(self.keys(features.pattern), (features.floor,))

    def remove(self, keys: Iterable[str], also: Sequence[str] = ()) -> int:
        """Remove keys; returns how many were there, without those that go along."""
        left, removed = iter(keys), 0
        while chunk := list(islice(left, PATTERN_COUNT)):
            removed += int(self._tried(lambda chunk=chunk: self._redis.delete(*chunk)))  # type: ignore[misc]
        if also:
            self._tried(lambda: self._redis.delete(*also))
        return removed

    def keys(self, pattern: str) -> Iterator[str]:
        """Keys that match, once each as far as nothing changes meanwhile."""
        for chunk in self.key_chunks(pattern):
            yield from chunk

    def key_chunks(self, pattern: str) -> Iterator[list[str]]:
        """Keys that match, some at a time; one may come twice."""
        cursor = 0
        while True:
            cursor, found = self._tried(
                lambda at=cursor: self._redis.scan(at, match=pattern, count=PATTERN_COUNT)  # type: ignore[misc]
            )
            if found:
                yield [each.decode() for each in found]
            if not cursor:
                return

    def values(self, keys: Sequence[str]) -> list[bytes | None]:
        """The packed rows of keys; None where there is none."""
        return list(self._tried(lambda: self._redis.mget(keys))) if keys else []

    def rewrite_files(self) -> None:
        """Have Redis write its files anew, so that they hold what is in it and nothing that was taken out."""
        if not self._tried(self._rewrites):  # one is on; it began before what is to be gone went
            self._rewritten()
            self._tried(self._rewrites)
        self._rewritten()

    def _rewrites(self) -> bool:
        """Have it begin; False where it was at it already."""
        from redis import ResponseError

        try:
            self._redis.bgrewriteaof()
        except ResponseError as error:
            if "in progress" not in str(error):
                raise
            return False
        return True

    def _rewritten(self) -> None:
        while True:
            found = self._tried(lambda: self._redis.info("persistence"))
            if not (found["aof_rewrite_in_progress"] or found["aof_rewrite_scheduled"]):
                if found["aof_last_bgrewrite_status"] != "ok":
                    raise OnlineError("Redis could not write its files anew: see its log.")
                return
            time.sleep(0.02)

    def _tried(self, work: Callable[[], Any]) -> Any:
        """Do it; where Redis does not answer, wait and try again, and in the end say that it is down."""
        from redis import RedisError

        for wait in (*self._waits, None):
            try:
                return work()
            except RedisError as error:
                found = failed(self._url, error)
                # What it refuses, such as a row where it is full, it refuses again in a moment.
                if wait is None or not isinstance(found, OnlineDownError):
                    raise found from None
                time.sleep(wait)
        raise AssertionError


@contextmanager
def opened(url: str) -> Iterator[OnlineStore]:
    """The store at an address, until the end of the block."""
    store = OnlineStore(url)
    try:
        yield store
    finally:
        store.close()
