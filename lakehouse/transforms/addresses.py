"""What an e-mail address looks like in text, however it is written; the patterns are Java's and Python's alike."""

from __future__ import annotations

import re

MASK = "<e-mail>"
SIGNS = ("@", "＠", "﹫", "\\u", "%40", "%25", "&#", "&commat;")
"""Texts one of which is in any text that holds an address: cheap to look for before a pattern is tried."""

# The sign for "at", also escaped as in JSON, a URL (once or more often) or HTML.
AT = r"(?:[@＠﹫]|\\u(?:0040|[fF][fF]20|[fF][eE]6[bB])|%(?:25){0,8}40|&(?:#0{0,8}64|#[xX]0{0,8}40|commat);)"
# A sign for "at" between what names can hold. It starts only where no name is under way: a long text then costs its
# length, not its square. Java matches a repeated group by recursion unless it is possessive (`++`): a line of many
# signs would overflow the stack, which ends the engine.
_CHARACTER = r"[\w.!#$%&'*+/=?^`|~\\-]"
_NAME = rf"(?<!{_CHARACTER}){_CHARACTER}+"
# A quoted name. Both quotes are escaped or neither is, and no punctuation follows the first: so what stands between two
# texts of JSON is never taken for one. Every repetition has a bound: a line of backslashes would cost its square.
_FIRST = r"[\w!#$%&'*+/=?^`|~.-]"
_QUOTED = (
    rf"""(?:(?<!\\)\\{{1,8}}"{_FIRST}[^"]{{0,63}}\\{{1,8}}"|(?<!\\)"{{1,2}}{_FIRST}(?:[^"]{{0,62}}[^"\\])?"{{1,2}})"""
)
_HOST = r"(?:[\w.．。\-]|\\{1,8}u[0-9a-fA-F]{4}|\[[\w.:]{1,60}\])"
ADDRESS = rf"(?:{_QUOTED}|{_NAME})(?:{AT}{_HOST}++)++"
"""In Java it takes the flag `(?U)`: names may hold letters of any script."""

_FOUND = re.compile(ADDRESS)
_SIGN = re.compile(AT)


def addresses_in(text: str) -> list[str]:
    """Every address in a text, with a plain sign and plain quotes."""
    plain = _SIGN.sub("@", re.sub(r'\\{1,8}"|""', '"', text))
    return [re.sub(r'^"+', '"', each) for each in _FOUND.findall(plain)]


def without_addresses(text: str) -> str:
    """The text with each address replaced."""
    return _FOUND.sub(MASK, text)
