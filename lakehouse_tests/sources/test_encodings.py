"""CSV that is no UTF-8, as spreadsheets and tills write it, and bytes that are no text of the encoding of their source."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.checks.audit import audit_day, blocking_checks
from lakehouse.checks.metrics import DayMetrics
from lakehouse.contracts import Landing
from lakehouse.contracts.landing import ENCODINGS
from lakehouse.errors import ContractError
from lakehouse.sources.landing import landing_files
from lakehouse.sources.people import Person
from lakehouse.sources.people_in_lines import Lines
from lakehouse.sources.probe import Probe, probe
from lakehouse.sources.reader import read_lines
from lakehouse_tests.fixtures.shop.bronze.events import events

DAY = date(2026, 3, 1)
OLDER = [each for each in ENCODINGS if each != "utf-8"]


def landing(encoding: str, kind: str = "csv") -> Landing:
    return Landing("tills", kind, ("größe" if kind == "csv" else "a", "b"), encoding=encoding)


def landed(root: Path, name: str, content: bytes) -> None:
    path = root / "landing" / "tills" / str(DAY) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def probed(root: Path, source: Landing, chunk: int = 1 << 20) -> dict[str, Probe]:
    return {each.file.path.name: each for each in probe(landing_files(root, source), source, chunk=chunk)}


@pytest.mark.spark
@pytest.mark.parametrize("encoding", OLDER)
def test_every_byte_is_the_character_that_python_reads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Without it, names of people and things would be damaged for good, in small files or in large ones."""
    source = Landing("tills", "csv", ("number", "sign"), encoding=encoding)
    content = b"".join(b"%d,<%c>\r\n" % (byte, byte) for byte in range(128, 256))
    for name in ("small.csv", "packed.csv.gz"):
        landed(tmp_path, name, b"number,sign\n" + content)
    wanted = {byte: f"<{bytes([byte]).decode(encoding, 'replace')}>" for byte in range(128, 256)}
    for large in (False, True):
        if large:
            monkeypatch.setattr("lakehouse.sources.probe.LARGE", 0)
        rows = read_lines(spark, [*probed(tmp_path, source).values()], source, tmp_path, "run", "code").collect()
        assert len(rows) == 2 * len(wanted)
        assert {int(row["number"]): row["sign"] for row in rows} == wanted


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252"])
def test_a_header_is_in_the_encoding_too(tmp_path: Path, encoding: str) -> None:
    """Without it, a file with such a column would be refused for lacking it."""
    landed(tmp_path, "1.csv", "größe,b\nXL,é\n".encode(encoding))
    found = probed(tmp_path, landing(encoding))["1.csv"]
    assert (found.problem, found.doubt, found.header) == (None, None, ("größe", "b"))


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 20])
def test_bytes_that_are_no_text_are_told_and_no_others(tmp_path: Path, chunk: int) -> None:
    """Without it, an export in another encoding would lose letters for good, and nobody hear of it."""
    for name, content in {
        "good.csv": "größe,b\nXL,é😀\n".encode(),
        "latin.csv.gz": "größe,b\n".encode() + b"XL,caf\xe9\n",
        "cut.csv": "größe,b\nXL,é".encode()[:-1],
    }.items():
        landed(tmp_path, name, content)
    doubts = {name: each.doubt for name, each in probed(tmp_path, landing("utf-8"), chunk).items()}
    assert doubts.pop("good.csv") is None
    for name, told in doubts.items():
        assert told == (
            f"{name} has bytes that are no utf-8, which became U+FFFD; if all its files are so, give its Landing their "
            "encoding, such as encoding='windows-1252'"
        )


def test_of_json_nothing_is_said(tmp_path: Path) -> None:
    """Without it, each day of a source would warn in which a line is noise, though that line is set aside by itself."""
    landed(tmp_path, "1.jsonl", b'{"a": 1}\n\x00\xff\n')
    assert probed(tmp_path, landing("utf-8", "jsonl"))["1.jsonl"].doubt is None


def test_utf_8_where_another_one_is_expected_is_told(tmp_path: Path) -> None:
    """Without it, a source that was modernized would have two odd letters for each of its own."""
    source = Landing("tills", "csv", ("a",), encoding="windows-1252")
    landed(tmp_path, "ascii.csv", b"a\nb\n")
    landed(tmp_path, "new.csv", "a\né\n".encode())
    landed(tmp_path, "old.csv", "a\né\n".encode("windows-1252"))
    landed(tmp_path, "odd.csv", b"a\n\x81\n")
    landed(tmp_path, "marked.csv", "a\né\n".encode("utf-8-sig"))
    probes = probed(tmp_path, source)
    assert (probes.pop("marked.csv").problem or "").startswith("marked.csv is UTF-8 by its first bytes; land it as wi")
    found = {name: each.doubt for name, each in probes.items()}
    assert (found["ascii.csv"], found["old.csv"]) == (None, None)
    assert (found["odd.csv"] or "").startswith("odd.csv has bytes that are no windows-1252, which became U+FFFD")
    assert found["new.csv"] == (
        "new.csv is UTF-8 by its bytes, and was read as windows-1252; land it in that, or correct its Landing's encoding"
    )


def test_doubts_warn_and_do_not_keep_a_day_from_being_published() -> None:
    """Without it, one bad byte in a million lines would hold back a day, or nobody see it."""
    found = {
        each.check: each for each in audit_day(events, DayMetrics(DAY, rows=3, rows_in=3, doubts=["x is odd"]), {})
    }
    told = found["source_readable"]
    assert (told.passed, told.blocking, told.message) == (False, False, "x is odd")
    assert "source_readable" in blocking_checks(events)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_person_is_found_in_the_encoding_and_the_rest_stays_in_it(encoding: str) -> None:
    """Without it, a person with such a name would not be found, and lines of others be written back in another."""
    lines = Landing("tills", "csv", ("id", "customer"), encoding=encoding)
    who = "łukasz7" if encoding in ("windows-1250", "iso-8859-2") else "жуков7" if "1251" in encoding else "jörg7"
    content = f'id,customer,note\n1,{who},a\n2,9,"{who} war da: {who[1]}"\n3,{who[1]},b\n'.encode(encoding)
    found = Lines(lines, ("customer",))
    left, gone, changed = found.without(content, Person(who))
    assert (gone, changed) == (1, 1)
    assert who not in left.decode(encoding)
    assert left.decode(encoding).split("\n")[-2:] == [f"3,{who[1]},b", ""]
    assert {("user", who), ("user", "9"), ("user", who[1])} <= set(found.people(content))


ROWS = "id,customer\n1,jörg7\n2,9\n"
FILES = {
    "utf-8": ROWS.encode(),
    "utf-16": ROWS.encode("utf-16"),
    "no header": ROWS.partition("\n")[2].encode("windows-1252"),
    "carriage returns": ROWS.replace("\n", "\r").encode("windows-1252"),
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_person_is_found_in_a_file_that_is_not_read_as_it_was_meant(content: bytes) -> None:
    """Without it, `forget` said that no file names the person any more, beside one that did, to be landed again."""
    lines = Lines(Landing("tills", "csv", ("id", "customer"), encoding="windows-1252"), ("customer",))
    assert lines.name(content, Person("jörg7"))
    assert not lines.name(content, Person("jörg8"))


def test_the_name_of_a_column_is_about_nobody() -> None:
    lines = Lines(Landing("tills", "csv", ("id", "customer"), encoding="windows-1252"), ("customer",))
    assert not lines.name(ROWS.encode("windows-1252"), Person("customer"))


@pytest.mark.parametrize(
    ("kind", "encoding", "message"),
    [
        ("csv", "utf-16", "inputs: expected an encoding, one of 'utf-8', 'windows-1252', "),
        (
            "jsonl",
            "iso-8859-1",
            "inputs: expected an encoding of CSV files alone, got 'iso-8859-1' for jsonl. Leave it",
        ),
    ],
)
def test_what_lines_cannot_be_told_apart_in_is_refused(kind: str, encoding: str, message: str) -> None:
    with pytest.raises(ContractError) as refused:
        landing(encoding, kind)
    assert message in str(refused.value)
