"""`lakehouse doctor`: is everything here that a run needs, and how is it fixed where it is not?"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated

import typer
from rich.text import Text

from lakehouse import store
from lakehouse.commands.command import Command, examples
from lakehouse.commands.console import AsJson, console, engine_output_aside, print_json, say, table
from lakehouse.commands.operate.doctor_engine import works
from lakehouse.commands.operate.doctor_lake import known_tables, landed_files, lineage, tidiness
from lakehouse.commands.operate.doctor_remote import (
    ProblemError,
    answers,
    dagster,
    databases,
    redis,
    topics,
    workers,
)
from lakehouse.errors import CHECKS_FAILED, LakehouseError
from lakehouse.online.address import has_redis
from lakehouse.servers.ports import HERE, is_free
from lakehouse.settings import Settings, get_settings
from lakehouse.spark.archive import is_usable
from lakehouse.spark.config import jars_dir
from lakehouse.spark.jars import INSTALL_JAVA, jar_problems, java_home_problem, java_version, locked_jars
from lakehouse.spark.options import archive_path
from lakehouse.store.disk import root_problem
from lakehouse.texts import counted

MIN_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """One thing looked at: all right or not, what was found, and how to fix it."""

    check: str
    ok: bool
    found: str
    fix: str = ""


class _Doctor(Command):
    """What is wrong with the root is one of its findings."""

    looks_at_root = False


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor", cls=_Doctor, epilog=examples("lakehouse doctor", "lakehouse doctor --no-engine --json"))(
        doctor
    )


def doctor(
    *,
    engine: Annotated[
        bool, typer.Option("--engine/--no-engine", help="Also start the engine and write a table.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check Python, Java, jars, packages, folders, keys, the port, databases, brokers, Redis and the engine."""
    findings = list(examine(engine=engine))
    if as_json:
        print_json([asdict(each) for each in findings])
    else:
        marks = [Text("ok", style="green") if each.ok else Text("problem", style="bold red") for each in findings]
        rows = [(mark, each.check, each.found) for mark, each in zip(marks, findings, strict=True)]
        console().print(table(("", "check", "found"), rows))
        for each in findings:
            if each.fix:
                say(f"{each.check}: {each.fix}")
    raise typer.Exit(0 if all(each.ok for each in findings) else CHECKS_FAILED)


def examine(*, engine: bool = True) -> Iterator[Finding]:
    """Look at everything in turn; the engine only where what it needs is there."""
    yield _finding("python", _python)
    try:
        settings = get_settings()
    except LakehouseError as error:
        yield Finding("settings", ok=False, found=str(error), fix="Correct the variable, or remove it.")
        return
    yield Finding("settings", ok=True, found=f"root {settings.root}, engine {settings.engine_name}")
    needed = list(_needed(settings, engine=engine))
    yield from needed
    yield _finding("privacy", partial(_privacy, settings))
    yield _finding("pii key", partial(_pii_key, settings))
    yield _finding("port", partial(_port, settings))
    if needed[0].ok:  # else there is nothing to read logs with
        yield from _of_lake(settings)
    if engine and all(each.ok for each in needed):
        with engine_output_aside(settings):
            found = _finding("engine", partial(works, settings))
        yield found


def _needed(settings: Settings, *, engine: bool) -> Iterator[Finding]:
    """Without which no engine is tried: packages first."""
    yield _finding("packages", _packages)
    if not settings.uses_connect:
        yield _finding("java", _java)
        yield _finding("jars", partial(_jars, settings))
    yield _finding("folders", partial(_folders, settings))
    if engine and settings.uses_connect:
        yield _finding("server", partial(answers, settings))
    if engine and settings.spark_url.startswith("spark://"):
        yield (master := _finding("master", partial(answers, settings)))
        if master.ok:
            yield _finding("workers", partial(workers, settings))


def _of_lake(settings: Settings) -> Iterator[Finding]:
    """What stands in the tables, and the servers that they read and feed."""
    yield _finding("dagster", partial(dagster, settings))
    yield _finding("tables", partial(known_tables, settings))
    yield _finding("tidy", partial(tidiness, settings))
    yield _finding("landing", partial(landed_files, settings))
    yield _finding("lineage", lineage)
    yield _finding("warm engine", partial(_warm, settings))
    if settings.source_urls:
        asked = (_finding("databases", partial(databases, settings)), _finding("topics", partial(topics, settings)))
        yield from (each for each in asked if each.found)
    if has_redis(settings):
        yield _finding("redis", partial(redis, settings))


def _finding(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, ok=True, found=look())
    except ProblemError as problem:
        return Finding(check, ok=False, found=problem.found, fix=problem.fix)
    except ImportError as error:
        return Finding(check, ok=False, found=str(error), fix="Install the locked versions: make setup")
    except (OSError, LakehouseError) as error:  # a disk that is read-only or full; a setting, which says what to do
        return Finding(check, ok=False, found=str(error), fix="See what it says, and the finding on folders.")


def _python() -> str:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < MIN_PYTHON:
        raise ProblemError(found, "Install Python 3.11 or newer, then: make clean setup PYTHON=python3.11")
    return found


def _packages() -> str:
    """The installed versions of what must fit together, against what this package asks for."""
    try:
        asked = requires("lakehouse") or []
    except PackageNotFoundError:
        asked = []
    wrong: list[str] = []
    exact = dict(re.findall(r"^([\w.-]+)(?:\[\w+\])?==([\w.]+)$", "\n".join(asked), re.MULTILINE))
    for name, wanted in exact.items():
        try:
            if (found := version(name)) != wanted:
                wrong.append(f"{name} {found} instead of {wanted}")
        except PackageNotFoundError:
            wrong.append(f"{name} is missing")
    if wrong:
        raise ProblemError("; ".join(wrong), "Install the locked versions: make setup")
    shown = [f"{name} {version(name)}" for name in ("pyspark", "delta-spark", "deltalake", "dagster", "pandera")]
    return ", ".join(shown) + ("" if exact else " (lakehouse itself is not installed, so nothing was compared)")


def _java() -> str:
    if problem := java_home_problem():
        raise ProblemError(problem.removesuffix(INSTALL_JAVA).strip(), INSTALL_JAVA)
    return f"Java {java_version()}, {_shared_classes()}"


def _shared_classes() -> str:
    if not archive_path().is_file():
        return "no class archive (engines start sooner with one: make archive)"
    fits = is_usable()
    return "class archive used" if fits else "class archive of another Java or jars, not used (make anew: make archive)"


def _jars(settings: Settings) -> str:
    folder = jars_dir(settings)
    if problems := jar_problems(folder):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ProblemError(problems[0] + more, f"Fetch them: python -m lakehouse.spark.jars --verify {folder}")
    return f"{len(locked_jars())} jars as locked, in {folder}"


def _folders(settings: Settings) -> str:
    if problem := root_problem(settings.root):
        raise ProblemError(problem, "Set LAKEHOUSE_ROOT to a folder of yours, or to one that can be made.")
    for folder in (settings.root, settings.landing, settings.dagster_home, settings.root / "tables"):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise ProblemError(
                f"{there} cannot be written", f"Make it yours (chown, chmod), or set LAKEHOUSE_ROOT elsewhere: {folder}"
            )
    if not settings.root.exists():
        return f"{settings.root} will be made by the first run"
    try:
        with tempfile.NamedTemporaryFile(dir=settings.root, prefix=".doctor-"):
            pass
    except OSError as error:
        raise ProblemError(
            f"{settings.root}: {error.strerror}", "Free some space, or set LAKEHOUSE_ROOT elsewhere."
        ) from None
    return f"{settings.root} can be written"


def _privacy(settings: Settings) -> str:
    """Who else can read what is there; a root that is open to its group alone is meant so."""
    root = settings.root
    if not root.is_dir():
        return f"{root} will be readable by you alone"
    inside = (settings.landing, root / "tables", settings.dagster_home, root / "logs", settings.pii_key_file.parent)
    if root.stat().st_mode & 0o007:  # who cannot enter the root reaches nothing in it
        opened = [each for each in (root, *inside) if each.exists() and each.stat().st_mode & 0o007]
        raise ProblemError(
            f"everybody on this machine can enter {', '.join(map(str, opened))}",
            f"chmod -R go-rwx {root}; docs/how-to/share-a-root.md says how to share it with a team.",
        )
    group = root.stat().st_mode & 0o070
    return f"{root} is open to its group, as what is made in it will be" if group else f"{root} is yours alone"


def _pii_key(settings: Settings) -> str:
    """Where the key comes from; it is neither made nor shown here."""
    path = settings.pii_key_file
    if settings.pii_key is not None:
        if not settings.pii_key.get_secret_value().strip():
            raise ProblemError("LAKEHOUSE_PII_KEY is blank", "Set it to a long random text, or unset it.")
        return "from LAKEHOUSE_PII_KEY"
    if not os.access(store.existing_above(path), os.R_OK | os.X_OK):
        return f"{path} is not yours to read: you can look at everything, and build no table with tokens"
    if not path.exists():
        return "not made yet: the first run makes one and keeps it under the root, readable by you alone"
    for each in sorted(path.parent.glob("*.key")):
        if each.stat().st_mode & 0o077:
            raise ProblemError(f"{each} can be read by others", f"chmod 600 {each}")
    return f"in {path}"


def _port(settings: Settings) -> str:
    if not is_free(settings.port):
        raise ProblemError(
            f"{settings.port} of {HERE} is taken (by a running `lakehouse dev`?)",
            "Stop what uses it, or set LAKEHOUSE_PORT or `lakehouse dev --port N`.",
        )
    return f"{settings.port} of {HERE} is free"


def _warm(settings: Settings) -> str:
    """Whether the engine that runs would share is on; none has to be."""
    from lakehouse.spark.warm import is_wanted, place_of, places

    if not is_wanted(settings):
        return "not used: each process has an engine of its own" if not settings.uses_connect else "not used"
    try:
        of_settings, found = place_of(settings), places(settings)
    except LakehouseError as error:
        raise ProblemError(str(error), "Correct the setting, or unset it.") from None
    other = sum(each.folder != of_settings.folder for each in found)
    also = f"; {counted(other, 'engine')} of other settings (lakehouse engine status)" if other else ""
    if (address := of_settings.address()) is not None:
        return f"serves on {address.url}, process {address.pid}{also}"
    return f"not on; the first command that computes starts it{also}"
