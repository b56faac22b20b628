"""While nothing that decides what is due has changed, the automation does not look closer: all of it is looked at."""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import SecretStr

from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.orchestration.test_automation import (
    BRONZE,
    DAYS,
    GOLD,
    SILVER,
    World,
    catalog,
    of_days,
)


def test_a_table_that_took_anothers_place_is_looked_at(lake: LakeFactory, tmp_path: Path) -> None:
    """Without it, days of a backup with as many versions as the table had would stay as they are until a file lands."""
    world = World(lake(*catalog()))
    world.land(DAYS[0])
    world.settle()
    place, backup = world.lake().path(SILVER), tmp_path / "backup"
    shutil.copytree(place, backup)
    world.land(DAYS[0])
    shutil.rmtree(place)
    world.settle()
    assert world.look().reason == "Nothing has landed or changed."
    shutil.rmtree(place)
    backup.rename(place)
    assert of_days(*world.look().pieces) == [((SILVER, GOLD), str(DAYS[0]), str(DAYS[0]))]


def test_a_new_key_is_looked_at(lake: LakeFactory) -> None:
    """Without it, tables would hold tokens of two keys, which do not join, from the next file that lands on at best."""
    world = World(lake(*catalog(tokens=("id",))))
    world.land(DAYS[0])
    world.settle()
    assert world.look().reason == "Nothing has landed or changed."
    world.settings = world.settings.model_copy(update={"pii_key": SecretStr("another")})
    assert of_days(*world.look().pieces) == [((BRONZE, SILVER, GOLD), str(DAYS[0]), str(DAYS[0]))]
