"""What README, CONTRIBUTING and the site say exists: commands, targets, settings, paths, links, checks."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from docs import code_map, generate
from lakehouse.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_LINES = 200  # of the README: five minutes
OF_TESTS = {"LAKEHOUSE_TEST_DATA", "LAKEHOUSE_TEST_SPARK_URL"}
# Names that stand for something of the reader's.
STANDS_FOR = {
    "TABLE": "silver.transactions",
    "DAY": "2026-03-01",
    "DIR": ".",
    "ID": "abcdefgh",
    "N": "1",
    "KEY": "1f2e3d4c",
    "COMMAND": "status",
}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Said(NamedTuple):
    """A piece of code on a page; `whole` where it is a line to type, not a mention in a sentence."""

    page: Path
    text: str
    whole: bool

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text}"


def said(page: Path) -> Iterator[Said]:
    """Every command line in the page's blocks, and every piece of code in its sentences."""
    text = page.read_text(encoding="utf-8")
    for language, block in _FENCE.findall(text):
        for line in block.splitlines():
            if language == "console" and line.startswith("$ "):
                yield Said(page, line[2:], whole=True)
            elif language == "bash" and line.strip():
                yield Said(page, line, whole=True)
    for code in re.findall(r"`([^`\n]+)`", _FENCE.sub("", text)):
        yield Said(page, code, whole=False)


ALL = [each for page in PAGES for each in said(page)]
COMMANDS = dict(generate.commands())


def words_of(text: str) -> list[str]:
    """A command line's words up to the next command, without its comment."""
    words = []
    for word in shlex.split(text, comments=True):
        if word in ("&&", "|", ">", ";"):
            break
        words.append(STANDS_FOR.get(word, "." if word.startswith("path/to/") else word))
    return words


def named_command(words: list[str]) -> str | None:
    """The longest name of a command that the words begin with."""
    names = (" ".join(words[:number]) for number in range(len(words), 1, -1))
    return next((name for name in names if name in COMMANDS), None)


def wrong_with(text: str, *, whole: bool) -> str:
    """What is wrong with a line that calls `lakehouse`; empty where nothing is."""
    words = words_of(text)
    name = named_command(words)
    if name is None:
        group = " ".join(words).removesuffix(" --help")
        return "" if not whole and any(each.startswith(f"{group} ") for each in COMMANDS) else "no such command"
    command: Any = COMMANDS[name]
    rest = words[len(name.split()) :]
    if not whole:
        known = {option for each in command.params for option in each.opts} | {"--help"}
        return ", ".join(
            f"no option {word}" for word in rest if word.startswith("-") and word.split("=")[0] not in known
        )
    try:
        command.make_context(name, list(rest))
    except Exception as error:  # noqa: BLE001 - whatever the parser says
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize(
    ("text", "whole", "wrong"),
    [
        ("lakehouse backfill --from 2026-03-01 --to 2026-03-02 # a comment", True, ""),
        ("lakehouse backfill --form 2026-03-01", True, "No such option"),
        ("lakehouse backfill --from yesterday", True, "is not a day"),
        ("lakehouse describe", True, "Missing parameter"),
        ("lakehouse describe", False, ""),
        ("lakehouse quarantine", False, ""),
        ("lakehouse quarantine depths", False, "no such command"),
        ("lakehouse backfill --touchd", False, "no option --touchd"),
    ],
)
def test_a_wrong_command_is_noticed(text: str, whole: bool, wrong: str) -> None:
    """Without it, the test below could pass whatever the pages say."""
    found = wrong_with(text, whole=whole)
    assert wrong in found if wrong else not found


def test_every_command_on_every_page_parses() -> None:
    """Without it, a renamed option would live on in the pages, and the reader's first try would fail."""
    lines = [each for each in ALL if each.text.startswith("lakehouse ")]
    assert len(lines) > 100
    assert {each.where: w for each in lines if (w := wrong_with(each.text, whole=each.whole))} == {}


def test_arguments_are_written_as_they_are_given() -> None:
    """Brackets and dots of a metavar stood twice in `--help`; the page had `TABLE]…`, and no brackets where it may be left out."""
    arguments = [each for command in COMMANDS.values() for each in command.params if each.param_type_name == "argument"]
    assert {each.metavar for each in arguments if not re.fullmatch(r"[A-Z=]+", each.metavar or "")} == set()
    page = generate.commands_page()
    for usage in ("sql [QUERY]", "online load [TABLE…]", "explain-row TABLE COLUMN=VALUE…", "online show ENTITY ID…"):
        assert f"$ lakehouse {usage} [OPTIONS]\n" in page


def test_the_page_of_contract_words_says_when_a_null_has_a_rule_of_its_own() -> None:
    """It said `<column>_present` of every required column: who looks for that rule of one with a check finds none."""
    page = generate.contract_page().replace("\n", " ")
    assert (
        "null breaks each of its checks where it is null; one without a check gives the rule `<column>_present`" in page
    )


def messages(path: Path) -> Iterator[str]:
    """Every text of a module, with `{}` for what is put in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else put_in(each) for each in node.values)


def put_in(value: ast.expr) -> str:
    return "lakehouse" if ast.unparse(value).strip("f'\"") == "{program()}" else "{}"


def wrong_in_message(text: str) -> str:
    """What is wrong with the command that a text begins with, which may go on behind it; empty where nothing is."""
    words = text.split()
    name = named_command(words)
    if name is None:
        families = {each.split()[1] for each in COMMANDS if each.count(" ") > 1}
        known = words[2:] in ([], ["{}"]) or any(each.startswith(f"{text} ") for each in COMMANDS)
        return "no such command" if words[1] in families and not known else ""
    command: Any = COMMANDS[name]
    options = {option: each for each in command.params for option in (*each.opts, *each.secondary_opts)}
    rest = iter(words[len(name.split()) :])
    for word in rest:
        if word.startswith("--"):
            option = options.get(word.split("=")[0])
            if option is None and word != "--help":
                return f"no option {word}"
            if option and not option.is_flag and "=" not in word:
                next(rest, None)
        elif any(each.param_type_name == "argument" for each in command.params) or not re.search(r"[{}.]", word):
            return ""  # its arguments, or the sentence goes on
        else:
            return f"it takes no {word}"
    return ""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("lakehouse backfill {}", "takes no {}"),
        ("lakehouse backfill gold.user_features", "takes no gold.user_features"),
        ("lakehouse backfill --touchd --select {}", "no option --touchd"),
        ("lakehouse quarantine depths", "no such command"),
        ("lakehouse backfill --older-code --select {} builds them", ""),
        ("lakehouse restore {} --version N", ""),
        ("lakehouse dev serves it", ""),
    ],
)
def test_a_wrong_command_in_a_message_is_noticed(text: str, wrong: str) -> None:
    """Without it, the test below could pass whatever the messages say."""
    found = wrong_in_message(text)
    assert wrong in found if wrong else not found


def test_every_command_in_every_message_exists() -> None:
    """Without it, a hint would send people to a command that is refused."""
    found = {
        f"{path.name}: {command}": wrong_in_message(command)
        for path in sorted((ROOT / "lakehouse").rglob("*.py"))
        for text in messages(path)
        for command in re.findall(r"(?<![\w./-])lakehouse [a-z](?:[^`;:,()\n….]|\.(?=\w))*", text)
    }
    assert len(found) > 200
    assert {where: wrong for where, wrong in found.items() if wrong} == {}


def test_every_make_target_exists() -> None:
    """Without it, the pages could name a target that make does not know."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {(target, each.where) for each in ALL for target in re.findall(r"^make ([a-z]+)", each.text)}
    assert len(named) > 10
    assert {where for target, where in named if target not in targets} == set()


OF_SOURCES = {
    f"LAKEHOUSE_{name}_URL" for name in ("ORDERS", "BILLS", "EVENT_STREAM", "CLICKS")
}  # each source's own, as its table names it


def test_every_setting_exists() -> None:
    """Without it, a reader could set a variable that nothing reads."""
    known = {f"LAKEHOUSE_{name.upper()}" for name in Settings.model_fields} | OF_TESTS | OF_SOURCES
    texts = {page: page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / ".env.example"]}
    assert {
        (n, p.name) for p, text in texts.items() for n in re.findall(r"LAKEHOUSE_[A-Z_]+[A-Z]", text) if n not in known
    } == set()
    listed = set(re.findall(r"^#(LAKEHOUSE_\w+)=", texts[ROOT / ".env.example"], re.MULTILINE))
    assert listed - OF_SOURCES == known - OF_TESTS - OF_SOURCES, "the errors send people to .env.example"


def test_every_path_of_the_project_exists() -> None:
    """Without it, a moved file would be looked for where it was."""
    example = {"lakehouse/gold/daily_products.py", "lakehouse_tests/gold/test_daily_products.py"}
    tests = {path.name for path in (ROOT / "lakehouse_tests").rglob("test_*.py")}
    wrong = []
    for each in ALL:
        if re.fullmatch(r"test_\w+\.py", each.text) and each.text not in tests:
            wrong.append(each.where)
        path = re.fullmatch(r"((?:lakehouse|lakehouse_tests|docs|\.ci|\.vscode)/[\w./-]*)", each.text)
        if path and path[1] not in example and not (ROOT / path[1]).exists():
            wrong.append(each.where)
    assert wrong == []


def test_links_between_the_files_at_the_top_and_the_site_lead_somewhere() -> None:
    """MkDocs checks those of the site; README and CONTRIBUTING are read without it."""
    linked = [(page, each) for page in PAGES for each in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))]
    outside = [(page.name, each) for page, each in linked if each.startswith("http")]
    # Of other hosts, the form is all that is checked.
    assert [each for each in outside if not re.fullmatch(r"https?://[\w.-]+\.[a-z]{2,}(/\S*)?", each[1])] == []
    inside = [(page, each) for page, each in linked if page in PAGES[:2] and not each.startswith("http")]
    assert len(inside) > 5
    assert [(page.name, each) for page, each in inside if not (page.parent / each).is_file()] == []


def test_the_readme_is_read_in_five_minutes_and_shows_two_pictures() -> None:
    """Without it, it grows until nobody reads it."""
    text = PAGES[0].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert len(re.findall(r"!\[[^\]]+\]\(docs/images/\w[\w-]*\.png\)", text)) == 2


def test_the_pictures_of_the_pages_are_those_that_tests_make() -> None:
    """Without it, `make screenshots` would leave an old picture in the documentation, or a new one that nobody sees."""
    pages = [PAGES[0], *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"images/([\w-]+)\.png\)", page.read_text(encoding="utf-8"))}
    tests = (ROOT / "lakehouse_tests" / "ui").glob("test_*.py")
    made = [
        name for test in tests for name in re.findall(r'picture\(\w+, "([\w-]+)"', test.read_text(encoding="utf-8"))
    ]
    assert sorted(made) == sorted(shown)
    assert shown == {path.stem for path in (ROOT / "docs" / "images").glob("*.png")}


def test_every_check_is_on_the_page_of_checks() -> None:
    """Without it, a red check could not be looked up."""
    from lakehouse.catalog import declared
    from lakehouse.orchestration import freshness, online, upkeep
    from lakehouse.orchestration.checks import check_specs

    page = (ROOT / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    made = {spec.name for table in declared().values() for spec in check_specs(table)}
    assert listed == made | {freshness.CHECK, upkeep.CHECK, online.COUNT, online.PARITY}


def test_the_code_map_in_contributing_is_that_of_the_code() -> None:
    """Renew it with `python -m docs.code_map`."""
    text = PAGES[1].read_text(encoding="utf-8")
    assert text == code_map.renewed(text), "run .venv/bin/python -m docs.code_map"


def test_generated_pages_name_everything() -> None:
    """Without it, a page made from the code could come out empty."""
    from lakehouse.catalog import declared

    pages = {path: make() for path, make in generate.PAGES.items()}
    assert all(f"\n## {name}\n" in pages["reference/commands.md"] for name in COMMANDS)
    assert all(f"`LAKEHOUSE_{name.upper()}`" in pages["reference/settings.md"] for name in Settings.model_fields)
    assert all(f"\n## {name}\n" in pages["reference/tables.md"] for name in declared())
    assert all(f.name in pages["reference/tables.md"] for table in declared().values() for f in table.schema.fields)
    for name, part in code_map.parts().items():
        assert part.about, f"lakehouse/{name} has no docstring"
        assert f">{name}</text>" in pages["images/code-map.svg"]
    missing = re.findall(r"^\| `\w+` \| [^|]* \|  \|$", pages["reference/contract.md"], re.MULTILINE)
    assert missing == [], "fields of the contract without a meaning"


@pytest.mark.parametrize(
    ("page", "elsewhere"),
    [
        ('<script src="https://cdn.example.org/x.js"></script>', True),
        ('<link rel="stylesheet" href="//cdn.example.org/x.css">', True),
        ('<img alt="" src=https://example.org/x.png>', True),
        ('<a href="https://dagster.io">Dagster</a><script src="assets/x.js"></script>', False),
    ],
)
def test_a_page_that_loads_from_elsewhere_is_noticed(page: str, elsewhere: bool) -> None:
    """The site is read offline."""
    assert generate.loads(page) is elsewhere
