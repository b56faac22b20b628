"""Whose lines of landed files are, and the lines without a person who is to be forgotten."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any

from lakehouse.contracts import Landing
from lakehouse.contracts.landing import UTF_8
from lakehouse.sources.people import Person, canonical_address, canonical_id, parsed
from lakehouse.sources.probe import BYTE_ORDER_MARK, UTF_16_MARKS
from lakehouse.transforms.addresses import addresses_in

# Stands for a carriage return within a line, which Python's parser takes for an end of it and the engine does not. No
# text that was decoded holds this character.
_RETURN = "\udc0d"
_LIMIT = Lock()  # on how long a field Python's parser takes: one number for the whole process


class Lines:
    """The lines of landed files of one source, as far as people are concerned."""

    def __init__(self, landing: Landing, person_columns: Sequence[str]) -> None:
        self.landing = landing
        self.person_columns = person_columns
        self._columns = [name for name in person_columns if name in landing.columns]

    def without(self, content: bytes, person: Person) -> tuple[bytes, int, int]:
        """A file's content without the person, how many lines are gone, and from how many they were taken out.

        A line goes if its id or an address in its known fields is the person's; so does one that cannot be parsed, or
        has no id, and names the person anywhere. From another person's line only the mention is taken.
        """
        lines = content.split(b"\n")
        header = self._header(self._text(lines[0])) if self.landing.format == "csv" else None
        kept, gone, changed = lines[:1] if header is not None else [], 0, 0
        for line in lines[len(kept) :]:
            left = self._line(line, header, person)
            gone += left is None
            changed += left is not None and left != line
            kept += [left] if left is not None else []
        return (b"\n".join(kept), gone, changed) if gone or changed else (content, 0, 0)

    def name(self, content: bytes, person: Person) -> bool:
        """Whether a file's content names the person: also where it is not read, or read as other text than it is."""
        if self.without(content, person)[1:] != (0, 0):
            return True
        if self.landing.format == "csv" and self._in_first_line(self._text(content.split(b"\n", 1)[0]), person):
            return True
        other = self._as_utf_8(content)
        return other is not None and _utf_8(self).without(other, person)[1:] != (0, 0)

    def _in_first_line(self, text: str, person: Person) -> bool:
        """Whether a CSV file without a header names the person in its first line, which is then one of its rows.

        Where lines end with a carriage return, that line is the whole file. Names of columns are about nobody.
        """
        line = text.removesuffix("\r")
        is_header = "\r" not in line and not {*self._header(line)}.isdisjoint(self.landing.columns)
        return not is_header and person.in_text(line)

    def _as_utf_8(self, content: bytes) -> bytes | None:
        """A file's text where it is another one than it is read as: it is UTF-16, or UTF-8 against its landing."""
        if content.startswith(UTF_16_MARKS):
            return content.decode("utf-16", "replace").encode(errors="replace")
        if self.landing.encoding != UTF_8 and not content.isascii():
            with suppress(UnicodeDecodeError):
                content.decode()
                return content
        return None

    def _line(self, line: bytes, header: Sequence[str] | None, person: Person) -> bytes | None:
        """A line without the person; the very bytes where they are not in it, None where the whole line goes."""
        text = self._text(line)
        # A cheap look first: nearly all lines are somebody else's, and to parse each of them takes far longer.
        if not (person.may_be_in(text) or "\\u" in text or "%" in text):  # the latter may spell them otherwise
            return line
        bare = text.removesuffix("\r")
        left = self._csv_line(bare, header, person) if header is not None else self._json_line(bare, person)
        if left is None or left == bare:
            return None if left is None else line
        return (left + text[len(bare) :]).encode(self.landing.encoding, "replace")

    def people(self, content: bytes) -> Iterable[tuple[str, str]]:
        """Every id and address in the content, as (`user` or `email`, canonical text)."""
        ids: set[str] = set()
        lines = self._text(content).split("\n")
        header = self._header(lines[0]) if self.landing.format == "csv" else None
        for line in lines:
            row = _object(line) if header is None else dict(zip(header, self._cells(line), strict=False))
            ids |= {canonical_id(row[c]) for c in self._columns if row and row.get(c) not in (None, "")}
        yield from (("user", each) for each in ids)
        yield from (("email", each) for each in {canonical_address(each) for each in addresses_in("\n".join(lines))})

    def _text(self, content: bytes) -> str:
        return content.decode(self.landing.encoding, "replace")

    def _header(self, line: str) -> list[str]:
        return self._cells(line.removeprefix(BYTE_ORDER_MARK))

    def _cells(self, line: str) -> list[str]:
        text = line.removesuffix("\r")
        try:
            return self._split(text)
        except csv.Error:  # too long a field, or a carriage return: both are nothing special to the reader
            return self._split_as_read(text)

    def _split(self, text: str) -> list[str]:
        return next(csv.reader([text], delimiter=self.landing.separator), [])

    def _split_as_read(self, text: str) -> list[str]:
        with _LIMIT:
            usual = csv.field_size_limit(max(len(text), csv.field_size_limit()))
            try:
                return [each.replace(_RETURN, "\r") for each in self._split(text.replace("\r", _RETURN))]
            except csv.Error:
                return []
            finally:
                csv.field_size_limit(usual)

    def _json_line(self, text: str, person: Person) -> str | None:
        row = _object(text)
        if row is None:
            return None if person.in_text(text) else text
        known, extra = self._parted(row)
        # The id decides whose the line is; any other mention of the person is taken out of somebody else's line.
        ids = [known.get(name) for name in self._columns]
        if any(map(person.is_user, ids)) or self._names(known, person):
            return None
        if not person.in_value(extra):
            return text
        if not any(each not in (None, "") for each in ids):
            return None
        fixed = _without(text, extra, person)
        return None if fixed is None else person.out_of_text(fixed, strict=True)

    def _names(self, known: dict[str, Any], person: Person) -> bool:
        """Whether known fields name the person: their values, not `null` and what else JSON is written with."""
        texts = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in known.items()
            if isinstance(value, str | list | dict)
        }
        return any(
            person.in_id(text) if name in self._columns else person.in_text(text, strict=True)
            for name, text in texts.items()
        )

    def _parted(self, row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the landing has columns for, and what else stands in the line."""
        known = {name: value for name, value in row.items() if name in self.landing.columns}
        return known, {name: value for name, value in row.items() if name not in known}

    def _csv_line(self, text: str, header: Sequence[str], person: Person) -> str | None:
        # As the reader does: a quoted field that does not end on the line takes the separator behind it.
        *cells, after = self._cells(text.removesuffix("\r") + self.landing.separator) or [""]
        if len(cells) != len(header) or after:
            return None if person.in_text(text) else text
        row = dict(zip(header, cells, strict=True))
        known, extra = self._parted(row)
        ids = [row[name] for name in self._columns if name in row]
        if any(map(person.is_user, ids)) or self._names(known, person):
            return None
        if not person.in_value(extra):
            return text
        if not any(ids):
            return None
        left = io.StringIO()
        row |= {name: person.out_of_value(value, name) for name, value in extra.items()}
        csv.writer(left, lineterminator="", delimiter=self.landing.separator).writerow(row.values())
        return left.getvalue()


def _utf_8(lines: Lines) -> Lines:
    """The same lines, of files in UTF-8."""
    return Lines(replace(lines.landing, encoding=UTF_8), lines.person_columns)


def _object(text: str) -> dict[str, Any] | None:
    """A line's JSON object; None where it is none, or names a field twice."""
    found = parsed(text)
    return found if isinstance(found, dict) else None


def _without(text: str, fields: dict[str, Any], person: Person) -> str | None:
    """A line of JSON whose fields are rid of the person; None where that cannot be done for sure."""
    for name, value in fields.items():
        if person.in_value(value, name) or person.in_text(name, strict=True):
            written = _written_anew(text, name, person.out_of_value(value, name))
            if written is None:
                return None
            text = written
    return text


def _written_anew(text: str, name: str, value: Any) -> str | None:
    """A JSON object's text with another value for one field: a number of another one keeps its digits.

    None where the field's name is spelled in a way that is not found, or a number in its value has too many digits.
    """
    found = re.search(rf"{re.escape(json.dumps(name))}\s*:\s*", text)
    if found is None:
        return None
    try:
        _, end = json.JSONDecoder().raw_decode(text, found.end())
    except ValueError:
        return None
    return text[: found.end()] + json.dumps(value, ensure_ascii=False) + text[end:]
