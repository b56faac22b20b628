"""Days that another run publishes while a build computes: they stand, and hold none of the others back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from lakehouse.build import build as building
from lakehouse.build.build import build
from lakehouse.build.publish import Published
from lakehouse.build.result import FAILED, PUBLISHED, UNCHANGED, BuildResult
from lakehouse.build.work import Work
from lakehouse.delta.log import versions
from lakehouse.errors import DecidedMeanwhileError, PublishConflictError
from lakehouse.read.lake import Lake
from lakehouse.versions.restore import plan_restore, restore
from lakehouse_tests.build.test_build import DAYS, land, sensors
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import rows_of

pytestmark = pytest.mark.spark
SILVER = "silver.readings"
THREE = DAYS[:3]
Steps = Sequence[Callable[[], object]]


@pytest.fixture
def shop(lake: LakeFactory) -> Lake:
    """Three days of readings, of which bronze has all."""
    made = lake(*sensors())
    for n, day in enumerate(THREE):
        land(made, day, [(f"a{n}", None, 1), (f"bad{n}", None, -1)])
    build(made, made.table("bronze.readings"), THREE, run_id="bronze")
    return made


def late(shop: Lake, day: date, number: int) -> None:
    """A row more of a day, which lands later, and which bronze has."""
    after = day + timedelta(days=10 + number)
    land(shop, after, [(f"late{number}", day, 100)])
    build(shop, shop.table("bronze.readings"), [after], run_id="bronze")


def build_beside(shop: Lake, steps: Steps, days: Sequence[date] = THREE, **words: Any) -> BuildResult:
    """A build of silver, whose rounds each have computed when one of the steps is taken."""
    real, left = building.carry_through, list(steps)

    def carried(work: Work) -> Published:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(building, "publish", publishing)
            return real(work)

    def publishing(audited: Any) -> Published:
        if left:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(building, "carry_through", real)
                patched.setattr(building, "publish", publish)
                left.pop(0)()
        return publish(audited)

    publish = building.publish
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(building, "carry_through", carried)
        result = build(shop, shop.table(SILVER), days, run_id="slow", **words)
    assert not left, "every step was taken"
    return result


def other(shop: Lake, *days: date) -> None:
    """Another run of these days."""
    build(shop, shop.table(SILVER), days, run_id="quick")


def ids(shop: Lake) -> list[str]:
    """What silver holds."""
    return sorted(row["id"] for row in rows_of(shop.path(SILVER)))


def bad(shop: Lake) -> list[str]:
    """What its quarantine holds."""
    return sorted(row["id"] for row in rows_of(shop.path(f"{SILVER}_quarantine")))


def test_the_other_days_are_published_and_the_newest_input_counts(shop: Lake) -> None:
    """Without it, a range that takes a minute would never be published beside a stream that touches its last day."""

    def overtake() -> None:
        late(shop, THREE[2], 1)
        other(shop, THREE[2])

    result = build_beside(shop, [overtake])
    assert (result.with_status(PUBLISHED), result.with_status(UNCHANGED)) == (THREE[:2], THREE[2:])
    assert ids(shop) == ["a0", "a1", "a2", "late1"]
    assert bad(shop) == ["bad0", "bad1", "bad2"]
    assert build(shop, shop.table(SILVER), THREE, run_id="again").with_status(UNCHANGED) == THREE
    runs = [each.entry.facts.get("lakehouse.run_id") for each in versions(shop.path(SILVER))]
    assert runs[:2] == ["slow", "quick"]


def test_what_has_come_since_is_built_with_what_was_left(shop: Lake) -> None:
    """Without it, the day would be published as its input was when the build began, over a newer one."""

    def overtake() -> None:
        late(shop, THREE[1], 1)
        other(shop, THREE[1])
        late(shop, THREE[1], 2)

    result = build_beside(shop, [overtake, lambda: None])
    assert result.with_status(PUBLISHED) == THREE
    assert ids(shop) == ["a0", "a1", "a2", "late1", "late2"]
    assert bad(shop) == ["bad0", "bad1", "bad2"]


def test_a_forced_build_leaves_nothing_half_done(shop: Lake) -> None:
    """Without it, fingerprints taken back for days that were left out would make them stale for ever."""
    other(shop, *THREE)

    def overtake() -> None:
        late(shop, THREE[0], 1)
        other(shop, THREE[0])

    result = build_beside(shop, [overtake, lambda: None], force=True)
    assert result.with_status(PUBLISHED) == THREE
    assert ids(shop) == ["a0", "a1", "a2", "late1"]
    assert build(shop, shop.table(SILVER), THREE, run_id="again").with_status(UNCHANGED) == THREE


def test_a_day_that_is_taken_each_time_is_a_conflict_in_the_end(shop: Lake) -> None:
    """Without it, a build would try for ever, or say that all is published."""

    def overtake(number: int) -> None:
        late(shop, THREE[0], number)
        other(shop, THREE[0])
        late(shop, THREE[0], 10 * number)

    with pytest.raises(PublishConflictError, match=f"another run published {THREE[0]} "):
        build_beside(shop, [lambda: overtake(1), lambda: overtake(2)])
    assert ids(shop) == ["a0", "a1", "a2", "late1", "late10", "late2"]
    assert build(shop, shop.table(SILVER), THREE, run_id="again").with_status(PUBLISHED) == THREE[:1]


def test_a_decision_stands_for_all_days(shop: Lake) -> None:
    """Without it, a run would undo on the other days what somebody has just decided."""
    other(shop, *THREE)
    late(shop, THREE[0], 1)
    other(shop, THREE[0])
    silver = shop.table(SILVER)

    def decide() -> None:
        restore(shop, plan_restore(shop, silver, shop.snapshot(SILVER).version - 1), by="ann")

    with pytest.raises(DecidedMeanwhileError, match="ann ran `lakehouse restore`"):
        build_beside(shop, [decide], force=True)
    assert ids(shop) == ["a0", "a1", "a2"]


def test_days_that_fail_are_told_beside_one_that_was_taken(lake: LakeFactory) -> None:
    """Without it, a day that failed its checks would be called unchanged, or published."""
    made = lake(*sensors(max_quarantined=0.0))
    land(made, THREE[0], [("a0", None, 1), ("bad0", None, -1)])
    land(made, THREE[1], [("a1", None, 1)])
    build(made, made.table("bronze.readings"), THREE[:2], run_id="bronze")
    result = build_beside(made, [lambda: other(made, THREE[1])], THREE[:2])
    assert (result.with_status(FAILED), result.with_status(UNCHANGED)) == (THREE[:1], THREE[1:2])
    assert bad(made) == ["bad0"]


def test_a_run_that_nobody_has_asked_for_leaves_a_restored_day_alone(shop: Lake) -> None:
    """Without it, a restore was undone where a run was on its way, or was there for another table of that day."""
    other(shop, *THREE)
    late(shop, THREE[1], 1)
    other(shop, THREE[1])
    table = shop.table(SILVER)
    restore(shop, plan_restore(shop, table, shop.snapshot(SILVER).version - 1, [THREE[1]]), by="somebody")
    late(shop, THREE[2], 2)
    result = build(shop, table, THREE, run_id="sensor", unasked=True)
    assert (result.with_status(PUBLISHED), result.with_status(UNCHANGED)) == ([THREE[2]], THREE[:2])
    assert ids(shop) == ["a0", "a1", "a2", "late2"]
    late(shop, THREE[1], 4)
    assert build(shop, table, THREE, run_id="sensor", unasked=True).with_status(PUBLISHED) == [THREE[1]]
    assert ids(shop) == ["a0", "a1", "a2", "late1", "late2", "late4"]
