"""The shape of the package: what may import what, what each table needs, and that loading it starts nothing."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lakehouse
from lakehouse.catalog import declared, tables
from lakehouse.commands.listed import COMMANDS
from lakehouse.delta.failpoints import FORGET_POINTS, MERGE_POINTS, POINTS, REPLAY_POINTS, SLICE_POINTS, UNDO_POINTS
from lakehouse.settings import LAYERS

PACKAGE = Path(lakehouse.__file__).parent
TESTS = Path(__file__).parent
LONGEST_FILE = {PACKAGE: 350, TESTS: 450}  # lines

# From the ground up: a room imports from the rooms before its own, never from one that follows.
ROOMS = (
    "lazy", "pairs", "errors", "days", "texts", "users", "store", "environment", "settings", "servers", "contracts", "transforms", "delta", "spark", "kafka", "sources",
    "read", "records", "checks", "build", "online", "privacy", "versions", "lineage", "quarantine", *LAYERS, "catalog", "features", "query",
    "orchestration", "definitions", "report", "runs", "commands", "sample", "cli",
)  # fmt: skip
# What the order does not say.
ONLY = {layer: {"contracts", "pairs", "transforms"} for layer in LAYERS} | {
    "store": set(),
    "delta": {"days", "errors", "lazy", "store"},
    "servers": {"errors", "settings", "store"},
    "spark": {"errors", "servers", "settings", "store", "users"},
    "kafka": {"errors", "servers", "settings", "spark", "store"},
    "online": {
        "contracts", "days", "delta", "errors", "lazy", "read", "records", "servers", "settings", "spark", "store",
        "texts",
    },
    "transforms": {"errors", "settings"},
    "contracts": {"days", "environment", "errors", "lazy", "pairs", "settings"},
}  # fmt: skip
TERMINAL = {"typer", "click", "rich", "print"}
# Names that only a driver with a JVM of its own has.
FORBIDDEN = {"SparkContext", "sparkContext", "RDD", "rdd", "toRDD", "_jvm", "_jdf", "_jsc", "_sc", "_gateway"}
FORBIDDEN |= {"_jsparkSession", "_jreader", "_jwrite", "_jseq", "_to_java_column", "_active_spark_context"}
FORBIDDEN_MODULES = re.compile(r"py4j|pyspark\.(rdd|context|core|java_gateway)\b")


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package by its path inside it, such as `delta.commit`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a file's syntax, parsed once for all tests: never changed."""
    return written(path.read_text(encoding="utf-8"))


def written(source: str) -> tuple[ast.AST, ...]:
    """The syntax of a text."""
    return tuple(ast.walk(ast.parse(source)))


def names_of_types(path: Path) -> frozenset[ast.AST]:
    """What a file imports only to name types."""
    blocks = [each for each in nodes(path) if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"]
    return frozenset(node for block in blocks for each in block.body for node in ast.walk(each))


def imports(module: str, path: Path, *, run: bool = False) -> set[str]:
    """What a module imports from the package, in functions too, as paths inside it.

    Args:
        module: its path inside the package.
        path: its file.
        run: leave out what is only imported to name types.
    """
    found = set()
    package = (
        ["lakehouse", *module.split(".")] if path.name == "__init__.py" else ["lakehouse", *module.split(".")[:-1]]
    )
    left_out = names_of_types(path) if run else frozenset()
    for node in nodes(path):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from lakehouse import x` names the module x itself.
            found |= {f"{origin}.{alias.name}" for alias in node.names} if origin == "lakehouse" else {origin}
    return {name.removeprefix("lakehouse.") for name in found if name.startswith("lakehouse.")}


def test_every_module_has_its_room() -> None:
    """Without it, a new package would be outside of the rules below."""
    assert {module.split(".")[0] for module, _ in modules() if module} == set(ROOMS)


def test_imports_point_downwards() -> None:
    """Without it, the storage engine could come to depend on Dagster, or a table file on the storage engine."""
    wrong = []
    for module, path in modules():
        room = module.split(".")[0]
        for name in sorted(imports(module, path)) if module else []:
            other = name.split(".")[0]
            if other.startswith("__"):  # the version of the package
                continue
            if other == room:
                # A table file does not import another: it names it as an input.
                wrong += [f"{module} imports {name}"] if room in LAYERS else []
            elif ROOMS.index(other) > ROOMS.index(room) or other not in ONLY.get(room, ROOMS):
                wrong.append(f"{module} imports {name}")
    assert not wrong


def test_only_commands_know_the_terminal() -> None:
    """Without it, a program or a sensor that starts runs would print, and a run would need a command line around it."""
    found = []
    listed = {each.module for each in COMMANDS.values()}  # the sample has commands, too
    for module, path in modules():
        if module.split(".")[0] in ("commands", "cli") or module in listed:
            continue
        for node in nodes(path):
            match node:
                case ast.Import(names=names):
                    origins = [alias.name for alias in names]
                case ast.ImportFrom(module=origin, level=0):
                    origins = [origin or ""]
                case ast.Call(func=ast.Name(id="print")):
                    origins = ["print"]
                case _:
                    continue
            found += [f"{module}: {name}" for name in origins if name.split(".")[0] in TERMINAL]
    assert not found


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Without it, two files could only be read together, and an import inside a function would hide it."""
    paths = dict(modules())
    graph = TopologicalSorter({name: imports(name, path, run=True) & set(paths) for name, path in paths.items()})
    graph.prepare()  # raises CycleError, which names the circle


def test_the_engine_knows_nothing_of_the_sample() -> None:
    """Without it, a new source would need lines of the engine, and a project without the sample's tables would break."""
    sources = {each.landing.source for each in declared("lakehouse").values() if each.landing}
    wrong = []
    for module, path in modules():
        top = module.split(".")[0]
        if top in {*LAYERS, "sample"}:
            continue
        if module != "cli":  # which lists the commands, the demonstration among them
            wrong += [f"{module} imports {name}" for name in imports(module, path) if name.split(".")[0] == "sample"]
        for node in nodes(path):
            if isinstance(node, ast.Constant) and node.value in sources:
                wrong.append(f"{module} names {node.value}")
    assert not wrong


def test_tests_of_the_engine_use_tables_of_their_own() -> None:
    """Without it, who deletes the sample's tables would be left without tests of the engine."""
    ours = re.compile(rf"lakehouse\.({'|'.join(LAYERS)})\b|lakehouse_tests\.({'|'.join([*LAYERS, 'sample'])})\b")
    wrong = []
    for path in sorted(TESTS.rglob("*.py")):
        room = path.relative_to(TESTS).parts[0]
        if room in {*LAYERS, "sample", "benchmarks"} or not ours.search(path.read_text(encoding="utf-8")):
            continue  # to parse all tests takes a second
        for node in nodes(path):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [str(node.module)]
                wrong += [f"{path.relative_to(TESTS)} imports {name}" for name in names if ours.match(name)]
    assert not wrong


def below_the_interface(syntax: Iterable[ast.AST]) -> list[str]:
    """Names in some code that Spark Connect does not have."""
    found = []
    for node in syntax:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found += [name] if name in FORBIDDEN else []
            case ast.Import(names=aliases):
                found += [alias.name for alias in aliases if FORBIDDEN_MODULES.match(alias.name)]
            case ast.ImportFrom(module=origin, names=aliases):
                found += [origin] if origin and FORBIDDEN_MODULES.match(origin) else []
                found += [alias.name for alias in aliases if alias.name in FORBIDDEN]
    return found


def test_no_code_reaches_below_the_dataframe_interface() -> None:
    """Without it, the code would run in process and fail through Spark Connect or on a cluster."""
    found = {module: below_the_interface(nodes(path)) for module, path in modules()}
    assert {module: names for module, names in found.items() if names} == {}
    for source in (
        "spark.sparkContext",
        "frame.rdd",
        "from pyspark import SparkContext",
        "import py4j.protocol",
        "f._jdf",
    ):
        assert below_the_interface(written(source)), source


# Where files at rest are touched without the store, each with its reason.
NOT_AT_REST = {
    "settings": "the keys and the settings' own file, which say where the lakehouse is",
    "contracts": "the code of the package itself, and the lock of versions beside it",
    "servers": "the folders, locks and logs of programs",
    "spark": "the engine's jars and its archive of classes, which are no data",
    "kafka": "the broker's jars, and its folder, whose messages are its own",
    "online.server": "the folder of Redis, whose files are its own",
    "orchestration.state": "Dagster's home",
    "orchestration.mirrored": "what a run prints, in Dagster's home",
    "orchestration.instance": "what the system says of processes",
    "orchestration.starter": "the standard input of a process, which it closes",
    "orchestration.alerts": "the alerts' store and log in Dagster's home",
    "report": "a page in the folder that its reader names",
    "commands.console": "the log of the command line, which is written line by line",
    "runs": "files that Dagster and runs keep for one run; answers over HTTP are opened too",
    "texts": "the width of the terminal, and how a program is called from here",
    "features": "labels and training sets, in the folders that their user names",
    "catalog": "table files, which are code",
    "commands.build": "files that Dagster and the commands keep for one run",
    "commands.change.keys": "the keys, which are the settings'",
    "query.checked_query": "parts of a parsed query are replaced",
    "commands.inspect.rows": "a file of rows in the folder that its reader names",
    "commands.inspect.shell": "the history of the shell, which is its user's",
    "commands.inspect.report": "a page in the folder that its reader names",
    "commands.operate": "what the doctor tries out, and the alerts' store",
}
OF_FILES = {
    "write_text",
    "write_bytes",
    "unlink",
    "rename",
    "mkdir",
    "rmdir",
    "symlink_to",
    "hardlink_to",
    "touch",
    "chmod",
}
OF_FILES |= {
    "exists",
    "is_file",
    "is_dir",
    "iterdir",
    "glob",
    "rglob",
    "stat",
    "lstat",
    "open",
    "read_text",
    "read_bytes",
}
OF_SYSTEM = {
    "link",
    "replace",
    "rename",
    "unlink",
    "open",
    "fsync",
    "fdopen",
    "remove",
    "mkdir",
    "makedirs",
    "rmdir",
    "walk",
}
OF_SYSTEM |= {"scandir", "listdir", "stat", "utime", "chmod", "symlink", "truncate", "sync", "fstat"}
FILE_MODULES = {"shutil", "tempfile", "fcntl", "pyarrow.parquet", "pyarrow.fs", "pyarrow.dataset"}


@cache
def files_touched(syntax: tuple[ast.AST, ...]) -> list[str]:
    """Names in some code that touch files, but for those of the store."""
    found = []
    for node in syntax:
        match node:
            case ast.Call(func=ast.Name(id="open")):
                found.append("open")
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=name)):
                found.append(f"os.path.{name}")
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in OF_SYSTEM:
                found.append(f"os.{name}")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="store")), args=_):
                pass
            case ast.Call(func=ast.Attribute(attr=name)) if name in OF_FILES:
                found.append(name)
            case ast.Call(func=ast.Attribute(attr="replace"), args=[_], keywords=[]):  # of texts it has two
                found.append("replace")
            case ast.Import(names=aliases):
                found += [alias.name for alias in aliases if alias.name in FILE_MODULES]
            case ast.ImportFrom(module=origin, names=aliases):
                found += [each for a in aliases for each in (origin, f"{origin}.{a.name}") if each in FILE_MODULES]
    return found


def test_only_the_store_touches_files_at_rest() -> None:
    """Without it, a table could not be moved to object storage, and a write would come without its guarantees."""
    found = {
        module: files_touched(nodes(path))
        for module, path in modules()
        if module.split(".")[0] != "store" and not any(f"{module}.".startswith(f"{each}.") for each in NOT_AT_REST)
    }
    assert {module: names for module, names in found.items() if names} == {}
    for source in (
        "os.link(a, b)",
        "Path(a).replace(b)",
        "draft.write_text('')",
        "open(path)",
        "import shutil",
        "import pyarrow.parquet as pq",
        "from pyarrow import parquet",
        "path.stat().st_size",
    ):
        assert files_touched(written(source)), source
    assert not files_touched(written("'a'.replace('b', 'c')"))


def test_exceptions_of_the_store_are_in_use() -> None:
    """Without it, a module could go on being allowed what it does not need any more."""
    texts = {module: files_touched(nodes(path)) for module, path in modules()}
    unused = [each for each in NOT_AT_REST if not any(t for m, t in texts.items() if f"{m}.".startswith(f"{each}."))]
    assert not unused


def test_every_table_has_contract_description_and_test() -> None:
    """Without it, a table could be added that nobody can read about, and whose transform was never run."""
    missing = []
    for each in declared("lakehouse").values():
        if not (TESTS / each.layer / f"test_{each.name}.py").is_file():
            missing.append(f"{each.id}: no lakehouse_tests/{each.layer}/test_{each.name}.py")
        if not (each.model.__doc__ or "").strip() or each.model.__doc__ == each.model.__base__.__doc__:
            missing.append(f"{each.id}: {each.model.__name__} has no docstring")
        if not (each.transform.__doc__ or "").strip():
            missing.append(f"{each.id}: the transform has no docstring")
        missing += [
            f"{each.id}: {f.name} has no description" for f in each.schema.fields if not f.metadata.get("comment")
        ]
    assert not missing


def test_a_file_is_read_in_one_sitting() -> None:
    """Without it, files grow until nobody reads them whole."""
    too_long = []
    for folder, most in LONGEST_FILE.items():
        for path in folder.rglob("*.py"):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            too_long += [f"{path.relative_to(folder.parent)}: {lines} lines, at most {most}"] if lines > most else []
    assert not too_long


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    """Without it, a folder whose name pytest leaves out (`build` is one by default) would lose its tests in silence."""
    folders = {folder for path in TESTS.rglob("test_*.py") for folder in path.relative_to(TESTS).parts[:-1]}
    assert "build" in folders
    left_out = pytestconfig.getini("norecursedirs")
    assert not [name for name in folders if any(fnmatch(name, pattern) for pattern in left_out)]


def test_what_drives_a_browser_is_where_it_is_looked_for() -> None:
    """Without it, `make test`, which reads one folder for its browser, would leave out what is elsewhere in silence."""
    marked = {path.parent.name for path in TESTS.rglob("*.py") if re.search(r"pytest\.mark\.ui\b", path.read_text())}
    assert marked == {"ui"}
    assert "-m ui lakehouse_tests/ui\n" in (TESTS.parent / "Makefile").read_text()


def test_every_failpoint_is_somewhere() -> None:
    """Without it, a crash test could wait for a point that the code no longer passes."""
    text = "".join(path.read_text() for module, path in modules() if module != "delta.failpoints")
    assert set(re.findall(r'failpoint\([^)"]*"([a-z-]+)"\)', text)) == {
        *POINTS,
        *SLICE_POINTS,
        *UNDO_POINTS,
        *MERGE_POINTS,
        *FORGET_POINTS,
        *REPLAY_POINTS,
    }


LOAD = """
import os, sys, threading
import lakehouse.definitions
from dagster import Definitions
defs = lakehouse.definitions.defs
graph = defs.get_repository_def().asset_graph
defs.resolve_all_job_defs() if hasattr(defs, "resolve_all_job_defs") else None
print(len(graph.get_all_asset_keys()))
from pyspark import SparkContext
assert SparkContext._active_spark_context is None and SparkContext._gateway is None, "a JVM was started"
children = open(f"/proc/self/task/{os.getpid()}/children").read() if os.path.exists("/proc/self/task") else ""
assert not children.strip(), f"processes were started: {children}"
"""


@pytest.mark.slow
def test_definitions_load_without_java_and_leave_no_trace(tmp_path: Path) -> None:
    """Without it, Dagster's code server would need an engine, or write into a folder, to show the assets."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("LAKEHOUSE_", "JAVA", "SPARK", "DAGSTER"))}
    environment |= {"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["LAKEHOUSE_TABLES"] = os.environ["LAKEHOUSE_TABLES"]  # those that are counted below
    environment |= {"LAKEHOUSE_ROOT": str(tmp_path / "lake"), "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=tmp_path / "work", env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == len(tables()) + sum(1 for each in tables().values() if each.rules)  # their quarantines
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["work"], "loading made files or folders"
