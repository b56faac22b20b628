"""Which days of a table are not what their inputs and code of now would give: decided from logs, without an engine.

Three words, each for one thing. A day is *stale* where its inputs or its code are not those it was published from. It
is *waiting* where a day of another table that it reads, directly or not, has an input that is not published yet;
building it does not help. *Late* are rows that arrived after their day (`lakehouse.build.late`): they make it stale.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime

from lakehouse.build import open_days
from lakehouse.build.older_reads import by_code
from lakehouse.build.plan import input_days, make_plan, output_days
from lakehouse.contracts import Input, Table
from lakehouse.days import days_between, newest_day
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.transactions import day_transaction, days_of_transactions
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import judgements, latest_records, older_code


def stale_days(lake: Lake, table: Table, days: Collection[date] | None = None) -> list[date]:
    """The days that are not published, quarantine included, from the inputs and code that are there now, in order.

    A late file, a corrected day, a restored version or changed code of an input make exactly those days stale that
    read it: an arrival day names the event days it holds in the log, and a window reads the days before.

    Args:
        lake: where the tables are.
        table: whose days.
        days: the days to look at; None: all that have input, or rows that were published or set aside.
    """
    if table.taken is not None:
        return []  # what is new in a database is known only there, and what was taken stays as it was
    looked_at = sorted(known_days(lake, table) if days is None else set(days))
    if not looked_at:
        return []
    # What a build would be made from now, compared with what the log says the published day was made from.
    plan = make_plan(lake, table, looked_at)
    snapshots = _stores(lake, table)
    if table.landing:
        # A file that was tidied away once its rows were published or set aside is no change of them.
        kept = _kept_days(table, snapshots)
        looked_at = [day for day in looked_at if plan.landed[day] or day not in kept]
    return [
        day
        for day in looked_at
        if any(each.transaction(day_transaction(day)) != plan.fingerprints[day] for each in snapshots)
    ]


def all_stale_days(lake: Lake, table: Table) -> list[date]:
    """As `stale_days`, also of days that were published empty, which the log alone knows: their code changes, too."""
    known = known_days(lake, table)
    between = days_between(min(known), max(known)) if known else []
    return stale_days(lake, table, known | published_days(lake, table, between))


def changed_days(lake: Lake, table: Table, days: Collection[date] | None = None) -> list[date]:
    """The stale days whose inputs have changed; those that only newer code of the table makes stale are left out.

    Args:
        lake: where the tables are.
        table: whose days.
        days: the days to look at; None: all that have input, or rows that were published or set aside.
    """
    return _changed(lake, table, stale_days(lake, table, days))


def _changed(lake: Lake, table: Table, stale: Sequence[date]) -> list[date]:
    built = latest_records(lake.settings.root, table.id, stale, figures=()) if stale else {}
    # Of a day that older code built, the fingerprint differs in any case: it is made once more with that code's
    # version and reads, so that what is left is a change of its inputs.
    codes = {day: built[day].code_version if day in built else table.code_version for day in stale}
    changed: list[date] = []
    for made, days in by_code(lake, table, codes):
        changed += days if made is table else stale_days(lake, made, days)
    return sorted(changed)


def turned_down(lake: Lake, table: Table, days: Collection[date]) -> set[date]:
    """Those of some days that somebody restored when their inputs were what they are now.

    Nothing builds them by itself, or a restore would be undone within seconds: they wait until their inputs change, or
    somebody launches them.

    Args:
        lake: where the tables are.
        table: whose days.
        days: the days to look at.
    """
    newest = latest_records(lake.settings.root, table.id, days, figures=("tried",)) if days else {}
    # Not by its operation: what replaces a day for the sake of others (an upsert, an erasure) says it on.
    restored = {day: each for day, each in newest.items() if "tried" in each.figures}
    now = as_made_by(lake, table, {day: each.code_version for day, each in restored.items()})
    return {day for day, each in restored.items() if each.figures["tried"] == now[day]}


def as_made_by(lake: Lake, table: Table, codes: Mapping[date, str]) -> dict[date, int]:
    """The fingerprints of some days as the code of each would give them: what differs is a change of inputs.

    Args:
        lake: where the tables are.
        table: whose days.
        codes: by day, a code version.
    """
    found: dict[date, int] = {}
    for made, days in by_code(lake, table, codes):
        found |= make_plan(lake, made, days).fingerprints
    return found


def waiting_days(lake: Lake, table: Table, days: Collection[date]) -> dict[date, str]:
    """The days that read, directly or not, a day whose newest input is not published, with the first such day in words.

    Such a day holds the last good data, or none yet: what it reads failed, or has not been built.

    Args:
        lake: where the tables are.
        table: whose days.
        days: the days to look at.
    """
    found, between = dict[date, str](), _buildable(lake)
    for each, is_its in _reads(lake, table):
        source, asked = lake.table(each.table), set(filter(is_its, days))
        read = {wanted for day in asked for wanted in _awaited(each, day, between)}
        known = read & known_days(lake, source, between=(min(read), max(read))) if read else read
        stale = {
            day: f"{each.table} {day} is not published from its newest input"
            for day in changed_days(lake, source, known)
        }
        # The nearer reason wins: that the input itself is stale, before what the input waits for. That holds also of a
        # day of which the input knows nothing yet, since nothing that it reads was ever built.
        stale = waiting_days(lake, source, read) | stale
        for day, why in _readers(each, stale, between):
            if day in asked:
                found.setdefault(day, why)
    return found


def _reads(lake: Lake, table: Table) -> Iterator[tuple[Input, Callable[[date], bool]]]:
    """The inputs of a table, with whether a day reads by them: one of older code reads what that code did."""
    older = older_code(lake.settings.root, table.id, table.code_version) if table.upstream else {}
    codes = {day: code for code, days in older.items() for day in days}
    for made, days in by_code(lake, table, codes):
        yield from ((each, set(days).__contains__) for each in made.upstream.values())
    yield from ((each, lambda day: day not in codes) for each in table.upstream.values())


def _readers(each: Input, stale: Mapping[date, str], between: tuple[date, date]) -> Iterator[tuple[date, str]]:
    """The days that read a stale day of an input, with why it is, the first such day first; some days come again.

    Args:
        each: the input.
        stale: by day of it, why.
        between: the first and the last day that could be built by now.
    """
    for wanted, why in sorted(stale.items()):
        for day in output_days(each, wanted):
            if wanted in _awaited(each, day, between):
                yield day, why


def published_days(lake: Lake, table: Table, also: Collection[date] = ()) -> set[date]:
    """The days of a table that are published, empty ones included.

    Args:
        lake: where the tables are.
        table: whose days.
        also: days to look at beside those that have rows or input; others may be missing where they are empty.
    """
    snapshot = lake.snapshot(table.id)
    rows = set(snapshot.by_day(table.day_column)) | days_of_transactions(snapshot.transactions())
    # A day that was published empty has no file, only its transaction: each likely one is asked for by name.
    likely = known_days(lake, table).union(also) - rows
    return rows | {day for day in likely if snapshot.transaction(day_transaction(day)) is not None}


def never_built(lake: Lake, table: Table, days: Collection[date]) -> set[date]:
    """Those of some days that no run has published, failed or left to somebody yet.

    Args:
        lake: where the tables are.
        table: whose days.
        days: the days to look at, as readers of the table ask for them.
    """
    if not days:
        return set()
    published = published_days(lake, table, days)
    if table.content_day_column != table.day_column and not published:
        days = known_days(lake, table)  # rows of a day may have arrived on any later one
    return set(days) - published - judgements(lake.settings.root, table.id, days, figures=()).keys()


def days_of_older_code(lake: Lake, table: Table) -> dict[str, list[date]]:
    """The published days that code other than today's built, by code version; none that a restore has removed.

    Args:
        lake: where the tables are.
        table: whose days.
    """
    snapshot = lake.snapshot(table.id)
    rows = snapshot.by_day(table.day_column)
    found = {
        code: [day for day in days if day in rows or snapshot.transaction(day_transaction(day)) is not None]
        for code, days in older_code(lake.settings.root, table.id, table.code_version).items()
    }
    return {code: days for code, days in found.items() if days}


def all_waiting_days(lake: Lake, all_stale: Mapping[str, Sequence[date]] | None = None) -> dict[str, dict[date, str]]:
    """What `waiting_days` says of every day of every table of the lake, looking at each table once.

    Args:
        lake: where the tables are.
        all_stale: by table, what `stale_days` says of all its days, where that is known.
    """
    found: dict[str, dict[date, str]] = {}
    stale: dict[str, dict[date, str]] = {}
    between = _buildable(lake)
    for name, table in lake.tables.items():  # upstream tables come first
        mine = found[name] = {}
        # Where nothing is stale nothing waits, whatever a table reads: its history is not looked into for that.
        for each, is_its in _reads(lake, table) if any(stale.values()) else ():
            for day, why in _readers(each, stale.get(each.table, {}), between):
                if is_its(day):
                    mine.setdefault(day, why)
        days = _changed(lake, table, all_stale[name] if all_stale else stale_days(lake, table))
        changed = {day: f"{name} {day} is not published from its newest input" for day in days}
        stale[name] = mine | changed
    return found


def _buildable(lake: Lake) -> tuple[date, date]:
    return lake.settings.first_day, newest_day(lake.settings.last_day, datetime.now(UTC))


def _awaited(each: Input, day: date, between: tuple[date, date]) -> list[date]:
    """The days of an input that a day is not complete without: those it reads, but for days that no run builds.

    A row that is dated after the newest day is in no day that could be built before tomorrow; one that is dated before
    the lake's first day is in none at all (`days_before_the_first`), until somebody moves that day.
    """
    first, newest = between
    return [read for read in input_days(each, day) if min(day, first) <= read <= max(day, newest)]


def known_days(lake: Lake, table: Table, *, between: tuple[date | None, date | None] = (None, None)) -> set[date]:
    """The days of a table that have input, or rows that were published or set aside.

    Args:
        lake: where the tables are.
        table: whose days.
        between: first and last day, None where it is open; a landed day outside may be missing.
    """
    known = _kept_days(table, _stores(lake, table))
    known |= {file.arrival_date for file in open_days.landed_by_now(lake, table, *between)}
    for each in table.upstream.values():
        source = lake.table(each.table)
        read = lake.snapshot(each.table).by_day(source.content_day_column)
        known |= {reader for day in read for reader in output_days(each, day)}
    return known


def tidied_days(lake: Lake, table: Table, days: Collection[date]) -> set[date]:
    """The days of a landed table whose rows are kept while their files are gone: not stale, and refused if built.

    Args:
        lake: where the tables are.
        table: whose days.
        days: only those from the first to the last of these.
    """
    if table.landing is None or not days:
        return set()
    first, last = min(days), max(days)
    kept = {day for day in _kept_days(table, _stores(lake, table)) if first <= day <= last}
    return kept - {file.arrival_date for file in open_days.landed_by_now(lake, table, first, last)}


def _stores(lake: Lake, table: Table) -> list[Snapshot]:
    """The table, and its quarantine where it has rules."""
    return [lake.snapshot(name) for name in (table.id, *([table.quarantine_id] if table.rules else []))]


def _kept_days(table: Table, stores: Sequence[Snapshot]) -> set[date]:
    """The days with rows: of one whose rows were all set aside, the quarantine alone tells once its input is gone."""
    return set().union(*(each.by_day(table.day_column) for each in stores))


def has_news_of_files(lake: Lake, table: Table, day: date) -> bool:
    """Whether a day of a table that messages come to as well reads what others have published since it was built.

    A stream looks at a day when a message comes: what others have brought to it since, or to days that it looks back
    on, the stream may not see for hours.

    Args:
        lake: where the tables are.
        table: for which `open_days.has_messages` holds.
        day: of the table, which is stale.
    """
    built = latest_records(lake.settings.root, table.id, [day], figures=("inputs",)).get(day)
    return any(_has_news(lake, each, day, built) for each in table.upstream.values())


def _has_news(lake: Lake, each: Input, day: date, built: DayRecord | None) -> bool:
    """Whether others than a stream have published of an input since a day that reads it was built."""
    read = lake.table(each.table)
    if not open_days.has_messages(lake, read):
        found = lake.snapshot(each.table)
        if built is None:  # the first message may be on its way
            return day in found.by_day(read.content_day_column)
        return found.version != built.inputs.get(read.id)
    if built is None or read.topic:  # what takes the messages tells nothing of the days they are of
        return False
    made = latest_records(lake.settings.root, read.id, input_days(each, day), figures=()).values()
    return any(record.version > built.inputs.get(read.id, -1) and not record.by_stream for record in made)


def days_before_the_first(lake: Lake) -> list[date]:
    """Event days before the lake's first one that what reads them lacks: of rows that arrived in the lake's days.

    No partition takes such rows. A batch builds the days it touches whatever partitions there are: those lack nothing.
    """
    first, found = lake.settings.first_day, set[date]()
    for table in lake.tables.values():
        if (table.landing or table.taken) is None or table.content_day_column == table.day_column:
            continue
        snapshot = lake.snapshot(table.id)
        arrived, happened = map(snapshot.by_day, (table.day_column, table.content_day_column))
        in_time = {file.path for day, files in arrived.items() if day >= first for file in files}
        early = {day for day, files in happened.items() if day < first and any(f.path in in_time for f in files)}
        for reader in lake.tables.values():
            if early and any(each.table == table.id for each in reader.upstream.values()):
                found.update(stale_days(lake, reader, early))
    return sorted(found)
