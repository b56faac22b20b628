"""Tables made for a test, and rows put into them without an engine."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandera.pyspark as pa
import pyarrow
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from lakehouse.build.plan import day_transaction
from lakehouse.contracts import Extract, Input, Landing, Table, rule
from lakehouse.contracts import table as declare
from lakehouse.contracts.declare import GROUPS
from lakehouse.delta.commit import Commit, Target, ensure_table, replace_days
from lakehouse.delta.snapshot import fingerprint
from lakehouse.delta.staged import StagedFile, read_staged
from lakehouse.read.lake import Lake

Row = Mapping[str, Any]


def model(
    name: Any = "Made", rules: Any = None, **columns: Any
) -> type[pa.DataFrameModel]:  # typed loosely, so that columns can be given as one mapping
    """A pandera model of `column=(type, pa.Field(…))`; `rules` maps names to functions that give a boolean column."""
    body: dict[str, Any] = {"__annotations__": {n.lstrip("_"): t for n, (t, _) in columns.items()}}
    for column, (_, field) in columns.items():
        field.alias = column  # pandera passes over attributes that begin with `_`
        body[column.lstrip("_")] = field
    body |= {n: rule(lambda cls, holds=holds: holds()) for n, holds in (rules or {}).items()}
    made: type[pa.DataFrameModel] = type(name, (pa.DataFrameModel,), body)
    return made


def table(
    name: str,
    contract: type[pa.DataFrameModel],
    transform: Callable[..., Any],
    inputs: Mapping[str, Input | Landing | Extract],
    *,
    code: str = "v1",
    **policy: Any,
) -> Table:
    """A table `layer.name` declared as its file would, with the code version `code`.

    Words of a group may stand alone (`max_rows=9` for `quality=Quality(max_rows=9)`); `SHORT` names those of other names.
    """
    transform.__module__, transform.__name__ = f"made.{name}", name.split(".")[1]
    policy = {"owner": "team:test", "grain": "one row", "partition_by": "day", **_grouped(policy)}
    made = declare(model=contract, inputs=inputs, **policy)(transform)
    made.__dict__["code_version"] = code  # a cached property; there is no source file to derive it from
    return made


SHORT = {
    "max_quarantined": ("quarantine", "max_share"), "max_quarantine_rows": ("quarantine", "max_rows"),
    "max_quarantine_age": ("quarantine", "max_age"), "fresh_within": ("freshness", "within"),
    "fresh_budget": ("freshness", "budget"), "pii": ("privacy", "further"),
} | {
    name: (group, name)
    for group in ("layout", "privacy", "quality")
    for name in signature(GROUPS[group]).parameters
}  # fmt: skip


def having(made: Table, **policy: Any) -> Table:
    """The table with another policy; words as in `table`, those that are not named stay as they are."""
    return replace(made, **_grouped(policy, made))


def _grouped(policy: Mapping[str, Any], made: Table | None = None) -> dict[str, Any]:
    words: dict[str, dict[str, Any]] = {}
    for word in policy.keys() & SHORT.keys():
        group, name = SHORT[word]
        words.setdefault(group, {})[name] = policy[word]
    groups = {g: replace(getattr(made, g), **said) if made else GROUPS[g](**said) for g, said in words.items()}
    return {**{word: each for word, each in policy.items() if word not in SHORT}, **groups}


def target_of(folder: Path, schema: T.StructType, partition_by: Sequence[str] = ("day",), **kwargs: Any) -> Target:
    """A bare Delta table as the commit door sees it."""
    return Target(folder, schema, tuple(partition_by), **kwargs)


def stage_rows(
    target: Target, rows: Sequence[Row], route: str = "valid", folder: Path | None = None
) -> list[StagedFile]:
    """Stage rows as Spark would: one Parquet file for each combination of partition values, under the table."""
    folder = folder or target.path / "staged" / uuid.uuid4().hex
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(c) for c in target.partition_by), []).append(row)
    stored = T.StructType([f for f in target.schema.fields if f.name not in target.partition_by])
    for values, group in groups.items():
        parts = [f"{c}={_escaped(v)}" for c, v in zip(target.partition_by, values, strict=True)]
        path = folder.joinpath(f"route={route}", *parts, f"part-{uuid.uuid4().hex}.parquet")
        path.parent.mkdir(parents=True)
        cells = [{f.name: row.get(f.name) for f in stored.fields} for row in group]
        pq.write_table(pyarrow.Table.from_pylist(cells, schema=to_arrow_schema(stored, timezone="UTC")), path)
    return read_staged(folder, target.partition_by) if folder.exists() else []


def _escaped(value: Any) -> str:
    text = "__HIVE_DEFAULT_PARTITION__" if value is None or value == "" else str(value)
    return quote(text, safe=" ü€-_.!~()&;@$,+|<>")


def put(lake: Lake, made: Table, day: date, rows: Sequence[Row], mark: int | None = None) -> int:
    """Publish rows as the whole content of one day of a table, without an engine; returns the version."""
    target = Target(lake.path(made.id), made.schema, made.partition_by, required=made.required, pii=made.pii)
    base = ensure_table(target)
    files = stage_rows(target, [{made.day_column: day, **row} for row in rows])
    mark = fingerprint([repr(sorted(map(repr, rows)))]) if mark is None else mark
    return replace_days(target, base, files, [day], Commit({day_transaction(day): mark}))


def land_twins(root: Path, day: date) -> None:
    """Web events that have an order id of the landed retail lines of a day, and one sent again after midnight."""
    text = gzip.decompress((root / "landing" / "online_retail" / f"{day}.csv.gz").read_bytes()).decode()
    known = [each for each in csv.DictReader(io.StringIO(text)) if each["InvoiceNo"].isdigit() and each["CustomerID"]]
    order, user = known[0]["InvoiceNo"], known[0]["CustomerID"].removesuffix(".0")
    after = day + timedelta(days=1)
    event = {"event_type": "purchase", "user_id": user, "currency": "GBP", "country": "France", "amount": 7.5}
    retried = event | {"event_id": "twin-retried", "order_id": "twin"}
    rows = {
        day: [
            event | {"event_id": "twin-bought", "order_id": order, "event_time": f"{day}T12:00:00Z"},
            event | {"event_id": "twin-undone", "order_id": order, "event_time": f"{day}T12:01:00Z"}
            | {"event_type": "cancellation", "amount": -7.5},
            retried | {"event_time": f"{day}T23:59:59Z"},
        ],
        after: [retried | {"event_time": f"{after}T00:00:01Z"}],
    }  # fmt: skip
    for arrival, each in rows.items():
        folder = root / "landing" / "events" / arrival.isoformat()
        lines = "".join(json.dumps(row) + "\n" for row in each)
        (folder / "part-twins.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def rows_of(path: Path, version: int | None = None) -> list[dict[str, Any]]:
    """All rows of a Delta table as delta-rs reads them, in a stable order."""
    found = DeltaTable(str(path), version=version).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: [(k, repr(v)) for k, v in sorted(row.items())])


def spark_rows(lake: Lake, path: Path, where: str | None = None) -> list[dict[str, Any]]:
    """All rows of a Delta table as Spark reads them, in the same order."""
    frame = lake.spark.read.format("delta").load(str(path))
    found = [row.asDict() for row in (frame.where(where) if where else frame).collect()]
    return sorted(found, key=lambda row: [(k, repr(v)) for k, v in sorted(row.items())])


def rewrite_entry(path: Path, version: int, change: Callable[[str, dict[str, Any]], object]) -> None:
    """Change the actions of a log entry in place: `change` is given the kind and the body of each."""
    entry = path / "_delta_log" / f"{version:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        for kind, body in line.items():
            change(kind, body)
    entry.write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines))


def age_table(path: Path) -> None:
    """Make a table years old: its files, and what the log says of when they were added and replaced."""

    def age(kind: str, body: dict[str, Any]) -> None:
        if kind in ("commitInfo", "remove"):
            body["timestamp" if kind == "commitInfo" else "deletionTimestamp"] = 1

    for entry in (path / "_delta_log").glob("*.json"):
        rewrite_entry(path, int(entry.stem), age)
    for file in path.rglob("*.parquet"):
        if file.parent.name != "_delta_log":
            os.utime(file, (0, 0))


class Clock:
    """`time` as one module sees it, with another sleep: to patch `time.sleep` itself would reach every thread."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, sleep: Callable[[float], object]) -> None:
        self.sleep = sleep
