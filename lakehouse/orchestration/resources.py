"""The resources of a run: the Spark engine, and the lake it computes on."""

from datetime import date
from typing import Any

from dagster import ConfigurableResource, ResourceDependency
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from lakehouse.catalog import tables
from lakehouse.settings import get_settings
from lakehouse.spark.session import start
from lakehouse.tables.lake import Lake


class SparkEngine(LazyPySparkResource):
    """dagster-pyspark's lazy resource on the engine of `LAKEHOUSE_SPARK_URL`; nothing starts before first use."""

    spark_config: dict[str, Any] = Field(default_factory=dict, description="Further Spark settings of this run")

    def _init_session(self) -> None:
        if self._spark_session is None:
            settings = get_settings()
            extra = {**settings.spark_config, **{k: str(v) for k, v in self.spark_config.items()}}
            self._spark_session = start(settings.model_copy(update={"spark_config": extra}))


class LakehouseResource(ConfigurableResource):  # type: ignore[type-arg]
    """The lake, and which days of which tables a run could not publish, so that their dependants leave them alone."""

    engine: ResourceDependency[SparkEngine]
    force: bool = Field(False, description="Build days again whose inputs and code have not changed")
    _held_back: dict[str, dict[str, dict[date, str]]] = PrivateAttr(default_factory=dict)

    def lake(self) -> Lake:
        """The lake of the settings, on this run's engine."""
        return Lake(get_settings(), tables(), lambda: self.engine.spark_session)

    def held_back(self, run_id: str, table: str) -> dict[date, str]:
        """Days of a table that this run did not publish, with the reason; shared by the run's steps (one process)."""
        return self._held_back.setdefault(run_id, {}).setdefault(table, {})
