"""`backfill --older-code` and `--stale` through real runs: exactly the days that have to be built, and no other.

Ten days of the retail shop. The second and third of them are built by an older code of silver.transactions, and then a
file comes late with events of two old days.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.build.build import build
from lakehouse.catalog import tables
from lakehouse.delta.opening import open_snapshot
from lakehouse.read.lake import Lake, table_path
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse_tests.commands.conftest import Result, run
from lakehouse_tests.conftest import engine_settings
from lakehouse_tests.fixtures.making import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
D = [date(2011, 3, 1) + timedelta(days=n) for n in range(10)]
RANGE = ("--from", str(D[0]), "--to", str(D[-1]))
OLD = D[1:3]
Paths = Mapping[str, Mapping[date, frozenset[str]]]


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The lake whose second and third day are of older code. To look at or to copy."""
    root = tmp_path_factory.mktemp("aged") / "root"
    land_sample_online_retail(root, D[0], len(D), rows=25, seed=7)
    lake = Lake(engine_settings(root), tables(), lambda: spark)
    for table in tables().values():
        if table.id == "silver.transactions":
            _ = table.code_version
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(table.__dict__, "code_version", "of-old")
                build(lake, table, OLD, run_id="old")
        # Of transactions all others: those two would be built again.
        days = [day for day in D if table.id != "silver.transactions" or day not in OLD]
        assert build(lake, table, days, run_id="new").with_status("published") == days
    return root


@pytest.fixture(scope="module")
def renewed(aged: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A copy whose days of older code were built again, and what the command said. To look at or to copy."""
    root = tmp_path_factory.mktemp("renewed") / "root"
    shutil.copytree(aged, root)
    said = run(root, "backfill", "--older-code", *RANGE, "--json")
    assert said.code == 0, said.err
    return root, said


def paths(root: Path) -> Paths:
    """The live files of every table by day: a day that was published again has other files."""
    found = {}
    for name, table in tables().items():
        by_day = open_snapshot(table_path(root, name)).by_day(table.day_column)
        found[name] = {day: frozenset(file.path for file in files) for day, files in by_day.items()}
    return found


def rebuilt(before: Paths, after: Paths) -> dict[str, list[date]]:
    days = {n: {*before[n], *after[n]} for n in before}
    return {n: sorted(day for day in days[n] if before[n].get(day) != after[n].get(day)) for n in before}


def published(said: Result) -> dict[str, list[str]]:
    return {each["table"]: each["published"] for each in said.json["tables"] if each["published"]}


def rows(root: Path) -> dict[str, Any]:
    technical = {"_ingested_run", "_code_version"}
    return {
        name: sorted(
            str({k: v for k, v in row.items() if k not in technical}) for row in rows_of(table_path(root, name))
        )
        for name in tables()
    }


def test_days_of_older_code_are_seen_and_built_again(aged: Path, renewed: tuple[Path, Result]) -> None:
    """Exactly the two days, and what is computed from them: the windows of later days as well, and nothing else."""
    states = {each["table"]: each for each in run(aged, "status", "--json").json}
    assert {name: each["older_code"] for name, each in states.items() if each["older_code"]} == {
        "silver.transactions": {"of-old": 2}
    }
    assert "silver.transactions: 2 days of older code (of-old 2 days)" in run(aged, "status").err
    expected = {
        "silver.transactions": OLD, "silver.orders": OLD, "gold.daily_revenue": OLD, "gold.user_features": D[1:9],
    }  # fmt: skip
    planned = run(aged, "backfill", "--older-code", *RANGE, "--dry-run", "--json").json
    assert {each["table"]: each["build"] for each in planned["tables"] if each["build"]} == {
        name: [str(day) for day in days] for name, days in expected.items()
    }
    root, said = renewed
    assert published(said) == {name: [str(day) for day in days] for name, days in expected.items()}
    assert {name: days for name, days in rebuilt(paths(aged), paths(root)).items() if days} == expected
    assert rows(root) == rows(aged), "the code differs in name only, so the rows must not"
    assert not any(each["older_code"] for each in run(root, "status", "--json").json)
    between = paths(root)
    again = run(root, "backfill", "--older-code", *RANGE)
    assert (again.code, again.out) == (0, "")
    assert "Nothing to do" in again.err
    assert paths(root) == between


def test_older_code_is_not_offered_for_what_no_run_builds(aged: Path, tmp_path: Path) -> None:
    """Without it, `status` names a command for ever that finds nothing to do: of landed files that were tidied away."""
    root = tmp_path / "root"
    shutil.copytree(aged, root)
    (file,) = (root / "landing/online_retail").glob(f"{D[0]}*")
    file.unlink()
    select, name = ("--select", "bronze.online_retail"), "bronze.online_retail"
    offered = "Rebuild what older code built"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tables()[name].__dict__, "code_version", "newer")
        (state,) = run(root, "status", *select, "--json").json
        assert (sum(state["older_code"].values()), state["older_code_kept"]) == (len(D), 1)
        assert offered in run(root, "status", *select).err, "the other days can be read"
        patch.setenv("LAKEHOUSE_FIRST_DAY", str(D[4]))
        (state,) = run(root, "status", *select, "--json").json
        assert (state["older_code_kept"], state["stale_days"]) == (4, [str(day) for day in D[4:]])
        shutil.rmtree(file.parent)
        said = run(root, "status", *select).err
        assert f"{len(D)} cannot be built again and stay as they are" in said
        assert offered not in said
        assert "Nothing to do" in run(root, "backfill", "--older-code", *select, *RANGE).err


def test_older_code_leaves_alone_what_only_inputs_make_stale(aged: Path, tmp_path: Path) -> None:
    """A late file is no matter of code: it is for --stale to take in."""
    lake = tmp_path / "root"
    shutil.copytree(aged, lake)
    land_late(lake)
    before = paths(lake)
    said = run(lake, "backfill", "--older-code", *RANGE, "--json")
    assert said.code == 0, said.err
    assert "bronze.events" not in published(said)
    changed = rebuilt(before, paths(lake))
    assert changed["bronze.events"] == changed["bronze.online_retail"] == []
    assert changed["silver.transactions"] == OLD


def land_late(root: Path) -> None:
    """A file that arrives on the last day, with events of the fourth and the sixth."""
    folder = root / "landing" / "events" / str(D[9])
    folder.mkdir(parents=True)
    events = [
        {
            "event_id": f"late-{day.day}", "schema_version": "1", "user_id": "u1", "event_type": "purchase",
            "event_time": f"{day}T10:00:00Z", "order_id": f"L{day.day}", "amount": "5.00", "currency": "EUR",
            "country": "France",
        }
        for day in (D[3], D[5])
    ]  # fmt: skip
    (folder / "late.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))


def test_a_late_file_builds_again_its_days_and_their_windows(renewed: tuple[Path, Result], tmp_path: Path) -> None:
    """However late it is, not a day more: the days before, between and after keep their files."""
    lake = tmp_path / "root"
    shutil.copytree(renewed[0], lake)
    land_late(lake)
    states = {each["table"]: each for each in run(lake, "status", "--json").json}
    assert states["bronze.events"]["stale_days"] == [str(D[9])], "it was published empty"
    assert str(D[9]) in states["gold.daily_revenue"]["waiting_days"]
    waited = f"bronze.events {D[9]} is not published from its newest input"
    assert states["gold.daily_revenue"]["waits_for"] == waited
    assert f"{D[9]} holds the last good data: {waited}" in run(lake, "status").err
    before = paths(lake)
    planned = run(lake, "backfill", "--stale", *RANGE, "--dry-run", "--json").json
    assert {each["table"]: each["build"] for each in planned["tables"] if each["build"]}["bronze.events"] == [str(D[9])]
    # Which days the file touches is known only once it is in bronze: the arrival day of the four tables downstream, and
    # the day before, of whose rows some may be repeats.
    assert (planned["to_rewrite"]["newest_arrival"], planned["to_rewrite"]["days"]) == (str(D[9]), 8)
    said = run(lake, "backfill", "--stale", *RANGE, "--json")
    assert said.code == 0, said.err
    late = [D[3], D[5]]
    rewritten = said.json["rewritten"]
    assert (rewritten["newest_arrival"], rewritten["days"]) == (str(D[9]), 3 * 2 + 7), "tables in the same order"
    (needed,) = rewritten["beside"]
    assert (needed["look_back"], needed["days"], needed["missed_days"]) == (6, 4 * 7, 0)
    assert 0 < rewritten["bytes"] < needed["bytes"]
    assert {name: days for name, days in rebuilt(before, paths(lake)).items() if days} == {
        "bronze.events": [D[9]], "silver.transactions": late, "silver.orders": late, "gold.daily_revenue": late,
        "gold.user_features": D[3:10],
    }  # fmt: skip
    features = [r for r in rows_of(table_path(lake, "gold.user_features")) if r["user_id"] == "u1"]
    assert {r["feature_date"]: r["rolling_7d_transaction_count"] for r in features} == dict(
        zip(D[3:10], (1, 1, 2, 2, 2, 2, 2), strict=True)
    )
    between = paths(lake)
    again = run(lake, "backfill", "--stale", *RANGE)
    assert (again.code, again.out) == (0, "")
    assert "Nothing to do" in again.err
    assert paths(lake) == between


def test_ways_to_choose_days_exclude_each_other(aged: Path) -> None:
    """Together it would not be clear which of them holds."""
    for options in (("--stale", "--older-code"), ("--failed-only", "--stale"), ("--older-code", "--force")):
        assert run(aged, "backfill", *options).code == 2
