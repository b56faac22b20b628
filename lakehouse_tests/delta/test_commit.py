"""The one door: what it commits, what it refuses by name, and that a refusal changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.target import Commit, Target
from lakehouse.errors import SchemaMismatchError, StagedFileError, UnsupportedTableError
from lakehouse_tests.faults.doors import MONDAY, SCHEMA, TUESDAY, WEDNESDAY, entry, ids, row, target
from lakehouse_tests.fixtures.making import rows_of, stage_rows

__all__ = ["target"]


def test_a_replaced_day_is_replaced_whole_and_no_other(target: Target) -> None:
    """Without it, a second run could add its rows to the first's, or touch a neighbouring day."""
    before = {file.path for file in open_snapshot(target.path).by_day("day")[TUESDAY]}
    files = stage_rows(target, [row("m2", MONDAY), row("m3", MONDAY), row("w", WEDNESDAY)])
    replace_days(target, open_snapshot(target.path), files, [MONDAY, WEDNESDAY], Commit())
    assert ids(target) == ["m2", "m3", "t", "w"]
    assert {file.path for file in open_snapshot(target.path).by_day("day")[TUESDAY]} == before
    assert ids(target, 1) == ["m", "t"], "the version before stays readable"


def test_a_day_without_files_becomes_empty(target: Target) -> None:
    """Without it, the rows of a day whose source has been withdrawn would stay for good."""
    assert replace_days(target, open_snapshot(target.path), [], [MONDAY, WEDNESDAY], Commit({"day/mon": 2})) == 2
    assert ids(target) == ["t"]
    assert open_snapshot(target.path).transaction("day/mon") == 2
    assert open_snapshot(target.path).rows_by_day("day") == {TUESDAY: 1}


def test_one_commit_says_what_was_done(target: Target) -> None:
    """Without it, data, fingerprint and history could come apart: a crash between them would repeat or lose a run."""
    actions = entry(target, 1)
    (info,) = [a["commitInfo"] for a in actions if "commitInfo" in a]
    assert info["note"] == "first"
    assert next(a["txn"] for a in actions if "txn" in a)["appId"] == "day/mon"
    adds = [a["add"] for a in actions if "add" in a]
    assert {each["partitionValues"]["day"] for each in adds} == {"2026-03-02", "2026-03-03"}
    assert all(each["dataChange"] for each in adds)
    for each in adds:
        assert each["size"] == (target.path / each["path"]).stat().st_size
    assert DeltaTable(str(target.path)).metadata().description == "Sales"


def test_personal_data_has_no_statistics(target: Target) -> None:
    """Without it, the smallest and largest token of each file would stand in the log in plain text."""
    for each in (a["add"] for a in entry(target, 1) if "add" in a):
        stats = json.loads(each["stats"])
        assert "email_token" not in str(stats)
        assert stats["minValues"]["n"] == 0
        assert stats["nullCount"]["n"] == 0


def _gone(target: Target) -> Any:
    files = stage_rows(target, [row("x", MONDAY)])
    files[0].path.unlink()
    return files


def _short(target: Target) -> Any:
    files = stage_rows(target, [row("x", MONDAY)])
    files[0].path.write_bytes(files[0].path.read_bytes()[:-1])
    return files


def _other_day(target: Target) -> Any:
    return stage_rows(target, [row("x", MONDAY), row("y", WEDNESDAY)])


def _no_day(target: Target) -> Any:
    return stage_rows(target, [row("x", MONDAY), {**row("y", MONDAY), "day": None}])


def _null_id(target: Target) -> Any:
    return stage_rows(target, [{**row("x", MONDAY), "id": None}])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (_gone, "is gone; nothing was committed. A vacuum"),
        (_short, r"has \d+ bytes instead of \d+; nothing was committed"),
        (_other_day, "its day is 2026-03-04, outside the days being replaced"),
        (_no_day, "its day is None, outside the days being replaced"),
        (_null_id, r"nulls in column\(s\) that must have none: id \(1\)"),
    ],
)
def test_files_that_must_not_be_committed_are_refused(
    target: Target, files: Callable[[Target], Any], message: str
) -> None:
    """Without it, delta-rs, which validates nothing, would commit a missing, cut or foreign file."""
    with pytest.raises(StagedFileError, match=message):
        replace_days(target, open_snapshot(target.path), files(target), [MONDAY], Commit())
    assert open_snapshot(target.path).version == 1
    assert ids(target) == ["m", "t"]


@pytest.mark.parametrize(
    ("name", "dtype", "value", "message"),
    [
        ("n", T.IntegerType(), 1, "n is INT32"),
        ("n", T.StringType(), "1", "n is String"),
        ("n", T.DoubleType(), 1.0, "n is DOUBLE"),
        ("amount", T.DecimalType(18, 4), Decimal("1.5000"), r"amount is Decimal\(precision=18, scale=4\)"),
        ("amount", T.DecimalType(19, 2), Decimal("1.50"), r"amount is Decimal\(precision=19, scale=2\)"),
        ("at", T.TimestampNTZType(), datetime(2026, 3, 2), r"at is Timestamp\(isAdjustedToUTC=false"),  # noqa: DTZ001
        ("at", T.LongType(), 1, "at is INT64"),
        ("id", T.BinaryType(), b"x", "id is BYTE_ARRAY"),
        ("id", T.ArrayType(T.StringType()), ["x"], "id is missing"),
        ("id", None, None, "id is missing"),
        ("more", T.StringType(), "x", "more is not in the contract"),
    ],
)
def test_a_file_of_other_columns_is_refused_by_column(
    target: Target, name: str, dtype: T.DataType | None, value: Any, message: str
) -> None:
    """Without it, the table would fail in every reader, at some later time, with an error that names no writer."""
    kept = [f for f in SCHEMA.fields if f.name != name]
    other = Target(target.path, T.StructType([*kept, T.StructField(name, dtype)] if dtype else kept), ("day",))
    files = stage_rows(other, [row("x", MONDAY, **{name: value})])
    with pytest.raises(SchemaMismatchError, match=message):
        replace_days(target, open_snapshot(target.path), files, [MONDAY], Commit())
    assert ids(target) == ["m", "t"]


def test_what_staging_adds_may_stay_in_the_file(target: Target) -> None:
    """Without it, provenance columns, empty in valid rows, would force a second write."""
    other = Target(target.path, T.StructType([*SCHEMA.fields, T.StructField("_raw", T.StringType())]), ("day",))
    replace_days(target, open_snapshot(target.path), stage_rows(other, [row("x", MONDAY)]), [MONDAY], Commit())
    assert ids(target) == ["t", "x"]
    assert "_raw" not in rows_of(target.path)[0]


FEATURES = {
    "deletionVectors": (("deletionVectors",), {"delta.enableDeletionVectors": "true"}),
    "columnMapping": (("columnMapping",), {"delta.columnMapping.mode": "name"}),
    "changeDataFeed": (("changeDataFeed",), {"delta.enableChangeDataFeed": "true"}),
    "rowTracking": (("rowTracking", "domainMetadata"), {"delta.enableRowTracking": "true"}),
    "checkConstraints": (("checkConstraints",), {"delta.constraints.positive": "n > 0"}),
    "generatedColumns": (("generatedColumns",), {}),
    "identityColumns": (("identityColumns",), {}),
    "clustering": (("clustering", "domainMetadata"), {}),
    "typeWidening": (("typeWidening",), {}),
    "allowColumnDefaults": (("allowColumnDefaults",), {}),
    "icebergCompatV2": (("icebergCompatV2",), {}),
}


def _foreign(
    path: Path, protocol: Mapping[str, Any], configuration: Mapping[str, str], column: Mapping[str, Any]
) -> None:
    """The log of an empty table that another writer made."""
    (path / "_delta_log").mkdir(parents=True)
    field = {"name": "id", "type": "string", "nullable": True, "metadata": column}
    metadata = {
        "id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
        "schemaString": json.dumps({"type": "struct", "fields": [field]}), "configuration": configuration,
    }  # fmt: skip
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
    (path / "_delta_log" / f"{0:020}.json").write_text("\n".join(lines))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_table_with_features_that_whole_file_commits_break_is_refused(tmp_path: Path, feature: str) -> None:
    """Without it, deleted rows would come back, or a change feed would miss changes, without an error anywhere."""
    features, configuration = FEATURES[feature]
    path = tmp_path / "foreign"
    reader = [each for each in features if each in {"deletionVectors", "columnMapping", "typeWidening"}]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": [*features]}
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    _foreign(path, protocol, configuration, mapped if feature == "columnMapping" else {})
    schema = T.StructType([T.StructField("id", T.StringType())])
    with pytest.raises(UnsupportedTableError, match=f"foreign uses .*{feature}"):
        ensure_table(Target(path, schema, ()))


@pytest.mark.parametrize(
    ("configuration", "metadata", "feature"),
    [
        ({"delta.enableChangeDataFeed": "true"}, {}, "changeDataFeed"),
        ({"delta.constraints.positive": "n > 0"}, {}, "checkConstraints"),
        ({}, {"delta.generationExpression": "1 + 1"}, "generatedColumns"),
        ({}, {"delta.invariants": '{"expression": {"expression": "id > 0"}}'}, "invariants"),
    ],
)
def test_old_protocols_do_not_hide_what_a_table_uses(
    tmp_path: Path, configuration: dict[str, str], metadata: dict[str, str], feature: str
) -> None:
    """Without it, a table of an older writer, whose log lists no features, would be written to all the same."""
    _foreign(tmp_path / "old", {"minReaderVersion": 1, "minWriterVersion": 4}, configuration, metadata)
    with pytest.raises(UnsupportedTableError, match=f"old uses {feature}"):
        open_snapshot(tmp_path / "old")
    _foreign(tmp_path / "plain", {"minReaderVersion": 1, "minWriterVersion": 4}, {}, {})
    assert open_snapshot(tmp_path / "plain").version == 0
