"""Hostile input, from a seed: lines and names that somebody, or something broken, could land."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import date
from typing import Any

COLUMNS = ("event_id", "schema_version", "user_id", "event_type", "order_id", "payment_method", "email", "country")
TEXTS = [
    "", " ", "null", "NaN", "true", "0", "-0", "1e400", "\u0000", "\t\r", "\x0b\x0c\x1c\x85\u2028\u2029", "\ufeff", "\ufffe",
    "\u202eeltit\u202c", "שלום עולם", "مرحبا", "e\u0301\u0323" * 9, "Z\u0351\u0317" * 50, "👩‍👩‍👧‍👦🏳️‍🌈", "\U0010ffff", "\ufdd0", "\ufdd01.5", "ﬀ", "ſ", "İ",
    "'; DROP TABLE x; --", "${jndi:ldap://x}", "{{7*7}}", "$(reboot)", "../../../etc/passwd", "%2e%2e%2f", "a|b", '"', "\\", "\\u0000",
    "<script>", "=cmd|' /C calc'!A0", "__HIVE_DEFAULT_PARTITION__", "a@b.c", "@" * 500, "a" * 5000, ",", '""', "\\N", "a=b", "٣٤٥", "1_000",
]  # fmt: skip
TIMES = [
    "0000-00-00T00:00:00Z", "0001-01-01T00:00:00Z", "1582-10-10T10:10:10Z", "1969-12-31T23:59:59.999999Z", "1900-02-29T00:00:00Z",
    "9999-12-31T23:59:59Z", "99999-01-01T00:00:00Z", "+10000-01-01T00:00:00Z", "-0044-03-15T12:00:00Z", "2026-13-01T00:00:00Z",
    "2026-02-30T00:00:00Z", "2026-03-02T24:00:00Z", "2026-03-02T23:59:60Z", "2026-03-02T10:00:00+99:99", "2026-03-02T10:00:00-18:00",
    "2026-03-02T10:00:00.123456789Z", "2026-03-02 10:00", "2026-03-02", "10:00", "now", "today", "epoch", "1772445600", "2026-W10-1",
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00",
    "２０２６-03-02T10:00:00Z", "2026-03-02T10:00:00Z\u0000", "",
]  # fmt: skip
AMOUNTS = [
    "0", "-0", "0.005", "-0.005", "1e2", "1E-400", "1e400", "99999999999999999999999999999999999999", "0.1" + "0" * 500 + "1",
    "9999999999999999.994", "9999999999999999.995", "12345678901234567890.12", "1", "-1", "1000000", "1000000.01", "9" * 2000,
]  # fmt: skip
NAMES = [
    "x..%2F..%2Fescape", "%2F", "%2e%2e", "%", "%zz", "%00", "a=b", "route=valid", "day=2026-03-02", " ", " a ", "-rf", "--", "~", "$HOME", "$(id)", "`id`",
    ";id", "a&b", "a|b", "<a>", "a+b", "a#b", "a?b", "*", "[a]", "{a,b}", "a\\b", "a'b", 'a"b', "a\tb", "file:a", "s3:a", "http:__x", "é", "e\u0301", "İ", "ſ",
    "\u202ea", "שלום", "😀", "\ufeffa", "a\u00a0b", "x" * 200, "CON", "a.jsonl", "a.parquet", "part-0000", "@", ",",
]  # fmt: skip


def sound_line(key: str, day: date, cents: int) -> bytes:
    """A purchase that must come out of any company it is in."""
    row = {
        "event_id": key, "schema_version": 1, "user_id": "u", "event_type": "purchase", "event_time": f"{day}T10:00:00Z",
        "order_id": f"o-{key}", "amount": f"{cents / 100:.2f}", "currency": "EUR", "country": "DE",
    }  # fmt: skip
    return json.dumps(row).encode()


def _value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(9 if depth < 4 else 6)
    if kind <= 2:
        return chance.choice(TEXTS)
    if kind == 3:
        return chance.choice([None, True, False, 0, -1, 2**53 + 1, 2**80, 1.5, 1e308, 5e-324])
    if kind == 4:
        return chance.choice(TIMES)
    if kind == 5:
        return "".join(
            chr(chance.choice([chance.randrange(0x20, 0xD800), chance.randrange(0xE000, 0x110000)])) for _ in range(8)
        )
    if kind == 6:
        return [_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(TEXTS): _value(chance, depth + 1) for _ in range(chance.randrange(4))}


def json_object(chance: random.Random, day: date) -> bytes:
    """A well-formed object with any values; numbers and escapes in forms that no library writes."""
    row: dict[str, Any] = {name: _value(chance) for name in COLUMNS if chance.random() < 0.6}
    row["event_time"] = chance.choice([f"{day}T10:00:00Z", chance.choice(TIMES), _value(chance)])
    for _ in range(chance.randrange(3)):
        row[chance.choice(TEXTS)] = _value(chance)
    text = json.dumps(
        row, ensure_ascii=chance.random() < 0.5, indent=None, separators=chance.choice([(",", ":"), (" , ", " : ")])
    )
    amount = chance.choice(AMOUNTS)
    text = text[:-1].rstrip() + chance.choice([f', "amount": {amount}}}', f', "amount": "{amount}"}}'])
    if chance.random() < 0.2:  # an escape is as good as a letter
        text = text.replace('"event_time"', '"\\u0065vent_time"')
    return text.encode("utf-8", "surrogatepass")


def mutated(chance: random.Random, line: bytes) -> bytes:
    """A line with some bytes changed, lost, doubled or put in."""
    found = bytearray(line)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(5):
            case 0:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del found[at : at + chance.randrange(1, 9)]
            case 2:
                found[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 5)))
            case 3:
                found[at:at] = found[at : at + chance.randrange(1, 30)]
            case _:
                del found[at:]
    return bytes(found).replace(b"\n", b"?")


def odd_json_lines() -> list[bytes]:
    """Lines that each have broken some parser."""
    lines = [
        line.encode("utf-8", "surrogatepass")
        for line in ("", " ", "\r", "{}", "[]", "null", "0", '""', "{", "}", "\ufeff{}", "\ud800", '{"a":"\\ud800"}')
    ]
    lines += [
        b"\xff\xfe{\x00}\x00",
        "{}".encode("utf-16"),
        b"\x00" * 100,
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\xae",
    ]
    lines += [
        b'{"event_id":NaN}',
        b'{"event_id":Infinity}',
        b'{"event_id":-Infinity}',
        b'{"amount":+1}',
        b'{"amount":0x10}',
        b'{"amount":1.}',
        b"{'a':1}",
    ]
    lines += [
        b'{"a":1,}',
        b'{"a":1/*c*/}',
        b'{"a":1}//c',
        b"{a:1}",
        b'{"a":01}',
        b'{"a":"\t"}',
        b'{"a":"\\x41"}',
        # A letter whose last byte is that of a digit is none; and behind a backslash that is meant as such, there is no escape.
        *[
            f'{{"event_id":"{text}"}}'.encode()
            for text in (r"\u008텂", r"\\u008텂", r"\\\u008텂", r"\u00e9", r"\\\u00e9")
        ],
        b'{"":1}',
        b'{"a":1}{"a":2}',
        b'{"a":1},{"a":2}',
    ]
    for depth in (10, 400, 999, 1001, 5000, 100_000):
        lines += [
            b'{"a":' * depth + b"1" + b"}" * depth,
            b'{"event_id":' + b"[" * depth + b"]" * depth + b"}",
            b"[" * depth,
            b'{"a":' * depth,
        ]
    return lines


def huge_json_lines() -> list[bytes]:
    """Lines of 100 kB to 10 MB, each of another kind."""
    many = 100_000
    return [
        b'{"event_id":"' + b"x" * 10_000_000 + b'"}',
        b'{"event_id":"' + b"\xf0\x9f\x98\x80" * many + b'"}',
        b'{"amount":' + b"9" * many + b"}",
        b'{"a":[' + b"1," * many + b"1]}",
        b'{"a":[' + b'"1",' * many + b'"1"]}',
        b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(100_000)) + b"}",
        b'{"event_id":"' + b"\\u0041\\n" * 300_000 + b'"}',
        b'{"event_id":"' + b"\\" * (2 * many) + b'"}',
        b'{"event_id":"' + b"a@" * many + b'"}',
        b'{"x":"' + b"a@b." * many + b'"}',
        b'{"x":"' + b"\\u0040a" * 200_000 + b'"}',
        b'{"phone":"' + b'\\"' * many + b'"}',
        b'{"phone":"' + b"\\\\" * many,
        b'{"address":' + b"[" * 900 + b'"a",' * many,
        b'"phone":' * many,
        b'"' + b"phone " * many + b'":1',
        b"@a" * many,
        b"a.b" * many,
        b'"' * many,
        b"\xff" * many,
        b" " * many,
        b"-" * many,
    ]


def csv_line(chance: random.Random, day: date) -> bytes:
    """A line of eight fields, more or less, quoted or not, or not quite."""
    fields = [
        chance.choice(["536365", "C536365", "A1", *TEXTS]), chance.choice(TEXTS), chance.choice(TEXTS),
        chance.choice(["6", "-1", "1e3", "9223372036854775808", *AMOUNTS]), chance.choice([f"{day} 10:00:00", *TIMES]),
        chance.choice(["2.55", *AMOUNTS]), chance.choice(["17850.0", *TEXTS]), chance.choice(["United Kingdom", *TEXTS]),
    ]  # fmt: skip
    quoted: list[Callable[[str], str]] = [
        lambda t: '"' + t.replace('"', '""') + '"', lambda t: t, lambda t: f'"{t}', lambda t: f'{t}"x"', lambda t: f" {t} ",
    ]  # fmt: skip
    weights = [6, 3, 0.2, 0.2, 0.5]
    text = ",".join(
        chance.choices(quoted, weights)[0](field) for field in fields[: chance.choices([8, 7, 3], [20, 1, 1])[0]]
    )
    if chance.random() < 0.03:
        text += "," * chance.choice([1, 100, 30_000])
    return text.replace("\n", " ").encode("utf-8", "surrogatepass")
