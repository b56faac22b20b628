"""kill -9 at every point of a build: readers see the old days or the new ones, and the next run ends the work.

A script is a list of places at which one process after the other is killed, all on the way to one generation of the
lake: each run takes up what the one before left, and is killed further on, or again at the same table. So every crash
is recovered from, many of them twice, and no table is built more often than that needs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse.delta.failpoints import POINTS
from lakehouse.delta.opening import open_snapshot
from lakehouse.read.lake import table_path
from lakehouse_tests.faults.crashing import COLUMNS, DAYS, Rows, expected, land, tables
from lakehouse_tests.faults.laboratory import EngineProcess, Laboratory
from lakehouse_tests.faults.readers import READERS, WRONGS, Poller, by_delta_rs, judge, look
from lakehouse_tests.fixtures.tally import tally

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]
NAMES = ("bronze.readings", "silver.readings", "silver.totals", "gold.recent")
# In the order a build of one table passes them.
STEPS = (
    "before-stage",
    "after-stage",
    "before-quarantine-commit",
    "after-quarantine-commit",
    "before-commit",
    "after-commit",
)
RANDOM_SCRIPTS = 2
SAID = "{kills} kills, {lost} lost, {doubled} doubled, {violating} violating rows seen in {looks} looks of two readers"


def count(kills: int = 0, looks: int = 0, **wrong: int) -> None:
    """Add to the summary of the test run."""
    tally("crash matrix", SAID, kills=kills, looks=looks, **dict.fromkeys(WRONGS, 0) | wrong)


@pytest.fixture(scope="module")
def laboratory(engine_process: EngineProcess) -> Laboratory:
    """What builds, and is killed."""
    return Laboratory(engine_process, "crashing")


@pytest.fixture(scope="module")
def generations() -> Iterator[int]:
    """Generations of the lake, from the second on."""
    return iter(range(2, 1 << 30))


@pytest.fixture(scope="module")
def root(laboratory: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake at generation 1, which each script moves on by one."""
    made = tmp_path_factory.mktemp("crashed")
    land(made, 1)
    assert laboratory.run(made) == {name: ["published"] * len(DAYS) for name in tables()}
    assert_state(made, expected(1))
    return made


def assert_state(root: Path, wanted: dict[str, Rows]) -> None:
    """Every row is there once, and no other; what is not, is counted."""
    found = look(root)
    wrong = {name: judge(found[name], [wanted[name]]) for name in COLUMNS}
    count(**sum(wrong.values(), Counter()))
    assert not {name: (each, found[name]) for name, each in wrong.items() if each.total()}


def assert_swept(root: Path) -> None:
    """Vacuum leaves exactly the live files, and they can all be read."""
    for name in COLUMNS:
        folder = table_path(root, name)
        DeltaTable(str(folder)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        found = [path.relative_to(folder) for path in folder.rglob("*.parquet")]
        kept = {path.as_posix() for path in found if path.parts[0] != "_delta_log"}
        assert kept == {file.path for file in open_snapshot(folder).files}, name


def crash_and_recover(laboratory: Laboratory, root: Path, script: list[str], generation: int) -> None:
    """Land a generation, kill at each place of a script in turn, and let the last run through."""
    old, new = expected(generation - 1), expected(generation)
    state = dict(old)
    land(root, generation)
    with ExitStack() as stack:
        pollers = [stack.enter_context(Poller(root, [old, new], reader)) for reader in READERS]
        for place in script:
            laboratory.die(root, place)
            name, point = place.split(":")
            done = [t for each in NAMES[: NAMES.index(name)] for t in (each, f"{each}_quarantine")]
            done += [f"{name}_quarantine"] * (STEPS.index(point) >= STEPS.index("after-quarantine-commit"))
            done += [name] * (point == "after-commit")
            state |= {each: new[each] for each in done}
            assert_state(root, state)
        again = laboratory.run(root)
    for poller in pollers:
        count(looks=poller.looks, **poller.wrong)
        assert poller.error is None
        assert not poller.examples
        assert poller.looks > 3
    count(kills=len(script))
    assert_state(root, new)
    last = script[-1].split(":")
    assert set(again[last[0]]) == {"unchanged" if last[1] == "after-commit" else "published"}
    assert laboratory.run(root) == {each: ["unchanged"] * len(DAYS) for each in NAMES}
    assert_swept(root)
    assert_state(root, new)


def random_script(chance: random.Random) -> list[str]:
    """One to three kills at each of some tables; after its last commit, a table is not built again."""
    script: list[str] = []
    while not script:
        for name in NAMES:
            again = [chance.choice(STEPS[:-1]) for _ in range(chance.choice([0, 0, 1, 1, 2]))]
            if again or chance.random() < 0.5:
                script += [f"{name}:{point}" for point in [*again, chance.choice(STEPS)]]
    return script


def test_the_scripts_kill_wherever_a_build_can_be_killed() -> None:
    """Without it, a new failpoint of a build, or a new kind of table, would be left out without a word."""
    assert set(STEPS) <= set(POINTS)
    assert set(NAMES) == set(tables())


@pytest.mark.parametrize("point", STEPS)
def test_a_build_killed_at_each_table_is_made_good(
    laboratory: Laboratory, root: Path, generations: Iterator[int], point: str
) -> None:
    """Without it, a power cut could leave half a day live, quarantine rows twice, or block the next run."""
    crash_and_recover(laboratory, root, [f"{name}:{point}" for name in NAMES], next(generations))


def test_a_recovery_killed_again_is_made_good(
    laboratory: Laboratory, root: Path, generations: Iterator[int], seed: int, cases: Callable[[int], int]
) -> None:
    """Without it, a run that meets what two crashed ones left could take the one's files for the other's."""
    chance = random.Random(seed)
    for _ in range(cases(RANDOM_SCRIPTS)):
        crash_and_recover(laboratory, root, random_script(chance), next(generations))


def test_downstream_tables_read_what_readers_see(laboratory: Laboratory, root: Path) -> None:
    """Without it, the engine could find other rows after crashes than the readers that were watched."""
    seen = {name: sorted([str(v) for v in row] for row in rows) for name, rows in look(root, by_delta_rs).items()}
    assert laboratory.run(root, do="read") == {name: seen[name] for name in NAMES}


def test_a_process_killed_with_its_engine_while_it_writes(
    laboratory: Laboratory, root: Path, generations: Iterator[int]
) -> None:
    """Without it, files that the engine had only half written could be taken for staged ones."""
    generation = next(generations)
    old = expected(generation - 1)
    land(root, generation, extra=20_000)
    with Poller(root, [old], by_delta_rs) as poller:
        laboratory.order(root, forked=False)
        staged = table_path(root, "bronze.readings") / "staged"
        laboratory.kill_as_it_writes(staged)
    count(kills=1, looks=poller.looks, **poller.wrong)
    assert not poller.examples
    assert_state(root, old)
    land(root, generation)
    laboratory.run(root)
    assert_state(root, expected(generation))
    assert_swept(root)
