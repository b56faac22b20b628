"""The text of a query in plain form: no comments, no hints, each literal as Spark reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakehouse.errors import LakehouseError

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--(?:\\\n|[^\r\n])*)
  | (?P<comment>/\*)
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<hex>[xX](?:'[^']*'|"[^"]*"))
  | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<word>[^\W\d]\w*|\d[\w.]*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_CONTROL = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
CALLS = {"window"}  # read as a clause otherwise


class QueryError(LakehouseError):
    """What was given is no query, or one that is not allowed."""


class NotTranslatedError(LakehouseError):
    """What the engine in this process would not answer as Spark does; the text names it."""


def plain_parts(text: str) -> Iterator[str]:
    """The text without comments and hints, each literal in its simplest form, as Spark reads it."""
    tokens = list(_tokens(text))
    position = 0
    while position < len(tokens):
        kind, word = tokens[position]
        position += 1
        if kind == "space":
            yield " "
        elif kind in ("text", "raw"):
            value = _value(kind, word)
            # Literals side by side are one.
            while (after := _next(tokens, position)) is not None and tokens[after][0] in ("text", "raw"):
                value += _value(*tokens[after])
                position = after + 1
            yield "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        elif word.lower() in CALLS and (after := _next(tokens, position)) is not None and tokens[after][1] == "(":
            yield f"`{word.lower()}`"
        else:
            yield word


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        assert found is not None, "any character is a token"
        kind, word, position = found.lastgroup or "", found.group(), found.end()
        if kind == "comment":
            depth = 1
            for mark in re.finditer(r"/\*|\*/", text[position:]):
                depth += 1 if mark.group() == "/*" else -1
                if depth == 0:
                    position += mark.end()
                    break
            else:
                raise QueryError("A comment begins with /* and does not end.")
            yield "space", " "
        elif kind == "other" and word in "'\"`":
            raise QueryError(f"A text or name begins with {word} and does not end.")
        else:
            yield kind, word


def _next(tokens: list[tuple[str, str]], position: int) -> int | None:
    return next((i for i in range(position, len(tokens)) if tokens[i][0] != "space"), None)


def _value(kind: str, literal: str) -> str:
    """What a literal stands for."""
    if kind == "raw":
        return literal[2:-1]
    quote = literal[0]

    def meant(found: re.Match[str]) -> str:
        if number := found[1] or found[2]:
            try:
                made = chr(int(number, 16))
                made.encode()
            except (ValueError, OverflowError):
                raise QueryError(f"{found.group()} is no character.") from None
            return made
        return chr(int(found[3], 8)) if found[3] else _CONTROL.get(found[4], found[4])

    # A doubled quote is one; neither part of an escape may be taken for the other.
    parts = re.split(r"(\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-3][0-7]{2}|.))", literal[1:-1], flags=re.DOTALL)
    return "".join(
        _ESCAPE.sub(meant, part) if number % 2 else part.replace(quote * 2, quote) for number, part in enumerate(parts)
    )
