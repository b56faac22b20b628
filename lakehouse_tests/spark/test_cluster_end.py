"""What a driver does once the cluster has ended that it computes on."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from lakehouse.settings import Settings
from lakehouse.spark import cluster, cluster_end, session
from lakehouse.spark.cluster import Cluster, Size
from lakehouse.spark.cluster_end import ended, is_on, stop_with_cluster
from lakehouse.spark.options import REMOTE

URL = "spark://127.0.0.1:24772"


def test_a_session_ends_with_the_cluster_that_it_computes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a run waits for ever: Spark waits for a master that never comes again."""
    on: list[Cluster | None] = [Cluster(URL, "", Size(), {}, 0, str(tmp_path), "")]
    monkeypatch.setattr(cluster, "cluster_of", lambda _: on[-1])
    monkeypatch.setattr(cluster_end, "LOOK", 0.01)
    stopped = threading.Event()
    settings = Settings(root=tmp_path, spark_url=URL)
    watching = stop_with_cluster(settings, stopped.set, own=is_on(settings))
    assert watching is not None
    assert not stopped.wait(0.1)
    assert ended() is None
    on.append(None)
    watching.join(10)
    assert stopped.is_set()
    assert f"The cluster at {URL} has ended" in str(ended())


def test_a_session_on_another_cluster_waits_for_its_master(tmp_path: Path) -> None:
    """A master elsewhere may come again, and its executors go on meanwhile."""
    settings = Settings(root=tmp_path, spark_url="spark://10.0.0.1:7077")
    assert stop_with_cluster(settings, print, own=is_on(settings)) is None
    assert ended() is None  # that of a session before this one is over


class _Beginning:
    """A session that begins while its cluster ends, and its builder."""

    def __init__(self, on: list[Cluster | None]) -> None:
        self.builder, self.stopped, self._on = self, threading.Event(), on

    def getActiveSession(self) -> None:  # noqa: N802  # as Spark calls it
        return None

    def config(self, *_: object) -> _Beginning:
        return self

    def getOrCreate(self) -> _Beginning:  # noqa: N802  # as Spark calls it
        self._on.append(None)
        return self

    def stop(self) -> None:
        self.stopped.set()


def test_a_cluster_that_ends_while_a_session_begins_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody watched such a session: its first query waited for ever."""
    on: list[Cluster | None] = [Cluster(URL, "", Size(), {}, 0, str(tmp_path), "")]
    begun: Any = _Beginning(on)
    monkeypatch.setattr(cluster, "cluster_of", lambda _: on[-1])
    monkeypatch.setattr(cluster_end, "_ended", [])
    monkeypatch.setattr(session, "SparkSession", begun)
    monkeypatch.setattr(session, "shown", lambda _: nullcontext(({}, "")))
    for name in ("answering", "leave", "check_session", "spark_config"):
        monkeypatch.setattr(session, name, lambda *_: {})
    monkeypatch.delenv(REMOTE, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")  # else set for all that follows
    session.start(Settings(root=tmp_path, spark_url=URL, spark_memory=""))
    assert begun.stopped.wait(10)
    assert f"The cluster at {URL} has ended" in str(ended())
