"""kill -9 of a build in slices: what was staged is not staged again, nothing shows before all is there, all is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakehouse.delta.failpoints import SLICE_POINTS
from lakehouse.delta.opening import open_snapshot
from lakehouse.read.lake import table_path
from lakehouse_tests.faults.crashing import DAYS, expected, land
from lakehouse_tests.faults.laboratory import Laboratory
from lakehouse_tests.faults.readers import READERS, Poller, judge, look
from lakehouse_tests.faults.test_crashes import assert_state, assert_swept, count, laboratory

__all__ = ["laboratory"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]
SLICED = ("silver.readings", "gold.recent")
N = 3
NAMES = ("bronze.readings", "silver.readings", "silver.totals", "gold.recent")


@pytest.fixture(scope="module")
def generations() -> Iterator[int]:
    """Generations of the lake, from the second on."""
    return iter(range(2, 1 << 30))


@pytest.fixture(scope="module")
def root(laboratory: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake at generation 1, which each test moves on by one."""
    made = tmp_path_factory.mktemp("sliced")
    land(made, 1)
    laboratory.run(made)
    assert_state(made, expected(1))
    return made


def staged(root: Path, name: str) -> dict[Path, int]:
    """Files of the slices that notes tell of, with what tells one from another of its name."""
    found = {}
    for note in (table_path(root, name) / "staged").glob("slices-*/*.json"):
        told = json.loads(note.read_text())
        for file in told["files"]:
            path = note.parent.parent / told["folder"] / file
            found[path] = path.stat().st_ino
    return found


def folders(root: Path, name: str) -> int:
    """How often rows of a table were staged."""
    return sum(1 for path in (table_path(root, name) / "staged").iterdir() if not path.name.startswith("slices-"))


def state_before(name: str, generation: int) -> dict[str, frozenset[tuple[object, ...]]]:
    """What readers see while a table is built, and all before it are."""
    old, new = expected(generation - 1), expected(generation)
    done = {t for each in NAMES[: NAMES.index(name)] for t in (each, f"{each}_quarantine")}
    return {each: (new if each in done else old)[each] for each in old}


def test_each_attempt_stages_what_is_missing_and_no_more(
    laboratory: Laboratory, root: Path, generations: Iterator[int]
) -> None:
    """Without it, a backfill that is killed again and again would never end, or end with a slice twice."""
    generation = next(generations)
    land(root, generation)
    old, new = expected(generation - 1), expected(generation)
    kills = 0
    with ExitStack() as stack:
        pollers = [stack.enter_context(Poller(root, [old, new], reader)) for reader in READERS]
        for name in SLICED:
            kills += killed_at_each_step(laboratory, root, name, generation)
        laboratory.run(root, slices=N)
    for poller in pollers:
        count(looks=poller.looks, **poller.wrong)
        assert poller.error is None
        assert not poller.examples
    count(kills=kills)
    assert_state(root, new)
    assert laboratory.run(root, slices=N) == {each: ["unchanged"] * len(DAYS) for each in NAMES}
    assert_swept(root)
    assert_state(root, new)


def killed_at_each_step(laboratory: Laboratory, root: Path, name: str, generation: int) -> int:
    """Kill after each slice and at each step behind them; returns the number of kills."""
    new, before = expected(generation), None
    kept: dict[Path, int] = {}
    for attempt in range(N):
        laboratory.die(root, f"{name}:after-slice", slices=N)
        assert_state(root, state_before(name, generation))
        now = staged(root, name)
        assert kept.items() <= now.items(), "a staged slice was staged again"
        kept = now
        count_now = folders(root, name)
        assert before is None or count_now == before + 1, f"attempt {attempt} staged more than one slice"
        before = count_now
    for place in ("after-stage", "before-quarantine-commit", "after-quarantine-commit", "before-commit"):
        laboratory.die(root, f"{name}:{place}", slices=N)
        state = state_before(name, generation)
        if place in ("after-quarantine-commit", "before-commit"):
            state[f"{name}_quarantine"] = new[f"{name}_quarantine"]
        assert_state(root, state)
        assert staged(root, name) == kept, place
    laboratory.die(root, f"{name}:after-commit", slices=N)
    live = {table_path(root, name) / file.path for file in open_snapshot(table_path(root, name)).files}
    assert live == {path for path in kept if "valid" in path.parts}, "other files than the staged ones"
    assert folders(root, name) == before
    return N + 5


@pytest.mark.parametrize("point", [point for point in SLICE_POINTS if point != "after-slice"])
def test_a_slice_that_was_not_noted_is_staged_again(
    laboratory: Laboratory, root: Path, generations: Iterator[int], point: str
) -> None:
    """Without it, a slice of which only some files are there could be taken for a whole one."""
    generation = next(generations)
    land(root, generation)
    for name in SLICED:
        for place in ("after-slice", point, point):
            laboratory.die(root, f"{name}:{place}", slices=N)
            assert_state(root, state_before(name, generation))
    count(kills=3 * len(SLICED))
    laboratory.run(root, slices=N)
    assert_state(root, expected(generation))
    assert_swept(root)


def test_a_plain_build_after_a_killed_one_in_slices(
    laboratory: Laboratory, root: Path, generations: Iterator[int]
) -> None:
    """Without it, who gives up on slices could not build the days otherwise, or would build them of old slices."""
    generation = next(generations)
    land(root, generation)
    laboratory.die(root, "silver.readings:after-slice", slices=N)
    land(root, generation, extra=1)  # the input changes meanwhile
    laboratory.die(root, "silver.readings:after-slice", slices=N)
    land(root, generation)
    laboratory.run(root)
    count(kills=2)
    assert_state(root, expected(generation))
    assert_swept(root)


def test_a_process_killed_with_its_engine_in_the_middle_of_a_slice(
    laboratory: Laboratory, root: Path, generations: Iterator[int]
) -> None:
    """Without it, half a slice could be published, or those before it be staged again."""
    generation = next(generations)
    land(root, generation, extra=6_000)
    laboratory.die(root, "silver.readings:after-slice", slices=N)
    old = state_before("silver.readings", generation)
    kept = staged(root, "silver.readings")
    folder = table_path(root, "silver.readings") / "staged"
    known = frozenset(path.name for path in folder.iterdir())
    laboratory.order(root, forked=False, slices=N)
    laboratory.kill_as_it_writes(folder, known)
    count(kills=1)
    seen = look(root)
    assert not {name: rows for name, rows in seen.items() if "bronze" not in name and judge(rows, [old[name]]).total()}
    noted = staged(root, "silver.readings")
    assert kept.items() <= noted.items()
    laboratory.die(root, "silver.readings:before-commit", slices=N)
    assert noted.items() <= staged(root, "silver.readings").items()
    land(root, generation)
    laboratory.run(root, slices=N)
    assert_state(root, expected(generation))
    assert_swept(root)
