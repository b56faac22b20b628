"""Table names in SQL: `silver.transactions` becomes a view, wherever it stands as a name and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from lakehouse.commands.console import UsageError, near

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<word>[^\W\d]\w*)
  | (?P<number>\d[\w.]*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_READS = {"select", "with", "from", "values", "table", "describe", "desc", "show", "explain"}
_WRITES = {
    "insert": {"into", "overwrite"},
    "merge": {"into"},
    "delete": {"from"},
    "update": None,
    "create": {"table", "or", "view", "temporary", "database", "schema", "function"},
    "drop": {"table", "view", "database", "schema", "function"},
}


@dataclass(frozen=True)
class TableUse:
    """A table as a statement uses it: its name, the version or time it is read at, and the view that stands for it."""

    table: str
    option: str | None
    value: str | None

    @property
    def view(self) -> str:
        """A name no table has."""
        suffix = re.sub(r"\W", "_", f"_{self.option}_{self.value}") if self.option else ""
        return "lake__" + self.table.replace(".", "__") + suffix.lower()


@dataclass
class _Token:
    kind: str
    text: str

    @property
    def name(self) -> str:
        """The identifier it is, without quotes; empty where it is none."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else ""

    @property
    def word(self) -> str:
        """The keyword it may be, in lower case."""
        return self.text.lower() if self.kind == "word" else ""


def resolve_names(statement: str, known: Collection[str], layers: Collection[str]) -> tuple[str, list[TableUse]]:
    """The statement with every known table name replaced by its view's name, and the tables it uses.

    Text literals, comments and aliases are left alone. `silver.transactions VERSION AS OF 3` reads an older version.

    Args:
        statement: one SQL query.
        known: names of tables, `layer.name`.
        layers: first parts that a table's name has.

    Raises:
        UsageError: the statement is no query, or names a table that does not exist.
    """
    tokens = _tokens(statement)
    _only_queries(tokens)
    significant = [i for i, token in enumerate(tokens) if token.kind != "skip"]
    bare = _standalone(tokens, significant)
    uses: list[TableUse] = []
    position = 0
    while position < len(significant):
        found = _name_at(tokens, significant, position)
        before = tokens[significant[position - 1]].word if position else ""
        # An alias may be called like a layer; what follows FROM or JOIN is a table all the same.
        if found is not None and (before in ("from", "join") or found.partition(".")[0].lower() not in bare):
            name = _known(found, known, layers)
            if name is not None:
                position = _replace(tokens, significant, position, name, uses)
                continue
        position += 1
    _replace_short_names(tokens, significant, uses, bare)
    return "".join(token.text for token in tokens), uses


def _tokens(statement: str) -> list[_Token]:
    found = [_Token(m.lastgroup or "other", m.group()) for m in _TOKEN.finditer(statement.strip().rstrip(";"))]
    if not any(token.kind != "skip" for token in found):
        raise UsageError("There is no statement. For example: SELECT * FROM gold.daily_revenue")
    return found


def _only_queries(tokens: list[_Token]) -> None:
    words = [token for token in tokens if token.kind != "skip"]
    first = next((token for token in words if token.text != "("), words[0])
    following = zip(words, [*words[1:], _Token("other", "")], strict=True)
    writes = any(
        token.word in _WRITES and (after.word in (_WRITES[token.word] or ()) or token is first)
        for token, after in following
    )
    if first.word not in _READS or writes:
        raise UsageError(
            "This command only reads: the statement must be a query (SELECT, WITH, DESCRIBE, SHOW, EXPLAIN). Tables "
            "are changed by their transforms and a backfill alone, so that every row has passed its audit."
        )
    if any(token.text == ";" for token in words):
        raise UsageError("Give one statement at a time.")


def _standalone(tokens: list[_Token], significant: list[int]) -> set[str]:
    """Names that stand alone somewhere, neither before nor after a dot: aliases and the like."""
    texts = [tokens[i] for i in significant]
    return {
        token.name.lower()
        for before, token, after in zip([None, *texts[:-1]], texts, [*texts[1:], None], strict=True)
        if token.name and (before is None or before.text != ".") and (after is None or after.text != ".")
    }


def _name_at(tokens: list[_Token], significant: list[int], position: int) -> str | None:
    """`a.b` where it begins at a position and is not the rest of a longer name."""
    first, dot, second, *_ = [*(tokens[i] for i in significant[position : position + 3]), *[_Token("other", "")] * 3]
    if not first.name or dot.text != "." or not second.name:
        return None
    if position and tokens[significant[position - 1]].text == ".":
        return None
    return f"{first.name}.{second.name}"


def _known(found: str, known: Collection[str], layers: Collection[str]) -> str | None:
    by_lower = {name.lower(): name for name in known}
    if found.lower() in by_lower:
        return by_lower[found.lower()]
    if found.partition(".")[0].lower() in layers:
        raise UsageError(f"There is no table {found}.{near(found.lower(), known)} Tables: {', '.join(known)}.")
    return None


def _replace(tokens: list[_Token], significant: list[int], position: int, name: str, uses: list[TableUse]) -> int:
    """Put the view's name in the place of a table's (and of its time travel); returns the position after it."""
    end = position + 3
    option = value = None
    match [tokens[i] for i in significant[end : end + 4]]:
        case [kind, as_, of, when] if kind.word in ("version", "timestamp") and (as_.word, of.word) == ("as", "of"):
            option, value = f"{kind.word}AsOf", when.text.strip("'\"")
            end += 4
    use = TableUse(name, option, value)
    if use not in uses:
        uses.append(use)
    tokens[significant[position]].text = use.view
    tokens[significant[position]].kind = "word"
    for i in range(significant[position] + 1, significant[end - 1] + 1):
        tokens[i].text = ""
        tokens[i].kind = "skip"
    return end


def _replace_short_names(tokens: list[_Token], significant: list[int], uses: list[TableUse], bare: set[str]) -> None:
    """`transactions.amount` means the table of that name too, unless something else in the statement is called so."""
    short: dict[str, set[str]] = {}
    for use in uses:
        short.setdefault(use.table.split(".")[1].lower(), set()).add(use.view)
    left = [i for i in significant if tokens[i].kind != "skip"]
    for position, i in enumerate(left[:-1]):
        views = short.get(tokens[i].name.lower(), set())
        follows = position > 0 and tokens[left[position - 1]].text == "."
        if (
            len(views) == 1
            and not follows
            and tokens[left[position + 1]].text == "."
            and tokens[i].name.lower() not in bare
        ):
            (tokens[i].text,) = views
