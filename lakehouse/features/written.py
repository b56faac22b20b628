"""A training set as a file, with a record of what it was made of, from which the same file can be made again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.errors import HistoryGoneError, UsageError
from lakehouse.features.labels import label_file
from lakehouse.features.request import MISSING
from lakehouse.features.training import TrainingSet, training_set
from lakehouse.read.lake import Lake, quoted
from lakehouse.servers.place import locked
from lakehouse.store import is_inside
from lakehouse.store.parquet import safe_statistics

RECORD = "lakehouse.training_set"  # in the metadata of the Parquet file
FORMAT = 1
_ADDED = ("table_ids", "ttl_seconds")  # since the first release
_GROUP = 1 << 17  # rows of a row group, however many Spark writes at once
_LOCK, _PARTS = "lock", "parts"  # in the folder in which a file is made
_UNORDERED = re.compile(r"\b(map<|variant\b)")  # in the type of a column, which then has no order


@dataclass(frozen=True)
class Manifest:
    """What a training set was made of. The same manifest makes the same file, byte by byte.

    Attributes:
        labels: file name of the labels.
        labels_sha256: of all their bytes.
        labels_version: of a Delta table the version; else None.
        time: column with the time of a label.
        features: as `parse_features` reads them, each by name.
        as_known_then: whether only what had been published by a label's time was used.
        versions: Delta version of each table.
        code_versions: of each table, at that time.
        table_ids: Delta's own id of each table, without which a version says nothing of a table that was built anew
            under the same name; records of earlier releases have none.
        ttl_seconds: of each table, at that time; records of earlier releases have none.
    """

    labels: str
    labels_sha256: str
    labels_version: int | None
    time: str
    features: tuple[str, ...]
    as_known_then: bool
    versions: Mapping[str, int]
    code_versions: Mapping[str, str]
    table_ids: Mapping[str, str] = field(default_factory=dict)
    ttl_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """A file that was written: its rows, and by table the labels that found no row."""

    file: Path
    rows: int
    missing: Mapping[str, int]


def write_training_set(
    lake: Lake,
    labels: Path,
    out: Path,
    *,
    features: tuple[str, ...] = (),
    time: str = "event_time",
    as_known_then: bool = False,
    again: Manifest | None = None,
    replace: bool = False,
) -> Written:
    """Join the labels of a file with features, and write them into a Parquet file, by time, key and then all else.

    The file is there whole or not at all; its record is in its metadata, and beside it (`<file>.json`).

    Args:
        lake: where the tables are.
        labels: see `LabelFile`.
        out: the file.
        features: as `parse_features` reads them.
        time: column with the time of a label.
        as_known_then: see `training_set`.
        again: makes what this record tells of; the three before are then taken from it.
        replace: a file or record that is there is replaced.

    Raises:
        UsageError: for labels, features or a place that cannot be used or is taken, or labels that are not those of the
            record.
        HistoryGoneError: for a version that cannot be read any more.
    """
    out = _place(lake, out)
    _check_free(out, again, replace=replace)
    held = label_file(labels, again.labels_version if again else None)
    if again:
        _refuse_other_labels(labels, held.sha256, again)
        _refuse_built_anew(lake, again)
        features, time, as_known_then = again.features, again.time, again.as_known_then
    made = training_set(
        lake,
        held.read(lake.spark),
        features,
        time=time,
        as_known_then=as_known_then,
        versions=again.versions if again else None,
        # A table whose ttl was changed since would give labels more or fewer rows than the record tells of.
        ttls={name: timedelta(seconds=seconds) for name, seconds in again.ttl_seconds.items()} if again else None,
        source=str(labels),
    )
    manifest = again or Manifest(
        held.path.name,
        held.sha256,
        held.version,
        time,
        tuple(text for each in made.wanted for text in each.texts),
        as_known_then,
        made.versions,
        {each.table.id: each.table.code_version for each in made.wanted},
        {name: str(lake.snapshot(name, version).table_id) for name, version in made.versions.items()},
        {each.table.id: each.features.ttl.total_seconds() for each in made.wanted},
    )
    with _alone(out) as drafts:
        _check_free(out, again, replace=replace)  # another command may have ended since
        return _write(made, manifest, out, drafts)


def _place(lake: Lake, out: Path) -> Path:
    """Where the file is to be, if it can be there."""
    out = out.expanduser().absolute()
    if is_inside(out, lake.settings.root):
        raise UsageError(f"{out} is inside the lakehouse, which this command only reads. Choose another place.")
    if out.suffix.lower() != ".parquet":
        raise UsageError(f"{out}: a training set is a Parquet file: give it a name that ends with .parquet.")
    if not out.parent.is_dir() or out.is_dir():
        raise UsageError(f"{out} cannot be written: expected a file's name in a folder that is there.")
    return out


def _refuse_other_labels(labels: Path, sha256: str, again: Manifest) -> None:
    if sha256 != again.labels_sha256:
        raise UsageError(
            f"{labels}: these are not the labels of that training set ({again.labels}): SHA-256 {sha256}, "
            f"expected {again.labels_sha256}."
        )


def _refuse_built_anew(lake: Lake, again: Manifest) -> None:
    """Versions begin at 0 again where a table's folder was moved away: the one of a record then holds other rows."""
    for name, expected in again.table_ids.items():
        found = lake.snapshot(name).table_id
        if found not in (None, expected):
            raise HistoryGoneError(
                f"{name}: the training set was made of version {again.versions[name]} of the table with the id "
                f"{expected}; the table of that name was built anew since (id {found}), and its versions hold other "
                "rows. Put the folder back that was moved away, or make a new training set, with --features."
            )


def _check_free(out: Path, again: Manifest | None, *, replace: bool) -> None:
    """A model may have been trained on a file that is there, and its record alone tells how it can be made again."""
    # The file alone may be gone: made again from its record, it takes its place.
    taken = out if out.exists() else _beside(out)
    if not replace and taken.exists() and (taken == out or again is None):
        raise UsageError(f"{taken} is there already. Choose another name, or say --replace.")


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.json")


def read_manifest(file: Path) -> Manifest:
    """What a training set was made of: its `.json`, or the Parquet file itself.

    Raises:
        UsageError: for another file.
    """
    try:
        if file.suffix.lower() == ".parquet":
            text = (pq.read_schema(file).metadata or {})[RECORD.encode()].decode()
        else:
            text = file.read_text(encoding="utf-8")
        held = json.loads(text)[RECORD]
        if held.pop("format") != FORMAT:
            raise UsageError(f"{file} was written by another release of lakehouse, which has to read it.")
        return Manifest(**{**held, "features": tuple(held["features"])})
    except FileNotFoundError:
        raise UsageError(
            f"{file} is no record of a training set: there is no such file. Name the .json that was written beside "
            "one, or the Parquet file itself."
        ) from None
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{file} is no record of a training set ({type(error).__name__}: {error}): name the .json that was written "
            "beside one, or the Parquet file itself."
        ) from None


@contextmanager
def _alone(out: Path) -> Iterator[Path]:
    """The folder in which a file is made, for as long as nobody else makes that file; what a kill left is gone.

    Of two commands in one folder, one would take the other's rows as its own, or find none.
    """
    drafts = out.with_name(f".{out.name}.drafts")
    held = None
    try:
        drafts.mkdir(exist_ok=True)
        held = locked(drafts / _LOCK)
        if held is not None and not os.fstat(held).st_nlink:  # the other one has just ended, and the folder is gone
            os.close(held)
            held = None
        if held is None:
            raise UsageError(f"{out} is being written by another command. Wait for it, or choose another name.")
        shutil.rmtree(drafts / _PARTS, ignore_errors=True)
        yield drafts
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}. Choose another file.") from None
    finally:
        if held is not None:
            shutil.rmtree(drafts, ignore_errors=True)
            os.close(held)


def _write(made: TrainingSet, manifest: Manifest, out: Path, drafts: Path) -> Written:
    # A record of an earlier release lacks some: the same file is made from it, so they are not written either.
    said = {name: value for name, value in asdict(manifest).items() if name not in _ADDED or value}
    record = {RECORD: {"format": FORMAT, **said}}
    missing = {each.called(MISSING): 0 for each in made.wanted}
    _parts(made, manifest.time, drafts / _PARTS)
    rows = _one_file(sorted((drafts / _PARTS).glob("part-*.parquet")), record, drafts / out.name, missing)
    with (drafts / out.name).open("rb") as whole:
        sha256 = hashlib.file_digest(whole, "sha256").hexdigest()
    beside = record | {"rows": rows, "missing": missing, "sha256": sha256}
    (drafts / "record.json").write_text(json.dumps(beside, indent=2) + "\n", encoding="utf-8")
    # The record is in the file too: killed in between, the file is whole and says what it was made of. That of a file
    # which is replaced goes first: it would tell of the new one what is true of the old one.
    _beside(out).unlink(missing_ok=True)
    (drafts / out.name).replace(out)
    (drafts / "record.json").replace(_beside(out))
    return Written(out, rows, {each.table.id: missing[each.called(MISSING)] for each in made.wanted})


def _parts(made: TrainingSet, time: str, folder: Path) -> None:
    """Write the rows in one order, whatever order they came in: rows that are equal in all columns are the same."""
    first = [time, *made.wanted[0].features.key]
    kinds = {f.name: f.dataType.simpleString() for f in made.frame.schema.fields}
    rest = [name for name, kind in kinds.items() if name not in first and not _UNORDERED.search(kind)]
    made.frame.sort(*map(quoted, (*first, *rest))).write.parquet(str(folder))


def _one_file(parts: list[Path], record: Mapping[str, Any], out: Path, missing: dict[str, int]) -> int:
    """Put files together in row groups of one size, so that it is the same file however Spark cut it."""
    schema = pq.read_schema(parts[0]).with_metadata({RECORD: json.dumps(record)})
    rows = 0
    told = safe_statistics(schema)
    with pq.ParquetWriter(
        out, schema, compression="snappy", store_decimal_as_integer=True, write_statistics=told
    ) as writer:
        for group in _groups(parts, schema):
            writer.write_table(group, row_group_size=_GROUP)
            rows += group.num_rows
            for name in missing:
                missing[name] += group[name].to_pylist().count(True)
    return rows


def _groups(parts: list[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for part in parts:
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches(batch_size=_GROUP):
                held.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                if sum(each.num_rows for each in held) >= _GROUP:
                    whole = pa.Table.from_batches(held, schema)
                    yield whole.slice(0, _GROUP).combine_chunks()
                    held = whole.slice(_GROUP).to_batches()
    if held:
        yield pa.Table.from_batches(held, schema).combine_chunks()
