"""The command as a whole: quick to start, helpful, and with the documented exit codes."""

import errno
import json
import os
import sqlite3
import subprocess
import sys
from inspect import cleandoc
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

import lakehouse
from lakehouse import store
from lakehouse.cli import app
from lakehouse.commands.build import backfill
from lakehouse.commands.listed import COMMANDS as LISTED
from lakehouse.commands.operate import doctor
from lakehouse.errors import EngineError
from lakehouse_tests.commands.conftest import Cli, run

PACKAGE = Path(lakehouse.__file__).parent
COMMANDS = [
    ("demo",), ("land",), ("intake",), ("materialize",), ("backfill",), ("sql",), ("status",),
    ("quarantine", "list"), ("quarantine", "show"), ("tables",), ("describe",), ("history",), ("restore",), ("candidate", "build"), ("candidate", "compare"), ("candidate", "swap"), ("candidate", "drop"), ("vacuum",), ("compact",),
    ("doctor",), ("dev",), ("backfills", "list"), ("backfills", "show"), ("backfills", "pause"), ("backfills", "resume"), ("backfills", "cancel"), ("backfills", "retry"), ("schema", "check"), ("schema", "lock"), ("schema", "history"),
]  # fmt: skip

MADE_UP = ["--days", "1", "--rows", "1", "--seed", "1"]


def test_starting_imports_nothing_heavy() -> None:
    """`lakehouse --help` must come at once: Dagster alone takes more than a second to import."""
    code = "import sys, atexit, lakehouse.cli; sys.argv = ['lakehouse', '--help']; "
    code += "atexit.register(lambda: print(*{n.partition('.')[0] for n in sys.modules}, file=sys.stderr)); lakehouse.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "backfill" in done.stdout
    assert not {"dagster", "pyspark", "pandera", "deltalake", "pyarrow", "pandas", "pydantic"} & set(
        done.stderr.split()
    )


IMPORTED = """
import sys, lakehouse.cli
from typer.main import get_group
for name in sys.argv[1:]:
    get_group(lakehouse.cli.app).commands[name]
print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.slow
def test_completing_a_command_imports_none() -> None:
    """Without it, each press of the tab key would import every command, and Dagster with them."""
    code = "import sys, atexit, lakehouse.cli; "
    code += "atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr)); lakehouse.cli.app(prog_name='lakehouse')"
    asked = {"_LAKEHOUSE_COMPLETE": "complete_bash", "COMP_WORDS": "lakehouse ba", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["backfill", "backfills"]
    assert not {"dagster", "pyspark", "lakehouse.commands.build.backfill"} & set(done.stderr.split())


@pytest.mark.slow
def test_what_needs_no_dagster_does_not_import_it() -> None:
    """Without it, every look at a table would wait for seconds."""
    asked = ["sql", "tables", "history", "vacuum", "compact", "freshness", "reconcile", "report", "doctor", "dev"]
    done = subprocess.run([sys.executable, "-c", IMPORTED, *asked], capture_output=True, text=True, check=True)
    assert "dagster" not in done.stdout.split()


@pytest.mark.slow
def test_a_package_that_is_missing_is_said_and_doctor_tells_of_it(tmp_path: Path) -> None:
    """Without it, the one command that others name as the remedy would end with a traceback."""
    code = "import sys; sys.modules['deltalake'] = None; import lakehouse.cli; lakehouse.cli.main()"
    environment = os.environ | {"LAKEHOUSE_ROOT": str(tmp_path)}
    for command, ending in ((["vacuum"], 3), (["doctor", "--no-engine", "--json"], 1)):
        done = subprocess.run(
            [sys.executable, "-c", code, *command], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == ending, done.stderr
    assert json.loads(done.stdout)


def test_the_list_says_what_each_command_says_of_itself() -> None:
    """Without it, `lakehouse --help` would promise what a command does no longer, or leave one out."""
    made = typer.main.get_group(app).commands
    said = {name: cleandoc(each.help or "").split("\n\n")[0].replace("\n", " ") for name, each in made.items()}
    assert said == {name: each.about for name, each in LISTED.items()}
    modules = {each.module for each in LISTED.values()}
    written = {
        str(path.relative_to(PACKAGE).with_suffix("")).replace("/", ".")
        for path in [*PACKAGE.joinpath("commands").rglob("*.py"), *PACKAGE.joinpath("sample").glob("*.py")]
        if "\ndef add_to(app: typer.Typer)" in path.read_text()
    }
    assert modules == written


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples(command: tuple[str, ...]) -> None:
    said = CliRunner().invoke(app, [*command, "--help"])
    assert said.exit_code == 0
    assert "Examples:" in said.stdout
    assert f"lakehouse {command[0]}" in said.stdout


def test_help_names_every_command_and_the_exit_codes() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    assert all(command[0] in said for command in COMMANDS)
    assert "Exit codes: 0 done, 1 checks failed, 2 usage, 3 execution error" in " ".join(said.split())


def test_commands_give_back_the_memory_that_arrow_freed() -> None:
    """Without it, a stream that runs for days would grow by a megabyte with each turn, in an allocator's pages."""
    code = "import atexit, sys; from lakehouse.cli import main; sys.argv = ['lakehouse', '--version']\n"
    code += "atexit.register(lambda: print(__import__('pyarrow').default_memory_pool().backend_name)); main()"
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    for asked, given in {"": "system", "mimalloc": "mimalloc"}.items():
        more = {"ARROW_DEFAULT_MEMORY_POOL": asked} if asked else {}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment | more, capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[-1] == given


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("lakehouse ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["backfill"], "Which days? Give --from DAY and --to DAY"),
        (["backfill", "--from", "2011-03-01"], "--from 2011-03-01 needs --to DAY"),
        (["backfill", "--to", "2011-03-01"], "--to 2011-03-01 needs --from DAY"),
        (["backfill", "--from", "2011-03-09", "--to", "2011-03-01"], "swap them"),
        (["backfill", "--stale", "--from", "2011-03-09", "--to", "2011-03-01"], "swap them"),
        (["backfill", "--failed-only", "--from", "2011-03-09", "--to", "2011-03-01"], "swap them"),
        (["reconcile", "--from", "2011-03-09", "--to", "2011-03-01"], "swap them"),
        (["land", "online_retail", ".", "--from", "2011-03-09", "--to", "2011-03-01"], "swap them"),
        (["backfill", "--from", "1999-01-01", "--to", "1999-01-02"], "There are daily partitions from 2010-12-01 to"),
        (["backfill", "--from", "2011-03-01", "--to", "2999-01-01"], "There are daily partitions from"),
        (["backfill", "--from", "yesterday"], "is not a day; expected YYYY-MM-DD"),
        (["describe", "silver.transaction"], "Did you mean silver.transactions"),
        (["sql", "DROP TABLE silver.orders"], "This command only reads"),
        (["backfill", "--stale", "--no-wait"], "--no-wait is for --daemon"),
        (["backfills", "show", "abcdefgh"], "There is no backfill abcdefgh"),
        (["backfills", "pause", "abcdefgh"], "There is no backfill abcdefgh"),
        (["land", "events", "--days", "1", "--rows", "1", "--seed", "1", "--faults", "gremlins=1"], "gremlins"),
        (["quarantine", "show", "silver.transactions", "--rule", "currency_unknown"], "Did you mean currency_known"),
        (["vacuum", "--hours", "1"], "at least 24 h"),
        (["history", "gold.user_features"], "was never built"),
        (
            ["land", "event", "."],
            "No table reads landed files of 'event'. Did you mean events? Sources: events, online_retail.",
        ),
        (["land", "events"], "give the folder of its files; or, made-up files need --days and --rows and --seed"),
        (["land", "events", ".", "--rows", "3"], "--rows is for made-up files"),
        (
            ["land", "online_retail", *MADE_UP, "--faults", "all"],
            "the sample of online_retail has no --faults; of such options",
        ),
        (["land", "events", *MADE_UP, "--files", "0"], "expected 1 file a day or more, got 0"),
        (
            ["late", "apply", "silver.transactions", "--from", "2011-03-05", "--to", "2011-03-01", "--reason", "x"],
            "--from 2011-03-05 is after --to 2011-03-01; swap them.",
        ),
        (["nonsense"], "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors_end_with_2_and_say_what_to_do(cli: Cli, arguments: list[str], told: str) -> None:
    said = cli(*arguments)
    assert said.code == 2
    assert told in " ".join(said.err.replace("│", " ").split())
    assert not said.out
    assert "Traceback" not in said.err


def test_an_execution_error_ends_with_3_and_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise EngineError("The engine is out of order. Fix it.")

    monkeypatch.setattr(backfill, "select_tables", broken)
    said = cli("materialize", "--from", "2011-03-01")
    assert (said.code, said.err) == (3, "Error: The engine is out of order. Fix it.\n")


def test_a_selection_may_be_given_twice(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the last one would win, and the tables of the others would be left out without a word."""
    asked: list[object] = []

    def broken(selections: object) -> None:
        asked.append(selections)
        raise EngineError("The engine is out of order. Fix it.")

    monkeypatch.setattr(backfill, "select_tables", broken)
    cli("backfill", "-s", "silver.orders", "--select", "group:gold")
    assert asked == [["silver.orders", "group:gold"]]


def test_what_nobody_expected_ends_with_3_and_a_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def surprise(_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(backfill, "select_tables", surprise)
    said = cli("materialize", "--from", "2011-03-01")
    assert said.code == 3
    assert "KeyError: 'surprise'" in said.err
    assert "lakehouse doctor" in said.err


@pytest.mark.parametrize(
    "command", [("status",), ("reconcile",), ("land", "events", *MADE_UP), ("report",), ("tables",)]
)
def test_a_root_that_cannot_be_is_a_sentence(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Without it, a mistyped root ends with a traceback, or looks like a lakehouse in which nothing was built yet."""
    taken = tmp_path / "taken"
    taken.write_text("")
    for root, why in (
        (taken, f"{taken} is a file, where a folder was expected"),
        (taken / "below", f"{taken} is a file, where a folder was expected"),
        (Path("/proc/nope"), "/proc/nope cannot be made: "),
    ):
        said = run(root, *command)
        assert (said.code, said.out) == (2, "")
        assert f"Error: LAKEHOUSE_ROOT: {why}" in said.err
        assert "Traceback" not in said.err
    assert sorted(tmp_path.iterdir()) == [taken]


def test_a_look_at_a_root_that_is_not_there_makes_none(tmp_path: Path) -> None:
    """Without it, seeing whether a root can be made would leave folders behind."""
    assert run(tmp_path / "some" / "root", "status").code == 0
    assert list(tmp_path.iterdir()) == []


def test_doctor_tells_of_a_root_that_cannot_be(tmp_path: Path) -> None:
    """Without it, the command that the sentence names says that the root will be made."""
    for root in (Path("/proc/nope"), tmp_path / "taken"):
        (tmp_path / "taken").write_text("")
        said = run(root, "doctor", "--no-engine", "--json")
        (found,) = [each for each in said.json if each["check"] == "folders"]
        assert (said.code, found["ok"]) == (1, False)
        assert str(root) in found["found"]


def test_a_folder_that_cannot_be_written_is_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a disk that is read-only or full ends a command with a traceback."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/lake/landing")

    monkeypatch.setattr(store, "put", refused)
    said = cli("land", "events", *MADE_UP)
    assert said.code == 3
    assert "Error: /lake/landing: read-only file system. `lakehouse doctor`" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),  # of a write, which names no file
        OperationalError("COMMIT", None, sqlite3.OperationalError("database or disk is full")),
    ],
)
def test_a_disk_that_is_full_is_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Without it, Dagster's databases end a command with a hundred lines, which say that this should not happen."""
    monkeypatch.setattr(store, "put", Mock(side_effect=error))
    said = cli("land", "events", *MADE_UP)
    assert said.code == 3
    assert "Error: no space left on a disk (" in said.err
    assert "Traceback" not in said.err


def test_a_database_of_dagster_that_is_down_is_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, every command that looks at runs ends with a hundred lines, and names a `doctor` that knows no more."""
    refused = ConnectionError(
        'connection to server at "127.0.0.1", port 5432 failed: Connection refused\n\tIs it on?\n'
    )
    error = RuntimeError("too many retries for DB connection")  # what Dagster makes of it
    error.__cause__ = OperationalError("", None, refused)
    monkeypatch.setattr(store, "put", Mock(side_effect=error))
    said = cli("land", "events", *MADE_UP)
    assert said.code == 3
    assert "Error: Dagster's database does not answer: connection to server at" in said.err
    assert "dagster.yaml" in said.err
    assert "Traceback" not in said.err


def test_doctor_tells_of_a_disk_that_refuses_to_write(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the command that other errors name ends with an error of its own."""

    def refused(_: object) -> str:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/lake/engine/alive")

    monkeypatch.setattr(doctor, "_warm", refused)
    said = cli("doctor", "--no-engine", "--json")
    assert said.code == 1
    (found,) = [each for each in said.json if each["check"] == "warm engine"]
    assert "Read-only file system: '/lake/engine/alive'" in found["found"]


def test_a_wrong_setting_is_a_usage_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_PORT", "0")
    said = cli("tables")
    assert said.code == 0  # needs no setting
    said = cli("land", "events", "--days", "1", "--rows", "1", "--seed", "1")
    assert said.code == 2
    assert "LAKEHOUSE_PORT" in said.err


def test_a_comparison_of_no_day_is_no_proof(cli: Cli) -> None:
    """Without it, a mistyped year, or a wrong root, was told as `Everything adds up`."""
    said = cli("reconcile", "--from", "2009-03-01", "--to", "2009-03-07")
    assert (said.code, said.err.strip().splitlines()[-1][:21]) == (0, "Nothing was compared:")
