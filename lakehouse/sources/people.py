"""A person who is to be forgotten, and how one is found in cells, JSON and text; `people_in_lines` knows landed files.

An id made of digits may also be an amount or a product: in columns and fields that are known to hold something else it
is passed over. An e-mail address, a token or an id with letters means the person wherever it stands, but for ids of
others: there the whole id counts, to the letter.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

from lakehouse.transforms.addresses import AT

FORGOTTEN = "<forgotten>"
PERSON_FIELDS = ("user_id", "userId", "customer_id", "customerId", "CustomerID", "user", "customer")
_HEX = re.compile(r"\\\\u[0-9a-f]{4}")  # a letter as JSON escapes it, in a pattern
_QUOTE, _QUOTES = re.compile('"'), r'(?:""|\\\\{0,8}")'  # as JSON escapes and CSV doubles them
SHORTEST_NUMBER = 5  # digits; a shorter number in a text is taken for an id only behind the name of such a field
_CLASS = "__class__"  # in what Dagster wrote down: the keys beside it are its own words, and no people's
JSON_WORDS = ("null", "true", "false")  # as ids they are so too, and in quotes: they are everywhere in JSON


def canonical_id(value: object) -> str:
    """An id as tables compare it: `17841.0`, ` 17841` and 17841 are one."""
    return re.sub(r"^(\d+)\.0+$", r"\1", str(value).strip())


def canonical_address(text: str) -> str:
    """An e-mail address as it is tokenised."""
    return text.strip().lower()


def person_hmac(kind: str, text: str, key: bytes) -> str:
    """What is kept of a forgotten person: an HMAC of the id (`user`) or the address (`email`).

    Args:
        kind: `user` or `email`: an id and an address of the same text have different HMACs.
        text: the id or address, in any spelling.
        key: the lakehouse's own.
    """
    known = canonical_id(text) if kind == "user" else canonical_address(text)
    return hmac.new(key, f"{kind}:{known}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Person:
    """What names a person.

    Attributes:
        user: the id, canonical; None: known by addresses only.
        emails: addresses, canonical.
        tokens: digests of the addresses under every key, without the key's id.
        others: columns that hold something else than people, where digits are not an id.
        fields: columns and JSON fields that hold ids of people.
        ids: columns of which each value is one id and nothing else.
    """

    user: str | None
    emails: frozenset[str] = frozenset()
    tokens: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset(PERSON_FIELDS)
    ids: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """Nothing of the person: it could end up in a traceback."""
        return "Person(…)"

    @cached_property
    def _needles(self) -> tuple[str, ...]:
        """Texts one of which is in any text that names the person."""
        return (
            *(each.lower() for each in self._spellings),
            *(e.rpartition("@")[0].strip('"') for e in self.emails),
            *self.tokens,
        )

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        """The id as it is, as JSON escapes it, and as a key of Redis or a URL has it."""
        user = self.user
        return tuple(dict.fromkeys((user, json.dumps(user)[1:-1], quote(user, safe="")))) if user else ()

    @cached_property
    def _addressed(self) -> re.Pattern[str] | None:
        found = [
            rf"(?<![\w.+-]){_QUOTE.sub(_QUOTES, re.escape(name))}{AT}{re.escape(host)}(?![\w-]|\.\w)"
            for name, _, host in (email.rpartition("@") for email in sorted(self.emails))
        ]
        found += [rf"(?:[0-9a-f]{{8}}:)?{token}" for token in sorted(self.tokens)]
        return re.compile(f"(?i:{'|'.join(found)})") if found else None

    @cached_property
    def _strict(self) -> re.Pattern[str] | None:
        return self._addressed if self.user is None or self.user.isdigit() else self._loose

    @cached_property
    def _loose(self) -> re.Pattern[str] | None:
        parts = [each for each in (self._addressed.pattern if self._addressed else "", self._word) if each]
        return re.compile("|".join(parts)) if parts else None

    @property
    def _word(self) -> str:
        if not self.user:
            return ""
        fields = "|".join(map(re.escape, sorted(self.fields)))
        if self.user in JSON_WORDS:
            return rf'"(?:{fields})"\s*:\s*"{self.user}"'
        if self.user.isdigit() and len(self.user) < SHORTEST_NUMBER:
            return rf'"(?:{fields})"\s*:\s*"?{self.user}(?:\.0+)?(?![\w.])'
        # Escaped, a letter is a number of either case.
        several = [_HEX.sub(r"(?i:\g<0>)", re.escape(each)) for each in self._spellings]
        return rf"(?<![\w.-])(?:{'|'.join(several)})(?:\.0+)?(?![\w-]|\.\d)"

    def is_user(self, value: object) -> bool:
        """Whether an id is the person's."""
        return self.user is not None and value is not None and canonical_id(value) == self.user

    def may_be_in(self, text: str) -> bool:
        """Quick: False only where the text cannot name the person."""
        lowered = text.lower()
        return any(needle in lowered for needle in self._needles)

    def in_text(self, text: str, *, strict: bool = False) -> bool:
        """Whether a text names the person; strict: digits alone do not."""
        pattern = self._strict if strict else self._loose
        return pattern is not None and self.may_be_in(text) and pattern.search(text) is not None

    def in_id(self, text: str) -> bool:
        """Whether an id is the person's, or has an address of theirs in it: a word of another id is not they."""
        return self.is_user(text) or (self._addressed is not None and self._addressed.search(text) is not None)

    def in_bytes(self, content: bytes) -> bool:
        """Whether raw bytes name the person, such as the free pages of a database, where no text has an end."""
        text = content.decode("ascii", "replace")
        lowered = text.lower()
        return (
            any(each in lowered for each in (*self.emails, *self.tokens))
            or self.in_text(text, strict=True)
            or bool(self.user and not self.user.isascii() and self.in_text(content.decode("utf-8", "replace")))
        )

    def out_of_text(self, text: str, *, strict: bool = False) -> str:
        """The text without the person."""
        pattern = self._strict if strict else self._loose
        return pattern.sub(FORGOTTEN, text) if pattern and self.may_be_in(text) else text

    def _in_cell(self, text: str, key: str) -> bool:
        """Whether a text is the person's id, names the person, or is JSON that does."""
        if key in self.ids:
            return self.in_id(text)
        if key in self.fields and self.is_user(text):
            return True
        loaded = _loaded(text)
        return self.in_text(text, strict=key in self.others) if loaded is None else self.in_value(loaded, key)

    def in_value(self, value: Any, key: str = "") -> bool:
        """Whether a cell or JSON value, JSON in texts included, names the person; `key` is its column or field."""
        match value:
            case str():
                return self.may_be_in(value) and self._in_cell(value, key)
            case dict():
                is_name = _CLASS not in value
                return any(
                    (is_name and self.in_text(str(k), strict=True)) or (k != _CLASS and self.in_value(v, str(k)))
                    for k, v in value.items()
                )
            case list() | tuple():
                return any(self.in_value(each, key) for each in value)
            case bool() | None:
                return False
            case int() | float():
                return key in self.fields and self.is_user(value)
        return False

    def out_of_value(self, value: Any, key: str = "") -> Any:
        """The value without the person; everything else stays as it is."""
        if not self.in_value(value, key):
            return value
        match value:
            case str():
                loaded = _loaded(value)
                if key in self.fields and self.is_user(value):
                    return FORGOTTEN
                if loaded is None:
                    return self.out_of_text(value, strict=key in self.others)
                return json.dumps(self.out_of_value(loaded, key), ensure_ascii=False)
            case dict() if _CLASS in value:
                return {k: v if k == _CLASS else self.out_of_value(v, str(k)) for k, v in value.items()}
            case dict():
                return {self.out_of_text(str(k), strict=True): self.out_of_value(v, str(k)) for k, v in value.items()}
            case list() | tuple():
                return [self.out_of_value(each, key) for each in value]
        return FORGOTTEN


def parsed(text: str) -> Any:
    """The JSON in a text; the text where it is none, or names a field twice: one of the two would not be seen."""
    for whole in (None, float):  # Python refuses to make an integer of more than some thousand digits, which is no id
        try:
            return json.loads(text.lstrip("\ufeff"), object_pairs_hook=_once, parse_int=whole)  # as the reader does
        except (json.JSONDecodeError, RecursionError):
            return text
        except ValueError:
            continue
    return text


def _once(pairs: Collection[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError
    return dict(pairs)


def _loaded(text: str) -> Any:
    """A JSON object or list in a text; None where it is none."""
    found = parsed(text) if text.lstrip()[:1] in ("{", "[") else text
    return None if found is text else found
