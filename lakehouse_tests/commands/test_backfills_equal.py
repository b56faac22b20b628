"""Backfills with several runs, and several backfills, on a real engine: the tables are those of one run over all days.

The one run has an engine in its own process; all others share the warm one behind Spark Connect, also after one of
them was killed.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse.catalog import tables
from lakehouse.read.lake import table_path
from lakehouse.sample.events import land_events
from lakehouse.sample.faults import Faults
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse_tests.commands.conftest import run
from lakehouse_tests.commands.killing import Backfill, nothing_is_left, open_runs, published
from lakehouse_tests.conftest import ALONE
from lakehouse_tests.fixtures.making import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DAYS = [date(2011, 3, 1) + timedelta(days=n) for n in range(6)]
BAD = DAYS[4]
RANGE = ("--from", str(DAYS[0]), "--to", str(DAYS[-1]))
IN_RUNS = ("--days-per-run", "3")
OF_A_RUN = {"_ingested_run"}


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six days of both shops, with late and broken events; the retail file of the middle day is cut short."""
    root = tmp_path_factory.mktemp("landed") / "root"
    land_sample_online_retail(root, DAYS[0], len(DAYS), rows=60, seed=3)
    land_events(root, DAYS[0], len(DAYS), rows=120, seed=3, faults=Faults.all(0.04))
    file = root / "landing" / "online_retail" / f"{BAD}.csv.gz"
    file.write_bytes(file.read_bytes()[:700])
    return root


@pytest.fixture(scope="module")
def wanted(landed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one run over all days gives: the report, and every row of every table."""
    root = tmp_path_factory.mktemp("plain") / "root"
    shutil.copytree(landed, root)
    code, report, said = Backfill(root, *RANGE, **ALONE).end()
    assert code == 1, said
    return {"report": report, "rows": rows(root)}


@pytest.fixture
def lake(landed: Path, root: Path) -> Path:
    """A copy of what has landed, to build."""
    shutil.copytree(landed, root)
    return root


def rows(root: Path) -> dict[str, list[str]]:
    """Every row of every table and quarantine, without what says which run it was."""
    names = [*tables(), *(table.quarantine_id for table in tables().values() if table.rules)]
    return {
        name: sorted(
            str(sorted((k, v) for k, v in row.items() if k not in OF_A_RUN)) for row in rows_of(table_path(root, name))
        )
        for name in names
    }


def same(found: Mapping[str, list[str]], wanted: Mapping[str, list[str]]) -> None:
    """Table by table, so that a difference is read and not searched for."""
    for name, expected in wanted.items():
        assert found[name] == expected, name
    assert sum(map(len, wanted.values())) > 1000


def by_table(report: Mapping[str, Any], what: str) -> dict[str, Any]:
    return {each["table"]: sorted(each[what]) for each in report["tables"]}


def test_runs_that_are_killed_and_begun_again_give_what_one_run_gives(lake: Path, wanted: dict[str, Any]) -> None:
    """Without it, days at the edges of runs would lack late events, the windows before them or later cancellations.

    First the backfill kills itself before its first commit of transactions; then the same command again.
    """
    killed = Backfill(lake, *RANGE, *IN_RUNS, LAKEHOUSE_FAILPOINT="silver.transactions:before-commit")
    code, report, said = killed.end()
    assert (code, report) == (-signal.SIGKILL, None), said
    nothing_is_left(lake)
    assert len(open_runs(lake)) == 1

    code, report, said = Backfill(lake, *RANGE, *IN_RUNS).end()
    assert code == 1, said
    assert "belonged to a process that is gone" in said
    assert len(report["runs"]) == 4 * 2
    same(rows(lake), wanted["rows"])
    expected = published(wanted["report"])
    assert published(report) == expected, "the same days"
    assert by_table(report, "failed") == by_table(wanted["report"], "failed")
    assert by_table(report, "skipped") == by_table(wanted["report"], "skipped")
    assert all(str(BAD) not in days for name, days in expected.items() if name != "bronze.events")
    assert open_runs(lake) == []
    again = run(lake, "backfill", "--failed-only", "--dry-run", "--json").json
    assert {each["table"] for each in again["tables"] if each["build"]} == set(expected) - {"bronze.events"}


def test_two_backfills_of_the_same_days_do_not_mix(lake: Path, wanted: dict[str, Any]) -> None:
    """Without it, two people who start the same backfill would corrupt each other's days, or both fail."""
    both = [Backfill(lake, *RANGE, "--force") for _ in range(2)]
    for code, report, said in [each.end() for each in both]:
        assert report is not None, said
        broken = {each["error"] for each in report["tables"] if each["error"]}
        assert code == (3 if broken else 1), said
        assert all("another run published" in error for error in broken)
    same(rows(lake), wanted["rows"])
    assert open_runs(lake) == []
    nothing_is_left(lake)
