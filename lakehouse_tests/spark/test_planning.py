"""An engine of one machine plans small builds once, and large ones anew after every stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakehouse.settings import Settings
from lakehouse.spark.config import SHUFFLES
from lakehouse.spark.planning import A_TASK, ADAPTIVE, MOST, MOST_A_TASK, READS, plan_for


class Session:
    """What was set in a session, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.conf: Any = self

    def set(self, name: str, value: str) -> None:
        """As Spark's."""
        self.said.append((name, value))


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of tests are told how to plan."""
    monkeypatch.delenv("LAKEHOUSE_SPARK_CONFIG")


def test_a_small_build_is_planned_once_and_a_large_one_on_its_way(tmp_path: Path) -> None:
    """Without it, each small build would take a third longer, or a large one could not be planned by what it found."""
    session: Any = Session()
    for size in (0, MOST, MOST + 1, None, 10):
        plan_for(session, Settings(root=tmp_path, spark_url="local[2]"), size)
    # Nothing is said twice.
    assert [each for each in session.said if each[0] == ADAPTIVE] == [
        (ADAPTIVE, "false"), (ADAPTIVE, "true"), (ADAPTIVE, "false"),
    ]  # fmt: skip


def test_what_is_small_is_read_and_shuffled_in_few_tasks_and_what_is_large_in_those_of_the_engine(
    tmp_path: Path,
) -> None:
    """Without it, a turn of a stream would have four tasks after each shuffle, three of them for nothing."""
    session: Any = Session()
    for size in (0, A_TASK - 1, A_TASK, 2 * A_TASK, 3 * A_TASK, MOST, MOST + 1, None, 10):
        plan_for(session, Settings(root=tmp_path, spark_url="local[2]"), size)
    assert [value for name, value in session.said if name == SHUFFLES] == ["1", "2", "3", "4", "1"]
    assert [value for name, value in session.said if name == READS] == ["1", "2", "1"]  # a task for each core, no more


def test_what_is_very_large_is_shuffled_into_more_partitions(tmp_path: Path) -> None:
    """Without it, a task would sort days of millions of rows by way of the disk."""
    session: Any = Session()
    for size in (10 * MOST_A_TASK, 40 * MOST_A_TASK, None):
        plan_for(session, Settings(root=tmp_path, spark_url="local[2]"), size)
    assert [value for name, value in session.said if name == SHUFFLES] == ["10", "40", "4"]


def test_each_of_them_is_the_users_where_they_have_set_it(tmp_path: Path) -> None:
    """Without it, one setting of the user's would take the others away from the lakehouse."""
    session: Any = Session()
    plan_for(session, Settings(root=tmp_path, spark_url="local[2]", spark_config={SHUFFLES: "8"}), 10)
    assert session.said == [(ADAPTIVE, "false"), (READS, "1")]


@pytest.mark.parametrize(
    "how",
    [
        {"spark_url": "spark://host:7077"},  # which has many partitions to merge
        {"spark_url": "sc://host"},
        {"spark_config": {ADAPTIVE: "true", SHUFFLES: "8", READS: "8"}},
    ],
)
def test_clusters_and_what_the_user_has_set_are_left_alone(tmp_path: Path, how: dict[str, Any]) -> None:
    """Without it, two hundred tiny tasks would run on a cluster, or a user's setting would do nothing."""
    session: Any = Session()
    plan_for(session, Settings(root=tmp_path, **how), 10)
    assert session.said == []
