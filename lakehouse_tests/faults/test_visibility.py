"""A day that fails its audit is seen by nobody: not by readers that look all the while, not at any version."""

from __future__ import annotations

import json
import threading

import pytest

from lakehouse.build.result import FAILED
from lakehouse.delta.opening import open_snapshot
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.faults.publisher import Door, sales
from lakehouse_tests.fixtures.making import rows_of
from lakehouse_tests.fixtures.tally import tally

pytestmark = pytest.mark.crash
GENERATIONS = 24


def test_a_failed_audit_is_visible_at_no_version(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, rows of a refused day could be live for a moment, or stay readable by time travel."""
    door = Door(lake(sales(max_quarantined=0.0)), monkeypatch)
    door.bad = 0
    door.publish(0)
    good = {tuple(sorted(f"{g}-{n}" for n in range(3))) for g in range(0, GENERATIONS, 3)}
    wrong: list[object] = []
    looks = 0
    end = threading.Event()

    def poll() -> None:
        nonlocal looks
        try:
            while not end.is_set():
                found = tuple(sorted(row["id"] for row in rows_of(door.path)))
                wrong.extend([found] if found not in good else [])
                looks += 1
        except Exception as error:  # noqa: BLE001 - told by the test, not by the thread
            wrong.append(error)

    reader = threading.Thread(target=poll, daemon=True)
    reader.start()
    for generation in range(1, GENERATIONS):
        door.bad = generation % 3
        if door.bad:
            result = door.attempt(generation)
            assert result.status == FAILED
            assert "row_rules" in result.reason
            assert not door.done(generation)
            assert door.seen(door.side) == [f"{generation}-bad"] * door.bad, "the reasons can be read"
        else:
            door.publish(generation)
    end.set()
    reader.join(30)
    versions = range(1, open_snapshot(door.path).version + 1)
    wrong += [version for version in versions if tuple(row["id"] for row in rows_of(door.path, version)) not in good]
    added = 0
    for entry in (door.path / "_delta_log").glob("*.json"):
        added += sum("add" in json.loads(line) for line in entry.read_text().splitlines())
    tally(
        "failed audits", "{audits} days refused, {looks} looks, {wrong} saw one",
        audits=GENERATIONS * 2 // 3, looks=looks, wrong=len(wrong),
    )  # fmt: skip
    assert not wrong[:3]
    assert looks > 3
    assert added == GENERATIONS // 3, "no file of a refused day was ever named in the log"
    assert len(versions) == GENERATIONS, "a refused build commits why it was refused"
