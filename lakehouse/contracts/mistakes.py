"""Mistakes of a table file: told in one voice, and shown at the line of the word that is wrong."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from traceback import walk_tb
from typing import Any

from lakehouse.errors import ContractError

_MISSING = re.compile(r"(\w+)(?:\.__init__)?\(\) missing \d+ required .*argument")
_UNKNOWN = re.compile(r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'")

Vocabulary = Mapping[str, Mapping[str, str]]
"""By name of a function, its keywords and how each is written."""


@dataclass(frozen=True)
class Mistake:
    """One wrong word of a table file.

    Attributes:
        word: what was written, by its path in the declaration: `quality.max_null_rate`.
        expected: what belongs there.
        got: what stands there.
        do: what to do about it, in whole sentences.
        at: the very text that is wrong, where the word has several.
        line: of the file, where it is known.
    """

    word: str
    expected: str
    got: str
    do: str
    at: str = ""
    line: int = 0

    @classmethod
    def plain(cls, word: str, text: str) -> Mistake:
        """One whose text is whole already."""
        return cls(word, "", "", text)

    def __str__(self) -> str:
        if not self.expected:
            return self.do
        return f"{self.word}: expected {self.expected}, got {self.got}. {self.do}"


class MistakesError(ContractError):
    """What is wrong with a table file, or with one value of its vocabulary; a mistake a line."""

    def __init__(self, mistakes: Iterable[Mistake], where: str = "") -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(f"{where}: {each}" if where else str(each) for each in self.mistakes))


def unless(holds: object, word: str, expected: str, got: object, do: str, at: str = "") -> list[Mistake]:
    """No mistake where it holds, else this one.

    Args:
        holds: whether all is well.
        word: see `Mistake`, as the further ones.
        expected: what belongs there.
        got: what stands there; a text is told as it is, any other value as Python writes it.
        do: what to do.
        at: the text that is wrong.
    """
    return [] if holds else [Mistake(word, expected, got if isinstance(got, str) else repr(got), do, at)]


def check(*found: Iterable[Mistake], where: str = "") -> None:
    """Refuse what something was found wrong with.

    Args:
        found: the mistakes of each check.
        where: the file, where it is known.

    Raises:
        MistakesError: with every mistake.
    """
    if mistakes := [each for several in found for each in several]:
        raise MistakesError(mistakes, where)


def is_share(word: str, value: object) -> list[Mistake]:
    """A share is a number from 0 to 1."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return unless(fits, word, "a share from 0 to 1", value, "Write 5 % as 0.05.")


def is_at_least(word: str, value: object, least: int) -> list[Mistake]:
    """A whole number that is not below the least one.

    Args:
        word: of `@table`, such as `quality.min_rows`.
        value: what the file says.
        least: the least it may be.
    """
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    return unless(fits, word, f"a whole number, {least} or more", value, "Fix the number, or leave it out.")


def is_time(value: object, least: timedelta = timedelta(0)) -> bool:
    """Whether a value is a time that is not shorter than the least one; a number does not say of what it is one."""
    return isinstance(value, timedelta) and value >= least


def is_days(value: object, least: int) -> bool:
    """Whether a value is a time of whole days, of as many as the least number or more."""
    return isinstance(value, timedelta) and value == timedelta(days=value.days) and value.days >= least


def are_names(word: str, value: object) -> list[Mistake]:
    """A tuple of texts; of one name, Python wants a comma behind it."""
    # ("a") is a text in brackets. Read as names it would be its letters.
    if isinstance(value, str):
        return unless(False, word, "a tuple of names", repr(value), f"A tuple of one has a comma: ({value!r},).")
    fits = isinstance(value, tuple) and all(isinstance(each, str) for each in value)
    return unless(fits, word, "a tuple of names", value, 'Write it as ("a", "b"), of one name as ("a",).')


def are_known(word: str, names: Collection[str], known: Sequence[str], of: str) -> list[Mistake]:
    """Names that have to be among others, such as columns of a model.

    Args:
        word: where they are written.
        names: what is written.
        known: what there is.
        of: what that is a list of, as in "a column of Sales".
    """
    listed = ", ".join(known) or "none"
    return [
        Mistake(word, f"{of} ({listed})", repr(each), nearest(each, known) or "Write one of these.", each)
        for each in sorted(set(names) - set(known))
    ]


def nearest(word: str, known: Collection[str]) -> str:
    """The question whether a near name was meant; empty where there is none."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else ""


# --- where it is written ----------------------------------------------------------------------------------------------


def told(error: Exception, path: Path, shown: str, words: Vocabulary) -> str:
    """What is wrong with a table file that could not be loaded, a line each: `file:line: what`.

    Args:
        error: what loading it ended with.
        path: the file.
        shown: its name in messages.
        words: by name of a function, its keywords and how each is written.
    """
    mistakes = getattr(error, "mistakes", ())
    if mistakes:
        lines = _Lines(path)
        return "\n".join(
            f"{shown}:{each.line or lines.of(each) or _last_line(error, path)}: {each}" for each in mistakes
        )
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{shown}:{error.lineno}: {error.msg}."
    what = str(error) if isinstance(error, ContractError) else _in_words(error, words)
    return f"{shown}:{_last_line(error, path)}: {what}"


def _in_words(error: Exception, words: Vocabulary) -> str:
    text = str(error)
    if isinstance(error, TypeError) and (found := _UNKNOWN.search(text)):
        of, word = ("@table" if found[1] == "table" else found[1]), found[2]
        known = words.get(found[1], {})
        near = difflib.get_close_matches(word, known, n=1)
        do = f"Did you mean {known[near[0]]}?" if near else f"The words are {', '.join(known)}."
        return f"{word}: expected a word of {of}, got this one. {do}"
    if isinstance(error, TypeError) and (found := _MISSING.search(text)):
        of = "@table" if found[1] == "table" else found[1]
        names = ", ".join(re.findall(r"'(\w+)'", text))
        return f"{of}: expected {names}, got none. Add {names}=…"
    # Of a misspelt type or function: Python finds the name that was meant, and tells it only below a traceback.
    meant = nearest(error.name, dir(error.obj)) if isinstance(error, AttributeError) and error.name else ""
    return f"{type(error).__name__}: {text}{meant and f'. {meant}'}"


def _last_line(error: BaseException, path: Path) -> int:
    """The line of the file that was being run."""
    # The innermost frame of this file: below it there is only code of the vocabulary, which is not at fault.
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    return lines[-1] if lines else 1


class _Lines:
    """Where the words of a `@table` are in its file."""

    def __init__(self, path: Path) -> None:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [call for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for call in node.decorator_list]
        self.tables = [call for call in calls if isinstance(call, ast.Call) and _name(call) == "table"]

    def of(self, mistake: Mistake) -> int | None:
        """The line of the wrong text, else of the word, else of the decorator."""
        place: ast.AST | None = self.tables[0] if self.tables else None
        for word in mistake.word.split("."):
            # Down as far as the words lead: a default has no place in the file, and then the line above it is told.
            place = _keyword(place, word) or place
        found = [node for node in ast.walk(place) if _says(node, mistake.at)] if place and mistake.at else []
        return getattr(found[0] if found else place, "lineno", None)


def _name(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def _keyword(place: ast.AST | None, word: str) -> ast.AST | None:
    keywords: Iterator[Any] = ast.walk(place) if place is not None else iter(())
    return next((each for each in keywords if isinstance(each, ast.keyword) and each.arg == word), None)


def _says(node: ast.AST, text: str) -> bool:
    said = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    return isinstance(said, str) and (said == text or said.rpartition(".")[2] == text)
