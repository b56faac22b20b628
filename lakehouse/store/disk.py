"""Who may read what is made under a root."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def private_umask(root: Path) -> int:
    """The umask for what is made under a root: nobody but its owner reads it.

    A root that was opened to its group and to nobody else (`chmod 750` or `770`) keeps what the group has.
    """
    try:
        mode = root.stat().st_mode
    except OSError:  # not there yet: it will be its owner's alone
        return 0o077
    return 0o077 if mode & 0o007 else 0o077 & ~(mode & 0o070)


def keep_private(root: Path) -> None:
    """Make whatever this process and those it starts make from now on readable to whom the root is, and nobody else."""
    os.umask(private_umask(root))


def keep_group(folder: Path) -> None:
    """Give what an engine made in a folder to the group that what is made there belongs to, where a team shares it.

    Folders hand their group on by their setgid bit. Hadoop sets the mode of each folder that it makes, without the bit,
    so that what is below belongs to the group of whoever runs the engine, and nobody else could read it.

    Args:
        folder: made by an engine, as those above it may be; all below is looked at.
    """
    above = next((each for each in folder.parents if each.is_dir() and each.stat().st_mode & stat.S_ISGID), None)
    if above is None:
        return
    group = above.stat().st_gid
    between = [each for each in folder.parents if above in each.parents]
    for path in (*between, folder, *folder.rglob("*")):
        found = path.lstat()
        with suppress(PermissionError):  # somebody else's, as where a cluster has a user of its own
            if found.st_gid != group:
                os.chown(path, -1, group, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_ISGID:
                path.chmod(stat.S_IMODE(found.st_mode) | stat.S_ISGID)


def keep_leftovers(folder: Path) -> tuple[Path, str] | None:
    """Give the group what killed runs of this user have left in a shared folder: `keep_group` came too late.

    Args:
        folder: in which each run makes a folder of its own.

    Returns:
        The first folder of another user that cannot be looked into, and the user; None where there is none.
    """
    if not (folder.is_dir() and folder.stat().st_mode & stat.S_ISGID):
        return None
    for left in sorted(folder.iterdir()):
        with suppress(FileNotFoundError):  # of a run that is on
            found = left.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_mode & stat.S_ISGID:
                continue  # given to the group once it was whole
            if found.st_uid == os.geteuid():
                keep_group(left)
            elif closed := _closed(left):
                return closed, _owner(left)
    return None


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:  # as in a container
        return f"uid {path.stat().st_uid}"


def _closed(folder: Path) -> Path | None:
    """The first folder from this one down that may not be listed."""
    failed: list[OSError] = []
    for _ in os.walk(folder, onerror=failed.append):
        pass
    return next((Path(each.filename) for each in failed if isinstance(each, PermissionError)), None)


def root_problem(root: Path) -> str:
    """Why there cannot be a lakehouse at a root, in words; empty where there is one, or can be. Nothing is left there.

    Args:
        root: there or not.
    """
    try:
        there = next(each for each in (root, *root.parents) if each.exists())
        if not there.is_dir():
            return f"{there} is a file, where a folder was expected"
        if there == root:
            return "" if os.access(root, os.R_OK | os.X_OK) else f"{root}: permission denied"
        # Tried, not asked: a folder of the system's own, or on a disk that is read-only, refuses what its mode allows.
        Path(tempfile.mkdtemp(prefix=".lakehouse-", dir=there)).rmdir()
    except OSError as error:
        return f"{root} cannot be made: {os.strerror(error.errno or 0).lower()}"
    return ""
