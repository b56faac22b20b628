"""The one door to files at rest: what each call promises, with the real file system, and with one that refuses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lakehouse
from lakehouse import store


def refusing(code: int) -> Callable[..., Any]:
    """An operation that fails with an error of the system."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return refused


def test_of_many_writers_of_a_name_one_succeeds(tmp_path: Path) -> None:
    """Without it, a commit that somebody was told of could be overwritten by another."""

    def attempt(number: int) -> int | None:
        try:
            store.put_if_absent(tmp_path / "entry.json", f"{number}".encode() * 10_000)
        except FileExistsError:
            return None
        return number

    with ThreadPoolExecutor(16) as pool:
        winners = [number for number in pool.map(attempt, range(64)) if number is not None]
    assert len(winners) == 1
    assert store.read(tmp_path / "entry.json") == f"{winners[0]}".encode() * 10_000
    assert store.names(tmp_path) == ["entry.json"], "no draft is left"


@pytest.mark.parametrize("operation", ["fsync", "link"])
def test_a_name_that_could_not_be_put_stands_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Without it, a full disk would leave half an entry, and no writer could use its number again."""
    monkeypatch.setattr(os, operation, refusing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        store.put_if_absent(tmp_path / "entry.json", b"x")
    assert store.names(tmp_path) == []


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_what_was_there_stays_where_its_successor_could_not_be_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Without it, a full disk would take the old content, or leave drafts behind."""
    path = tmp_path / "made" / "by it" / "state.json"
    store.put(path, "old")
    monkeypatch.setattr(os, operation, refusing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        store.put(path, "new", flush=True)
    assert store.read_text(path) == "old"
    assert store.names(path.parent) == ["state.json"]


KILLED = """
import os, sys
from pathlib import Path
from lakehouse import store
setattr(os, sys.argv[2], lambda *a, **k: os._exit(9))
put = store.put_if_absent if sys.argv[3] == "absent" else store.put
put(Path(sys.argv[1]), b"new", **({} if sys.argv[3] == "absent" else {"flush": True}))
"""


@pytest.mark.parametrize(
    ("operation", "how"), [("fsync", "absent"), ("link", "absent"), ("fsync", "put"), ("replace", "put")]
)
def test_a_kill_leaves_a_hidden_draft_at_most(tmp_path: Path, operation: str, how: str) -> None:
    """Without it, readers could find a part of a file under the name that they look for."""
    path = tmp_path / "state.json"
    if how == "put":
        store.put(path, "old")
    command = [sys.executable, "-c", KILLED, str(path), operation, how]
    assert subprocess.run(command, check=False, cwd=Path(lakehouse.__file__).parents[1]).returncode == 9
    assert (store.read_text(path) if how == "put" else store.stat(path)) == ("old" if how == "put" else None)
    drafts = [name for name in store.names(tmp_path) if name != "state.json"]
    assert [(name[0], name.endswith(store.DRAFT)) for name in drafts] == [(".", True)]
    store.put(path, "new")
    assert store.read_text(path) == "new"


@pytest.mark.parametrize("links", [True, False])
def test_a_second_name_outlives_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Without it, a restore would lose its files to the vacuum that takes the first names."""
    old, new = tmp_path / "old.parquet", tmp_path / "again" / "new.parquet"
    store.write(old, b"rows")
    os.utime(old, (0, 0))
    if not links:
        monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    for _ in range(2):  # an attempt that was killed has named it already
        store.link(old, new)
    store.delete(old)
    store.delete(old)
    assert store.read(new) == b"rows"
    found = store.stat(new)
    assert found is not None
    assert found.modified > 0, "a vacuum takes old files"
    with pytest.raises(FileNotFoundError):
        store.link(old, tmp_path / "third")


def test_a_link_that_fails_for_another_reason_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a full disk would be asked for a copy."""
    store.write(tmp_path / "old", b"rows")
    monkeypatch.setattr(os, "link", refusing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        store.link(tmp_path / "old", tmp_path / "new")
    assert store.names(tmp_path) == ["old"]


def test_a_folder_that_cannot_be_listed_does_not_pass_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, rows would be left out of a commit, or a file that names a person not be searched."""
    store.put(tmp_path / "a" / "b" / "file", "x")
    assert list(store.walk(tmp_path)) == [tmp_path / "a" / "b" / "file"]
    assert store.names(tmp_path / "none") == store.listed(tmp_path / "none") == []
    assert list(store.walk(tmp_path / "none", gone_ok=True)) == []
    with pytest.raises(FileNotFoundError):
        list(store.walk(tmp_path / "none"))
    monkeypatch.setattr(os, "scandir", refusing(errno.EACCES))
    for listing in (store.names, store.listed, store.walk):
        with pytest.raises(PermissionError):
            list(listing(tmp_path))
    with pytest.raises(PermissionError):
        list(store.walk(tmp_path, gone_ok=True))


def test_what_a_name_stands_for(tmp_path: Path) -> None:
    """Without it, a link in a circle would stop a listing, or a file made anew pass for the old one."""
    path, folder, circle = tmp_path / "file", tmp_path / "folder", tmp_path / "circle"
    store.write(path, "four")
    store.make_folder(folder)
    circle.symlink_to(circle)
    found, other = store.stat(path), store.stat(folder)
    assert found is not None
    assert other is not None
    assert (found.size, found.is_file, other.is_file) == (4, True, False)
    assert store.stat(circle) is store.stat(tmp_path / "none") is store.stat(path / "below a file") is None
    with store.opened(path) as file:
        assert store.facts_of(file) == found
    store.put(path, "five")
    again = store.stat(path)
    assert again is not None
    assert again.identity != found.identity
    assert store.is_inside(path, tmp_path)
    (folder / "link").symlink_to(path)
    assert not store.is_inside(folder / "link", folder)


def test_a_tree_that_cannot_be_deleted_is_told_only_to_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a candidate would count as dropped while its files are there."""
    store.put(tmp_path / "tree" / "file", "x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refusing(errno.EIO))
        store.delete_tree(tmp_path / "tree")
        with pytest.raises(OSError, match="Input/output"):
            store.delete_tree(tmp_path / "tree", strict=True)
    store.delete_tree(tmp_path / "tree", strict=True)
    store.delete_tree(tmp_path / "tree", strict=True)
    assert store.names(tmp_path) == []
