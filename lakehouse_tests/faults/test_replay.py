"""Replay: what comes out is what a rebuild gives, a killed replay is ended by the next, and a further one does nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakehouse.delta.failpoints import REPLAY_POINTS
from lakehouse.delta.opening import open_snapshot
from lakehouse.read.lake import table_path
from lakehouse.records.ledger import entries, open_replays
from lakehouse.records.quarantined import quarantined_rows
from lakehouse_tests.faults.crashing import COLUMNS, DAYS, land
from lakehouse_tests.faults.laboratory import EngineProcess, Laboratory
from lakehouse_tests.faults.replaying import REPLAYED, tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PLACES = [f"{REPLAYED}:{point}" for point in (*REPLAY_POINTS, "after-quarantine-commit", "after-commit")]
PLACES += ["silver.totals:after-stage", "silver.totals:after-commit"]


@pytest.fixture(scope="module")
def process(engine_process: EngineProcess) -> Laboratory:
    """What builds and replays, and is killed."""
    return Laboratory(engine_process, "replaying")


@pytest.fixture(scope="module")
def strict(process: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake built by the strict rule: each day has a negative reading in quarantine."""
    root = tmp_path_factory.mktemp("strict") / "root"
    land(root, 1)
    process.run(root, do="build", loose=False)
    return root


@pytest.fixture(scope="module")
def rebuilt(process: Laboratory, strict: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a rebuild of everything by the loose rule gives."""
    root = tmp_path_factory.mktemp("rebuilt") / "root"
    shutil.copytree(strict, root)
    process.run(root, do="build", loose=True)
    return content(root)


def content(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table and quarantine in the columns that do not name a run."""
    found = {}
    for name, columns in COLUMNS.items():
        rows = DeltaTable(str(table_path(root, name))).to_pyarrow_table(columns=list(columns)).to_pylist()
        # A replay also builds the windows that reach beyond the days of the rebuild.
        rows = [row for row in rows if row.get("day", DAYS[-1]) <= DAYS[-1]]
        found[name] = sorted(tuple(row[c] for c in columns) for row in rows)
    return found


def versions(root: Path) -> dict[str, int]:
    """The newest version of every table there is, those about the lakehouse included."""
    return {path.parent.name: open_snapshot(path.parent).version for path in root.glob("tables/*/*/_delta_log")}


def copy(strict: Path, tmp_path: Path) -> Path:
    """A copy of the strict lake, to change."""
    shutil.copytree(strict, tmp_path / "root")
    return tmp_path / "root"


def test_a_replay_gives_what_a_rebuild_gives_and_a_second_one_nothing(
    process: Laboratory, strict: Path, rebuilt: dict[str, Any], tmp_path: Path
) -> None:
    """Without it, replayed rows could be doubled, lack what depends on them, or differ from those of the next build."""
    root = copy(strict, tmp_path)
    assert content(root) != rebuilt
    assert process.run(root, do="replay", loose=False) is None  # the rule still stands: they would only fail again
    assert process.run(root, do="replay", loose=True) == [
        {"rows": len(DAYS), "outcome": {"published": len(DAYS)}, "still": {}}
    ]
    assert content(root) == rebuilt
    before = versions(root)
    assert process.run(root, do="replay", loose=True) is None
    assert versions(root) == before


def test_only_the_days_of_chosen_rows_are_built(process: Laboratory, strict: Path, tmp_path: Path) -> None:
    """Without it, a replay of one day would quietly rebuild others by code that is not released for them."""
    root = copy(strict, tmp_path)
    base = open_snapshot(table_path(root, REPLAYED))
    chosen: dict[str, Any] = {"rule": "value_at_least_minimum", "code": "v1", "day": DAYS[1].isoformat()}
    assert process.run(root, do="replay", loose=True, **{**chosen, "code": "v0"}) is None
    assert process.run(root, do="replay", loose=True, **chosen)[0]["outcome"] == {"published": 1}
    after = open_snapshot(table_path(root, REPLAYED))
    assert {day for day in DAYS if after.by_day("day")[day] != base.by_day("day")[day]} == {DAYS[1]}


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_replay_is_ended_by_the_next(
    process: Laboratory, strict: Path, rebuilt: dict[str, Any], tmp_path: Path, place: str
) -> None:
    """Without it, a power cut could leave gold without replayed rows for ever, since none is in quarantine any more."""
    root = copy(strict, tmp_path)
    process.die(root, place, do="replay", loose=True)
    made = tables(loose=True)[REPLAYED]
    ended = place.endswith(":after-replay-end")
    assert len(open_replays(root, made.id)) == (0 if ended else 1)
    told = process.run(root, do="replay", loose=True)
    assert told == (None if ended else [{"rows": len(DAYS), "outcome": {"published": len(DAYS)}, "still": {}}])
    assert content(root) == rebuilt
    assert [each.action for each in entries(root, made.id)] == ["replay", "replayed"]
    before = versions(root)
    assert process.run(root, do="replay", loose=True) is None
    assert versions(root) == before


def test_rows_that_are_gone_or_fail_again_are_told(process: Laboratory, strict: Path, tmp_path: Path) -> None:
    """Without it, a row whose source was corrected away would count as replayed, or a failure as success."""
    root = copy(strict, tmp_path)
    path = root / "landing" / "events" / DAYS[0].isoformat() / "a.jsonl"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if "bad" not in line))
    again = root / "landing" / "events" / DAYS[1].isoformat() / "a.jsonl"
    again.write_text(again.read_text().replace('"value": -1}', '"value": -2}'))
    process.run(root, do="build", loose=False, layer="bronze")
    (told,) = process.run(root, do="replay", loose=False)
    assert told == {
        "rows": len(DAYS),
        "outcome": {"gone": 1, "quarantined": 2},
        "still": {"value_at_least_minimum": 2},
    }
    found = quarantined_rows(root, tables(loose=False)[REPLAYED])
    # The day beside was built again too: some of its rows might have been repeats of the corrected ones.
    assert sorted((each.day, each.times) for each in found) == [(DAYS[1], 2), (DAYS[2], 2)]
