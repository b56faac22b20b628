"""The tutorial's commands are run in order, and what they print is what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from lakehouse_tests.commands.conftest import Result, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
# What differs from run to run.
VOLATILE = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b"), "ID"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "SECONDS"),
    (re.compile(r"\b\d+(\.\d+)? [kMG]?B\b"), "SIZE"),
    (re.compile(r"\b\d+ \w+ ago\b"), "AGO"),
    (re.compile(r"\bpython -m lakehouse\.cli\b"), "lakehouse"),  # as the command names itself in this process
)


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Each `$ command` of the page's console blocks, and the lines below it that it is shown to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def arguments(command: str) -> list[str]:
    """What `lakehouse` is called with, also by make."""
    if command.startswith("make "):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        said = subprocess.run(["make", "-n", *shlex.split(command)[1:]], cwd=ROOT, env=clean, capture_output=True, text=True, check=True)  # fmt: skip
        command = next(line for line in said.stdout.splitlines() if "/lakehouse " in line)
    program, *rest = shlex.split(command)
    assert program.endswith("lakehouse"), command
    return rest


def shown(text: str) -> list[str]:
    """Lines without what differs from run to run: times, ids, sizes, and how wide a column is."""
    for pattern, name in VOLATILE:
        text = pattern.sub(name, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def misses(wanted: list[str], said: Result) -> list[str]:
    """Lines of the page that were not printed, in the order of the page; `…` stands for anything."""
    printed = shown(said.out) + shown(said.err)
    missing = []
    for line in shown("\n".join(wanted)):
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        if not any(pattern.fullmatch(each) for each in printed):
            missing.append(line)
    return missing


def test_a_line_that_was_not_printed_is_noticed() -> None:
    """Without it, the comparison below could pass whatever is printed."""
    said = Result(0, "day         rows\n2026-03-01  12\n", "1 run of 3.2 s\n")
    assert misses(["day  rows", "2026-03-01    12", "…", "1 run of 14 s"], said) == []
    assert misses(["2026-03-01  13", "2026-03-…"], said) == ["2026-03-01 13"]


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(tmp_path: Path, spark: object) -> None:
    """Without it, the first thing that a newcomer does would not come out as they were told."""
    assert spark is not None
    root = tmp_path / ".lakehouse"
    for command, wanted in steps(PAGE.read_text(encoding="utf-8")):
        said = run(root, *arguments(command))
        assert said.code in (0, 1), f"{command}\n{said.err}"
        assert misses(wanted, said) == [], f"{command}\n{said.out}\n{said.err}"
