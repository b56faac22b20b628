"""Texts of the code as Markdown."""

from __future__ import annotations

import inspect
import re


def paragraphs(text: str) -> str:
    """A docstring's paragraphs, each on a line of its own."""
    parts = inspect.cleandoc(text).replace("\f", "").split("\n\n")
    return "\n\n".join(plain(" ".join(part.split())) for part in parts)


def cell(text: str) -> str:
    """A text for a cell of a table."""
    return plain(" ".join(text.split())).replace("|", "\\|")


def plain(text: str) -> str:
    """What looks like a tag or an emphasis is shown as it is; pieces of code and `**words**` stay."""
    parts = re.split(r"(`[^`]*`|\*\*\w+\*\*)", text.replace("\\[", "["))
    return "".join(part if part.startswith(("`", "**")) else re.sub(r"([<>*_\[\]])", r"\\\1", part) for part in parts)
