"""The interface to files and folders, on a file system; what each call guarantees is said in the package."""

from __future__ import annotations

import errno
import os
import shutil
import stat as modes
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, NamedTuple

DRAFT = ".tmp"
"""How the hidden names end under which content is written before it has its own."""

_AT_ONCE = 8  # the disk takes several in one go: of 219 files, 50 ms instead of 400
_NO_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES}  # of file systems that have no such thing
# Another file system, no links, none for this user, too many of one file: a copy does as well.
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK}


class Facts(NamedTuple):
    """What a name stands for.

    Attributes:
        size: bytes.
        modified_ns: when the content last changed, nanoseconds since the epoch, as whoever wrote it says.
        changed_ns: when it was last written or renamed, or its times were set, as the system says.
        inode: which file it is in its file system.
        is_file: False for a folder, a pipe and the like.
    """

    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    is_file: bool

    @property
    def modified(self) -> float:
        """`modified_ns` in seconds."""
        return self.modified_ns / 1e9

    @property
    def identity(self) -> tuple[int, int, int]:
        """What tells a file from another that had its name before, as in a folder that was made anew."""
        return self.inode, self.modified_ns, self.size


def stat(path: Path | str) -> Facts | None:
    """The facts of what a name stands for, links followed; None where there is nothing, or a link to nowhere.

    Raises:
        OSError: the system does not say.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - of a path as text: to make objects of thousands costs more than to ask
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        # A link that leads nowhere is as good as no file; any other error must not pass for one.
        if Path(path).is_symlink():  # in a circle, or to where nothing can be read
            return None
        raise
    return _facts(found)


def facts_of(file: BinaryIO) -> Facts:
    """The facts of an opened file, whatever its name stands for by now."""
    return _facts(os.fstat(file.fileno()))


def _facts(found: os.stat_result) -> Facts:
    regular = modes.S_ISREG(found.st_mode)
    return Facts(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, regular)


def exists(path: Path) -> bool:
    """Whether a name stands for anything."""
    return path.exists()


def is_folder(path: Path) -> bool:
    """Whether a name stands for a folder."""
    return path.is_dir()


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a file lies below a folder once all links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def existing_above(path: Path) -> Path:
    """The nearest folder above a path that exists."""
    return next(folder for folder in path.parents if folder.exists())


def names(folder: Path) -> list[str]:
    """The names in a folder, hidden ones too, sorted; none where it does not exist. One request.

    Raises:
        OSError: the folder cannot be listed; it must not pass for an empty one.
    """
    try:
        with os.scandir(folder) as found:
            return sorted(each.name for each in found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    """The files and folders in a folder whose names match a pattern of the shell, sorted; hidden ones match too.

    Raises:
        OSError: the folder cannot be listed.
    """
    return [folder / name for name in names(folder) if fnmatchcase(name, pattern)]


def walk(folder: Path, *, gone_ok: bool = False) -> Iterator[Path]:
    """Every file below a folder, hidden ones too.

    Args:
        folder: where to begin.
        gone_ok: pass over folders that are not there (any more); else they are errors.

    Raises:
        OSError: a folder cannot be listed; it must not pass for an empty one.
    """

    def unlisted(error: OSError) -> None:
        if not (gone_ok and isinstance(error, FileNotFoundError)):
            raise error

    for top, _, found in os.walk(folder, onerror=unlisted):
        yield from (Path(top) / name for name in sorted(found))


def folders_below(folder: Path) -> list[Path]:
    """The folders below a folder, the deepest first."""
    return [Path(top) for top, _, _ in os.walk(folder, topdown=False) if Path(top) != folder]


def read(path: Path) -> bytes:
    """A file's content.

    Raises:
        FileNotFoundError: it is not there.
    """
    return path.read_bytes()


def read_text(path: Path) -> str:
    """A file's content as UTF-8 text.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it is no UTF-8.
    """
    return path.read_text(encoding="utf-8")


def opened(path: Path) -> BinaryIO:
    """A file to read from, for a `with` block.

    Raises:
        FileNotFoundError: it is not there.
    """
    return path.open("rb")


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make a folder and those above it, where they are missing; a private one is its owner's alone."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)


def write(path: Path, content: bytes | str) -> None:
    """Write a file under a name that nobody reads yet: killed anywhere, a part of it may be there."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def put(path: Path, content: bytes | str, *, flush: bool = False, keep_mode: bool = False) -> None:
    """Make content that of a name, new or not, in one step; missing folders are made.

    Args:
        path: the name.
        content: all of it; text as UTF-8.
        flush: the content is on the disk before it gets the name. The name is, once its folder is flushed.
        keep_mode: the file in whose place it comes may be read by whoever could before.

    Raises:
        OSError: the disk did not take it; what was there before still is.
    """
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}{DRAFT}")
    try:
        with draft.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            # Left out where the content can be made again, as of a cache: a flush takes milliseconds.
            if flush:  # before the rename: a power cut could else leave the new name with nothing in it
                file.flush()
                # Content first: a name that is on the disk before its content would be an empty file after a power cut.
                os.fsync(file.fileno())
        if keep_mode:
            draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def put_if_absent(path: Path, content: bytes) -> None:
    """Make content that of a new name in one step; of writers at the same time one succeeds.

    Raises:
        FileExistsError: the name is taken.
        OSError: the disk did not take it; the name stands for nothing.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}{DRAFT}")
    try:
        draft.write_bytes(content)
        _sync(draft)
        # A link fails where a rename would overwrite: this is what makes one of two writers the first.
        os.link(draft, path)
    finally:
        with suppress(OSError):  # the name is there or not, whatever becomes of the draft
            draft.unlink()


def link(old: Path, new: Path) -> None:
    """Give a file a second name in another folder, and make it young; where a file cannot have two, it is copied.

    A name that is there already stays: it is of an attempt that was killed.

    Raises:
        FileNotFoundError: the file is not there any more.
    """
    make_folder(new.parent)
    os.utime(old)  # the age is the file's, not the name's: a vacuum must never see the new name and take it for old
    try:
        with suppress(FileExistsError):
            os.link(old, new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Copied under a hidden name first: a half copy must never have the name that a log refers to.
        draft = new.with_name(f".{new.name}")
        shutil.copyfile(old, draft)
        draft.replace(new)


def move(old: Path, new: Path) -> None:
    """Give a file or folder another name in one step; a file that has the name is replaced, missing folders are made.

    Raises:
        FileNotFoundError: there is nothing to move.
        OSError: the new name is that of a folder which is not empty.
    """
    make_folder(new.parent)
    old.replace(new)


def touch(path: Path) -> None:
    """Make a file as young as now.

    Raises:
        FileNotFoundError: it is not there.
    """
    os.utime(path)


def delete(path: Path) -> None:
    """Delete a file; one that is gone already is no error."""
    path.unlink(missing_ok=True)


def delete_tree(folder: Path, *, strict: bool = False) -> None:
    """Delete a folder and all below it; one that is gone already is no error.

    Args:
        folder: what to delete.
        strict: what cannot be deleted is an error (OSError); else it stays, for whoever tidies up later.
    """
    if not strict or folder.exists():
        shutil.rmtree(folder, ignore_errors=not strict)


def delete_empty_folder(folder: Path) -> None:
    """Delete a folder that has nothing in it.

    Raises:
        OSError: it has, or is not there.
    """
    folder.rmdir()


def fsync(files: Iterable[Path], top: Path | None = None) -> None:
    """Wait until files (or folders: the names in them) are on the disk, and the folders that name them.

    Args:
        files: what was written.
        top: the first folder whose names count, those of the folders between it and a file too; None: no folder's.

    Raises:
        OSError: the disk did not take one.
    """
    paths = set(files)
    above = (folder for path in paths for folder in path.parents)
    folders = {each for each in above if top is not None and (each == top or top in each.parents)}
    # A pool costs more than a handful of calls.
    if len(paths) + len(folders) <= _AT_ONCE:
        for each in [*paths, *folders]:
            _sync(each)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(_sync, [*paths, *folders]))


def fsync_all() -> None:
    """Wait until everything is on the disk, what was deleted too: a power cut brings none of it back."""
    os.sync()


def _sync(path: Path) -> None:
    try:
        # Opened to read: that is enough to flush, and folders cannot be opened otherwise.
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDERS or not path.is_dir():
            raise


def free_bytes(path: Path) -> int:
    """Bytes that are free where a file or folder is, or would be made."""
    there = path if path.exists() else existing_above(path)
    return shutil.disk_usage(there).free
