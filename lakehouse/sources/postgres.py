"""A PostgreSQL table through Spark: what its database says of itself, and its rows with the transactions behind them.

Spark asks twice for a batch: first for the moment (clock, snapshot), then, in one statement on one connection and so in
one snapshot, for the rows. The second snapshot is never older than the first, and it is the first that is kept: a batch
may hold more than it claims, never less, and a statement that Spark has to repeat does no harm.

A row's `xmin` is the low half of a transaction number that has wrapped around before; the whole number is the highest
one not yet given out that ends in it. Rows are compared with the lowest transaction still running in a snapshot, and
not by `pg_visible_in_snapshot`: a snapshot does not list the numbers that savepoints take, so that rows written below
one would seem to be visible while their transaction still runs.

A number alone does not outlive a crash of the server: one that only a transaction without durable traces had (given up,
or nothing but temporary) is given out again. None below the next number of the last checkpoint is, so that a batch
claims no more than that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.contracts import Extract
from lakehouse.days import iso
from lakehouse.errors import SourceDownError, SourceError
from lakehouse.transforms.columns import token_key, without_address

FETCHED = 10_000  # rows at a time, so that a first batch of any size streams through
PATIENCE = 20  # seconds until a connection is made: the driver itself would wait for ever for what answers nothing
SILENCE = 3600  # seconds until an answer begins or goes on: where a network has lost the connection, none ever does
LOCK_PATIENCE = 60  # seconds until whoever has locked the table lets it go: a session left open would keep it for ever
# Of the transaction that reads: it can change nothing, and the server's time zone decides nothing.
_SESSION = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET TIME ZONE 'UTC'"
_DOWN = re.compile(
    r"refused|timed out|unreachable|I/O error|starting up|shutting down|terminating connection|too many (clients|conn)"
    r"|remaining connection slots|lock timeout|EOFException|Connection reset|UnknownHost",
    re.IGNORECASE,
)

# What stands before the sentence of the driver, in a trace and in what Spark Connect says.
_DRIVER = re.compile(r".*PSQLException[:)]\s*((ERROR|FATAL): )?")
_TABLES = "It is a view, whose rows tell no transaction: name the tables that it is made of in the contract."
# What PostgreSQL says, and what to do about it where that is not said.
_ADVICE = {
    'column "xmin" does not exist': _TABLES,
    "cannot lock relation": _TABLES,
    "lock timeout": "Another session has it locked, as ALTER TABLE does, and did not end its transaction (pg_locks).",
    "permission denied for table": "Let the role of the address read it: GRANT SELECT ON it.",
    "permission denied for schema": "Let the role of the address in: GRANT USAGE ON the schema.",
}


@dataclass(frozen=True)
class Moment:
    """A database as a batch is begun.

    Attributes:
        at: its clock, in microseconds since the epoch.
        snapshot: `pg_current_snapshot()`.
        low: no row is written by a lower transaction any more: the lowest still running, or that the server gives out
            after a crash.
        high: the first not yet given out.
        identity: cluster, time line, database and table: whether numbers of transactions can be compared.
        open_seconds: age of the oldest transaction that has written something and still runs; None where none does.
        sees_all: False where the role may not see other roles' transactions.
    """

    at: int
    snapshot: str
    low: int
    high: int
    identity: str
    open_seconds: float | None
    sees_all: bool

    @property
    def day(self) -> date:
        """The UTC day."""
        return datetime.fromtimestamp(self.at / 1e6, UTC).date()


@dataclass(frozen=True)
class Reading:
    """Which rows to read: by transaction, from `xid` on; by `updated_at` in microseconds, `[since, until)`; or all.

    Rows whose `updated_at` is null are read as well, whatever its bounds.
    """

    xid: int | None = None
    since: int | None = None
    until: int | None = None


class Database:
    """The source of an `Extract`.

    Args:
        spark: the engine.
        url: `postgresql://user:password@host:port/database?parameters`; parameters are those of the JDBC driver.
        extract: which table, and how.
    """

    def __init__(self, spark: SparkSession, url: SecretStr, extract: Extract) -> None:
        # The driver takes user and password as options: in the URL they would stand in plans and messages.
        parts = urlsplit(url.get_secret_value())
        self._spark = spark
        self._extract = extract
        self._password = unquote(parts.password or "")
        # In the URL: of an option of the reader, Spark Connect makes a name of small letters, which the driver ignores.
        usual = {"loginTimeout": PATIENCE, "socketTimeout": SILENCE}
        query = [f"{name}={value}" for name, value in usual.items() if f"{name}=" not in parts.query]
        self._options = {
            "url": f"jdbc:postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
            f"?{'&'.join(filter(None, (parts.query, *query)))}",
            "user": unquote(parts.username or ""),
            "password": self._password,
            "driver": "org.postgresql.Driver",
            "fetchsize": str(FETCHED),
        }

    def moment(self) -> Moment:
        """What the database says of itself now.

        Raises:
            SourceDownError: it cannot be reached at the moment.
            SourceError: it refuses, or lacks what the contract names.
        """
        try:
            # Locked here already: what Spark asks of the columns of the rows is not bounded, and would wait for ever.
            row = self._query(moment_sql(self._extract)).first()
        except Exception as error:
            raise self.failed(error) from error
        assert row is not None
        return Moment(**row.asDict())

    def rows(self, reading: Reading) -> DataFrame:
        """The rows, tombstones included: the extract's columns as text without addresses, `_xid`, and `_tombstone`.

        Raises:
            SourceDownError, SourceError: as above; reading itself happens later, when the frame is written.
        """
        try:
            found = self._query(rows_sql(self._extract, reading))
        except Exception as error:
            raise self.failed(error) from error
        # Times are rendered by the statement and cannot hold an address.
        texts = [name for name in self._extract.columns if name not in self._extract.times]
        key = token_key()
        return found.withColumns({name: without_address(F.col(name), key=key) for name in texts})

    def failed(self, error: Exception) -> SourceError:
        """An error of the engine or the driver, in a sentence without credentials."""
        # Spark 4.2 tells only itself that it could not connect; why, is in the trace of the JVM.
        trace = getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None) or ""
        told = f"{error}\n{trace}"
        if self._password:
            # Before anything is cut out of it: the driver quotes the URL it was given in some of its errors.
            told = told.replace(self._password, "…")
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        said = next((line for line in lines if _DRIVER.match(line)), [*lines, type(error).__name__][0])
        said = _DRIVER.sub("", said).rstrip(".")
        kind = SourceDownError if _DOWN.search(said) else SourceError
        advice = next((f"{advice} " for sign, advice in _ADVICE.items() if sign in said), "")
        return kind(
            f"{self._extract.relation} of the database in {self._extract.setting} could not be read: {said}. {advice}"
            "Nothing was taken, and the next intake begins where the last one ended."
        )

    def _query(self, sql: str) -> DataFrame:
        options = {**self._options, "sessionInitStatement": f"{_SESSION}; {_locking(self._extract)}"}
        return self._spark.read.format("jdbc").options(**options, query=sql).load()


def moment_sql(extract: Extract) -> str:
    """One row: a `Moment`. The clock is read before the snapshot is taken."""
    # A restore or a promotion begins a new time line, on which numbers of transactions may come again for others.
    line = "('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"
    # An epoch and a number of 32 bits, such as 1:734.
    durable = "(SELECT split_part(next_xid, ':', 1)::bigint * 4294967296 + split_part(next_xid, ':', 2)::bigint "
    durable += "FROM pg_control_checkpoint())"
    # OFFSET 0 keeps the subquery apart, so that all of the row is told from one snapshot.
    return f"""
    SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS at, s::text AS snapshot,
        least(pg_snapshot_xmin(s)::text::bigint, {durable}) AS low, pg_snapshot_xmax(s)::text::bigint AS high,
        (SELECT system_identifier FROM pg_control_system()) || '/'
        || CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint()) ELSE {line} END || '/'
        || (SELECT oid FROM pg_database WHERE datname = current_database()) || '/'
        || {_text(_relation(extract.relation))}::regclass::oid AS identity,
        (
            SELECT extract(epoch FROM clock_timestamp() - min(began))::double precision FROM (
                SELECT xact_start AS began FROM pg_stat_activity
                WHERE backend_xid IS NOT NULL AND datname = current_database()
                UNION ALL SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()
            ) running
        ) AS open_seconds,
        pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all
    FROM (SELECT pg_current_snapshot() AS s OFFSET 0) snapshot
    """  # noqa: S608  # names come from contracts and are quoted


def rows_sql(extract: Extract, reading: Reading) -> str:
    """The rows of a reading, from the table and from its tombstones, in one statement."""
    live = {name: _rendered(extract, name) for name in extract.columns}
    live.setdefault(extract.deleted_at, "NULL::text")
    found = [_select(extract.relation, live, extract.updated_at, reading, tombstone=False)]
    if extract.tombstones is not None:
        gone = _instant(extract.deleted_at)
        # A tombstone says only who is gone and when: all other columns of the row are null.
        dead = dict.fromkeys(extract.read, "NULL::text")
        dead |= {name: _rendered(extract, name) for name in (*extract.key, *extract.carried)}
        dead |= {extract.updated_at: gone, extract.deleted_at: gone}
        found.append(_select(extract.tombstones, dead, extract.deleted_at, reading, tombstone=True))
    return " UNION ALL ".join(found)


def whole_xid(xmin: str, following: str) -> str:
    """SQL for the whole number of the transaction whose low half is `xmin`: the highest below `following`."""
    return f"({following} - 1 - (({following} - 1 - {xmin}) & 4294967295))"


def _locking(extract: Extract) -> str:
    """SQL that waits for whoever writes the tables anew, before the snapshot is taken: to an older one they are empty.

    ALTER TABLE and TRUNCATE do so, as PostgreSQL says of them. A SELECT takes its snapshot first, and then it waits.
    """
    tables = [each for each in (extract.relation, extract.tombstones) if each is not None]
    patience = f"SET LOCAL lock_timeout = '{LOCK_PATIENCE}s'"
    return f"{patience}; LOCK TABLE {', '.join(map(_relation, tables))} IN ACCESS SHARE MODE"


def _select(relation: str, columns: dict[str, str], changed_at: str, reading: Reading, *, tombstone: bool) -> str:
    # Not correlated, so that the server asks once a statement and not once a row.
    following = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint)"
    xid = whole_xid("xmin::text::bigint", following)
    where = []
    if reading.xid is not None:
        where.append(f"{xid} >= {reading.xid}")
    column, bounds = _name(changed_at), []
    if reading.since is not None:
        bounds.append(f"{column} >= timestamptz {_text(iso(reading.since))}")
    if reading.until is not None:
        bounds.append(f"{column} < timestamptz {_text(iso(reading.until))}")
    if bounds:  # when a row without a time was changed, nobody knows: it is read each time, and taken once
        where.append(f"({' AND '.join(bounds)} OR {column} IS NULL)")
    shown = ", ".join(f"{sql} AS {_name(name)}" for name, sql in columns.items())
    shown += f", {xid} AS _xid, {str(tombstone).lower()} AS _tombstone"
    sql = f"SELECT {shown} FROM {_relation(relation)}"  # noqa: S608  # names come from contracts and are quoted
    return f"({sql} WHERE {' AND '.join(where)})" if where else f"({sql})"


def _rendered(extract: Extract, column: str) -> str:
    return _instant(column) if column in extract.times else f"{_name(column)}::text"


def _instant(column: str) -> str:
    moment = f"{_name(column)}::timestamptz AT TIME ZONE 'UTC'"
    # to_char leaves the era out: the year 44 BC would be told as 44. With it, it is no time that can be read.
    era = f"CASE WHEN extract(year FROM {moment}) < 0 THEN ' BC' ELSE '' END"
    return f'to_char({moment}, \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\') || {era}'


def _relation(name: str) -> str:
    return ".".join(_name(part) for part in name.split("."))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"
