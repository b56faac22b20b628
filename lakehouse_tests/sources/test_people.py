"""A person is found in the lines and texts that name them, and nobody else is."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from lakehouse.contracts import Landing
from lakehouse.sources.people import FORGOTTEN, Person, person_hmac
from lakehouse.sources.people_in_lines import Lines

EVENTS = Lines(Landing("events", "jsonl", ("event_id", "user_id", "amount", "email")), ("user_id",))
RETAIL = Lines(Landing("online_retail", "csv", ("InvoiceNo", "StockCode", "CustomerID")), ("CustomerID",))
ANN = Person("17841", frozenset({"ann.o+x@example.com"}), frozenset({"ab" * 32}), frozenset({"amount", "StockCode"}))
WEB = Person("u000012")

THEIRS = [
    '{"event_id":"1","user_id":"17841","amount":12.50}',
    '{"event_id":"1","user_id":17841.0}',
    '{"event_id":"1","user_id":" 17841.0 "}',
    '{"event_id":"1","user_id":null,"email":" Ann.O+x@Example.com"}',
    '{"event_id":"1","user_id":"9","email":"ann.o+x\\u0040example.com"}',
    '{"event_id":"1","user_id":null,"customer":17841}',
    '{"event_id":"1","buyer":{"id":"17841"}}',
    '{"event_id":"1","user_id":"17841","amount":1',
    '{"user_id":"9","user_id":"17841"}',
    "ann.o+x@example.com",
    "[17841]",
]
OTHERS = [
    '{"event_id":"17841x","user_id":"9","amount":17841}',
    '{"event_id":"1","user_id":"178410","amount":"17841"}',
    '{"event_id":"1","user_id":"9","email":"joann.o+x@example.com"}',
    '{"event_id":"1","user_id":"9","email":"ann.o+x@example.com.au"}',
    '{"event_id":"1","user_id":"9","points":17841}',
    '{"event_id":"1","amount":1.17841',
    "",
]


@pytest.mark.parametrize("line", THEIRS)
def test_a_line_of_the_person_goes(line: str) -> None:
    """Without it, another spelling of the id, an address alone or a broken line would outlive the erasure."""
    assert EVENTS.without(f"{line}\n".encode(), ANN) == (b"", 1, 0)


@pytest.mark.parametrize("line", OTHERS)
def test_a_line_of_somebody_else_stays_to_the_byte(line: str) -> None:
    """Without it, an amount or a longer id that looks like the person's would take another person's row away."""
    content = f"{line}\r\n".encode() + b'\xff\xfe"latin\n'
    assert EVENTS.without(content, ANN) == (content, 0, 0)


def test_a_mention_in_a_line_of_somebody_else_is_taken_out_alone() -> None:
    """Without it, their row would be lost, or go on naming the person; the amount must keep its digits."""
    line = '{"event_id":"1","user_id":"9", "amount":12.50, "referred_by" : "17841","n":{"reply":"ann.o+x@example.com"}}'
    left, gone, edited = EVENTS.without(f"{line}\n".encode(), ANN)
    assert (gone, edited) == (0, 1)
    assert b'"user_id":"9", "amount":12.50, "referred_by" : "' + FORGOTTEN.encode() in left
    assert json.loads(left)["n"] == {"reply": FORGOTTEN}


def test_a_line_behind_a_byte_order_mark_is_read_as_the_reader_reads_it() -> None:
    """Without it, another person's first line would count as broken, and go where it only mentions the person."""
    theirs, others = b'{"user_id":"17841"}\r\n', b'{"user_id":"9","friend":"17841"}\r\n'
    mark = "\ufeff".encode()
    assert EVENTS.without(mark + theirs, ANN) == (b"", 1, 0)
    assert EVENTS.without(mark + others, ANN) == (mark + others.replace(b"17841", FORGOTTEN.encode()), 0, 1)
    assert set(EVENTS.people(mark + theirs)) == {("user", "17841")}


def test_a_line_with_a_number_of_thousands_of_digits_is_read_as_the_reader_reads_it() -> None:
    """Without it, a forgotten person's line would come back with such a number in it, and another's go as broken."""
    amount = b"9" * 5000
    theirs = b'{"user_id":"17841","amount":' + amount + b"}\n"
    others = b'{"user_id":"9","friend":"17841","amount":' + amount + b"}\n"
    assert EVENTS.without(theirs, ANN) == (b"", 1, 0)
    assert EVENTS.without(others, ANN) == (others.replace(b"17841", FORGOTTEN.encode()), 0, 1)
    within = b'{"user_id":"9","x":{"friend":"17841","n":' + amount + b"}}\n"
    assert EVENTS.without(within, ANN) == (b"", 1, 0), "its digits cannot be kept"
    assert set(EVENTS.people(theirs)) == {("user", "17841")}
    assert set(EVENTS.people(theirs.replace(b"amount", b"user_id"))) == set(), "a name twice is no line"


def test_lines_of_a_csv_file() -> None:
    """Without it, exports would be read as text: a product of the person's number would count as theirs."""
    content = (
        b"InvoiceNo,StockCode,CustomerID,note\r\n536365,17841,17850.0,\r\n536366,22423,17841.0,\r\n"
        b"536367,22423,,for 17841\r\n536368,22423,17850.0,friend of 17841\r\n536369,broken 17841\r\n536370,a,,\r\n"
        b'536371,22423,17850.0,"a note that goes on, by 17841\r\n'
    )
    left, gone, edited = RETAIL.without(content, ANN)
    assert (gone, edited) == (4, 1), "what the reader sets aside goes whole"
    assert left == (
        b"InvoiceNo,StockCode,CustomerID,note\r\n536365,17841,17850.0,\r\n"
        + f"536368,22423,17850.0,friend of {FORGOTTEN}\r\n536370,a,,\r\n".encode()
    )
    assert RETAIL.without(left, ANN) == (left, 0, 0)


@pytest.mark.parametrize(
    "odd", ["x" * 140_000, "a\rb", '"a\rb"', "a\r"], ids=["long", "return", "quoted", "at the end"]
)
def test_a_csv_line_with_what_pythons_parser_refuses_is_read_as_the_reader_reads_it(odd: str) -> None:
    """Without it, a forgotten person came back by such a line, and somebody else's went whole for a product's number."""
    header = "InvoiceNo,StockCode,CustomerID,note\n"
    theirs, others = f"1,2,17841.0,{odd}\n", f"1,17841,17850.0,{odd}\n"
    assert set(RETAIL.people((header + theirs).encode())) == {("user", "17841"), ("user", "CustomerID")}
    assert RETAIL.without((header + theirs + others).encode(), ANN) == ((header + others).encode(), 1, 0)


def test_a_quoted_or_escaped_address_is_found_and_taken_out_alone() -> None:
    """Without it, an address that is written in an unusual way would outlive the erasure, or break its line."""
    odd = Person(None, frozenset({'"ann c"@example.com'}), others=frozenset({"amount"}))
    for text in ('\\"ann c\\"@example.com', '\\"Ann C\\"%40example.com', '\\"ann c\\"@example.com, bo'):
        line = f'{{"event_id":"1","user_id":"9","note":"{text}"}}'
        left, gone, edited = EVENTS.without(f"{line}\n".encode(), odd)
        assert (gone, edited) == (0, 1), line
        assert json.loads(left)["note"].startswith(FORGOTTEN)
        assert EVENTS.without(line.replace('"note"', '"email"').encode(), odd)[1] == 1
        assert set(EVENTS.people(line.encode())) == {("user", "9"), ("email", '"ann c"@example.com')}
    content = b'InvoiceNo,StockCode,CustomerID\n1,"""ann c""@example.com",\n'
    assert RETAIL.without(content, odd)[1] == 1
    assert ("email", '"ann c"@example.com') in set(RETAIL.people(content))


def test_people_of_a_file_are_recognised_by_their_marks() -> None:
    """Without it, a forgotten person who is landed again, whose name nobody keeps, would be published again."""
    content = b'{"user_id":"17841.0"}\n{"user_id":9,"email":"Ann.o+x\\u0040Example.com"}\nbroken bo@example.com\n'
    known = {person_hmac(kind, text, b"key") for kind, text in EVENTS.people(content)}
    wanted = [("user", "17841"), ("user", "9.0"), ("email", "ann.o+x@example.com"), ("email", "bo@example.com")]
    assert known == {person_hmac(kind, text, b"key") for kind, text in wanted}
    assert person_hmac("user", "17841", b"other") not in known
    assert ("user", "17850") in set(RETAIL.people(b"InvoiceNo,StockCode,CustomerID\n1,2,17850.0\n"))


@pytest.mark.parametrize(
    ("value", "key", "found"),
    [
        ("17841", "user_id", True),
        ("17841.0", "CustomerID", True),
        ("17841", "StockCode", False),
        ("| 17841 | 2011 |", "", True),
        ('{"minValues":{"StockCode":"17841","amount":17841}}', "", False),
        ('{"minValues":{"user_id":"17841"}}', "", True),
        ("0178410", "user_id", False),
        (f"3f9a1c2e:{'ab' * 32}", "email_token", True),
        ("ab" * 32, "amount", True),
        (17841, "size", False),
        ('{"user_id":"17841","user_id":"9"}', "_raw", True),
    ],
)
def test_cells_and_log_entries(value: object, key: str, found: bool) -> None:
    """Without it, statistics and previews would be passed over, or a size in bytes be taken for a person."""
    assert ANN.in_value(value, key) is found
    assert not ANN.in_value(ANN.out_of_value(value, key), key)
    assert found or ANN.out_of_value(value, key) == value


def test_ids_with_letters_mean_the_person_anywhere_and_short_numbers_only_behind_their_names() -> None:
    """Without it, an id such as 12 would be struck from every count of every log."""
    assert WEB.in_value("order of u000012", "amount")
    assert WEB.in_text("u000012@example.com")
    assert not WEB.in_text("u0000123 xu000012")
    short = Person("12")
    assert not short.in_value({"version": "12", "n": 12, "text": "12 rows"})
    assert short.in_value({"user_id": "12"})
    assert short.in_value({"user_id": 12})
    assert short.in_text('cut {"user_id":"12", "amo')
    null, nobody = Person("null"), '{"user_id": null, "email": null}'
    assert not null.in_value(nobody)
    assert not null.in_text(nobody)
    assert not null.in_bytes(nobody.encode())
    assert null.in_text('cut {"user_id": "null", "amo')


def test_a_person_is_not_told_by_a_traceback() -> None:
    """Without it, the log of a failed erasure would name the person."""
    assert "17841" not in repr(ANN)


@pytest.mark.parametrize(
    ("user", "line"),
    [
        ("null", '{"event_id":"1","user_id":"9","email":null}'),
        ("true", '{"event_id":"1","user_id":null,"amount":true}'),
        ("email", '{"event_id":"1","user_id":"9","email":"bo@example.com"}'),
        ("ann", '{"event_id":"1","user_id":"ann b"}'),
        ("ÄÖ", '{"event_id":"1","user_id":"äö"}'),
        ("U-7", '{"event_id":"1","user_id":"u-7","note":"u-7"}'),
    ],
)
def test_an_id_like_the_persons_is_somebody_elses(user: str, line: str) -> None:
    """Without it, to forget one would take lines of others from the landing zone, and nothing brings those back."""
    person = Person(user, ids=frozenset({"user_id"}))
    assert EVENTS.without(f"{line}\n".encode(), person) == (f"{line}\n".encode(), 0, 0)
    assert not person.in_value(json.loads(line)["user_id"], "user_id")
    own = json.dumps({"event_id": "1", "user_id": user})
    assert EVENTS.without(own.encode(), person) == (b"", 1, 0)
    assert person.in_value(user, "user_id")


@pytest.mark.parametrize("user", ["Łódź-7", "用户9", "emoji😀", 'x"q', "back\\slash", "tab\tid", "x|y"])
def test_an_id_is_found_however_it_is_escaped(user: str) -> None:
    """Without it, a cut line, a log and a free page of a database would go on naming whoever is not written in ASCII."""
    person = Person(user)
    for text in (json.dumps(user), json.dumps(user, ensure_ascii=False), quote(user, safe="")):
        cut = f'{{"event_id":"1","user_id":{text}, "amo'
        assert EVENTS.without(f"{cut}\n".encode(), person)[1] == 1
        assert person.in_value(cut, "_raw")
        assert not person.in_value(person.out_of_value(cut, "_raw"), "_raw")
    assert person.in_text(json.dumps(user).replace("\\ud83d", "\\uD83D"))
    assert person.in_bytes(b"\xe2\x82" + user.encode() + b"\0")
    assert person.in_bytes(json.dumps({"n": [user]}).encode())
