"""Which way the lines of a file take, and how wide they may be; that both ways give the same rows is in `test_reader`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.contracts import Landing
from lakehouse.settings import Settings
from lakehouse.sources import reader
from lakehouse.sources.landing import landing_files
from lakehouse.sources.probe import probe
from lakehouse.sources.reader import read_lines
from lakehouse_tests.fixtures.jobs import counted_jobs


def test_on_a_cluster_no_large_file_needs_the_python_of_a_worker(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a large file would break the build wherever that Python lacks a package."""
    path = tmp_path / "landing" / "wide" / "2026-03-01.csv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"a\n1\n"))
    landing = Landing("wide", "csv", ("a",))
    monkeypatch.setattr("lakehouse.sources.probe.LARGE", 0)
    monkeypatch.delattr("lakehouse.sources.lines._in_pieces")
    monkeypatch.setattr(reader, "get_settings", lambda: Settings(root=tmp_path, spark_url="spark://there:7077"))
    probes = probe(landing_files(tmp_path, landing), landing)
    assert [row["a"] for row in read_lines(spark, probes, landing, tmp_path, "r", "v").collect()] == ["1"]


def test_a_line_may_have_a_hundred_fields(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, a wide source could be read by an engine in the same process, and by no warm one."""
    fields = tuple(f"field_{n}" for n in range(100))
    path = tmp_path / "landing" / "wide" / "2026-03-01" / "one.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(dict.fromkeys(fields, "x") | {"more": "m"}) + "\n")
    landing = Landing("wide", "jsonl", fields)
    (row,) = read_lines(spark, probe(landing_files(tmp_path, landing), landing), landing, tmp_path, "r", "v").collect()
    assert {row[field] for field in fields} == {"x"}
    assert json.loads(row["_rescued"]) == {"more": "m"}


def test_many_files_are_looked_at_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    """Without it, a task for each file would look at it, again and again: ten times as long as to read them all."""
    folder = tmp_path / "landing" / "many" / "2026-03-01"
    folder.mkdir(parents=True)
    for number in range(2_100):
        (folder / f"{number}.csv").write_text("a\n1\n")
    landing = Landing("many", "csv", ("a",))
    probes = probe(landing_files(tmp_path, landing), landing)
    with counted_jobs(spark) as jobs:
        frame = read_lines(spark, probes, landing, tmp_path, "r", "v")
        assert frame.agg({"a": "count"}).first() == (2_100,)
    assert jobs == [1]
