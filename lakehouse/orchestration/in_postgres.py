"""Dagster's event log in PostgreSQL, for those who name it in `dagster.yaml`; it takes the package dagster-postgres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster._core.storage.event_log.schema import ConcurrencyLimitsTable
from dagster._serdes import ConfigurableClassData
from dagster_postgres import PostgresEventLogStorage
from dagster_postgres.utils import get_token_provider_from_config, pg_url_from_config
from sqlalchemy.exc import InternalError

from lakehouse.orchestration.event_log import BatchedEventLogStorage


class EventLog(BatchedEventLogStorage, PostgresEventLogStorage):
    """Events, with what `lakehouse.orchestration.event_log` makes good."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> EventLog:
        """As Dagster makes it, which would make its own."""
        return cls(
            pg_url_from_config(config_value),
            should_autocreate_tables=config_value.get("should_autocreate_tables", True),
            inst_data=inst_data,
            token_provider=get_token_provider_from_config(config_value),
        )

    def initialize_concurrency_limit_to_default(self, concurrency_key: str) -> bool:
        """Make a pool with the default limit, or give it that limit where it is there already.

        Dagster (1.13) adds a row, and changes the one there is where that fails. PostgreSQL takes nothing more in a
        transaction in which something has failed: of the first two runs that come to a table, the second would break;
        and after another `default_limit`, each one.

        Args:
            concurrency_key: name of the pool.
        """
        try:
            return super().initialize_concurrency_limit_to_default(concurrency_key)
        except InternalError:  # and all of it is undone
            limit = self._instance.global_op_concurrency_default_limit
            if limit is None:
                raise
            is_it = ConcurrencyLimitsTable.c.concurrency_key == concurrency_key
            with self.index_transaction() as connection:
                connection.execute(ConcurrencyLimitsTable.update().values(limit=limit).where(is_it))
                self._allocate_concurrency_slots(connection, concurrency_key, limit)
            return True
