"""What a driver does once the cluster has ended that it computes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lakehouse.settings import Settings
from lakehouse.spark import cluster_end
from lakehouse.spark.cluster import Cluster, Size
from lakehouse.spark.cluster_end import ended, stop_with_cluster

URL = "spark://127.0.0.1:24772"


def test_a_session_ends_with_the_cluster_that_it_computes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a run waits for ever: Spark waits for a master that never comes again."""
    on: list[Cluster | None] = [Cluster(URL, "", Size(), {}, 0, str(tmp_path), "")]
    monkeypatch.setattr(cluster_end, "cluster_of", lambda _: on[-1])
    monkeypatch.setattr(cluster_end, "LOOK", 0.01)
    stopped = threading.Event()
    watching = stop_with_cluster(Settings(root=tmp_path, spark_url=URL), stopped.set)
    assert watching is not None
    assert not stopped.wait(0.1)
    assert ended() is None
    on.append(None)
    watching.join(10)
    assert stopped.is_set()
    assert f"The cluster at {URL} has ended" in str(ended())


def test_a_session_on_another_cluster_waits_for_its_master(tmp_path: Path) -> None:
    """A master elsewhere may come again, and its executors go on meanwhile."""
    assert stop_with_cluster(Settings(root=tmp_path, spark_url="spark://10.0.0.1:7077"), print) is None
    assert ended() is None  # that of a session before this one is over
