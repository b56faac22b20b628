"""The jars Spark needs beyond those pyspark ships: named in `ivy.xml`, locked by checksum, fetched once per machine.

`python -m lakehouse.spark.jars [DIR]` fetches them; `--relock` resolves `ivy.xml` anew and rewrites `jars.lock`.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from lakehouse.errors import EngineError, LakehouseError
from lakehouse.settings import get_settings

IVY_FILE = Path(__file__).with_name("ivy.xml")
LOCK_FILE = Path(__file__).with_name("jars.lock")
MIN_JAVA = 17
INSTALL_JAVA = (
    f"Install a Java {MIN_JAVA} runtime (Debian, Ubuntu: apt-get install openjdk-{MIN_JAVA}-jre-headless; "
    f"macOS: brew install openjdk@{MIN_JAVA}) and put it on PATH or in JAVA_HOME."
)

_FETCH_SECONDS = 900
_LOCK_HEADER = "# sha256, bytes, file. Written by `make lock` from ivy.xml.\n"
_VERSIONED = re.compile(r"^(?P<artifact>.+?)-(?P<version>\d[^-]*(-.*)?)\.jar$")

_log = logging.getLogger(__name__)

Retrieve = Callable[[Path, Path], None]
"""Puts the jars of `ivy.xml` into its first argument, keeping its downloads in the second."""


@dataclass(frozen=True)
class Jar:
    """One line of `jars.lock`; `size` is in bytes."""

    sha256: str
    size: int
    name: str

    def problem(self, folder: Path, *, verify: bool) -> str | None:
        """What is wrong with this jar in a folder, or None; its checksum is read only with `verify`."""
        path = folder / self.name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return f"{path} is missing"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if size != self.size:
            return f"{path} is damaged: expected {self.size} bytes, got {size}"
        if verify and (digest := _sha256(path)) != self.sha256:
            return f"{path} is not the locked file: expected sha256 {self.sha256}, got {digest}"
        return None


def locked_jars(lock: Path = LOCK_FILE) -> tuple[Jar, ...]:
    """The jars of a lock file, in its order."""
    lines = (line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#"))
    return tuple(Jar(digest, int(size), name) for digest, size, name in lines)


def default_jars_dir(lock: Path = LOCK_FILE) -> Path:
    """A folder in the user's cache that every clone with the same `jars.lock` shares."""
    return Path.home() / ".cache" / "lakehouse" / "jars" / _sha256(lock)[:12]


def jar_problems(jars_dir: Path, *, verify: bool = True, lock: Path = LOCK_FILE) -> list[str]:
    """One sentence for each locked jar that is missing from the folder or is not the locked file.

    Args:
        jars_dir: the folder.
        verify: compare the content too, not the size alone.
        lock: the list of jars.
    """
    return [problem for jar in locked_jars(lock) if (problem := jar.problem(jars_dir, verify=verify))]


def ensure_jars(
    jars_dir: Path | None = None, *, verify: bool = False, lock: Path = LOCK_FILE, retrieve: Retrieve | None = None
) -> list[Path]:
    """The paths of the locked jars, fetched first where any is missing; several processes may call it at once.

    Args:
        jars_dir: Where the jars are kept; None is `default_jars_dir(lock)`. Other files in it are left alone.
        verify: Also read every checksum (about 0.02 s) instead of only the sizes.
        lock: The lock file.
        retrieve: What fetches the jars; Ivy by default.

    Raises:
        EngineError: Java is missing, a download failed, what came is not what the lock file names, or the folder
            cannot be written.
    """
    jars_dir = (jars_dir or default_jars_dir(lock)).expanduser().absolute()
    jars = locked_jars(lock)
    if problems := jar_problems(jars_dir, verify=verify, lock=lock):
        try:
            jars_dir.mkdir(parents=True, exist_ok=True)
            with FileLock(jars_dir / ".lock"):
                # Whoever waited for the lock usually finds the work done.
                if jar_problems(jars_dir, verify=verify, lock=lock):
                    _fetch(jars, jars_dir, retrieve or retrieve_with_ivy)
        except OSError as error:
            raise EngineError(
                f"{problems[0]}, and no jar can be put into {jars_dir}: {error.strerror}. Make it writable, or "
                "set LAKEHOUSE_JARS_DIR to one that is."
            ) from None
    return [jars_dir / jar.name for jar in jars]


def locked_jar(artifact: str, jars_dir: Path) -> Path:
    """Where a jar of the lock file is, or will be once it is fetched; nothing is looked at but the lock file."""
    return jars_dir.expanduser().absolute() / next(j.name for j in locked_jars() if j.name.startswith(f"{artifact}-"))


def retrieve_with_ivy(target: Path, home: Path, ivy_file: Path = IVY_FILE) -> None:
    """Resolve an `ivy.xml` with the Ivy that pyspark ships.

    Args:
        target: Folder for the jars.
        home: Folder for what was downloaded.
        ivy_file: What is wanted; the `jars.lock` beside it lists all of it.

    Raises:
        EngineError: Java is missing, or Ivy could not resolve or download something.
    """
    if problem := java_home_problem():
        raise EngineError(problem)
    ivy = next(_pyspark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise EngineError(f"No ivy-*.jar in {_pyspark_jars()}: this pyspark is incomplete. Reinstall it (make setup).")
    command = [
        java_command(),
        "-Xmx256m",
        f"-Divy.default.ivy.user.dir={home}",
        "-jar",
        str(ivy),
        "-ivy",
        str(ivy_file),
    ]
    command += ["-confs", "*", "-types", "jar", "bundle", "-retrieve", "[artifact]-[revision].[ext]"]
    target.mkdir(parents=True, exist_ok=True)
    try:
        # Run inside the target: Ivy would read brackets of its path as a pattern.
        done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise EngineError(f"Fetching jars took more than {_FETCH_SECONDS} s. {_by_hand(ivy_file)}") from None
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if _IVY_COMPLAINT.search(line)]
        raise EngineError("Ivy could not fetch the jars. " + _by_hand(ivy_file) + "\n  " + "\n  ".join(said[-12:]))


def _by_hand(ivy_file: Path) -> str:
    part = "" if ivy_file == IVY_FILE else f" (its folder `{ivy_file.parent.name}`)"
    return (
        "Check the network (Java takes a proxy from JAVA_TOOL_OPTIONS), or copy the files named in "
        f"{ivy_file.with_name(LOCK_FILE.name)} into a folder and set LAKEHOUSE_JARS_DIR to it{part}."
    )


_IVY_COMPLAINT = re.compile(r"not found|failed|ERROR|WARN|UNRESOLVED|exception|refused|timed out", re.IGNORECASE)


def java_version() -> int | None:
    """The major version of the Java that Spark would start, or None where there is none that runs."""
    try:
        done = subprocess.run([java_command(), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found and not done.returncode else None


def java_home_problem() -> str | None:
    """Why Spark could not start Java, with how to fix it, or None where all is well."""
    home = os.environ.get("JAVA_HOME")
    version = java_version()
    where = f"JAVA_HOME={home}" if home else "PATH"
    if version is None:
        return f"No working Java found in {where}: Spark needs {MIN_JAVA} or newer. {INSTALL_JAVA}"
    if version < MIN_JAVA:
        return f"Java {version} found in {where}: Spark needs {MIN_JAVA} or newer. {INSTALL_JAVA}"
    return None


def relock(
    lock: Path = LOCK_FILE, retrieve: Retrieve = retrieve_with_ivy, *, beside_spark: bool = True
) -> tuple[Jar, ...]:
    """Resolve `ivy.xml` and write the lock file.

    Args:
        lock: The file.
        retrieve: What resolves.
        beside_spark: The jars are put beside Spark's: those whose artifact pyspark ships are left out.
    """
    shipped = {_artifact(path.name) for path in _pyspark_jars().glob("*.jar")} if beside_spark else set()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "jars")
        retrieve(target, Path(folder, "ivy"))
        kept = sorted(path for path in target.glob("*.jar") if _artifact(path.name) not in shipped)
        jars = tuple(Jar(_sha256(path), path.stat().st_size, path.name) for path in kept)
    lock.write_text(_LOCK_HEADER + "".join(f"{jar.sha256} {jar.size} {jar.name}\n" for jar in jars))
    return jars


def _fetch(jars: Sequence[Jar], jars_dir: Path, retrieve: Retrieve) -> None:
    """Fetch into a folder beside the jars, verify all, then move each into place with one rename."""
    _log.info("Fetching %d jars (%.0f MB) into %s", len(jars), sum(jar.size for jar in jars) / 1e6, jars_dir)
    # Kept after a failed download, so that the next try fetches only the rest.
    home = jars_dir / ".ivy"
    for killed in jars_dir.glob(".fetch-*"):  # the lock is ours, so nobody is filling it
        shutil.rmtree(killed, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=jars_dir) as folder:
        target = Path(folder)
        retrieve(target, home)
        wrong = [problem for jar in jars if (problem := jar.problem(target, verify=True))]
        shutil.rmtree(home, ignore_errors=True)
        if wrong:
            advice = f"Nothing was installed. If {IVY_FILE.name} was changed on purpose, run: make lock"
            raise EngineError("The fetched jars are not those of jars.lock. " + "; ".join(wrong) + ". " + advice)
        for jar in jars:
            (target / jar.name).replace(jars_dir / jar.name)


def java_command() -> str:
    """The Java that Spark's own launcher would choose."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _pyspark_jars() -> Path:
    spec = find_spec("pyspark")  # finds the package without importing it
    if spec is None or not spec.submodule_search_locations:
        raise EngineError("pyspark is not installed. Run: make setup")
    return Path(spec.submodule_search_locations[0], "jars")


def _artifact(file: str) -> str:
    found = _VERSIONED.match(file)
    return found["artifact"] if found else file


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch or re-lock the jars; 0 on success, 3 where it could not be done."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse.spark.jars", description="Fetch the engine's jars.")
    parser.add_argument("dir", nargs="?", type=Path, help="folder to fetch into (default: LAKEHOUSE_JARS_DIR or cache)")
    parser.add_argument("--verify", action="store_true", help="read every checksum, also of jars already there")
    parser.add_argument("--relock", action="store_true", help="resolve ivy.xml anew and rewrite jars.lock instead")
    options = parser.parse_args(arguments)
    try:
        if options.relock:
            sys.stdout.write("".join(f"{jar.name}\n" for jar in relock()))
            return 0
        jars = ensure_jars(options.dir or get_settings().jars_dir, verify=options.verify)
    except LakehouseError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    sys.stdout.write(f"{len(jars)} jars in {jars[0].parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
