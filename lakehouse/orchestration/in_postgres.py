"""Dagster's event log in PostgreSQL, for those who name it in `dagster.yaml`; it takes the package dagster-postgres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster._serdes import ConfigurableClassData
from dagster_postgres import PostgresEventLogStorage
from dagster_postgres.utils import get_token_provider_from_config, pg_url_from_config

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
