"""A small table with a quarantine that is published, broken and put back without an engine."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pandera.pyspark as pa
from pyspark.sql import types as T

from lakehouse.contracts import Input, Landing, Table
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.pairing import QUARANTINE_VERSION
from lakehouse.delta.target import Commit
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.settings import Settings
from lakehouse.versions.candidate import CandidateLake, swap
from lakehouse.versions.restore import Restore, plan_restore, restore
from lakehouse_tests.fixtures.forked import ended
from lakehouse_tests.fixtures.making import model, rows_of, stage_rows, table

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(4)]
Content = Mapping[date, Sequence[str]]


def tables(*, more: Any = None, numbers: int = 0, **policy: Any) -> dict[str, Table]:
    """`silver.things` with a row rule (a column `more` of that type, and so many numbers), and `gold.totals` of it."""
    names: dict[str, Any] = {
        "id": (T.StringType(), pa.Field()),
        "day": (T.DateType(), pa.Field()),
        "token": (T.StringType(), pa.Field(nullable=True)),
        "n": (T.LongType(), pa.Field(ge=0)),
    }
    if more is not None:
        names["more"] = (more, pa.Field(nullable=True))
    names |= {f"number_{n}": (T.LongType(), pa.Field(nullable=True)) for n in range(numbers)}
    lines = table(
        "bronze.lines",
        model("Lines", day=names["day"]),
        lambda files: files,
        {"files": Landing("lines", "jsonl", ("id",))},
    )
    things = table(
        "silver.things", model("Things", **names), lambda lines: lines, {"lines": Input("bronze.lines")},
        key=("id",), pii=("token",), **policy,
    )  # fmt: skip
    totals = table(
        "gold.totals", model("Totals", day=names["day"], n=names["n"]), lambda things: things,
        {"things": Input("silver.things", days_before=1)},
    )  # fmt: skip
    return {each.id: each for each in (lines, things, totals)}


def lake_at(root: Path, made: Mapping[str, Table] | None = None) -> Lake:
    """The lake of these tables; it has no engine."""

    def refuse() -> NoReturn:
        raise AssertionError("an undo reads logs and footers only")

    return Lake(Settings(root=root), tables() if made is None else made, refuse)


def publish(
    lake: Lake, good: Content, bad: Content | None = None, *, mark: int = 1, code: str = "v1", files: int = 1
) -> int:
    """Publish days as a run would: quarantine first, then the table, with fingerprints and figures; the new version."""
    main, side = targets(lake, lake.table("silver.things"))
    assert side is not None
    base, side_base = ensure_table(main), ensure_table(side)
    days = sorted(good)
    prints = {day_transaction(day): mark * 100 + day.day for day in days}
    facts = {**lake.facts, "lakehouse.run_id": f"run {mark}", "lakehouse.code_version": code}
    rows = [_row(key, day, -1) for day, keys in (bad or {}).items() for key in keys]
    aside = replace_days(side, side_base, stage_rows(side, rows, "quarantined"), days, Commit(prints, facts))
    rows = [_row(key, day, mark) for day, keys in good.items() for key in keys]
    figures = {str(day): {"rows": len(keys)} for day, keys in good.items()}
    commit = Commit(prints, {**facts, QUARANTINE_VERSION: str(aside), "lakehouse.metrics": figures})
    staged = [file for n in range(files) for file in stage_rows(main, rows[n::files])]
    return replace_days(main, base, staged, days, commit)


def _row(key: str, day: date, n: int) -> dict[str, Any]:
    return {"id": key, "day": day, "token": f"secret {key}", "n": n, "_failed_rules": ["n_at_least_minimum"]}


def beside(lake: Lake, good: Content, bad: Content | None = None, **how: Any) -> int:
    """Build days of the candidate of `silver.things` as `build_candidate` would."""
    made = CandidateLake(lake, lake.table("silver.things"))
    live = lake.snapshot("silver.things")
    made.facts = {
        "lakehouse.operation": "candidate",
        "lakehouse.live_version": str(live.version),
        "lakehouse.live_id": str(live.table_id),
    }
    return publish(made, good, bad, **{"mark": 9, "code": "v9", **how})


def seen(lake: Lake, version: int | None = None) -> dict[str, list[tuple[str, str]]]:
    """Ids by day that readers see in the table and its quarantine."""
    found = {}
    for name in ("silver.things", "silver.things_quarantine"):
        at = version if name == "silver.things" else None
        found[name] = sorted((str(row["day"]), row["id"]) for row in rows_of(lake.path(name), at))
    return found


def prints(lake: Lake, name: str = "silver.things") -> dict[int, int | None]:
    """Fingerprints by day of the month."""
    snapshot = lake.snapshot(name)
    return {day.day: snapshot.transaction(day_transaction(day)) for day in DAYS}


def undo(lake: Lake, version: int, days: Sequence[date] | None = None) -> Restore:
    """Plan and carry out a restore."""
    return restore(
        lake, plan_restore(lake, lake.table("silver.things"), version, days), by="ann", reason="a bad deploy"
    )


def killed(root: Path, failpoint: str, *order: str) -> None:
    """Carry out an order (`restore VERSION`, `swap` or `compact`) in a process that the failpoint kills."""
    code, said = ended(carry_out, root, *order, LAKEHOUSE_FAILPOINT=failpoint)
    assert code == -signal.SIGKILL, (code, said)


def carry_out(root: Path, what: str, *arguments: str) -> None:
    """Carry out an order in this process, on a lake that it opens anew."""
    lake = lake_at(root)
    if what == "restore":
        undo(lake, int(arguments[0]))
    elif what == "compact":
        compact(Compactable(lake.path("silver.things"), lake.table("silver.things").schema, ("token",)))
    else:
        swap(lake, lake.table("silver.things"), by="ann")


def two_days_beside_a_candidate(root: Path) -> Lake:
    """A live table of two days, and a candidate of both whose rows differ."""
    monday, tuesday, *_ = DAYS
    made = lake_at(root)
    publish(made, {monday: "ab", tuesday: "c"}, {monday: "x"})
    beside(made, {monday: "A", tuesday: "CD"}, {tuesday: "yz"})
    return made
