"""What a power cut finds: the power cannot be cut here, so that what is asked of the disk, and when, is looked at."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lakehouse import store
from lakehouse.delta import commit as door
from lakehouse.delta.commit import append, append_batch, ensure_table, replace_days
from lakehouse.delta.maintenance import Compactable, compact
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.target import Commit
from lakehouse.read import key_index
from lakehouse.store import DRAFT
from lakehouse_tests.faults.doors import MONDAY, SCHEMA, TUESDAY, Target, row, target
from lakehouse_tests.fixtures.making import stage_rows

__all__ = ["target"]

COMMIT = "commit"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and folders that were flushed to the disk, and the commits among them, in order."""
    found: list[str] = []
    flush, commit = os.fsync, door.put_entry

    def fsync(descriptor: int) -> None:
        flush(descriptor)
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def put_entry(*args: object, **kwargs: object) -> int:
        found.append(COMMIT)
        return commit(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(door, "put_entry", put_entry)
    return found


def split(asked: list[str]) -> tuple[set[str], set[str]]:
    """What was flushed before the one commit, and what after it."""
    assert asked.count(COMMIT) == 1
    place = asked.index(COMMIT)
    return set(asked[:place]), set(asked[place + 1 :])


@pytest.mark.parametrize("way", ["replace", "batch", "append"])
def test_files_are_on_the_disk_before_the_log_names_them(target: Target, asked: list[str], way: str) -> None:
    """Without it, a power cut could leave a log that names files which are empty or gone: a table nobody can read."""
    base = open_snapshot(target.path)
    files = stage_rows(target, [row("m", MONDAY), row("t", TUESDAY)])
    if way == "replace":
        version = replace_days(target, base, files, [MONDAY, TUESDAY], Commit({"day/mon": 2}))
    elif way == "batch":
        version = append_batch(target, base, files, Commit({"batch": 1}))
    else:
        version = append(target, files, Commit({"batch": 1}))
    before, after = split(asked)
    assert before >= {str(file.path) for file in files}
    named_by = {folder for file in files for folder in file.path.parents if folder.is_relative_to(target.path)}
    assert before >= {str(folder) for folder in named_by}
    log = target.path / "_delta_log"
    drafts = {path for path in after if path.endswith(DRAFT)}
    assert len(drafts) == 1, "an entry could be cut short, and the table could not be read"
    assert after - drafts == {str(log / f"{version:020}.json"), str(log)}, "an acknowledged commit could be gone"


def test_a_new_table_is_there_to_stay(tmp_path: Path, asked: list[str]) -> None:
    """Without it, the folder of a table, and all that was committed to it, could be missing from the folder above."""
    made = Target(tmp_path / "root" / "tables" / "silver" / "new", SCHEMA, ("day",))
    ensure_table(made)
    log = made.path / "_delta_log"
    above = [folder for folder in log.parents if folder.is_relative_to(tmp_path)]
    assert set(asked) == {str(each) for each in (log / f"{0:020}.json", log, *above)}


def test_merged_files_are_there_to_stay(target: Target, asked: list[str]) -> None:
    """Without it, a power cut after a compaction could take rows that had been safe for months."""
    append(target, stage_rows(target, [row("m2", MONDAY)]), Commit({"batch": 1}))
    asked.clear()
    done = compact(Compactable(target.path, SCHEMA))
    assert done.partitions == 1
    (merged,) = open_snapshot(target.path).by_day("day")[MONDAY]
    before, after = split(asked)
    path, log = target.path / merged.path, target.path / "_delta_log"
    assert before >= {str(path), *(str(each) for each in path.parents if each.is_relative_to(target.path))}
    drafts = {each for each in after if each.endswith(DRAFT)}  # of the entry, on the disk before it has its name
    assert after - drafts == {str(log / f"{done.version:020}.json"), str(log)}


def test_a_checkpoint_is_there_to_stay(target: Target, asked: list[str]) -> None:
    """Without it, a checkpoint that was cut short would end the table, since readers begin there."""
    for number in range(1, 20):
        append(target, stage_rows(target, [row(f"m{number}", MONDAY)]), Commit({"batch": number}))
    log = target.path / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    assert {str(checkpoint), str(log / "_last_checkpoint")} <= set(asked)


def test_an_entry_of_the_key_index_is_whole_or_not_there(tmp_path: Path, asked: list[str]) -> None:
    """Without it, a power cut could leave an entry whose file is empty: an upsert would put a key into a second day."""

    class Frame:
        """Stands in for the engine, which writes one file."""

        @property
        def write(self) -> Frame:
            return self

        def coalesce(self, _: int) -> Frame:
            return self

        def options(self, **_: str) -> Frame:
            return self

        def parquet(self, path: str) -> None:
            Path(path).mkdir(parents=True)
            (Path(path) / "part-0.parquet").write_bytes(b"PAR1")

    key_index._write(Frame(), tmp_path, {"day=2026-03-02/a.parquet"}, 1)  # type: ignore[arg-type]
    (entry,) = tmp_path.iterdir()
    draft = tmp_path / f".{entry.name}"
    assert set(asked) == {str(each) for each in (draft, draft / "part-0.parquet", draft / "_files.json")}


def test_a_disk_that_refuses_is_no_success(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, what the disk has lost would be committed, or a file system without flushed folders be of no use."""
    base, flush, refused = open_snapshot(target.path), os.fsync, [errno.EIO]

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if refused == [errno.EIO] and path.suffix == ".parquet":
            raise OSError(errno.EIO, "lost")
        if refused == [errno.EINVAL] and path.is_dir():
            raise OSError(errno.EINVAL, "no such thing")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    files = stage_rows(target, [row("m", MONDAY)])
    with pytest.raises(OSError, match="lost"):
        replace_days(target, base, files, [MONDAY], Commit({"day/mon": 2}))
    assert open_snapshot(target.path).version == base.version
    refused[:] = [errno.EINVAL]
    assert replace_days(target, base, files, [MONDAY], Commit({"day/mon": 2})) == base.version + 1
    store.fsync([], target.path)
