"""Which checks of a table fail, and on which days, as the newest build of each left it: told by the table's own log.

The commit that publishes a day also keeps the checks that only warned, and a build that publishes none of its days
commits why. So Dagster, `lakehouse status`, alerts and `lakehouse ready` say the same, whatever was run last and
however old Dagster's own events are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from lakehouse.build.open_days import newest_partition
from lakehouse.build.plan import make_plan
from lakehouse.checks.audit import check_names
from lakehouse.checks.producers import judge_clocks, producer_days
from lakehouse.contracts import Table
from lakehouse.contracts.clock import CLOCKS_CHECK
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.depth import DEPTH_CHECK, Depth, depth_now, judge_depth
from lakehouse.records.history import CHECKS_ONLY, judgements, latest_records

NAMED = 3  # days in a sentence
INPUTS_FRESH = "inputs_fresh"
JUDGED_AFTER = (DEPTH_CHECK, CLOCKS_CHECK)  # publishing, which they never block


@dataclass(frozen=True)
class Verdict:
    """A check that fails on a day.

    Attributes:
        day: None where the check speaks of the whole table.
        blocking: the day was not published for it; else it is a warning about published rows.
        found: what the check found, in words.
        version: of the commit that says so.
        run_id, at: of the build; empty where nobody built.
    """

    check: str
    day: date | None
    blocking: bool
    found: str
    version: int = -1
    run_id: str = ""
    at: datetime | None = None


def verdicts(
    lake: Lake, table: Table, days: Collection[date] | None = None, kept: Mapping[date, DayRecord] | None = None
) -> list[Verdict]:
    """The checks of single days that fail, by day and name. Starts no engine.

    A day that was not published fails until it is built again, or until what was judged is not wanted any more: its
    file was withdrawn, or what is there now is what is published. What its published rows warn of stands meanwhile.

    Args:
        lake: where the tables are.
        table: whose checks.
        days: only these; None: all.
        kept: the `judgements` of these days, where they are known.
    """
    kept = judgements(lake.settings.root, table.id, days) if kept is None else kept
    if table.taken is not None and kept:  # a batch is judged, whatever its day, and the newest one stands
        newest = max(kept.values(), key=lambda each: each.version)
        kept = {newest.day: newest}
    refused = {day: each for day, each in kept.items() if each.operation == CHECKS_ONLY and table.taken is None}
    over = _over(lake, table, {day: each for day, each in refused.items() if each.figures.get("checks")})
    seen = latest_records(lake.settings.root, table.id, refused, ("checks",)) if refused else {}
    known = check_names(table)  # what the contract has dropped since fails no more
    found: dict[tuple[date, str], Verdict] = {}
    for each in (*seen.values(), *(each for day, each in kept.items() if day not in over)):
        for name, told in each.figures.get("checks", {}).items():
            if name in known:
                found[each.day, name] = Verdict(
                    name, each.day, bool(told["blocking"]), str(told["found"]), each.version, each.run_id, each.at
                )
    return [found[where] for where in sorted(found)]


def refused_days(lake: Lake, table: Table, found: Collection[Verdict] | None = None) -> set[date]:
    """The lake's days that were not published for what their newest build found, and still wait for another.

    Dagster's runs say so, too, as long as nobody deletes them.

    Args:
        lake: where the tables are.
        table: whose days.
        found: its `verdicts`, where they are known.
    """
    found = verdicts(lake, table) if found is None else found
    first, last = lake.settings.first_day, newest_partition(lake.settings, lake.tables, datetime.now(UTC))
    return {each.day for each in found if each.blocking and each.day and first <= each.day <= last}


def _over(lake: Lake, table: Table, refused: Mapping[date, DayRecord]) -> set[date]:
    """Those of some days that nobody waits for any more, though their newest build did not publish them."""
    if not refused or table.taken is not None:
        return set()
    # Once for all refused days: a plan reads the log, and there may be many.
    plan = make_plan(lake, table, sorted(refused))
    stores = [lake.snapshot(table.id), *([lake.snapshot(table.quarantine_id)] if table.rules else [])]
    over = set()
    for day, record in refused.items():
        fingerprint = plan.fingerprints[day]
        current = all(each.transaction(day_transaction(day)) == fingerprint for each in stores)
        # As long as what was judged is what there is now, it fails; else the verdict is of an input that is gone.
        if record.figures.get("tried") != fingerprint and (current or day not in plan.has_input):
            over.add(day)
    return over


def refused_from_another(lake: Lake, table: Table, fingerprints: Mapping[date, int]) -> dict[date, str]:
    """The days that their newest build refused for an input which is not the one there is now, with that build's run.

    A file may be written anew, with the same bytes in the end, just while a run reads it. What other code refused is
    left out: its fingerprint differs in any case.

    Args:
        lake: where the tables are.
        table: whose days.
        fingerprints: by day, what it would be published with now.
    """
    kept = judgements(lake.settings.root, table.id, fingerprints, ("tried",)) if fingerprints else {}
    return {
        day: each.run_id
        for day, each in kept.items()
        if each.operation == CHECKS_ONLY
        and each.code_version == table.code_version
        and each.figures.get("tried") not in (None, fingerprints[day])
    }


def table_verdicts(lake: Lake, table: Table, now: datetime | None = None, depth: Depth | None = None) -> list[Verdict]:
    """The checks that speak of the whole table and fail: the depth of its quarantine, and its producers' clocks.

    Args:
        lake: where the tables are.
        table: whose checks.
        now: by which the quarantine's age is counted.
        depth: of the quarantine, where it is known.
    """
    names, judged = check_names(table), []
    if DEPTH_CHECK in names:
        depth = depth or depth_now(lake.settings.root, table, now or datetime.now(UTC))
        judged.append((DEPTH_CHECK, *judge_depth(table, depth)))
    if table.clock is not None and CLOCKS_CHECK in names:
        judged.append((CLOCKS_CHECK, *judge_clocks(table.clock, producer_days(lake, table))))
    return [Verdict(name, None, False, text) for name, passed, text in judged if not passed]


def by_check(found: Collection[Verdict]) -> dict[str, list[Verdict]]:
    """Verdicts by the name of their check, in order of days."""
    named: dict[str, list[Verdict]] = {}
    for each in sorted(found, key=lambda each: each.day or date.min):
        named.setdefault(each.check, []).append(each)
    return named


def days_failing(days: Sequence[date]) -> str:
    """`fails on 2011-03-04`, or `fails on 5 days: 2011-03-04, 2011-03-05, 2011-03-06 and 2 more`."""
    if len(days) == 1:
        return f"fails on {days[0]}"
    more = f" and {len(days) - NAMED} more" if len(days) > NAMED else ""
    return f"fails on {len(days)} days: {', '.join(map(str, days[:NAMED]))}{more}"


def sentence(of_check: Sequence[Verdict]) -> str:
    """What the verdicts of one check say: the days, and what was found on the first of them."""
    days = [each.day for each in of_check if each.day is not None]
    first = of_check[0].found
    if not days:
        return first
    return f"{days_failing(days)}; {days[0]}: {first}" if len(days) > 1 else f"{days_failing(days)}: {first}"
