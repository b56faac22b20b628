"""Alerts through Dagster's own evaluation of the sensor, from real runs to a real web server."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, SkipReason, asset, build_sensor_context, materialize
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange
from pydantic import SecretStr
from pyspark.errors import PySparkException

from lakehouse.catalog import tables
from lakehouse.definitions import defs
from lakehouse.errors import SourceError
from lakehouse.orchestration.alerts.events import first_position, last_position, read_batch
from lakehouse.orchestration.alerts.problems import News, Problem
from lakehouse.orchestration.alerts.sensor import AlertDeliveryError, alerts_sensor, look, store_path
from lakehouse.orchestration.alerts.sinks import WebhookSink, log_path, sinks_of
from lakehouse.orchestration.alerts.store import opened_store
from lakehouse.orchestration.instance import OWNER_TAG, close_abandoned_runs, partition_tags
from lakehouse.orchestration.online import online_owners
from lakehouse.runs.executing import create_run
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.orchestration.receiver import Receiver
from lakehouse_tests.orchestration.running import BAD, GOOD, ODD, SAME, TABLE, Foretold

DAYS = [date(2011, 3, 1) + timedelta(days=n) for n in range(5)]
OWNER = tables()[TABLE].owner
Tick = Callable[[], str]


@pytest.fixture
def tick(instance: DagsterInstance, settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Tick:
    """One evaluation of the sensor as the daemon does it, with the receiver as webhook; the cursor is carried on."""
    monkeypatch.setenv("LAKEHOUSE_ALERT_WEBHOOK", receiver.url("/secret-path"))
    owners = {table.id: table.owner for table in tables().values()}
    quick = alerts_sensor(owners, settles_in=0.0, sinks=lambda settings: sinks_of(settings, pause=0.01))
    get_settings.cache_clear()
    cursor: list[str | None] = [None]

    def evaluate() -> str:
        context = build_sensor_context(instance, cursor=cursor[0], definitions=defs)
        made = quick(context)
        assert isinstance(made, SkipReason)
        cursor[0] = context.cursor
        return made.skip_message or ""

    return evaluate


def logged(settings: Settings) -> list[dict[str, Any]]:
    """The lines of the log sink."""
    path = log_path(settings)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told(messages: list[dict[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """Kind, check and days of messages."""
    return [(m["kind"], m["check"], m["days"]) for m in messages]


@pytest.mark.slow
def test_a_bad_day_is_told_once_and_once_more_when_it_is_well(runs: Foretold, tick: Tick, receiver: Receiver) -> None:
    """Without it, people would get the same alert after every re-run, or never hear that it is over."""
    fates = dict.fromkeys(DAYS, GOOD) | {DAYS[2]: BAD}
    runs.run(fates)
    assert tick() == "Sent 1 to log, 1 to webhook."
    (message,) = receiver.take()
    assert told([message]) == [("failed", "row_conservation", [str(DAYS[2])])]
    assert (message["severity"], message["table"], message["owner"]) == ("ERROR", TABLE, OWNER)
    assert "10 published" in message["text"] or "12" in message["text"]
    runs.run(fates)
    assert tick() == "Nothing new."
    runs.run(dict.fromkeys(DAYS, GOOD))
    tick()
    (message,) = receiver.take()
    assert told([message]) == [("recovered", "row_conservation", [str(DAYS[2])])]
    assert "failed 2 times before" in message["text"]
    assert tick() == "Nothing new."


@pytest.mark.slow
def test_the_days_of_a_run_are_one_message_for_each_check(runs: Foretold, tick: Tick, receiver: Receiver) -> None:
    """Without it, a backfill over a bad month would send an alert for each day, and one for its summary."""
    runs.run({DAYS[0]: BAD, DAYS[1]: GOOD, DAYS[2]: BAD, DAYS[3]: ODD, DAYS[4]: BAD})
    tick()
    found = {m["check"]: m for m in receiver.take()}
    assert set(found) == {"row_conservation", "volume"}
    assert found["row_conservation"]["days"] == [str(DAYS[n]) for n in (0, 2, 4)]
    assert (found["volume"]["severity"], found["volume"]["days"]) == ("WARN", [str(DAYS[3])])
    # Only what is new is told the next time; days that are well again are told apart.
    runs.run({DAYS[0]: BAD, DAYS[1]: BAD, DAYS[2]: GOOD, DAYS[3]: GOOD, DAYS[4]: BAD})
    tick()
    assert told(receiver.take()) == [
        ("failed", "row_conservation", [str(DAYS[1])]),
        ("recovered", "row_conservation", [str(DAYS[2])]),
        ("recovered", "volume", [str(DAYS[3])]),
    ]


@pytest.mark.slow
def test_a_run_of_one_day_says_the_same(runs: Foretold, tick: Tick, receiver: Receiver) -> None:
    """Without it, a single day would be alerted twice (its evaluation and the step's result), or never recover."""
    runs.run({DAYS[0]: BAD})
    tick()
    assert told(receiver.take()) == [("failed", "row_conservation", [str(DAYS[0])])]
    runs.run({DAYS[1]: GOOD})
    assert tick() == "Nothing new."
    runs.run({DAYS[0]: GOOD})
    tick()
    assert told(receiver.take()) == [("recovered", "row_conservation", [str(DAYS[0])])]


@pytest.mark.slow
def test_a_day_that_was_only_left_alone_has_not_recovered(runs: Foretold, tick: Tick, receiver: Receiver) -> None:
    """Without it, a re-run that checks nothing would take a warning back."""
    runs.run({DAYS[0]: ODD, DAYS[1]: GOOD})
    tick()
    assert told(receiver.take()) == [("failed", "volume", [str(DAYS[0])])]
    runs.run({DAYS[0]: SAME, DAYS[1]: SAME})
    runs.run({DAYS[0]: SAME})
    assert tick() == "Nothing new."


@pytest.mark.slow
def test_a_receiver_that_fails_loses_nothing_and_nobody_hears_twice(
    runs: Foretold, tick: Tick, receiver: Receiver, settings: Settings
) -> None:
    """Without it, an outage of the chat tool would swallow alerts, or every retry would fill the log again."""
    receiver.always = 500
    runs.run({DAYS[0]: BAD})
    with pytest.raises(AlertDeliveryError, match=r"1 alert\(s\) wait and are tried again: webhook: HTTP 500"):
        tick()
    runs.run({DAYS[0]: GOOD})
    with pytest.raises(AlertDeliveryError, match=r"2 alert\(s\) wait"):
        tick()
    assert len(receiver.posts) == 3 + 3, "one target that is down is tried for one message a look"
    assert len(logged(settings)) == 2
    receiver.take()
    receiver.always = 200
    assert tick() == "Sent 2 to webhook."
    assert [m["kind"] for m in receiver.take()] == ["failed", "recovered"], "in the order it happened"
    assert tick() == "Nothing new."
    assert [m["kind"] for m in logged(settings)] == ["failed", "recovered"]


@pytest.mark.slow
def test_an_outage_within_a_look_is_bridged(runs: Foretold, tick: Tick, receiver: Receiver) -> None:
    """Without it, a single hiccup of the network would turn the sensor red."""
    receiver.answers = [503, 429]
    runs.run({DAYS[0]: BAD})
    assert tick() == "Sent 1 to log, 1 to webhook."
    assert len({m["id"] for m in receiver.bodies}) == 1
    assert {headers["Idempotency-Key"] for _, headers, _ in receiver.posts} == {receiver.bodies[0]["id"]}


@pytest.mark.slow
def test_a_message_that_is_refused_does_not_hold_up_the_others(runs: Foretold, tick: Tick, receiver: Receiver) -> None:
    """Without it, one alert that the receiver cannot read would silence all later ones."""
    receiver.answers = [400]
    runs.run({DAYS[0]: BAD, DAYS[1]: ODD})
    with pytest.raises(AlertDeliveryError, match="webhook: HTTP 400"):
        tick()
    assert len(receiver.take()) == 2
    assert tick() == "Sent 1 to webhook."


@pytest.mark.slow
def test_nothing_tells_the_address_or_the_secret(
    runs: Foretold, tick: Tick, receiver: Receiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, whoever reads the daemon's log could post into the team's channel."""
    monkeypatch.setenv("LAKEHOUSE_ALERT_SECRET", "key-of-the-signature")
    get_settings.cache_clear()
    receiver.answers = [500, 500, 500]
    runs.run({DAYS[0]: BAD})
    with pytest.raises(AlertDeliveryError) as caught:
        tick()
    seen = repr(get_settings()) + "".join(traceback.format_exception(caught.value)) + repr(receiver.bodies)
    files = [path for path in settings.root.rglob("*") if path.is_file()]
    assert store_path(settings) in files
    seen += "".join(path.read_bytes().decode("latin-1") for path in files)
    assert "secret-path" not in seen
    assert "key-of-the-signature" not in seen


@pytest.mark.slow
def test_what_breaks_a_step_is_told_without_its_text(runs: Foretold, tick: Tick, receiver: Receiver) -> None:
    """Without it, an engine that fails would go unnoticed, or a value of a row would travel in an error message."""

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("cannot cast 'jane@example.com'")

    runs.run_with(broken, DAYS[:3])
    tick()
    (message,) = receiver.take()
    assert told([message]) == [("failed", "build", [str(day) for day in DAYS[:3]])]
    assert "ValueError" in message["text"]
    assert "jane" not in json.dumps(message)
    runs.run({DAYS[1]: SAME})
    tick()
    assert told(receiver.take()) == [("recovered", "build", [str(DAYS[1])])]

    def known(*_: Any, **__: Any) -> Any:
        raise SourceError("landing/events cannot be listed; fix its permissions")

    runs.run_with(known, [DAYS[4]])
    tick()
    assert "fix its permissions" in receiver.take()[0]["text"]

    def engine(*_: Any, **__: Any) -> Any:
        raise PySparkException("[CAST_INVALID_INPUT] The value of jane@example.com cannot be cast")

    runs.run_with(engine, [DAYS[3]])
    tick()
    (message,) = receiver.take()
    assert "PySparkException; the run's log in Dagster has the message" in message["text"]
    assert "CAST" not in message["text"]


@pytest.mark.slow
def test_a_run_that_asked_for_no_day_is_well_again_once_its_table_is_built(
    runs: Foretold, instance: DagsterInstance, tick: Tick, receiver: Receiver
) -> None:
    """Without it, a click on "Materialize" without a partition would be among what fails for ever."""
    job = defs.resolve_job_def("lakehouse")
    job.execute_in_process(instance=instance, asset_selection=[AssetKey(TABLE.split("."))], raise_on_error=False)
    tick()
    (message,) = receiver.take()
    assert told([message]) == [("failed", "build", [])]
    assert "asks for no day" in message["text"]
    runs.run({DAYS[0]: GOOD})
    tick()
    assert told(receiver.take()) == [("recovered", "build", [])]


@pytest.mark.slow
def test_features_that_were_not_loaded_are_told_to_their_owner_until_they_are(
    instance: DagsterInstance, settings: Settings
) -> None:
    """Without it, nobody's name was on the alert, and it never recovered: they have no days, whatever their run has."""
    fails = [True, False]

    @asset(key=["online", "gold", "user_features"])
    def load() -> None:
        if fails.pop(0):
            raise SourceError("Redis at redis://127.0.0.1:1 does not answer")

    tags = dict(partition_tags(DAYS[0], DAYS[1]))
    for _ in range(2):
        materialize([load], instance=instance, tags=tags, raise_on_error=False)
    with opened_store(store_path(settings)) as store:
        look(instance, store, {}, online_owners(), quiet=1e9, now=time.time() + 60)
        messages = store.recent(9)[::-1]
    assert [(m["kind"], m["table"], m["check"], m["owner"], m["days"]) for m in messages] == [
        (kind, "online.gold.user_features", "build", tables()["gold.user_features"].owner, [])
        for kind in ("failed", "recovered")
    ]


def test_what_was_taken_out_of_the_code_fails_no_more(settings: Settings, tick: Tick) -> None:
    """Without it, a table, a check or a day that is gone would be among what fails for ever."""
    stays = [
        (TABLE, "build", str(DAYS[0])), (TABLE, "build", ""), (TABLE, "data_fresh", ""), (TABLE, "freshness", ""),
        ("tidy", "build", ""),
    ]  # fmt: skip
    gone = [
        ("gold.gone", "build", str(DAYS[0])), ("gold.gone", "row_count", str(DAYS[0])), ("gold.gone", "freshness", ""),
        (TABLE, "a_check_of_before", str(DAYS[0])), (TABLE, "build", "2001-01-01"), (TABLE, "build", "2999-01-01"),
        ("online.gold.user_features", "online_parity", ""),
    ]  # fmt: skip
    with opened_store(store_path(settings)) as store, store.transaction():
        store.take(News([Problem(key, "ERROR", 1.5, 1.5, 1, "x") for key in (*stays, *gone)]), [])
    assert tick() == "Nothing new."
    with opened_store(store_path(settings)) as store:
        assert sorted(store.problems()) == sorted(stays)
        assert store.recent(9) == []


@pytest.mark.slow
def test_a_run_whose_process_was_killed_is_told(
    runs: Foretold, instance: DagsterInstance, tick: Tick, receiver: Receiver
) -> None:
    """Without it, a machine that runs out of memory would leave days unbuilt in silence."""
    run = create_run(instance, [TABLE, "silver.orders"], DAYS[0], DAYS[1])
    host = run.tags[OWNER_TAG].split("/")[0]
    instance.add_run_tags(run.run_id, {OWNER_TAG: f"{host}/999999999/{run.run_id}"})
    assert close_abandoned_runs(instance) == [run.run_id]
    tick()
    messages = receiver.take()
    assert [each["owner"] for each in messages] == sorted({OWNER, tables()["silver.orders"].owner})
    for message in messages:
        assert (message["check"], message["severity"], message["run_id"]) == ("run", "ERROR", run.run_id)
        assert run.run_id[:8] in message["text"]
        assert "is gone" in message["text"]
    assert len({message["id"] for message in messages}) == len(messages) == 2
    assert tick() == "Nothing new."


def test_a_table_that_grows_stale_is_told(instance: DagsterInstance, tick: Tick, receiver: Receiver) -> None:
    """Without it, the red dot of Dagster's freshness would be seen by those who look only."""

    def change(before: FreshnessState, after: FreshnessState) -> None:
        instance._report_runless_asset_event(
            FreshnessStateChange(
                key=AssetKey(TABLE.split(".")),
                previous_state=before,
                new_state=after,
                state_change_timestamp=time.time(),
            )
        )

    change(FreshnessState.UNKNOWN, FreshnessState.PASS)
    assert tick() == "Nothing new."
    change(FreshnessState.PASS, FreshnessState.FAIL)
    tick()
    assert [(m["kind"], m["check"], m["severity"]) for m in receiver.take()] == [("failed", "freshness", "ERROR")]
    change(FreshnessState.FAIL, FreshnessState.PASS)
    change(FreshnessState.PASS, FreshnessState.FAIL)
    tick()
    assert [m["kind"] for m in receiver.take()] == ["recovered", "failed"]


@pytest.mark.slow
def test_a_step_that_is_still_speaking_is_left_whole_for_the_next_look(
    runs: Foretold, instance: DagsterInstance
) -> None:
    """Without it, a look in the middle of a step would send half of its days, or pass over the other half."""
    runs.run({DAYS[0]: BAD, DAYS[1]: BAD})
    runs.run({DAYS[2]: BAD})
    began = min(record.start_time or 0.0 for record in instance.get_run_records())
    assert read_batch(instance, 0, began).position == 0
    late = read_batch(instance, 0, time.time() + 60)
    assert [sorted(key[2] for key in each.failures) for each in late.observed if each.failures] == [
        [str(DAYS[0]), str(DAYS[1])],
        [str(DAYS[2])],
    ]
    assert read_batch(instance, late.position, time.time() + 60).observed == []


@pytest.mark.slow
def test_steps_from_before_the_clock_was_put_back_hold_nothing_back(runs: Foretold, instance: DagsterInstance) -> None:
    """Without it, nothing would be told until the clock is where it was; or half a step, by a look that takes long."""
    runs.run({DAYS[0]: BAD})
    whole = read_batch(instance, 0, time.time() + 60)
    assert read_batch(instance, 0, time.time() - 7200).position == whole.position > 0
    assert read_batch(instance, 0, time.time() - 30).position == 0


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_small_batches_find_the_same(runs: Foretold, instance: DagsterInstance, limit: int) -> None:
    """Without it, the end of a batch could cut events off that no later batch reads."""
    for fates in ({DAYS[0]: BAD, DAYS[1]: GOOD}, {DAYS[2]: BAD}, {DAYS[0]: GOOD, DAYS[1]: ODD}):
        runs.run(fates)
    now = time.time() + 60
    whole = read_batch(instance, 0, now)
    position, failed, audited, more = 0, set[Any](), set[Any](), True
    while more:
        batch = read_batch(instance, position, now, limit)
        position, more = batch.position, batch.more
        failed |= {key for each in batch.observed for key in each.failures}
        audited |= {where for each in batch.observed for where in each.audited}
    assert position == whole.position
    assert failed == {key for each in whole.observed for key in each.failures}
    assert audited == {where for each in whole.observed for where in each.audited}


@pytest.mark.slow
def test_the_first_look_takes_in_the_last_day_only(runs: Foretold, instance: DagsterInstance) -> None:
    """Without it, a lakehouse of years would greet its webhook with every failure it ever had."""
    runs.run({DAYS[0]: BAD})
    now = time.time()
    assert read_batch(instance, first_position(instance, now), now + 60).observed
    assert first_position(instance, now + 90_000) == last_position(instance)


@pytest.mark.slow
def test_a_new_event_log_is_read_from_its_start(
    runs: Foretold, instance: DagsterInstance, settings: Settings, receiver: Receiver
) -> None:
    """Without it, a position kept from an old log would lie beyond all events of a new one, and nothing be told."""
    runs.run({DAYS[0]: BAD})
    sinks = {"webhook": WebhookSink(SecretStr(receiver.url()), {})}
    with opened_store(store_path(settings)) as store:
        with store.transaction():
            store.move(10**9)
        look(instance, store, sinks, {}, quiet=60, now=time.time() + 60)
    assert [m["kind"] for m in receiver.take()] == ["failed"]


@pytest.mark.slow
def test_owners_get_their_own(runs: Foretold, tick: Tick, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, every team would get every alert, and soon read none."""
    monkeypatch.setenv("LAKEHOUSE_ALERT_ROUTES", json.dumps({OWNER: receiver.url("/owners")}))
    get_settings.cache_clear()
    runs.run({DAYS[0]: BAD})
    assert tick() == f"Sent 1 to log, 1 to webhook:{OWNER}."
    assert [path for path, *_ in receiver.posts] == ["/owners"]


@pytest.mark.slow
def test_a_line_that_a_crash_cut_short_does_not_spoil_the_next(runs: Foretold, tick: Tick, settings: Settings) -> None:
    """Without it, two alerts would share one line that no program can read."""
    path = log_path(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"id": "torn')
    runs.run({DAYS[0]: BAD})
    tick()
    first, second = path.read_text().splitlines()
    assert first == '{"id": "torn'
    assert json.loads(second)["kind"] == "failed"


def test_the_sensor_is_on_from_the_start() -> None:
    """Without it, alerts would need a click in the interface that nobody knows of."""
    made = defs.resolve_sensor_def("alerts")
    assert made.default_status.value == "RUNNING"


@pytest.mark.slow
def test_a_folder_of_state_that_cannot_be_used_is_an_error_of_the_tick(
    tick: Tick, settings: Settings, runs: Foretold
) -> None:
    """Without it, a full or broken disk would look like a quiet night."""
    path: Path = store_path(settings)
    path.write_bytes(b"this is no database, and longer than a header of one hundred bytes" * 3)
    runs.run({DAYS[0]: BAD})
    with pytest.raises(Exception, match="not a database"):
        tick()
