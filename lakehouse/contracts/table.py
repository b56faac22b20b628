"""What a table file declares: a pandera model, the table's policy, and a pure transform."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from functools import cached_property
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.contracts.clock import Clock
from lakehouse.contracts.code import Code, read_code
from lakehouse.contracts.extract import Extract
from lakehouse.contracts.figures import Figure, Sum, columns_of, conditions
from lakehouse.contracts.keys import key_conditions
from lakehouse.contracts.landing import FORMATS, Landing
from lakehouse.contracts.policy import Anomalies, Volume
from lakehouse.contracts.rules import Rule, compile_rules, lateness_rule
from lakehouse.contracts.slices import SliceBy
from lakehouse.errors import ContractError

LAYERS = ("bronze", "silver", "gold")
COMPATIBILITY = ("backward", "forward", "full", "none")  # told in lakehouse.contracts.versions
EVENT_DAYS = "_event_days"  # of an upsert table: the days that hold events of the row's key
# Columns that staging adds.
RESERVED = ("route", "_failed_rules", "_copies", "_first", "_sound", "_content", "_beaten")


@dataclass(frozen=True)
class Input:
    """A table that a transform reads: the rows of the computed day, and of `days_before` days before it."""

    table: str
    days_before: int = 0


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
        conserves_rows: True where each input row becomes a published, quarantined or duplicate row.
        upsert: True where the rows of one key may come from several days and belong to the first of them; a run then
            recomputes the keys it touches and replaces the days they live in.
        min_rows, max_rows: bounds of a day's published rows, where the day has input.
        max_null_rate: share of nulls allowed, by nullable column.
        max_quarantined: share of a day's rows that may fail the row rules before the day is not published.
        max_quarantine_rows, max_quarantine_age: of the whole quarantine; beyond, the check `quarantine_depth` warns.
        volume: bounds against history; None where the count says nothing.
        profile: columns whose distribution is kept with each published day: sum, mean and spread of numbers, rows by
            value of others (those with few values). Never personal data.
        figures: by name, sums and counts of a day that the asset and the report plot. Never personal data.
        anomalies: bounds of those distributions against history; None: they are kept but not judged.
        allowed_lateness: of a table whose transform keeps `_arrival_date`: rows that arrive later than this after their
            day are set aside as late (rule `not_too_late`) until `lakehouse late apply` takes them in. Of a landed
            table: what its check `lateness` measures against. None: any lateness is allowed.
        max_late: share of a day's rows that may be later than allowed before the check `lateness` fails (it only says).
        clock: the event time, bounded against the arrival of the row; its row rules and the check `clocks` follow.
        known_events: days that are unusual for a known reason, by that reason; no baseline holds them, and what is
            unusual about them is said but fails no check.
        reconciles: own numeric column → `(table, column)` of an input whose sum over the same day it must equal. Of an
            upsert table, whose days are not its input's, the sums over all days are compared by `lakehouse reconcile`.
        fresh_within: time after the end of a day by which its rows have to be there; also the age at which the table's
            last materialization breaks Dagster's freshness policy.
        fresh_budget: share of days that may miss that in a month.
        files_per_day: files one day is spread over; raise it for days that outgrow one task.
        slice_by: how a build that outgrows the engine may be cut (`backfill --slices`); None: it is always built whole.
        pii: columns that are personal data or identify a person: never shown, with no statistics kept.
        person: those of `pii` that hold the id of the person a row is about; `lakehouse forget` looks there.
        tokens: those of `pii` that hold tokens; a new key (`lakehouse keys rotate`) makes every day of the table stale.
        lineage: output column → `(table, column)`s whose values decide its values, where they are not the columns of
            its name; a landed field is `("landing.<source>", field)`. What the key is computed from also decides which
            rows make one row; that need not be repeated.
        schema_version: number of the present columns; a change of names, types or nullability needs the next one.
        compatibility: what a change of the columns must leave possible (`lakehouse.contracts.versions`).
        reads: data files that the transform reads, relative to the table file's folder; those beside a module of the
            project that it names in full count by themselves. Another content makes every day stale.
    """

    layer: str
    name: str
    model: type[pa.DataFrameModel]
    transform: Callable[..., DataFrame]
    inputs: Mapping[str, Input | Landing | Extract]
    owner: str
    grain: str
    partition_by: tuple[str, ...]
    key: tuple[str, ...] = ()
    keep_first_by: tuple[str, ...] = ()
    unique_within: str | timedelta = "day"
    conserves_rows: bool = False
    upsert: bool = False
    min_rows: int = 0
    max_rows: int | None = None
    max_null_rate: Mapping[str, float] = field(default_factory=dict)
    max_quarantined: float = 0.1
    max_quarantine_rows: int | None = None
    max_quarantine_age: timedelta | None = None
    volume: Volume | None = None
    profile: tuple[str, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    anomalies: Anomalies | None = None
    allowed_lateness: timedelta | None = None
    max_late: float = 0.01
    clock: Clock | None = None
    known_events: Mapping[date, str] = field(default_factory=dict)
    reconciles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    fresh_within: timedelta = timedelta(hours=36)
    fresh_budget: float = 0.05
    files_per_day: int = 1
    slice_by: SliceBy | None = None
    pii: tuple[str, ...] = ()
    person: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    lineage: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    schema_version: int = 1
    compatibility: str = "backward"
    reads: tuple[str, ...] = ()

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
    def upstream(self) -> dict[str, Input]:
        """The inputs that are tables, by parameter."""
        return {name: each for name, each in self.inputs.items() if isinstance(each, Input)}

    @property
    def landing(self) -> Landing | None:
        """The landed source of a bronze table, else None."""
        return next((each for each in self.inputs.values() if isinstance(each, Landing)), None)

    @property
    def extract(self) -> Extract | None:
        """The database table that a bronze table takes batches from, else None."""
        return next((each for each in self.inputs.values() if isinstance(each, Extract)), None)

    @cached_property
    def schema(self) -> T.StructType:
        """The Spark schema of the published table, all columns nullable as Delta stores them."""
        columns = self.model.to_schema().columns
        # Technical columns (`_…`) come last, wherever the model inherits them from.
        columns = dict(sorted(columns.items(), key=lambda item: item[0].startswith("_")))
        return T.StructType([T.StructField(n, c.dtype.type, True, _comment(c)) for n, c in columns.items()])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the published columns, in order."""
        return tuple(self.schema.names)

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
        """Columns whose distribution is kept: those of `profile`, and those that have to add up or are a figure."""
        sums = [each.column for each in self.figures.values() if isinstance(each, Sum) and not each.by]
        return tuple(dict.fromkeys([*self.profile, *self.reconciles, *sums]))

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

    def changed_on_disk(self) -> list[str]:
        """The parts of the code that are not on disk as this process has loaded them; it goes on with what it has."""
        if self.transform.__module__ not in sys.modules:
            return []
        try:
            return read_code(self.transform, self.model, self.reads).changed_since(self.code)
        except (ContractError, OSError, SyntaxError):  # gone, or being written
            return [self.transform.__module__]

    @cached_property
    def policy_version(self) -> str:
        """Twelve hex digits over the whole table file, the bounds included that decide what is published."""
        return self.code.whole if self.transform.__module__ in sys.modules else ""

    @cached_property
    def code_version(self) -> str:
        """Twelve hex digits over all code that decides the rows (`lakehouse.contracts.code` says what counts)."""
        return self.code.version


def _comment(column: Any) -> dict[str, Any]:
    return {"comment": column.description} if column.description else {}


def table(
    *,
    model: type[pa.DataFrameModel],
    inputs: Mapping[str, Input | Landing | Extract],
    partition_by: str | tuple[str, ...],
    **policy: Any,
) -> Callable[[Callable[..., DataFrame]], Table]:
    """Declare the decorated pure function as the transform of the table its file is named after.

    Args:
        model: the contract.
        inputs: by parameter name of the function.
        partition_by: the day column, then further physical partition columns.
        **policy: further attributes of `Table`.

    Raises:
        ContractError: where file, function, parameters, columns or policy do not fit together.
    """

    def declare(transform: Callable[..., DataFrame]) -> Table:
        layer, file = ["", *transform.__module__.split(".")][-2:]
        where = f"{layer}/{file}.py"
        if layer not in LAYERS or file != transform.__name__:
            raise ContractError(
                f"{where}: the function {transform.__name__!r} must be named after its file, in one of "
                f"{', '.join(LAYERS)}: one file is one table."
            )
        parameters = list(inspect.signature(transform).parameters)
        if sorted(parameters) != sorted(inputs):
            raise ContractError(f"{where}: parameters {parameters} must be the inputs {sorted(inputs)}.")
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if unknown := sorted(set(policy) - {each.name for each in fields(Table)}):
            raise ContractError(f"{where}: @table has no attribute {', '.join(unknown)}.")
        if absent := sorted({"owner", "grain"} - set(policy)):
            raise ContractError(f"{where}: @table needs {', '.join(absent)}.")
        made = Table(layer, file, model, transform, inputs, partition_by=columns, **policy)
        _validate(made, where)
        if transform.__module__ in sys.modules:
            _ = made.code_version  # now: later the file may not be what was loaded
        return made

    return declare


def _validate(made: Table, where: str) -> None:
    _ = made.rules  # what cannot be compiled is refused where the file is loaded
    known = set(made.columns)
    named = {
        "partition_by": made.partition_by,
        "key": made.key,
        # Beside its columns a table may order by where its rows come from: `_source_file` and the like.
        "clock": (made.clock.column,) if made.clock else (),
        "keep_first_by": tuple(c for c in made.keep_first_by if not c.startswith("_")),
        "max_null_rate": tuple(made.max_null_rate),
        "pii": made.pii,
        "profile": made.profile,
        "figures": columns_of(made.figures),
        "reconciles": tuple(made.reconciles),
        "lineage": tuple(made.lineage),
    }
    for attribute, columns in named.items():
        if unknown := sorted(set(columns) - known):
            raise ContractError(
                f"{where}: {attribute} names {', '.join(unknown)}, not a column of {made.model.__name__} "
                f"({', '.join(made.columns)})."
            )
    if not isinstance(made.schema[made.day_column].dataType, T.DateType):
        raise ContractError(f"{where}: the day column {made.day_column} must be a date.")
    sources = {each.table for each in made.upstream.values()}
    if made.landing is not None:
        _ = made.landing.names
        sources.add(f"landing.{made.landing.source}")
    read_from = {source for pairs in made.lineage.values() for source, _ in pairs}
    holds = {
        f"the column name(s) {', '.join(RESERVED)} are taken by staging; rename yours": not known & set(RESERVED),
        "a PII column cannot be a partition column, whose values are in file names": not (
            set(made.partition_by) & set(made.pii)
        ),
        "a PII column has no profile, whose values are kept with each commit": not (set(made.profile) & set(made.pii)),
        "person and tokens name columns of pii": {*made.person, *made.tokens} <= set(made.pii),
        "reconciles names a table that is no input": {name for name, _ in made.reconciles.values()} <= sources,
        "max_quarantined and max_null_rate are shares from 0 to 1": all(
            0 <= share <= 1 for share in (made.max_quarantined, *made.max_null_rate.values())
        ),
        "max_quarantine_rows and max_quarantine_age must not be negative": (made.max_quarantine_rows or 0) >= 0
        and (made.max_quarantine_age or timedelta(0)) >= timedelta(0),
        "files_per_day must be 1 or more": made.files_per_day >= 1,
        "schema_version must be 1 or more": made.schema_version >= 1,
        f"compatibility is one of {', '.join(COMPATIBILITY)}": made.compatibility in COMPATIBILITY,
        "days_before must be 0 or more": all(each.days_before >= 0 for each in made.upstream.values()),
        "a table reads tables, one database table, or one landed source and nothing else": len(made.inputs) == 1
        or len(made.upstream) == len(made.inputs),
        f"the format of a landed source is one of {', '.join(FORMATS)}": made.landing is None
        or made.landing.format in FORMATS,
        f"lineage names {', '.join(sorted(read_from - sources))}, which is no input": read_from <= sources,
    }
    if made.extract is not None:
        holds |= made.extract.conditions(known)
        what = "what was taken from a database cannot be taken again: declare row rules where it is read"
        holds[what] = not made.rules
    holds |= conditions(made, known)
    holds |= made.slice_by.conditions(made) if made.slice_by else {}
    holds |= key_conditions(made, EVENT_DAYS)
    if broken := [message for message, true in holds.items() if not true]:
        raise ContractError(f"{where}: {'; '.join(broken)}.")
