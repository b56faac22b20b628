"""Tables that keep themselves tidy: what is needed stays, what is not goes, in pieces, beside runs and after a kill."""

from __future__ import annotations

import os
import signal
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandera.pyspark as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from lakehouse.contracts import Input, Table
from lakehouse.delta.commit import append, ensure_table, replace_days
from lakehouse.delta.log import readable_at, versions
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import fresh_snapshot
from lakehouse.delta.target import Commit
from lakehouse.read.lake import Lake
from lakehouse.read.targets import targets
from lakehouse.records.history import records
from lakehouse.versions import upkeep
from lakehouse.versions.upkeep import Limits, Tidied, clean_up_log, tidy, untidy
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.forked import ended
from lakehouse_tests.fixtures.making import model, rows_of, stage_rows, table

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
NIGHT = Limits(600, 1e9)


def sales() -> Table:
    """Sales by key, with a rule and so with a quarantine."""
    columns = {
        "id": (T.StringType(), pa.Field()),
        "day": (T.DateType(), pa.Field()),
        "amount": (T.LongType(), pa.Field(ge=0, nullable=True)),
    }
    return table(
        "silver.sales", model("Sales", **columns), lambda lines: lines, {"lines": Input("bronze.lines")}, key=("id",)
    )


@pytest.fixture
def store(lake: LakeFactory) -> Lake:
    """A lake of one table, in which Monday and Tuesday have five small files each."""
    made = lake(sales())
    target, _ = targets(made, made.table("silver.sales"))
    for number in range(5):
        rows = [{"id": f"{number}", "day": day, "amount": 1} for day in (MONDAY, TUESDAY)]
        append(target, stage_rows(target, rows), Commit({"batch": number + 1}))
    return made


def night(store: Lake, limits: Limits = NIGHT, **more: Any) -> dict[str, Tidied]:
    found = tidy(store.settings.root, list(store.tables.values()), limits, undo_days=7, **more)
    return {each.table: each for each in found}


def test_small_files_are_merged_and_nothing_else_changes(store: Lake) -> None:
    """Without it, a table that grows by small files would be slower every month, or its rows be changed by tidying."""
    path = store.path("silver.sales")
    before, version = rows_of(path), open_snapshot(path).version
    assert set(untidy(path).partitions) == {str(MONDAY), str(TUESDAY)}
    done = night(store)["silver.sales"]
    assert (done.files_before, done.files_after, done.left, done.problem) == (10, 2, 0, "")
    assert not untidy(path).partitions
    assert rows_of(path) == before
    assert all(each.readable for each in versions(path)), "the undo window lost files"
    assert readable_at(path, version).live.number == 10
    assert not night(store)["silver.sales"].changed


def test_a_night_is_bounded_and_the_next_goes_on(store: Lake) -> None:
    """Without it, the first night after years of small files would go on until the morning's runs."""
    done = night(store, Limits(600, 1, batch_bytes=1))["silver.sales"]
    assert (done.files_after, done.left) == (6, 1)
    assert night(store, Limits(600, 1e9, batch_bytes=1))["silver.sales"].left == 0
    assert night(store, Limits(0, 1e9)) == {}


def test_the_table_where_a_night_stopped_comes_first(store: Lake) -> None:
    """Without it, tables at the end of the list would never have their turn."""
    _, side = targets(store, store.table("silver.sales"))
    assert side is not None
    ensure_table(side)
    night(store)
    names = list(night(store))
    found = tidy(store.settings.root, list(store.tables.values()), NIGHT, undo_days=7)
    for _ in names:
        next(found)
    found.close()
    assert next(iter(night(store))) == names[-1]
    assert list(night(store)) == names


def test_a_table_that_a_run_is_building_is_left_alone(store: Lake) -> None:
    """Without it, a run would lose its commit, and all that it computed, to a merge of the files it replaces."""
    made = store.table("silver.sales")
    base, (target, _) = open_snapshot(store.path(made.id)), targets(store, made)
    assert night(store, busy=lambda: {made.id})[made.id].busy
    assert replace_days(target, base, [], [MONDAY], Commit()) == base.version + 1
    asked: list[int] = []

    def begins() -> set[str]:
        asked.append(1)
        return {made.id} if len(asked) > 1 else set()

    done = night(store, busy=begins)[made.id]
    assert done.files_before == done.files_after == 5, "a run began meanwhile"


def test_a_publish_beside_a_night_wins_or_is_told(store: Lake) -> None:
    """Without it, a merge that a publish overtook could bring back the rows that it replaced."""
    made = store.table("silver.sales")
    target, _ = targets(store, made)
    real = upkeep.compact

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        files = stage_rows(target, [{"id": "new", "day": MONDAY, "amount": 2}])
        replace_days(target, open_snapshot(target.path), files, [MONDAY], Commit())
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "compact", overtaken)
        assert night(store)[made.id].problem == ""
    assert [row["id"] for row in rows_of(target.path) if row["day"] == MONDAY] == ["new"]
    assert len([row for row in rows_of(target.path) if row["day"] == TUESDAY]) == 5


def aged(path: Path, days: float) -> None:
    """Make all commits of a table so many days older."""
    for entry in (path / "_delta_log").glob("*.json"):
        text = entry.read_text()
        start = text.index('"timestamp":') + len('"timestamp":')
        end = next(n for n in range(start, len(text)) if not text[n].isdigit())
        entry.write_text(text[:start] + str(int(text[start:end]) - int(days * 86_400_000)) + text[end:])


def test_log_entries_go_once_nobody_needs_them(store: Lake) -> None:
    """Without it, logs would grow for ever; or the undo window, fingerprints or the history of a table be lost."""
    made, now = store.table("silver.sales"), datetime.now(UTC)
    target, _ = targets(store, made)
    log = target.path / "_delta_log"

    def publish(number: int) -> int:
        facts = {"lakehouse.run_id": "r", "lakehouse.metrics": {str(MONDAY): {"rows": number}}}
        files = stage_rows(target, [{"id": f"p{n}", "day": MONDAY, "amount": 2} for n in range(number)])
        return replace_days(target, ensure_table(target), files, [MONDAY], Commit({"day/mon": number}, facts))

    publish(1)
    aged(target.path, 200)
    DeltaTable(str(target.path)).create_checkpoint()
    old = open_snapshot(target.path).version
    kept = rows_of(target.path)
    assert clean_up_log(target.path, now - timedelta(days=300)) == 0, "younger than that"
    newest = publish(2)
    known = records(store.settings.root, made.id)
    done = night(store)[made.id]
    assert done.log_entries_removed == old > 0
    assert min(log.glob("*.json")).name == f"{old:020}.json"
    assert records(store.settings.root, made.id) == known, "what entries said of days was kept nowhere"
    assert rows_of(target.path, old) == kept, "the version that stood at the moment"
    assert fresh_snapshot(target.path).transaction("batch") == 5
    assert fresh_snapshot(target.path).transaction("day/mon") == 2
    assert readable_at(target.path, newest).live.rows == 7
    (log / f"{old:020}.checkpoint.parquet").write_bytes(b"PAR1")
    (log / f"{old - 1:020}.json").write_text("{}")
    assert clean_up_log(target.path, now) == 0, "entries are all that is left where a checkpoint is broken"


def test_of_very_many_log_entries_those_of_the_undo_window_stay(store: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a stream would fill the disk with the entries of ninety days, or lose versions that can be undone."""
    target, _ = targets(store, store.table("silver.sales"))
    DeltaTable(str(target.path)).create_checkpoint()
    summed_up = open_snapshot(target.path).version
    for number in range(3):
        append(
            target,
            stage_rows(target, [{"id": f"more {number}", "day": MONDAY, "amount": 1}]),
            Commit({"batch": 6 + number}),
        )

    def oldest(most: int) -> int:
        monkeypatch.setattr(upkeep, "MOST_ENTRIES", most)
        assert night(store, Limits(600, 0))["silver.sales"].problem == ""
        return min(int(each.stem) for each in (target.path / "_delta_log").glob("*.json"))

    assert oldest(2) == 0, "all of them are of the undo window"
    aged(target.path, 30)
    assert oldest(100) == 0, "they are few"
    assert oldest(5) == 0, "so many stay, and those that the checkpoint before them needs"
    assert oldest(3) == summed_up
    assert len(rows_of(target.path)) == 13


def test_the_names_of_a_log_are_read_as_often_for_many_checkpoints(
    store: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a night would take hours for a stream: its log has a checkpoint for every twenty of its entries."""
    path, real, reads = store.path("silver.sales"), upkeep.store.listed, list[Path]()
    monkeypatch.setattr(upkeep.store, "listed", lambda *args: reads.append(args[0]) or real(*args))
    counted = []
    for _ in range(2):
        reads.clear()
        assert clean_up_log(path, datetime.now(UTC) - timedelta(days=7)) == 0
        counted.append(len(reads))
        for version in range(open_snapshot(path).version):
            (path / "_delta_log" / f"{version:020}.checkpoint.parquet").touch()
    assert counted[0] == counted[1] > 0


def test_a_checkpoint_is_written_where_entries_have_piled_up(store: Lake) -> None:
    """Without it, each process would read all entries since the last checkpoint of a table."""
    path = store.path("silver.sales")
    assert untidy(path).entries > 5
    assert night(store, Limits(600, 1e9, entries=5))["silver.sales"].checkpoint
    assert untidy(path).entries <= 2
    assert fresh_snapshot(path).transaction("batch") == 5


def killed(at: str, root: Path, after: int) -> None:
    """A night that is killed when so many files are merged or removed."""
    module: Any = upkeep if at != "unlink" else Path
    real, left = getattr(module, at), [after]

    def counted(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(module, at, counted)
    for _ in upkeep.tidy(root, [sales()], Limits(600, 1e9, batch_bytes=1, entries=2), undo_days=7):
        pass


@pytest.mark.parametrize(("at", "after"), [("compact", 1), ("unlink", 2)])
def test_a_kill_in_the_middle_costs_nothing(store: Lake, at: str, after: int) -> None:
    """Without it, a machine that is switched off at night could leave a table that nobody can read."""
    path = store.path("silver.sales")
    before = rows_of(path)
    if at == "unlink":
        DeltaTable(str(path)).create_checkpoint()
        aged(path, 200)
    code, said = ended(killed, at, store.settings.root, after)
    assert code == -signal.SIGKILL, said
    assert rows_of(path) == before
    found = night(store)["silver.sales"]
    assert (found.files_after, found.left, found.problem) == (2, 0, "")
    assert rows_of(path) == before


@pytest.mark.parametrize("number", [1, 3])
def test_partitions_with_few_files_are_left_as_they_are(store: Lake, number: int, tmp_path: Path) -> None:
    """Without it, every night would write the newest days again, and runs would lose commits for nothing."""
    made = store.table("silver.sales")
    target, _ = targets(store, made)
    files = [f for n in range(number) for f in stage_rows(target, [{"id": f"{n}", "day": MONDAY, "amount": 1}])]
    replace_days(target, open_snapshot(target.path), files, [MONDAY, TUESDAY], Commit())
    assert not untidy(target.path).partitions
    assert untidy(target.path).most == number


def test_drafts_of_killed_writers_are_swept(store: Lake) -> None:
    """Without it, half a landed file would lie in the landing zone for ever, with the people in it."""
    root = store.settings.root
    landed = root / "landing" / "events"
    old, kept = landed / "2026-03-02" / ".part-0.jsonl.gz.0f.tmp", landed / "whole.tmp"
    young = root / "cache" / "landing" / ".events.json.0f.tmp"
    for path in (old, young, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    for path in (old, kept):
        os.utime(path, (0, 0))
    night(store)
    assert [path.exists() for path in (old, young, kept)] == [False, True, True]
