"""Problems of what is there no more: a table, a check or days that were taken out of the code or of the settings.

No event and no table's log will ever say that such a problem is over.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Self

from dagster import RepositoryDefinition

from lakehouse.days import is_between
from lakehouse.orchestration.alerts.events import BUILD, FRESHNESS
from lakehouse.orchestration.alerts.problems import Key, News
from lakehouse.orchestration.alerts.store import Store
from lakehouse.orchestration.instance import table_of, table_of_step
from lakehouse.settings import Settings


@dataclass(frozen=True)
class CanFail:
    """What can fail, by the code that is loaded and the days of the lake.

    Attributes:
        steps: tables, and other steps of jobs.
        checks: tables and checks.
        fresh: tables that are to be materialized in time.
        first: first day that can be built.
        last: last day that can be built; today is one of a lake that goes on, since rows of it may be replayed.
    """

    steps: Collection[str]
    checks: Collection[tuple[str, str]]
    fresh: Collection[str]
    first: date
    last: date

    @classmethod
    def of(cls, code: RepositoryDefinition, settings: Settings) -> Self:
        """What a repository has, and the days of now."""
        graph = code.asset_graph
        return cls(
            {table_of_step(node.name) for job in code.get_all_jobs() for node in job.nodes},
            {(table_of(key.asset_key), key.name) for key in graph.asset_check_keys},
            {table_of(key) for key in graph.get_all_asset_keys() if graph.get(key).freshness_policy is not None},
            settings.first_day,
            settings.last_day or datetime.now(UTC).date(),
        )

    def has(self, key: Key) -> bool:
        """Whether a problem is of something that can fail."""
        table, check, day = key
        if check == BUILD:
            return table in self.steps and (not day or is_between(date.fromisoformat(day), self.first, self.last))
        return table in self.fresh if check == FRESHNESS else (table, check) in self.checks


def forget_removed(store: Store, can_fail: CanFail) -> None:
    """Forget the problems of what cannot fail any more. Nobody is told: they have not recovered."""
    with store.transaction():
        gone = [key for key in store.problems() if not can_fail.has(key)]
        store.take(News(over=gone), ())
