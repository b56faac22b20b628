"""Landed files as rows of raw text: whatever a file holds, each line is a row or a named reason, and nothing is changed.

All files of a format are read in one pass, as a run reads them; each test looks at its own.
"""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from lakehouse.contracts import Landing
from lakehouse.sources.landing import landing_files
from lakehouse.sources.probe import Probe, _seen, probe
from lakehouse.sources.reader import read_lines
from lakehouse.transforms.addresses import SIGNS
from lakehouse.transforms.columns import PERSONAL, TokenKey, token_key
from lakehouse_tests.fixtures.landed import EVENTS
from lakehouse_tests.fixtures.shop.bronze.events import events

CSV = {
    "plain": b"a,b\n1,2\n3,4\n",
    "crlf": b"a,b\r\n1,2\r\n3,4\r\n",
    "bom": b"\xef\xbb\xbfa,b\n1,2\n",
    "no_newline_at_end": b"a,b\n1,2\n3,4",
    "returns_at_the_end": b"a,b\n1,2\r\r\n3,4\r",
    "quoted_header": b'"a","b"\n1,2\n',
    "reordered": b"b,a\n2,1\n",
    "additional": b"more,b,a,x y\nm,2,1,\n",
    "quotes": b'a,b\n"x, y","say ""hi"" there"\n"C:\\dir\\",2\n"5"" nails",""\n\'s,4\n',
    "spaces": b"a,b\n 1 , 2 \n",
    "few": b"a,b\n1\n1,2\n",
    "many": b"a,b\n1,2,3\n1,2\n",
    "blank_line": b"a,b\n1,2\n\n3,4\n",
    "open_quote": b'a,b\n"open,1\n2,3\n',
    "line_break": b'a,b\n1,"a note\n2,3\n1,2,"more\n',
    "latin_1": "a,b\ncafé,ü\n".encode("latin-1"),
    "unicode": "a,b\n日本語,😀\n".encode(),
    "control": b"a,b\n\x00x\x01,1\rz\n",
    "formula": b"a,b\n=1+1,-5\n",
    "header_only": b"a,b\n",
    "header_only_no_newline": b"a,b",
    "empty": b"",
    "missing_column": b"a,c\n1,2\n",
    "twice": b"a,b,a\n1,2,3\n",
    "other_separator": b"a;b\n1;2\n",
    "personal": b"a,b,Phone No,mail,kept\n1,2,0171,ann@example.com,yes\n",
    "no_header": b"17841.0,ann@example.com,Ann\n1,2,3\n",
    "utf_16": "a,b\n1,2\n".encode("utf-16"),
    "returns_alone": b"a,b\r1,2\r3,4\r",
    "long_field": b'"' + b"x" * 140_000 + b"\n1,2\n",
}
UNREADABLE = {"empty", "missing_column", "twice", "other_separator", "utf_16", "no_header", "truncated", "rubbish"}
UNREADABLE |= {"returns_alone", "long_field", "padded", "followed"}
OPEN = ": its quotes do not close, as where a field holds a line break"
JSON_FIELDS = ("id", "amount", "email")
JSON = {
    "as_written": b'{"id":"1","amount":12.50}\n{"id":2,"amount":12345678901234567.89}\n{"id":-0,"amount":1E-7}\n'
    b'{"id":true,"amount":-1.0e+05}\n{"id":12345678901234567890123,"amount":null}\n{"amount":"12.50"}\n',
    "text_with_numbers": b'{"id":"a: 1.50, \\"b\\":2.50","amount":"1.0,2.0"}\n',
    "nested": b'{"id":"1","x":{"deep":[1,2.50,{"y":-1e5}],"z":""},"flag":false,"none":null}\n',
    "wrong_types": b'{"id":{"n":1.10},"amount":[1,2.0,"3.0"]}\n',
    "unicode": '{"id":"é\\u00e9\\ud83d\\ude00","amount":"日"}\n'.encode(),
    "halves": b'{"id":"a\\ud83d","amount":"\\uDE00b"}\n{"id":"\\\\ud83d","amount":"\\ud83d\\ud83d\\ude00\\ude00"}\n',
    "spaces": b' { "id" : "1" , "amount" : 1.0 } \r\n',
    "bom": b'\xef\xbb\xbf{"id":"1"}\r\n{"id":"2"}\r\n\xef\xbb\xbf{"id":"3"}\r\n',  # two such files, one behind the other
    "empty_object": b"{}\n",
    "case": b'{"ID":"1"}\n',
    "not_objects": b'[1,2]\n[{"id":"1"}]\n5\n1.5\n"text"\nnull\ntrue\n\n   \n',
    "cut": b'{"id":"1","amount":1\n{"id":"1","amo\n{"id":"1",\n{\n{"id":"1","amount":12.\n',
    "more_than_one": b'{"id":"1"}{"id":"2"}\n{"id":"1"},{"id":"2"}\n{"id":"1"} rubbish\n{"id":"1"}]\n{"id":"1"}}\n',
    "not_json": b'{\'id\':\'1\'}\n{id:1}\n{"id":NaN}\n{"id":007}\n{"id":.5}\n{"id":"a\x01b"}\nid=1\n\x00\xff\x00\n',
    "twice": b'{"id":"1","id":"2"}\n{"x":1,"x":1}\n',
    "latin_1": '{"id":"café"}\n'.encode("latin-1"),
    "no_newline_at_end": b'{"id":"1"}\n{"id":"2"}',
    "returns_at_the_end": b'{"id":"1"}\r\r\n{"id":"2"}\r',
    "no_utf_8": b'{"id":"\xed\xa0\x80"}\n{"id":"\xe2\x82"}\n{"id":"\xf0\x80\x80\x80"}\n{"id":"\xc0\xaf\xff"}\n\xf4\x90\x80\x80\n',
    "empty": b"",
    "addresses": b'{"id":"1","email":"alice@example.com"}\n{"id":"2","contact":"alice@example.com","n":{"m":"alice@example.com"}}\n'
    b'{"id":"3","email":"alice@example.com"\n{"id":"4","mail\\u0040":"alice\\u0040example.com","alice@example.com":1}\n'
    b'{"id":"5","email":["alice@example.com"]}\nalice@example.com\n{"email":"alice@example.com","email":"b@example.com"}\n',
    "personal": b'{"id":"1","phone":"0171 23","customerPhoneNumber":171.5,"PHONES":["0171 23"],"phonetics":"kept","ip":null}\n'
    b'{"id":"2","buyer":{"birth_date":"1971-02-03","n":1},"shipping":"kept"}\n{"id":"3","mobile" : "0171 \\"23","n":5\n'
    b'{"id":"4","Mobile-Phone":171,"n":"kept"\n',
}
ODD_NAMES = ["a b", "100%", "%20", "1+1", "jüli", "b[1]", "{x,y}", "s*?", "col:on", "h#sh"]
ODD_NAMES += ["back\\slash", "q'uote\"", "a,b"]


class Read(NamedTuple):
    """What became of the files of one format, by name."""

    probes: dict[str, Probe]
    rows: dict[str, list[Any]]
    in_pieces: dict[str, list[Any]]  # the same files as if they were large

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The columns of the source, by row."""
        return [tuple(row)[: len(row) - 8] for row in self.rows[name]]


def _read(spark: SparkSession, root: Path, landing: Landing, names: dict[Path, str]) -> Read:
    probes = probe(landing_files(root, landing), landing)

    def by_name() -> dict[str, list[Any]]:
        found = defaultdict(list)
        for row in read_lines(spark, probes, landing, root, "run-1", "code-1").collect():
            found[names[root / row["_source_file"]]].append(row)
        return {name: sorted(found[name], key=lambda row: row["_source_row"] or 0) for name in names.values()}

    whole = by_name()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakehouse.sources.probe.LARGE", 0)
        patch.setattr("lakehouse.sources.lines._PIECE", 16)
        patch.delattr("lakehouse.sources.lines._split")
        return Read({names[p.file.path]: p for p in probes}, whole, by_name())


@pytest.fixture(scope="module")
def csvs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Each CSV as the export of a day of its own, under a root whose name is odd itself."""
    root = tmp_path_factory.mktemp("root ü+ #&=")
    packed = {name: gzip.compress(content) for name, content in CSV.items()}
    packed["truncated"] = gzip.compress(b"a,b\n" + b"1,2\n" * 5000)[:-12]
    packed["rubbish"] = b"\x00\x01 no gzip at all"
    packed["padded"] = packed["plain"] + bytes(512)
    packed["followed"] = packed["plain"] + b"more"
    packed["several"] = packed["plain"] + gzip.compress(b"") + gzip.compress(b"5,6\n")
    names = {}
    for number, (name, content) in enumerate(packed.items()):
        path = root / "landing" / "online_retail" / f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        names[path] = name
    return _read(spark, root, Landing("online_retail", "csv", ("a", "b")), names)


@pytest.fixture(scope="module")
def jsons(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """All JSON files in one day, some packed."""
    root = tmp_path_factory.mktemp("root")
    folder = root / "landing" / "events" / "2026-03-02"
    folder.mkdir(parents=True)
    files = {folder / f"{name}.jsonl": (name, content) for name, content in JSON.items()}
    files |= {folder / f"{name}.jsonl": (name, b'{"id":"1"}\n') for name in ODD_NAMES}
    files[folder / "packed.jsonl.gz"] = ("packed", gzip.compress(b'{"id":"1"}\n{"id":"2"}\n'))
    files[folder / "truncated.jsonl.gz"] = ("truncated", gzip.compress(b'{"id":"1"}\n' * 5000)[:-12])
    files[folder / "rubbish.jsonl.gz"] = ("rubbish", b'{"id":"1"}\n')
    for path, (_, content) in files.items():
        path.write_bytes(content)
    landing = Landing("events", "jsonl", JSON_FIELDS)
    return _read(spark, root, landing, {path: name for path, (name, _) in files.items()})


@pytest.mark.spark  # by way of the fixture that it asks for by name
@pytest.mark.parametrize("kind", ["csvs", "jsons"])
def test_a_large_file_has_the_rows_that_a_small_one_has(kind: str, request: pytest.FixtureRequest) -> None:
    """Without it, what a row holds could change with the size of its file: bytes that are no UTF-8, line ends, numbers."""
    read: Read = request.getfixturevalue(kind)
    assert sum(map(len, read.in_pieces.values())) > len(read.probes)
    assert read.in_pieces == read.rows


@pytest.mark.spark  # by way of the fixture that it asks for by name
@pytest.mark.parametrize("kind", ["csvs", "jsons"])
def test_each_line_is_one_row_and_each_unreadable_file_one(kind: str, request: pytest.FixtureRequest) -> None:
    """Without it, a line could vanish or count twice, and `rows in = rows out` would hold of nothing."""
    read: Read = request.getfixturevalue(kind)
    for name, each in read.probes.items():
        expected = 1 if each.problem else each.lines
        assert len(read.rows[name]) == expected, name
        numbers = [row["_source_row"] for row in read.rows[name]]
        first = 2 if kind == "csvs" else 1
        assert numbers == ([None] if each.problem else list(range(first, first + expected))), name


@pytest.mark.spark  # by way of the fixture that it asks for by name
@pytest.mark.parametrize("kind", ["csvs", "jsons"])
def test_each_row_says_where_it_is_from(kind: str, request: pytest.FixtureRequest) -> None:
    """Without it, a row could not be traced to its file: odd names would come back encoded, or not at all."""
    read: Read = request.getfixturevalue(kind)
    for name, rows in read.rows.items():
        file = read.probes[name].file
        for row in rows:
            assert row["_source_file"].endswith(f"/{file.path.name}")
            found = (row["_arrival_date"], row["_ingested_run"], row["_code_version"])
            assert found == (file.arrival_date, "run-1", "code-1")
    assert {row["_source_file"].split("/", 1)[0] for rows in read.rows.values() for row in rows} == {"landing"}


def test_unreadable_files_are_named_with_the_reason(csvs: Read, jsons: Read) -> None:
    """Without it, one broken file would fail the job of all its neighbours, or be read in part without a word."""
    assert {name for name, each in csvs.probes.items() if each.problem} == UNREADABLE
    assert {name for name, each in jsons.probes.items() if each.problem} == {"truncated", "rubbish"}
    reasons = {name: rows[0]["_error"] for name, rows in csvs.rows.items() if name in UNREADABLE}
    assert "ends early" in reasons["truncated"]
    assert "is not readable gzip" in reasons["rubbish"]
    assert "other bytes follow its data" in reasons["padded"]
    assert "other bytes follow its data" in reasons["followed"]
    assert "its first line has a carriage return within it; end lines with a line feed" in reasons["returns_alone"]
    assert "its first line has too long a field" in reasons["long_field"]
    assert "the file is empty" in reasons["empty"]
    assert reasons["utf_16"].endswith("is UTF-16 text; land it as utf-8")
    told = "lacks the column(s) b; its header holds a and 1 unknown name(s); if its files may lack that, write "
    assert reasons["missing_column"].endswith(f"{told}optional=('b',) in its Landing")
    assert "separated by semicolons; " in reasons["other_separator"]
    assert "names a column twice in its header: a" in reasons["twice"]
    assert all(csvs.probes[name].file.path.name in reason for name, reason in reasons.items())
    assert all(csvs.of(name) == [(None, None)] for name in UNREADABLE)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("plain", [("1", "2"), ("3", "4")]),
        ("crlf", [("1", "2"), ("3", "4")]),
        ("bom", [("1", "2")]),
        ("no_newline_at_end", [("1", "2"), ("3", "4")]),
        ("several", [("1", "2"), ("3", "4"), ("5", "6")]),
        ("quoted_header", [("1", "2")]),
        ("reordered", [("1", "2")]),
        ("additional", [("1", "2")]),
        ("spaces", [(" 1 ", " 2 ")]),
        ("latin_1", [("caf\ufffd", "\ufffd")]),  # not UTF-8: shown as unknown, never as bytes that break readers
        ("unicode", [("日本語", "😀")]),
        ("control", [("\x00x\x01", "1\rz")]),
        ("formula", [("=1+1", "-5")]),
        ("header_only", []),
        ("header_only_no_newline", []),
    ],
)
def test_csv_fields_are_the_texts_of_the_file(csvs: Read, name: str, rows: list[tuple[str, str]]) -> None:
    """Without it, fields could land in the wrong column, lose spaces, or carry a carriage return or byte order mark."""
    assert csvs.of(name) == rows
    assert all(row["_error"] is None and row["_raw"] is None for row in csvs.rows[name])


def test_csv_quotes_are_read_as_python_reads_them(csvs: Read) -> None:
    """Without it, a doubled quote or a backslash before one would change the text, and with it the hash of the row."""
    wanted = [tuple(field or None for field in row) for row in csv.reader(CSV["quotes"].decode().splitlines()[1:])]
    assert csvs.of("quotes") == wanted
    assert wanted[0] == ("x, y", 'say "hi" there')


def test_additional_columns_are_rescued(csvs: Read) -> None:
    """Without it, a column that the source adds would be lost from the day it appears."""
    (row,) = csvs.rows["additional"]
    assert json.loads(row["_rescued"]) == {"more": "m"}
    assert all(row["_rescued"] is None for row in csvs.rows["plain"])


@pytest.mark.parametrize(
    ("name", "raw", "why", "sound"),
    [
        ("few", ["1"], "", [("1", "2")]),
        ("many", ["1,2,3"], "", [("1", "2")]),
        ("blank_line", [""], "", [("1", "2"), ("3", "4")]),
        ("open_quote", ['"open,1'], OPEN, [("2", "3")]),
        ("line_break", ['1,"a note', '1,2,"more'], OPEN, [("2", "3")]),
    ],
)
def test_a_line_that_does_not_parse_keeps_its_text(
    csvs: Read, name: str, raw: list[str], why: str, sound: list[Any]
) -> None:
    """Without it, a row with a field too few would pass with its values shifted, or take its neighbours with it."""
    bad = [row for row in csvs.rows[name] if row["_error"]]
    assert [(row["_raw"], row["_error"]) for row in bad] == [(each, f"not a CSV line of 2 fields{why}") for each in raw]
    assert [(row["a"], row["b"]) for row in csvs.rows[name] if not row["_error"]] == sound


def test_json_numbers_stay_as_written(jsons: Read) -> None:
    """Without it, a price of 12.50 would be stored as 12.5, and a long amount as a float that has lost its pence."""
    assert [row[:2] for row in jsons.of("as_written")] == [
        ("1", "12.50"),
        ("2", "12345678901234567.89"),
        ("-0", "1E-7"),
        ("true", "-1.0e+05"),
        ("12345678901234567890123", None),
        (None, "12.50"),
    ]
    assert jsons.of("text_with_numbers")[0][:2] == ('a: 1.50, "b":2.50', "1.0,2.0")


def test_unknown_json_fields_are_rescued_whole(jsons: Read) -> None:
    """Without it, a field that the producer adds would be lost from the day it appears, or lose digits."""
    (row,) = jsons.rows["nested"]
    rescued = json.loads(row["_rescued"])
    assert rescued == {"x": '{"deep":[1,2.50,{"y":-1e5}],"z":""}', "flag": "false", "none": None}
    assert row["id"] == "1"
    (case,) = jsons.rows["case"]
    assert (case["id"], json.loads(case["_rescued"])) == (None, {"ID": "1"})


def test_json_values_of_another_type_are_kept_as_text(jsons: Read) -> None:
    """Without it, an amount that became an object would be null, and nobody could tell why."""
    assert jsons.of("wrong_types")[0][:2] == ('{"n":1.10}', '[1,2.0,"3.0"]')
    assert jsons.of("unicode")[0][:2] == ("éé😀", "日")
    assert jsons.of("spaces")[0][:2] == ("1", "1.0")
    assert (jsons.of("empty_object"), jsons.of("latin_1")[0][0]) == ([(None, None, None)], "caf\ufffd")
    assert [row[:2] for row in jsons.of("halves")] == [("a\ufffd", "\ufffdb"), ("\\ud83d", "\ufffd😀\ufffd")]
    assert [row[0] for row in jsons.of("no_newline_at_end")] == ["1", "2"]
    assert [row[0] for row in jsons.of("bom")] == ["1", "2", "3"]
    for name in ("wrong_types", "unicode", "spaces", "bom", "empty_object", "latin_1", "halves"):
        assert all(row["_error"] is None for row in jsons.rows[name]), name


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("not_objects", "not a JSON object"),
        ("cut", "not a JSON object"),
        ("more_than_one", "not a JSON object"),
        ("not_json", "not a JSON object"),
        ("twice", "names a field twice"),
    ],
)
def test_lines_that_are_no_json_object_keep_their_text(jsons: Read, name: str, error: str) -> None:
    """Without it, half a line, or the first of two objects on a line, would pass as a row and the rest be lost."""
    texts = [line.decode(errors="replace") for line in JSON[name].split(b"\n")[:-1]]
    assert [(row["_raw"], row["_error"]) for row in jsons.rows[name]] == [(text, error) for text in texts]
    assert set(jsons.of(name)) == {(None, None, None)}
    assert all(row["_rescued"] is None for row in jsons.rows[name])


@pytest.mark.parametrize("name", ODD_NAMES)
def test_files_of_any_name_are_read(jsons: Read, name: str) -> None:
    """Without it, a bracket or a star in a name would be taken for a pattern, and the whole run would fail."""
    assert jsons.of(name) == [("1", None, None)]


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_of_an_address_is_seen_wherever_a_file_is_cut(tmp_path: Path, sign: str) -> None:
    """Without it, a file's columns would be taken for free of addresses, and one be stored as it came."""
    assert events.landing is not None
    folder = tmp_path / "landing" / "events" / "2026-03-02"
    folder.mkdir(parents=True)
    for before in range(9):
        (folder / f"{before}.jsonl").write_text("x" * before + sign + "y" * 9)
    (folder / "none.jsonl").write_text("x" * 30 + "&%#\\4")
    found = {each.file.path.stem: each.signs for each in probe(landing_files(tmp_path, EVENTS), EVENTS, chunk=8)}
    assert found == {str(n): True for n in range(9)} | {"none": False}


def test_a_file_that_the_system_refuses_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a file that lacks a right, or is gone meanwhile, is called broken gzip, and landed again in vain."""
    folder = tmp_path / "landing" / "events" / "2026-03-02"
    folder.mkdir(parents=True)
    for name in ("gone", "good", "shut"):
        (folder / f"{name}.jsonl").write_text("{}\n")
    files = landing_files(tmp_path, EVENTS)
    (folder / "gone.jsonl").unlink()

    def refusing(path: Path, *how: Any) -> Any:
        if path.name == "shut.jsonl":  # by its mode alone, root would not be refused
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return _seen(path, *how)

    monkeypatch.setattr("lakehouse.sources.probe._seen", refusing)
    assert events.landing is not None
    assert {each.file.path.stem: each.problem for each in probe(files, events.landing)} == {
        "gone": "gone.jsonl was removed while it was read; land the file again, or build the day without it",
        "good": None,
        "shut": "shut.jsonl cannot be read (permission denied); make it readable for whoever runs the lakehouse",
    }


def test_a_file_whose_name_holds_an_address_is_refused_without_it(tmp_path: Path) -> None:
    """Without it, the address would stand in each of its rows, in checks, and in events."""
    folder = tmp_path / "landing" / "events" / "2026-03-02"
    folder.mkdir(parents=True)
    (folder / "alice@example.com-0001.jsonl").write_text("{}")
    assert events.landing is not None
    (refused,) = probe(landing_files(tmp_path, EVENTS), events.landing)
    assert refused.problem == "<e-mail> has a name that holds an e-mail address; rename it"


def test_no_address_of_a_line_is_stored(spark: SparkSession, jsons: Read) -> None:
    """Without it, e-mail addresses would stay readable in bronze: in raw lines, rescued fields or names of fields."""
    rows = [row.asDict() for row in jsons.rows["addresses"]]
    lines = spark.createDataFrame(rows, spark_schema())
    found = events.transform(lines=lines).collect()
    assert len(found) == 7
    assert "email" not in found[0].asDict()
    for row in found:
        text = " ".join(str(value) for value in row.asDict().values()).lower()
        assert "alice" not in text
        assert "example.com" not in text
    assert sum(row["email_token"] is not None for row in found) == 2


def test_values_of_personal_fields_are_left_out(jsons: Read, csvs: Read) -> None:
    """Without it, a field that the producer adds would bring phone numbers or birthdays into bronze and quarantine."""
    rows = jsons.rows["personal"]
    assert [json.loads(row["_rescued"]) for row in rows[:2]] == [
        dict.fromkeys(("phone", "customerPhoneNumber", "PHONES"), PERSONAL) | {"phonetics": "kept", "ip": None},
        {"buyer": PERSONAL, "shipping": "kept"},
    ]
    assert [row["_raw"] for row in rows[2:]] == [
        f'{{"id":"3","mobile" : "{PERSONAL}","n":5',
        f'{{"id":"4","Mobile-Phone":"{PERSONAL}","n":"kept"',
    ]
    (row,) = csvs.rows["personal"]
    assert json.loads(row["_rescued"]) == {"Phone No": PERSONAL, "mail": "<e-mail>", "kept": "yes"}


def test_a_file_without_its_header_does_not_tell_its_first_row(csvs: Read) -> None:
    """Without it, a person's data would stand in the reason why the file was refused: in checks and in events."""
    assert "17841" not in str(csvs.probes["no_header"].problem)
    assert "3 unknown name(s)" in str(csvs.probes["no_header"].problem)


def spark_schema() -> str:
    """The reader's columns, with those that the transform of events asks for."""
    more = ("event_id", "schema_version", "user_id", "event_type", "event_time", "order_id", "currency")
    texts = [*JSON_FIELDS, *more, "payment_method", "country", "_rescued"]
    columns = ", ".join(f"{c} string" for c in texts)
    return f"{columns}, _arrival_date date, _source_file string, _source_row long, _raw string, _error string"


def test_one_key_serves_all_columns_and_none_is_asked_for_where_no_address_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the engine was handed the key twice for each column, which cost a small build a third of its time."""
    names = tuple(f"c{n}" for n in range(12))
    landing = Landing("wide", "csv", names)
    handed: list[TokenKey] = []

    def handing() -> TokenKey:
        handed.append(token_key())
        return handed[-1]

    monkeypatch.setattr("lakehouse.sources.reader.token_key", handing)
    for what in ("nobody", "ann@example.com"):
        root = tmp_path / what.partition("@")[0]
        (root / "landing" / "wide").mkdir(parents=True)
        text = f"{','.join(names)}\n{','.join([what] * len(names))}\n"
        (root / "landing" / "wide" / "2026-03-01.csv.gz").write_bytes(gzip.compress(text.encode()))
        (row,) = read_lines(spark, probe(landing_files(root, landing), landing), landing, root, "r", "v").collect()
        assert len({row[name] for name in names}) == 1
        assert (row["c0"] == what, len(handed)) == ((True, 0) if what == "nobody" else (False, 1))
