"""A day that was refused is asked for again where what was refused is not what had been asked for, nor what is there."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from lakehouse.build.plan import make_plan
from lakehouse.delta.commit import ensure_table, exchange_files
from lakehouse.delta.target import Commit, Target
from lakehouse.orchestration.automation import Cursor, decide
from lakehouse.orchestration.ended import Ended
from lakehouse.orchestration.pieces import Piece
from lakehouse.records.history import CHECKS_ONLY, UNPUBLISHED_CHECKS
from lakehouse_tests.orchestration.test_automation import BRONZE, DAYS, GOLD, LAST, SILVER, World
from lakehouse_tests.orchestration.test_automation import world as _world

world = _world  # a fixture
DAY = DAYS[0]


def asked_for(world: World, newest: str) -> list[Piece]:
    """What one evaluation asks for, where the newest run that was to build the day is this one."""
    cursor, ended = Cursor.of(world.cursor, 5.0), Ended(tried=lambda _: {DAY: newest})
    made = decide(world.lake(), cursor, (), ended=ended, last=LAST, limit=99, now=world.now)
    world.cursor = made.cursor.text()
    return list(made.pieces)


def refuse(world: World, day: date, run: str, code: str | None = None) -> None:
    """What a run says in bronze's log that does not publish what is there now."""
    lake = world.lake()
    made = lake.table(BRONZE)
    target = Target(lake.path(BRONZE), made.schema, made.partition_by)
    tried = {"checks": {}, "tried": make_plan(lake, made, [day]).fingerprints[day]}
    facts: dict[str, Any] = {"lakehouse.run_id": run, "lakehouse.code_version": code or made.code_version}
    facts |= {"lakehouse.operation": CHECKS_ONLY, UNPUBLISHED_CHECKS: {str(day): tried}}
    exchange_files(target, ensure_table(target), (), (), Commit(metadata=facts), days=[])


def wrote_anew_while(world: World, run: str, code: str | None = None) -> None:
    """The file of the day is asked for, is there in part while a run reads it, and is as it was in the end."""
    world.land(DAY)
    assert [each.tables for each in asked_for(world, "")] == [(BRONZE, SILVER, GOLD)]
    path = world.root / "landing" / "events" / DAY.isoformat() / "part-0000.jsonl"
    whole = path.read_text()
    path.write_text("{")
    refuse(world, DAY, run, code)
    path.write_text(whole)


def test_a_file_that_was_written_anew_while_it_was_read_is_read_again(world: World) -> None:
    """Without it, its day would stay failed for good, with a good file and a sensor that says all is built."""
    wrote_anew_while(world, "first")
    assert [(each.tables[0], each.first) for each in asked_for(world, "first")] == [(BRONZE, DAY)]
    refuse(world, DAY, "second")
    assert asked_for(world, "second") == []


@pytest.mark.parametrize(("newest", "code"), [("crashed", None), ("first", "other code")])
def test_what_the_newest_run_has_not_refused_is_not_asked_for_again(world: World, newest: str, code: str) -> None:
    """Without it, a run that breaks before it judges anything would be started again for ever."""
    wrote_anew_while(world, "first", code)
    assert asked_for(world, newest) == []
