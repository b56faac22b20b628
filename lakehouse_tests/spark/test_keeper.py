"""The keeper of a warm engine, without one: what it does about the files by which the engine is found."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse.spark import keeper
from lakehouse.spark.engine_place import Address, EnginePlace
from lakehouse.spark.keeper import Orders

MOST_SECONDS = 30.0
HALF = '{"port": 1, '
WATCHING = "watching"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[EnginePlace, Address]]:
    """The place of an engine that this process keeps, watched in a thread."""
    monkeypatch.setattr(keeper, "LOOK", 0.01)
    monkeypatch.setattr(keeper, "_child", lambda: None)
    folder, log = tmp_path / "engine", tmp_path / "log"
    place = EnginePlace(folder, log)
    here: Any = keeper._Keeper(Orders(str(folder), {}, 600.0, str(log), "of a test"), place)
    here._wire = SimpleNamespace(version=lambda _seconds: "", release=lambda *_: None)
    here._address = address = Address(1, "secret", os.getpid(), time.time(), "1g", 600.0, "of a test", "log")
    place.prepare()
    assert place.be_alive()
    place.tell_pid()
    place.publish(address)
    watching = threading.Thread(target=here._watch, args=(time.monotonic(),), name=WATCHING)
    watching.start()
    yield place, address
    here._ended.set()
    watching.join()


@pytest.mark.parametrize("left", [None, "", HALF, "[]", "{}"])
def test_an_engine_whose_file_is_gone_or_damaged_is_found_again(
    kept: tuple[EnginePlace, Address], left: str | None
) -> None:
    """Without it, each command waited four minutes for an engine that serves, and then ended it under who used it."""
    place, address = kept
    file = place.folder / "engine.json"
    file.unlink()
    if left is not None:
        file.write_text(left)
    deadline = time.monotonic() + MOST_SECONDS
    while place.address() != address and time.monotonic() < deadline:
        time.sleep(0.01)
    assert place.address() == address
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", ["", HALF, "{}"])
def test_an_engine_whose_keeper_is_no_more_told_of_tells_it_again(kept: tuple[EnginePlace, Address], left: str) -> None:
    """Without it, `engine stop` said that no engine is on, and without `engine.json`, too, each command waited."""
    place, address = kept
    (place.folder / "alive").write_text(left)
    (place.folder / "engine.json").write_text(left)
    deadline = time.monotonic() + MOST_SECONDS
    while (place.pid(), place.address()) != (os.getpid(), address) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (place.pid(), place.address(), place.is_here()) == (os.getpid(), address, True)


@pytest.mark.parametrize("another", [False, True])
def test_an_engine_that_cannot_be_found_any_more_ends(kept: tuple[EnginePlace, Address], *, another: bool) -> None:
    """Without it, two engines shared a folder: the older one closed sessions and removed files of the newer."""
    place, _ = kept
    (place.folder / "alive").unlink()
    if another:
        assert EnginePlace(place.folder, place.log).be_alive()
    [watching] = [each for each in threading.enumerate() if each.name == WATCHING]
    watching.join(MOST_SECONDS)
    assert not watching.is_alive()
    assert not place.is_kept()
