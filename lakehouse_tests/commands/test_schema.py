"""`lakehouse schema`: what it shows of the lock, and how it ends where a contract does not follow from it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest

from lakehouse.catalog import declared, tables
from lakehouse.contracts import schema_versions
from lakehouse.contracts.derived import lineage_file, read_lineage, write_lineage
from lakehouse.contracts.schema_versions import Version, read_lock, write_lock
from lakehouse.settings import get_settings
from lakehouse_tests.commands.conftest import Cli
from lakehouse_tests.fixtures.making import model
from lakehouse_tests.fixtures.packages import tables_of


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's lock with an older version of silver.orders, as a file of the test's own."""
    tables()  # as this process has loaded them: with this lock they would be refused
    held = dict(read_lock())
    (now,) = held["silver.orders"][-1:]
    older = Version(now.number, now.compatibility, {k: v for k, v in now.columns.items() if k != "country"})
    write_lock({**held, "silver.orders": [*held["silver.orders"][:-1], older]}, tmp_path / "schemas.json")
    monkeypatch.setattr(schema_versions, "lock_file", lambda: tmp_path / "schemas.json")
    return tmp_path / "schemas.json"


def bumped(monkeypatch: pytest.MonkeyPatch, **policy: Any) -> None:
    """The catalogue with the next version of silver.orders."""
    made = declared()["silver.orders"]
    changed = replace(made, **{"schema_version": made.schema_version + 1, **policy})
    monkeypatch.setattr("lakehouse.commands.inspect.schema.declared", lambda: {**declared(), "silver.orders": changed})


def test_the_project_is_as_locked(cli: Cli) -> None:
    said = cli("schema", "check", "--json")
    assert said.code == 0
    assert {each["table"] for each in said.json} == set(declared())
    assert not any(each["problems"] for each in said.json)
    assert "contracts as locked" in cli("schema", "check").err
    assert "Nothing to lock" in cli("schema", "lock").err


def test_a_change_without_a_new_version_is_named_and_not_locked(cli: Cli, lock: Path) -> None:
    """Without it, the lock would be fixed by the command that people run when it complains."""
    before = lock.read_text()
    for arguments in (("schema", "check"), ("schema", "lock")):
        said = cli(*arguments)
        assert said.code == 1
        assert "silver.orders: column country is new (string), but schema_version is still" in said.err
    (found,) = [each for each in cli("schema", "check", "--json").json if each["problems"]]
    assert found["table"] == "silver.orders"
    assert lock.read_text() == before


def test_a_new_version_is_locked_and_shown(cli: Cli, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = declared()["silver.orders"].schema_version + 1
    bumped(monkeypatch)
    said = cli("schema", "check")
    assert said.code == 1
    assert f"silver.orders: version {number} is not locked. Run `lakehouse schema lock`" in said.err
    said = cli("schema", "lock")
    assert said.code == 0
    assert f"silver.orders version {number}: country is new (string)" in said.err
    assert cli("schema", "check").code == 0
    newest, *_ = cli("schema", "history", "silver.orders", "--json").json
    assert (newest["version"], newest["changes"]) == (number, ["country is new (string)"])
    assert "country is new (string)" in cli("schema", "history", "silver.orders").out


def test_a_table_that_was_never_locked(cli: Cli, lock: Path) -> None:
    lock.unlink()
    said = cli("schema", "history", "silver.orders")
    assert said.code == 2
    assert "schema lock" in said.err
    assert cli("schema", "check").code == 1
    assert cli("schema", "lock").code == 0
    assert cli("schema", "check").code == 0


@pytest.mark.slow
def test_lineage_is_derived_and_kept(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is in the package: what the command writes is what pages show."""
    monkeypatch.setattr("lakehouse.commands.inspect.schema.lineage_file", lambda _: tmp_path / "lineage.json")
    said = cli("schema", "lock")
    assert said.code == 0
    assert "gold.daily_revenue: lineage of 8 columns derived" in said.err
    assert (tmp_path / "lineage.json").read_text() == lineage_file(get_settings().tables).read_text()


def test_lineage_of_other_code_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, pages would go on showing where columns came from before the transform was changed."""
    held = read_lineage(lineage_file(get_settings().tables))
    older = {name: replace(each, code="older") if name == "gold.user_features" else each for name, each in held.items()}
    write_lineage(older, tmp_path / "lineage.json")
    monkeypatch.setattr(sys.modules["lakehouse.contracts.table"], "lineage_file", lambda _: tmp_path / "lineage.json")
    said = cli("schema", "check")
    assert said.code == 1
    assert "gold.user_features: its lineage was derived from other code. Run `lakehouse schema lock`" in said.err
    found = {each["check"]: each for each in cli("doctor", "--no-engine", "--json").json}["lineage"]
    assert (found["ok"], found["found"]) == (False, "of other code: gold.user_features")
    assert "Derive it" in found["fix"]


@pytest.mark.slow
def test_a_column_that_others_read_does_not_go(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, who renames a column hears of it when the table below breaks, and the table above is built anew."""
    whole = declared()["silver.transactions"]
    fields = {each.name: (each.dataType, pa.Field(nullable=True)) for each in whole.schema if each.name != "country"}
    changed = replace(whole, model=model("Transactions", **fields))
    monkeypatch.setattr("lakehouse.commands.inspect.schema.declared", lambda: {**declared(), changed.id: changed})
    monkeypatch.setattr("lakehouse.commands.inspect.schema.locked", lambda _, held: held)
    monkeypatch.setattr("lakehouse.commands.inspect.schema.problems", lambda *_: [])
    monkeypatch.setattr("lakehouse.commands.inspect.schema.lineage_file", lambda _: tmp_path / "lineage.json")
    said, gone = cli("schema", "check"), "silver.transactions.country, which is no column any more."
    assert said.code == 1
    assert f"silver.orders: its lineage names {gone} Run `lakehouse schema lock`" in said.err
    assert "silver.sessions: its lineage" not in said.err, "it does not read it"
    said = cli("schema", "lock")
    assert said.code == 1
    assert f"silver.orders: its transform reads {gone} Change silver.orders, too, or give the column back." in said.err
    assert not (tmp_path / "lineage.json").exists()


@pytest.mark.slow
def test_lineage_that_no_transform_has_is_not_locked(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    made = replace(declared()["gold.daily_revenue"], lineage={"purchases": (("silver.transactions", "user_id"),)})
    known = {**declared(), made.id: made}
    monkeypatch.setattr("lakehouse.commands.inspect.schema.declared", lambda: known)
    monkeypatch.setattr("lakehouse.commands.inspect.schema.lineage_file", lambda _: tmp_path / "lineage.json")
    said = cli("schema", "lock")
    assert said.code == 1
    assert "gold.daily_revenue: lineage: expected of purchases what the transform computes it from" in said.err
    assert not (tmp_path / "lineage.json").exists()


CLICKS = '''"""bronze.clicks: made by a test."""

import pandera.pyspark as pa
from pyspark.sql import types as T

from lakehouse.contracts import MessageModel, Topic, table
from lakehouse.transforms.columns import with_event_date


class Clicks(MessageModel):
    page: T.StringType() = pa.Field(nullable=True)
    at: T.StringType() = pa.Field(nullable=True)
    country: T.StringType() = pa.Field(nullable=True)


@table(
    model=Clicks,
    inputs={"messages": Topic("clicks", ("clicks",), ("page", "at", "country"), time="at")},
    partition_by=("_arrival_date", "_event_date"),
    owner="team:test",
    grain="one message",
)
def clicks(messages):
    return with_event_date(messages, "at")
'''


@pytest.mark.slow
def test_a_column_that_is_not_read_from_the_messages_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the first to say so would be the stream, hours after the contract was locked."""
    for name in ("", "bronze", "silver", "gold"):
        (tmp_path / "clicked" / name).mkdir()
        (tmp_path / "clicked" / name / "__init__.py").touch()
    file = tmp_path / "clicked" / "bronze" / "clicks.py"
    file.write_text(CLICKS)
    monkeypatch.syspath_prepend(tmp_path)
    with tables_of("clicked"):
        assert cli("schema", "lock").code == 0
        assert cli("schema", "check").code == 0
    for name in [name for name in sys.modules if name.startswith("clicked")]:
        monkeypatch.delitem(sys.modules, name)
    file.write_text(CLICKS.replace(', "country")', ")"))
    wanted = (
        "bronze.clicks: model: expected columns that the transform gives, got country, which it does not. "
        "Read it from the messages (columns= of Topic), or take it out of Clicks."
    )
    with tables_of("clicked"):
        for arguments in (("schema", "check"), ("schema", "lock")):
            said = cli(*arguments)
            assert (said.code, wanted in " ".join(said.err.split())) == (1, True), said.err


PAGES = '''"""silver.pages: made by a test."""

import pandera.pyspark as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Input, rule, table


class Pages(pa.DataFrameModel):
    page: T.StringType() = pa.Field(nullable=True)
    day: T.DateType() = pa.Field()

    @rule
    def known(cls):
        F.col("page").isNotNull()

    @rule
    def early():
        return F.col("page") < "m"


@table(model=Pages, inputs={"clicks": Input("bronze.clicks")}, partition_by=("day",), owner="team:test", grain="a page")
def pages(clicks):
    return clicks.select("page", F.col("_event_date").alias("day"))
'''


@pytest.mark.slow
def test_a_rule_that_gives_no_column_is_not_locked(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the first to say so would be a build, and of a stream what it had taken would be in bronze by then."""
    for name in ("", "bronze", "silver", "gold"):
        (tmp_path / "ruled" / name).mkdir()
        (tmp_path / "ruled" / name / "__init__.py").touch()
    (tmp_path / "ruled" / "bronze" / "clicks.py").write_text(CLICKS)
    (tmp_path / "ruled" / "silver" / "pages.py").write_text(PAGES)
    monkeypatch.syspath_prepend(tmp_path)
    with tables_of("ruled"):
        said = cli("schema", "lock")
    assert said.code == 1
    told = " ".join(said.err.split())
    assert "silver.pages: Pages.known gives no rule (" in told
    assert "silver.pages: Pages.early gives no rule (" in told
    assert "A @rule method takes `cls` alone and returns a boolean column" in told
    assert not list((tmp_path / "ruled").glob("*.json"))
