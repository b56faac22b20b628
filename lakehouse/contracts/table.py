"""A table: its model, its policy and its pure transform; everything else is derived from them."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakehouse.contracts.clock import Clock
from lakehouse.contracts.code import Code, read_code
from lakehouse.contracts.derived import Derived, lineage_file, read_lineage
from lakehouse.contracts.extract import Extract
from lakehouse.contracts.features import Features
from lakehouse.contracts.figures import Figure, Sum
from lakehouse.contracts.landing import Landing
from lakehouse.contracts.late import read_as_loaded
from lakehouse.contracts.mistakes import check, is_at_least, is_time, unless
from lakehouse.contracts.policy import Freshness, Layout, Privacy, Quality, Quarantine
from lakehouse.contracts.rules import Rule, compile_rules, lateness_rule
from lakehouse.contracts.topic import Topic
from lakehouse.errors import ContractError
from lakehouse.lazy import T

if TYPE_CHECKING:
    import pandera.pyspark as pa
    from pyspark.sql import DataFrame

KEPT_MODULE, KEPT_SCHEMA = "_kept_module", "_kept_schema"  # of a table that was kept (lakehouse.contracts.kept)
# Columns that an input with `hours_close_after` has beside its own: the watermark that closed the hour of the row's
# event time, null while it is open, and whether the row arrived after that.
CLOSING = ("_closed_at", "_came_after")
COMPATIBILITY = ("backward", "forward", "full", "none")  # told in lakehouse.contracts.schema_versions


@dataclass(frozen=True)
class Input:
    """A table that a transform reads: the rows of the computed day, and of days before and after it.

    A day is built from what is published when its turn comes. Once a day after it is published, it is stale and built
    again, as with a late row.

    Attributes:
        table: `layer.name`.
        days_before: how many days before the computed day are read as well.
        days_after: how many days after it.
        hours_close_after: of a table with a topic, the allowed lateness of its hours, in full hours: the rows then
            have `_closed_at`, the watermark that closed the hour of their event time (null while it is open), and
            `_came_after`, whether they arrived later than all that was taken by then. A day is stale when one of its
            hours was closed. None: there are no such columns.
    """

    table: str
    days_before: int = 0
    days_after: int = 0
    hours_close_after: timedelta | None = None

    def __post_init__(self) -> None:
        after = timedelta(0) if self.hours_close_after is None else self.hours_close_after
        check(
            is_at_least("days_before", self.days_before, 0),
            is_at_least("days_after", self.days_after, 0),
            unless(is_time(after) and not after % timedelta(hours=1), "hours_close_after",
                   "full hours, 0 or more", after, "Write hours_close_after=timedelta(hours=1)."),
        )  # fmt: skip

    @property
    def reads_other_days(self) -> bool:
        """Whether a day reads more than the same day of the input."""
        return self.days_before > 0 or self.days_after > 0


@dataclass(frozen=True)
class Table:
    """A table: contract, policy and transform; everything else is derived from it.

    Attributes:
        layer: bronze, silver or gold.
        name: the file's, the function's and the asset key's last part.
        model: pandera model with the columns, types, nullability and row rules.
        transform: pure function from input frames (by parameter name) to the table's rows.
        inputs: what each parameter of the transform reads.
        owner: `team:…` or an e-mail address.
        grain: what one row is.
        partition_by: physical partition columns; the first is the table's daily partition (a date).
        key: columns that identify a row; checked on every publish.
        keep_first_by: order in which, among rows of one key, the first is kept and the rest count as duplicates;
            empty: two rows of one key fail the day.
        unique_within: "day", or days (`timedelta`) in which rows of one key are repeats (`lakehouse.contracts.keys`).
        conserves_rows: True where each input row by itself becomes a published, quarantined or duplicate row.
        upsert: True where the rows of one key may come from several days and belong to the first of them; a run then
            recomputes the keys it touches and replaces the days they live in.
        clock: the event time, bounded against the arrival of the row; its row rules and the check `clocks` follow.
        allowed_lateness: of a table whose transform keeps `_arrival_date`: rows that arrive later than this after their
            day are set aside as late (rule `not_too_late`) until `lakehouse late apply` takes them in. Of a landed
            table: what its check `lateness` measures against. None: any lateness is allowed.
        quality: what a day's rows have to be like, all together.
        quarantine: how many rows may be set aside, and for how long.
        freshness: when a day has to be there.
        privacy: the columns that are about people.
        layout: how days lie in files, and how a build of them may be cut.
        figures: by name, sums and counts of a day that the asset and the report plot. Never personal data.
        reconciles: own numeric column → table and column of an input whose sum over the same day it must equal. Of an
            upsert table, whose days are not its input's, the sums over all days are compared by `lakehouse reconcile`.
        lineage: output column → tables and columns whose values decide its values, where that cannot be derived from
            the transform, or is less than the transform looks at; a landed field is `("landing.<source>", field)`.
            What the key is computed from also decides which rows make one row; that need not be repeated.
        schema_version: number of the present columns; a change of names, types or nullability needs the next one.
        compatibility: what a change of the columns must leave possible (`lakehouse.contracts.schema_versions`).
        features: that the rows are features of an entity, point in time; None: they are not.
        reads: data files that the transform reads, relative to the table file's folder; those beside a module of the
            project that it names in full count by themselves. Another content makes every day stale.
    """

    layer: str
    name: str
    model: type[pa.DataFrameModel]
    transform: Callable[..., DataFrame]
    inputs: Mapping[str, Input | Landing | Extract | Topic]
    owner: str
    grain: str
    partition_by: tuple[str, ...]
    key: tuple[str, ...] = ()
    keep_first_by: tuple[str, ...] = ()
    unique_within: str | timedelta = "day"
    conserves_rows: bool = False
    upsert: bool = False
    clock: Clock | None = None
    allowed_lateness: timedelta | None = None
    quality: Quality = field(default_factory=Quality)
    quarantine: Quarantine = field(default_factory=Quarantine)
    freshness: Freshness = field(default_factory=Freshness)
    privacy: Privacy = field(default_factory=Privacy)
    layout: Layout = field(default_factory=Layout)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    reconciles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    lineage: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    schema_version: int = 1
    compatibility: str = "backward"
    features: Features | None = None
    reads: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """What is not kept of a table that was read from `lakehouse.contracts.kept` is in its file."""
        if name not in ("model", "transform"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.loaded(), name)

    def loaded(self) -> Table:
        """The table from its file, where this one is what was kept of it.

        Raises:
            ContractError: the file is another one by now.
        """
        if "transform" in self.__dict__:
            return self
        found = getattr(import_module(self.module), self.name)
        if not isinstance(found, Table) or found.code != self.code or found.policy_version != self.policy_version:
            raise ContractError(f"{self.id}: its file has changed since this command began. Run it again.")
        return found

    @property
    def module(self) -> str:
        """The module of its file; empty where it was made without one."""
        if KEPT_MODULE in self.__dict__:
            return str(self.__dict__[KEPT_MODULE])
        name = self.transform.__module__
        return name if name in sys.modules else ""

    @property
    def id(self) -> str:
        """`layer.name`, as used in SQL and messages."""
        return f"{self.layer}.{self.name}"

    @property
    def quarantine_id(self) -> str:
        """Name of the side table that holds the rows that broke a rule."""
        return f"{self.id}_quarantine"

    @property
    def day_column(self) -> str:
        """The column whose date is the Dagster partition."""
        return self.partition_by[0]

    @cached_property
    def content_day_column(self) -> str:
        """The date by which downstream tables see days: a bronze table's event date, else the daily partition."""
        return [c for c in self.partition_by if isinstance(self.schema[c].dataType, T.DateType)][-1]

    @property
    def pii(self) -> tuple[str, ...]:
        """The columns that are personal data or identify a person: never shown, with no statistics kept."""
        return self.privacy.columns

    @cached_property
    def upstream(self) -> dict[str, Input]:
        """The inputs that are tables, by parameter."""
        return {name: each for name, each in self.inputs.items() if isinstance(each, Input)}

    @property
    def reads_other_days(self) -> bool:
        """Whether a day's rows follow from more than the same day of the inputs."""
        return any(each.reads_other_days for each in self.upstream.values())

    @property
    def landing(self) -> Landing | None:
        """The landed source of a bronze table, else None."""
        return next((each for each in self.inputs.values() if isinstance(each, Landing)), None)

    @property
    def extract(self) -> Extract | None:
        """The database table that a bronze table takes batches from, else None."""
        return next((each for each in self.inputs.values() if isinstance(each, Extract)), None)

    @property
    def topic(self) -> Topic | None:
        """The topics that a bronze table takes batches from, else None."""
        return next((each for each in self.inputs.values() if isinstance(each, Topic)), None)

    @property
    def taken(self) -> Extract | Topic | None:
        """What a bronze table takes batches from, which cannot be read again as they were; else None."""
        return self.extract or self.topic

    @cached_property
    def schema(self) -> T.StructType:
        """The Spark schema of the published table, all columns nullable as Delta stores them."""
        if kept := self.__dict__.get(KEPT_SCHEMA):
            return T.StructType.fromJson(json.loads(kept))
        columns = self.model.to_schema().columns
        # Technical columns (`_…`) come last, wherever the model inherits them from.
        columns = dict(sorted(columns.items(), key=lambda item: item[0].startswith("_")))
        return T.StructType([T.StructField(n, c.dtype.type, True, _comment(c)) for n, c in columns.items()])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the published columns, in order."""
        return tuple(self.schema.names)

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """Technical columns that the transform has to give beside these: by them rows come first, or are in time."""
        in_time = self.allowed_lateness is not None and self.landing is None
        arrival = self.clock.beside if self.clock else ("_arrival_date",) if in_time else ()
        wanted = [*self.keep_first_by, *arrival]
        return tuple(dict.fromkeys(name for name in wanted if name not in self.columns))

    @cached_property
    def required(self) -> frozenset[str]:
        """Columns that are never null in a published row."""
        return frozenset(n for n, c in self.model.to_schema().columns.items() if not c.nullable)

    @property
    def unique_days(self) -> int:
        """How many days before and after a day hold rows that may be repeats of its rows."""
        return self.unique_within.days if isinstance(self.unique_within, timedelta) else 0

    @cached_property
    def profiled(self) -> tuple[str, ...]:
        """Columns whose distribution is kept: those of `quality.profile`, and those that are added up."""
        sums = [each.column for each in self.figures.values() if isinstance(each, Sum) and not each.by]
        shares = [name for own, (of, _) in self.quality.max_shares.items() for name in (own, of)]
        return tuple(dict.fromkeys([*self.quality.profile, *self.reconciles, *sums, *shares]))

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The compiled row rules, those on clocks and lateness included."""
        compiled = compile_rules(self.model, skip=frozenset(self.partition_by))
        compiled += self.clock.rules if self.clock else ()
        if self.allowed_lateness is None or self.landing:
            return compiled
        return (*compiled, lateness_rule(self.day_column, self.allowed_lateness.days))

    @cached_property
    def description(self) -> str:
        """First the grain, then the model's docstring."""
        return f"{inspect.cleandoc(self.model.__doc__ or '')}\n\nGrain: {self.grain}.".strip()

    @cached_property
    def code(self) -> Code:
        """All that decides the rows, as it was when the table was declared."""
        return read_code(self.transform, self.model, self.reads)

    def transformed(self, **frames: DataFrame) -> DataFrame:
        """What the transform makes of its inputs.

        Args:
            frames: by parameter of the transform.

        Raises:
            ContractError: it gives something else than a frame. Nothing would be taken for a day without rows. Or it
                reads what has changed since the table was loaded.
        """
        from pyspark.sql import DataFrame  # late: what reads logs alone never waits for it

        with read_as_loaded(self):
            made = self.transform(**frames)
        if not isinstance(made, DataFrame):
            got = "nothing" if made is None else f"a {type(made).__name__}"
            raise ContractError(
                f"The transform of {self.id}: expected a DataFrame, got {got}. End it with `return` and the frame. "
                "Nothing was published."
            )
        return made

    def changed_on_disk(self) -> list[str]:
        """The parts of the code that are not on disk as this process has loaded them; it goes on with what it has."""
        if self.transform.__module__ not in sys.modules:
            return []
        try:
            return read_code(self.transform, self.model, self.reads).changed_since(self.code)
        except (ContractError, OSError, SyntaxError):  # gone, or being written
            return [self.transform.__module__]

    @property
    def derived(self) -> Derived | None:
        """Its lineage as `lakehouse schema lock` derived it from the transform; None where it never did."""
        *home, layer, _ = ("", "", *self.module.split("."))
        if layer != self.layer:
            return None
        return read_lineage(lineage_file(".".join(home[2:]))).get(self.id)

    @property
    def derived_now(self) -> bool:
        """Whether that lineage is of the present code."""
        return self.derived is not None and self.derived.code == self.code.project

    @cached_property
    def policy_version(self) -> str:
        """Twelve hex digits over the whole table file, the bounds included that decide what is published."""
        return self.code.whole if self.module else ""

    @cached_property
    def code_version(self) -> str:
        """Twelve hex digits over all code that decides the rows (`lakehouse.contracts.code` says what counts)."""
        return self.code.version


def _comment(column: Any) -> dict[str, Any]:
    return {"comment": column.description} if column.description else {}
