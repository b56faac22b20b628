"""The process that keeps a cluster, without one: what it does about the files by which the cluster is found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lakehouse.servers.place import Place, read_record
from lakehouse.settings import Settings
from lakehouse.spark import cluster
from lakehouse.spark.cluster import RECORD, SCRATCH
from lakehouse_tests.spark.test_warm import is_gone, until

# Its processes are replaced by ones that only wait: a master and workers would take many seconds.
KEEP = """
import json, subprocess, sys
from lakehouse.spark import cluster_keeper
from lakehouse.spark.cluster_keeper import _Supervisor

def start(self, name):
    self._running[name] = subprocess.Popen(["sleep", "600"], close_fds=False)

_Supervisor._start = start
_Supervisor._until_listening = lambda self, port: None
_Supervisor._until_workers_are_there = lambda self: None
cluster_keeper.LOOK = 0.02
cluster_keeper.main()
"""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The place of a cluster that a process of its own keeps, and its record."""
    place = Place(tmp_path / "cluster", tmp_path / "log")
    place.prepare()
    orders = {
        "folder": str(place.folder), "log": str(place.log), "url": "spark://127.0.0.1:1", "connect_port": 0,
        "size": {"workers": 1, "cores": 1, "memory": "1g", "connect": False}, "umask": 0o077,
    }  # fmt: skip
    # No pipe of this process: what it starts would hold it for as long as it lives.
    with place.log.open("ab") as output:
        subprocess.run(
            [sys.executable, "-c", KEEP], input=json.dumps(orders).encode(), check=True, stdout=output, stderr=output
        )
    until((place.folder / RECORD).exists)
    pid, record = place.pid(), read_record(place.folder / RECORD)
    assert pid is not None
    assert record is not None
    yield place, {"pid": pid, **record}
    with suppress(ProcessLookupError):  # it has ended, as it should
        os.killpg(pid, signal.SIGKILL)


@pytest.mark.parametrize("left", ["", '{"pid": 1, ', "{}"])
def test_a_cluster_whose_files_are_damaged_is_found_again_and_ends(
    kept: tuple[Place, dict[str, Any]], left: str
) -> None:
    """Without it, `engine cluster stop` said that no cluster is on, and `start` waited for minutes for one that is."""
    place, told = kept
    (place.folder / "alive").write_text(left)
    (place.folder / RECORD).write_text(left)
    until(lambda: {"pid": place.pid(), **(read_record(place.folder / RECORD) or {})} == told)
    assert place.end()
    assert not place.is_alive()
    assert not (place.folder / RECORD).exists()


@pytest.mark.parametrize("another", [False, True])
def test_a_cluster_that_cannot_be_found_any_more_ends(kept: tuple[Place, dict[str, Any]], *, another: bool) -> None:
    """Without it, master and workers stayed for ever where somebody had removed the root, and no command ended them."""
    place, told = kept
    (place.folder / "alive").unlink()
    (place.folder / "work").mkdir()
    if another:
        assert Place(place.folder, place.log).be_alive()
    until(lambda: is_gone(told["pid"]))
    assert "is found by nobody" in place.log.read_text()
    assert (place.folder / "work").exists(), "it may be another cluster's"


def test_a_cluster_that_had_to_be_killed_leaves_no_rows(
    kept: tuple[Place, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`engine cluster stop` said that it ended, and what executors had written stayed until the next one began."""
    place, told = kept
    for name in SCRATCH:
        (place.folder / name).mkdir()
        (place.folder / name / "rows").write_text("of somebody")
    os.kill(told["pid"], signal.SIGSTOP)
    monkeypatch.setattr(cluster, "place_of", lambda _: place)
    monkeypatch.setattr(place, "end", lambda: Place.end(place, 0.2))
    assert cluster.end(Settings())
    assert not [name for name in SCRATCH if (place.folder / name).exists()]
    assert not cluster.end(Settings())
