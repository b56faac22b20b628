"""CSV whose fields are separated by something else than commas, as spreadsheets in half the world write it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.contracts import Landing
from lakehouse.contracts.landing import SEPARATORS
from lakehouse.errors import ContractError
from lakehouse.sources.landing import landing_files
from lakehouse.sources.people import Person
from lakehouse.sources.people_in_lines import Lines
from lakehouse.sources.probe import probe
from lakehouse.sources.reader import read_lines

OTHERS = [each for each in SEPARATORS if each != ","]
LINES = ["1|2", " 1,5 |3.50", '"x| y"|"say ""hi"", there"', "|", "a\\|'b", '1|"open', "1", "1|2|3", "", "5|6"]
BROKEN = [7, 8, 9, 10]


def landing(separator: str) -> Landing:
    return Landing("tills", "csv", ("a", "b"), separator=separator)


@pytest.mark.spark
@pytest.mark.parametrize("separator", SEPARATORS)
def test_fields_are_those_that_python_reads(spark: SparkSession, tmp_path: Path, separator: str) -> None:
    """Without it, a separator at the edge of a line, within quotes or behind an open one would shift values."""
    lines = [
        each.replace("|", separator) if separator != "," else each.replace(",", "").replace("|", ",") for each in LINES
    ]
    folder = tmp_path / "landing" / "tills"
    folder.mkdir(parents=True)
    (folder / "2026-03-01.csv").write_text("\n".join([separator.join(["b", "a"]), *lines, ""]))
    probes = probe(landing_files(tmp_path, landing(separator)), landing(separator))
    rows = read_lines(spark, probes, landing(separator), tmp_path, "run", "code").orderBy("_source_row").collect()
    broken = {row["_source_row"]: row["_raw"] for row in rows if row["_error"]}
    assert broken == {number: lines[number - 2] for number in BROKEN}
    found = [(row["b"], row["a"]) for row in rows if not row["_error"]]
    whole = [each for number, each in enumerate(lines, 2) if number not in BROKEN]
    assert found == [tuple(text or None for text in row) for row in csv.reader(whole, delimiter=separator)]


@pytest.mark.parametrize("separator", OTHERS)
def test_a_file_with_another_one_says_what_to_write(tmp_path: Path, separator: str) -> None:
    """Without it, a whole export would be refused for lacking its columns, with nothing to do about it."""
    folder = tmp_path / "landing" / "tills"
    folder.mkdir(parents=True)
    (folder / "2026-03-01.csv").write_text(f"a{separator}b\n1{separator}2\n")
    (found,) = probe(landing_files(tmp_path, landing(",")), landing(","))
    told = f"separated by {SEPARATORS[separator]}; if all its files are, give its Landing separator={separator!r}"
    assert (found.problem or "").endswith(told)
    (found,) = probe(landing_files(tmp_path, landing(separator)), landing(separator))
    assert (found.problem, found.header) == (None, ("a", "b"))


def test_a_file_with_commas_where_others_are_expected_says_so_too(tmp_path: Path) -> None:
    (tmp_path / "landing" / "tills").mkdir(parents=True)
    (tmp_path / "landing" / "tills" / "2026-03-01.csv").write_text("a,b\n1,2\n")
    (found,) = probe(landing_files(tmp_path, landing(";")), landing(";"))
    assert (found.problem or "").endswith("separated by commas; if all its files are, give its Landing separator=','")


@pytest.mark.parametrize("separator", OTHERS)
def test_a_person_is_found_in_its_fields(separator: str) -> None:
    """Without it, the line of the person would be taken for one field, and a mention be written back with commas."""
    lines = Lines(Landing("tills", "csv", ("id", "customer"), separator=separator), ("customer",))
    content = 'id|customer|note\n1|17841|a\n2|9|"by 17841| today"\n3|9|"x| y"\n'.replace("|", separator).encode()
    left, gone, changed = lines.without(content, Person("17841"))
    assert (gone, changed) == (1, 1)
    header, mention, other, _ = left.decode().split("\n")
    assert header == f"id{separator}customer{separator}note"
    assert "17841" not in mention
    assert next(csv.reader([mention], delimiter=separator))[:2] == ["2", "9"]
    assert other == f'3{separator}9{separator}"x{separator} y"'
    assert {("user", "17841"), ("user", "9")} <= set(lines.people(content))


@pytest.mark.parametrize(
    ("kind", "separator", "message"),
    [
        (
            "csv",
            "::",
            "inputs: expected a separator, one of ',', ';', '\\t', '|', got '::'. Have the source sent with one",
        ),
        ("jsonl", ";", "inputs: expected a separator of CSV files alone, got ';' for jsonl. Leave it out."),
    ],
)
def test_what_separates_nothing_is_refused(kind: str, separator: str, message: str) -> None:
    with pytest.raises(ContractError) as refused:
        Landing("tills", kind, ("a",), separator=separator)
    assert message in str(refused.value)
