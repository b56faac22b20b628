"""Personal columns are personal in every table that holds them."""

from __future__ import annotations

from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.catalog import agree, declared
from lakehouse.contracts import Input, Privacy, Table
from lakehouse.contracts.fitting import privacy_mistakes
from lakehouse.errors import ContractError
from lakehouse_tests.fixtures.making import having, model, table

CONTRACT = {
    "patient": (T.StringType(), pa.Field()),
    "ward": (T.StringType(), pa.Field()),
    "day": (T.DateType(), pa.Field()),
    "people": (T.LongType(), pa.Field()),
}
PATIENT = Privacy(person=("patient",))


def stays(name: str, privacy: Privacy, **words: Any) -> Table:
    return table(
        name, model("Stays", **CONTRACT), lambda rows: rows, {"rows": Input("silver.rows")}, privacy=privacy, **words
    )


def found(before: Privacy, behind: Privacy, **words: Any) -> list[str]:
    """What is wrong with a table that reads another of the same columns."""
    source = stays("silver.rows", before)
    return [str(each) for each in privacy_mistakes(stays("gold.stays", behind, **words), {source.id: source})]


@pytest.mark.parametrize("privacy", [PATIENT, Privacy(tokens=("patient",)), Privacy(further=("ward",)), Privacy()])
def test_what_is_personal_in_both_is_right(privacy: Privacy) -> None:
    assert found(privacy, privacy) == []


@pytest.mark.parametrize(("word", "behind"), [("person", PATIENT), ("tokens", Privacy(tokens=("patient",)))])
def test_a_person_of_a_column_that_is_not_personal_is_refused(word: str, behind: Privacy) -> None:
    """Without it, a person would be forgotten in silver and stay in bronze, and in previews of it."""
    (told,) = found(Privacy(), behind)
    assert told == (
        f"privacy.{word}: expected patient to be personal where it comes from, got silver.rows.patient, not personal there. "
        "Name it there too, in privacy=Privacy(…)."
    )


def test_a_further_column_of_the_same_name_is_personal_where_it_comes_from() -> None:
    """Without it, `explain-row` and previews would show in bronze what silver hides. A text put together is another."""
    (told,) = found(Privacy(), Privacy(further=("ward",)))
    assert told.startswith(
        "privacy.further: expected ward to be personal where it comes from, got silver.rows.ward, not"
    )
    assert found(Privacy(), Privacy(further=("ward",)), lineage={"ward": ("patient", "people")}) == []
    assert found(PATIENT, Privacy(further=("patient",))) == []


@pytest.mark.parametrize("before", [PATIENT, Privacy(further=("patient",))])
def test_a_personal_column_that_goes_on_is_personal_there(before: Privacy) -> None:
    """Without it, gold would show in previews and statistics what silver hides, and be left out by `forget`."""
    assert found(before, Privacy(person=("ward",), further=("ward",)))[-1] == (
        "privacy: expected patient among the personal columns, as in silver.rows, got ward. Name it in privacy=Privacy(…), "
        "or give another name to what is not personal."
    )


def test_what_is_computed_from_people_is_not_them() -> None:
    """Without it, a number of people could not be published."""
    read = {"people": "patient"}
    assert found(PATIENT, PATIENT, lineage=read) == []
    assert found(PATIENT, Privacy(person=("patient",), further=("people",)), lineage=read) == []


def test_one_personal_source_is_enough() -> None:
    """Without it, an id that falls back to another column would make that one personal."""
    assert found(PATIENT, PATIENT, lineage={"patient": ("patient", "ward")}) == []


@pytest.mark.parametrize("home", ["lakehouse", "lakehouse_tests.fixtures.shop"])
def test_tables_agree_and_one_that_does_not_is_not_loaded(home: str) -> None:
    tables = declared(home)
    agree(tables)
    name = "silver.orders"
    with pytest.raises(
        ContractError, match=r"privacy: expected user_id among the personal columns, as in silver\.trans"
    ):
        agree({**tables, name: having(tables[name], privacy=Privacy())})
