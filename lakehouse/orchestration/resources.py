"""The resources of a run: the Spark engine, and the lake it computes on."""

from datetime import date
from typing import Any

from dagster import ConfigurableResource, InitResourceContext, MetadataValue, ResourceDependency

# Public `context.log_event` (dagster 1.13) takes no link without saying that an asset was seen or built.
from dagster._core.events import EngineEventData
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from lakehouse.catalog import tables
from lakehouse.orchestration.instance import is_backfill
from lakehouse.read.lake import Lake
from lakehouse.settings import get_settings
from lakehouse.spark.session import pages, start
from lakehouse.spark.warm import is_lost
from lakehouse.store.disk import keep_private


class SparkEngine(LazyPySparkResource):
    """dagster-pyspark's lazy resource on the engine of the settings; nothing starts before first use.

    Runs of backfills use the engine of `LAKEHOUSE_BACKFILL_SPARK_URL` and its like, where these are set.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, description="Further Spark settings of this run")
    _of_backfill: bool = PrivateAttr(default=False)
    _context: InitResourceContext | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Take note of what kind of run this is; what it writes is for its owner, however Dagster was started."""
        keep_private(get_settings().root)
        self._context = context
        self._of_backfill = context.run is not None and is_backfill(context.run.tags)

    def _init_session(self) -> None:
        if self._spark_session is None or is_lost(self._spark_session):  # a step that is tried again has another
            settings = get_settings().for_backfill() if self._of_backfill else get_settings()
            extra = {**settings.spark_config, **{k: str(v) for k, v in self.spark_config.items()}}
            self._spark_session = start(settings.model_copy(update={"spark_config": extra}))
            self._link()

    def _link(self) -> None:
        """Link the run to Spark's own pages: of what a run's log holds, Dagster makes only metadata a link."""
        context, address = self._context, pages()
        if address and context is not None and context.instance is not None and context.run is not None:
            link = EngineEventData({"spark_ui": MetadataValue.url(address)})
            context.instance.report_engine_event("Spark shows the queries of this run.", context.run, link)


class LakehouseResource(ConfigurableResource):  # type: ignore[type-arg]
    """The lake, and which days of which tables a run could not publish, so that their dependants leave them alone."""

    engine: ResourceDependency[SparkEngine]
    force: bool = Field(
        False,
        description="Build days again that have not changed; one whose landed files are gone becomes empty",
    )
    not_published: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="By table and day, why an earlier run of the same backfill did not publish it"
    )
    _held_back: dict[str, dict[str, dict[date, str]]] = PrivateAttr(default_factory=dict)

    def lake(self) -> Lake:
        """The lake of the settings, on this run's engine."""
        return Lake(get_settings(), tables(), lambda: self.engine.spark_session)

    def held_back(self, run_id: str, table: str) -> dict[date, str]:
        """Days of a table that this run did not publish, with the reason; shared by the run's steps (one process)."""
        days = self._held_back.setdefault(run_id, {})
        if table not in days:
            days[table] = {date.fromisoformat(day): why for day, why in self.not_published.get(table, {}).items()}
        return days[table]
