"""A training set as a file: the same bytes from the same record, and a command that says what it did."""

from __future__ import annotations

import gzip
import hashlib
import json
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from lakehouse.contracts import Table
from lakehouse.errors import HistoryGoneError, UsageError
from lakehouse.features import written
from lakehouse.features.labels import label_file
from lakehouse.features.training import training_set
from lakehouse.features.written import RECORD, read_manifest, write_training_set
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.features import dying
from lakehouse_tests.features.making import FIRST, ZERO, features, publish, stamp
from lakehouse_tests.fixtures.forked import ended

LABELS = 'user,event_time,fraud,note\nb,2024-01-02T12:00:00Z,0,\na,2024-01-02T00:00:00Z,1,"x, y"\na,2024-01-01T23:59:59Z,0,z\n'
DAY = timedelta(days=1)


@pytest.fixture
def shop(lake: LakeFactory, tmp_path: Path) -> tuple[Lake, Table, Path]:
    """A lake beside a file of labels."""
    seen = features()
    made = lake(seen, root=tmp_path / "lake")
    publish(made, seen, FIRST, {"a": 1, "b": 2})
    (tmp_path / "labels.csv").write_text(LABELS)
    return made, seen, tmp_path


def test_the_same_record_makes_the_same_file(shop: tuple[Lake, Table, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a model could not be trained again on what it was trained on, once a day is published anew."""
    made, seen, home = shop
    done = write_training_set(made, home / "labels.csv", home / "one.parquet", features=("gold.seen",))
    assert (done.rows, done.missing) == (3, {"gold.seen": 1})
    rows = pq.read_table(home / "one.parquet").to_pylist()
    assert [(r["user"], r["fraud"], r["note"], r["seen__value"], r["seen__age_seconds"]) for r in rows] == [
        ("a", "0", "z", None, None), ("a", "1", "x, y", 1, 0), ("b", "0", None, 2, 12 * 3600),
    ]  # fmt: skip
    beside = json.loads((home / "one.parquet.json").read_text())
    assert beside["sha256"] == hashlib.sha256((home / "one.parquet").read_bytes()).hexdigest()
    assert json.loads(pq.read_schema(home / "one.parquet").metadata[RECORD.encode()])[RECORD] == beside[RECORD]
    assert beside[RECORD]["versions"] == {"gold.seen": 1}
    assert beside[RECORD]["features"] == ["gold.seen:value", "gold.seen:word"]
    assert beside[RECORD]["labels_sha256"] == hashlib.sha256(LABELS.encode()).hexdigest()

    publish(made, seen, FIRST, {"a": 7, "b": 8})
    made.spark.conf.set("spark.sql.shuffle.partitions", "3")  # another cluster cuts the rows otherwise
    try:
        for source in ("one.parquet.json", "one.parquet"):
            again = read_manifest(home / source)
            write_training_set(made, home / "labels.csv", home / "two.parquet", again=again, replace=True)
            assert (home / "two.parquet").read_bytes() == (home / "one.parquet").read_bytes()
    finally:
        made.spark.conf.set("spark.sql.shuffle.partitions", "2")
    write_training_set(made, home / "labels.csv", home / "two.parquet", features=("gold.seen",), replace=True)
    assert pq.read_table(home / "two.parquet")["seen__value"].to_pylist() == [None, 7, 8]
    assert sorted(p.name for p in home.iterdir() if p.name != "lake") == [
        "labels.csv", "one.parquet", "one.parquet.json", "two.parquet", "two.parquet.json",
    ]  # fmt: skip

    (home / "labels.csv").write_text(LABELS.replace("x, y", "y"))
    with pytest.raises(UsageError, match="not the labels of that training set"):
        write_training_set(made, home / "labels.csv", home / "two.parquet", again=again, replace=True)


def test_a_table_that_was_built_anew_is_not_taken_for_the_one_of_the_record(shop: tuple[Lake, Table, Path]) -> None:
    """Without it, a model would be trained again on other rows: after a change of a column's type, versions begin at 0."""
    made, seen, home = shop
    write_training_set(made, home / "labels.csv", home / "one.parquet", features=("gold.seen",))
    folder = Path(made.path(seen.id))
    folder.rename(home / "away")
    publish(made, seen, FIRST, {"a": 7, "b": 8})
    again = read_manifest(home / "one.parquet.json")
    with pytest.raises(HistoryGoneError, match=r"gold\.seen: .*version 1 of the table with the id .* built anew"):
        write_training_set(made, home / "labels.csv", home / "two.parquet", again=again)
    assert not (home / "two.parquet").exists()

    folder.rename(home / "anew")
    (home / "away").rename(folder)
    write_training_set(made, home / "labels.csv", home / "two.parquet", again=again)
    assert (home / "two.parquet").read_bytes() == (home / "one.parquet").read_bytes()


@pytest.mark.parametrize("as_known_then", [False, True])
def test_a_ttl_that_was_changed_since_is_the_one_of_the_record(
    shop: tuple[Lake, Table, Path], lake: LakeFactory, as_known_then: bool
) -> None:
    """Without it, the file that is made again would hold other rows, and pass for the one of the record."""
    made, seen, home = shop
    for version in (0, 1):
        stamp(made, seen, version, ZERO)
    (home / "labels.csv").write_text("user,event_time\na,2024-01-02T00:00:00Z\na,2024-01-03T12:00:00Z\n")
    told: dict[str, Any] = {"features": ("gold.seen",), "as_known_then": as_known_then}
    write_training_set(made, home / "labels.csv", home / "one.parquet", **told)
    assert json.loads((home / "one.parquet.json").read_text())[RECORD]["ttl_seconds"] == {"gold.seen": 2 * 86400}

    changed = lake(features(ttl=timedelta(hours=1)), root=home / "lake")
    write_training_set(changed, home / "labels.csv", home / "new.parquet", **told)
    assert pq.read_table(home / "new.parquet")["seen__value"].to_pylist() == [1, None]
    again = read_manifest(home / "one.parquet.json")
    write_training_set(changed, home / "labels.csv", home / "two.parquet", again=again)
    assert (home / "two.parquet").read_bytes() == (home / "one.parquet").read_bytes()
    assert pq.read_table(home / "two.parquet")["seen__value"].to_pylist() == [1, 1]


def test_a_record_of_an_earlier_release_makes_its_file(shop: tuple[Lake, Table, Path]) -> None:
    """Without it, records that hold no ids of tables could not be read, or would make a file of other bytes."""
    made, _, home = shop
    write_training_set(made, home / "labels.csv", home / "one.parquet", features=("gold.seen",))
    record = json.loads((home / "one.parquet.json").read_text())
    del record[RECORD]["table_ids"], record[RECORD]["ttl_seconds"]
    (home / "old.json").write_text(json.dumps(record))
    for name in ("two", "three"):
        again = read_manifest(home / ("old.json" if name == "two" else "two.parquet"))
        write_training_set(made, home / "labels.csv", home / f"{name}.parquet", again=again)
    assert (home / "two.parquet").read_bytes() == (home / "three.parquet").read_bytes()
    assert "table_ids" not in json.loads((home / "three.parquet.json").read_text())[RECORD]


def test_row_groups_are_cut_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a file of many parts would differ with how Spark cut it, or lose the rows between two groups."""
    monkeypatch.setattr(written, "_GROUP", 4)
    made = []
    for cut in ([11], [3, 8], [1, 4, 4, 2], [0, 11, 0]):
        first, parts = 0, []
        for number, size in enumerate(cut):
            parts.append(tmp_path / f"part-{number}.parquet")
            column = pa.array(range(first, first + size), pa.int64())
            pq.write_table(
                pa.table({"n": column, "missing": pa.array([i % 2 == 0 for i in range(size)], pa.bool_())}), parts[-1]
            )
            first += size
        missing = {"missing": 0}
        assert written._one_file(parts, {"a": 1}, tmp_path / "whole.parquet", missing) == 11
        whole = pq.ParquetFile(tmp_path / "whole.parquet")
        assert [whole.metadata.row_group(n).num_rows for n in range(whole.num_row_groups)] == [4, 4, 3]
        made.append(whole.read()["n"].to_pylist())
    assert made == [list(range(11))] * 4


def test_labels_are_read_from_what_people_have(shop: tuple[Lake, Table, Path]) -> None:
    """Without it, only one kind of file would be known to work."""
    made, _, home = shop
    rows = pa.table({"user": ["a"], "event_time": pa.array([ZERO + DAY], pa.timestamp("us", "UTC")), "fraud": [True]})
    pq.write_table(rows, home / "labels.parquet")
    write_deltalake(str(home / "delta"), rows)
    (home / "labels.csv.gz").write_bytes(gzip.compress(LABELS.encode("utf-8-sig")))  # as Excel begins a file
    kept = label_file(home / "delta")
    write_deltalake(str(home / "delta"), rows, mode="append")
    held = [kept, *(label_file(home / name) for name in ("labels.parquet", "labels.csv.gz"))]
    assert [each.version for each in held] == [0, None, None]
    assert label_file(home / "delta", 0) == kept != label_file(home / "delta")
    found = []
    for each in held:
        frame = training_set(made, each.read(made.spark), ["gold.seen:value"]).frame
        found.append(sorted(row["seen__value"] or 0 for row in frame.collect()))
    assert found == [[1], [1], [0, 1, 2]]


def test_lines_that_are_no_labels_are_told_with_their_file(shop: tuple[Lake, Table, Path]) -> None:
    """Without it, a line that was cut short would be a label without what it says."""
    made, _, home = shop
    (home / "bad.csv").write_text(LABELS + "a,2024-01-02\nb,2024-01-02,1,n,more\nc,yesterday,1,n\n")
    with pytest.raises(
        UsageError, match=r"bad.csv: of 6 labels, 2 with other fields than the header, 1 whose event_time is"
    ):
        write_training_set(made, home / "bad.csv", home / "out.parquet", features=("gold.seen",))
    assert not list(home.glob("*out.parquet*"))


@pytest.mark.parametrize(
    ("labels", "out", "message"),
    [
        ("none.csv", "out.parquet", "none.csv: there are no labels here"),
        ("labels.txt", "out.parquet", "labels are a CSV or Parquet file, or the folder of a Delta table"),
        ("labels.csv", "lake/out.parquet", "is inside the lakehouse, which this command only reads"),
        ("labels.csv", "out.csv", "a training set is a Parquet file"),
        ("labels.csv", "nowhere/out.parquet", "expected a file's name in a folder that is there"),
        ("empty", "out.parquet", "there are no Parquet files in this folder"),
        ("no.parquet", "out.parquet", "no.parquet cannot be read: "),
        ("nanoseconds.parquet", "out.parquet", 'NANOS.* pandas. to_parquet.*coerce_timestamps="us"'),
        ("twice.csv", "out.parquet", "expected a first line with the columns' names, each once; got 'a, a'"),
    ],
)
def test_places_that_cannot_be_used_are_refused(
    shop: tuple[Lake, Table, Path], labels: str, out: str, message: str
) -> None:
    """Without it, the message would be one of Spark's, after an engine has started."""
    made, _, home = shop
    (home / "labels.txt").write_text(LABELS)
    (home / "twice.csv").write_text("a,a\n1,2\n")
    (home / "no.parquet").write_text("no Parquet at all")
    times = pa.array([0], pa.timestamp("ns", tz="UTC"))
    pq.write_table(pa.table({"user_id": ["a"], "event_time": times}), home / "nanoseconds.parquet")
    (home / "empty").mkdir()
    with pytest.raises(UsageError, match=message):
        write_training_set(made, home / labels, home / out, features=("gold.seen",))


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    """Without it, a file of another kind would end in a traceback."""
    (tmp_path / "x.json").write_text("{}")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    for name in ("x.json", "x.parquet", "none.json"):
        with pytest.raises(UsageError, match="is no record of a training set"):
            read_manifest(tmp_path / name)
    with pytest.raises(UsageError, match=r"none.json is no record of a training set: there is no such file\. Name the"):
        read_manifest(tmp_path / "none.json")  # and not Python's own words for it


def test_what_a_killed_command_left_goes(shop: tuple[Lake, Table, Path]) -> None:
    """Without it, drafts would pile up beside the files."""
    made, _, home = shop
    (home / ".out.parquet.drafts" / "parts").mkdir(parents=True)
    write_training_set(made, home / "labels.csv", home / "out.parquet", features=("gold.seen:value",))
    assert not list(home.glob(".out*"))


def test_two_commands_do_not_write_one_file(shop: tuple[Lake, Table, Path]) -> None:
    """Without it, the second would clear away the rows of the first, which would take those of the second for its own."""
    made, _, home = shop
    labels, out = home / "labels.csv", home / "out.parquet"
    with written._alone(out) as drafts:  # another command
        (drafts / "parts").mkdir()
        with pytest.raises(UsageError, match=r"out\.parquet is being written by another command"):
            write_training_set(made, labels, out, features=("gold.seen",))
        assert (drafts / "parts").is_dir()
    assert write_training_set(made, labels, out, features=("gold.seen",)).rows == 3
    assert not list(home.glob(".out*"))


def test_a_file_that_another_command_has_made_meanwhile_stays(
    shop: tuple[Lake, Table, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, of two commands at one time the later one would replace a file though nobody said so."""
    made, _, home = shop
    labels, out = home / "labels.csv", home / "out.parquet"

    def slow(*given: Any, **named: Any) -> Any:
        out.write_text("of another command")
        return training_set(*given, **named)

    monkeypatch.setattr(written, "training_set", slow)
    with pytest.raises(UsageError, match=r"out\.parquet is there already"):
        write_training_set(made, labels, out, features=("gold.seen",))
    assert out.read_text() == "of another command"
    assert not list(home.glob(".out*"))


def test_the_command_says_what_it_did(
    shop: tuple[Lake, Table, Path], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Without it, a word of the command line could be read by nothing."""
    import lakehouse.catalog
    from lakehouse.cli import app

    made, seen, home = shop
    monkeypatch.setattr(lakehouse.catalog, "lake_with_engine", lambda _: made)
    monkeypatch.chdir(home)

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, ["training-set", "--labels", "labels.csv", *words])

    root = made.settings.root
    before = {each: each.stat().st_mtime_ns for each in root.rglob("*") if each.is_file()}
    done = run("--features", "gold.seen", "--out", "t.parquet")
    assert {each: each.stat().st_mtime_ns for each in root.rglob("*") if each.is_file()} == before, "it only reads"
    assert done.exit_code == 0, done.output
    assert "3 labels in" in done.output
    assert "gold.seen: 2 labels with features, 1 without." in done.output
    then = run("--features", "gold.seen:value", "--as-known-then", "--out", "k.parquet", "--json")
    assert json.loads(then.stdout)["missing"] == {"gold.seen": 3}, "it was published after 2024"
    publish(made, seen, FIRST, {"a": 9})
    assert run("--versions", "t.parquet.json", "--out", "u.parquet").exit_code == 0
    assert (home / "t.parquet").read_bytes() == (home / "u.parquet").read_bytes()
    assert (
        "leave out --features"
        in run("--versions", "t.parquet.json", "--features", "gold.seen", "--out", "u.parquet").output
    )
    assert run("--features", "gold.none", "--out", "n.parquet").exit_code == 2
    assert label_file(home / "labels.csv").version is None
    assert datetime.fromisoformat(pq.read_table("t.parquet")["event_time"][0].as_py().isoformat()).tzinfo


def test_a_file_that_is_there_is_replaced_only_where_that_is_said(shop: tuple[Lake, Table, Path]) -> None:
    """Without it, a slip of a name would take away what a model was trained on, and all that tells how it was made."""
    made, seen, home = shop
    labels, out, record = home / "labels.csv", home / "out.parquet", home / "out.parquet.json"
    write_training_set(made, labels, out, features=("gold.seen",))
    before, again = (out.read_bytes(), record.read_bytes()), read_manifest(record)
    publish(made, seen, FIRST, {"a": 7})
    for more in ({"features": ("gold.seen",)}, {"again": again}):
        with pytest.raises(UsageError, match=r"out\.parquet is there already. .* say --replace"):
            write_training_set(made, labels, out, **more)
    assert (out.read_bytes(), record.read_bytes()) == before
    out.unlink()
    with pytest.raises(UsageError, match=r"out\.parquet\.json is there already"):
        write_training_set(made, labels, out, features=("gold.seen",))
    write_training_set(made, labels, out, again=again)
    assert (out.read_bytes(), record.read_bytes()) == before, "in its own place"
    write_training_set(made, labels, out, features=("gold.seen",), replace=True)
    assert out.read_bytes() != before[0]


@pytest.mark.slow
def test_killed_anywhere_the_file_is_whole_and_the_next_command_fixes_it(tmp_path: Path) -> None:
    """Without it, a model could be trained on half of a file, or on one that says it was made of something else."""
    out = tmp_path / "out.parquet"

    def write(value: int, at: int = 0) -> int:
        return ended(dying.write, out, value, at)[0]

    def held() -> tuple[set[int], int]:
        return set(pq.read_table(out)["value"].to_pylist()), read_manifest(out).versions["gold.seen"]

    assert write(1) == 0
    assert held() == ({1}, 1)
    assert write(2, at=1) == -signal.SIGKILL, "before the file is there"
    assert held() == ({1}, 1)
    assert write(3, at=2) == -signal.SIGKILL, "before the record is beside it"
    assert held() == ({3}, 3)
    assert not (tmp_path / "out.parquet.json").exists(), "that of the older file would be taken for this one's"
    assert write(3) == 0
    assert read_manifest(tmp_path / "out.parquet.json").versions == {"gold.seen": 3}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.parquet", "out.parquet.json"]
