"""Backfills through Dagster's daemon: asked for over GraphQL, as its interface does, and followed in its storage."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from lakehouse.commands.console import console, counted, days_text, print_json, program, say
from lakehouse.commands.progress import Bars, NoBars
from lakehouse.commands.reports import Report
from lakehouse.commands.watch import Watch
from lakehouse.errors import DaemonError
from lakehouse.orchestration.pieces import contiguous
from lakehouse.settings import Settings

if TYPE_CHECKING:
    pass

HOST = "127.0.0.1"
LOOK = 1.0  # seconds between two looks at what has happened
_WHO = """{instance {info daemonHealth {daemonStatus(daemonType: "BACKFILL") {healthy}}}}"""
_LAUNCH = """mutation($what: LaunchBackfillParams!) {launchPartitionBackfill(backfillParams: $what) {
    ... on LaunchBackfillSuccess {backfillId} ... on Error {message}}}"""
_AGAIN = """mutation($what: ReexecutionParams!) {reexecutePartitionBackfill(reexecutionParams: $what) {
    ... on LaunchBackfillSuccess {backfillId} ... on Error {message}}}"""


class DaemonClient:
    """What the web server of `lakehouse dev` is asked.

    Raises:
        DaemonError: from every method, where nothing answers, what answers is no Dagster, or it refuses.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = f"http://{HOST}:{settings.port}"

    def launch(self, wanted: Mapping[str, Collection[date]], *, force: bool = False, title: str = "") -> str:
        """Start a backfill of some days, which may differ by table; returns its id."""
        from lakehouse.orchestration.instance import STARTED_AGAIN
        from lakehouse.orchestration.slices import tags_of_new_runs
        from lakehouse.orchestration.why import why_now

        tags = {**STARTED_AGAIN, **tags_of_new_runs(), **why_now()}
        what: dict[str, Any] = {
            "partitionsByAssets": [
                {
                    "assetKey": {"path": name.split(".")},
                    "partitions": {"ranges": [{"start": str(a), "end": str(b)} for a, b in contiguous(days)]},
                }
                for name, days in wanted.items()
                if days
            ],
            "title": title,
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        if force:
            what["runConfigData"] = {"resources": {"lakehouse": {"config": {"force": True}}}}
        return self._started(_LAUNCH, what, "launchPartitionBackfill")

    def again(self, backfill_id: str) -> str:
        """Start a backfill of what another one, which is over, was to materialize and has not; returns its id."""
        what = {"parentRunId": backfill_id, "strategy": "FROM_FAILURE"}
        return self._started(_AGAIN, what, "reexecutePartitionBackfill")

    def _started(self, mutation: str, what: Mapping[str, Any], field: str) -> str:
        self._check_root()
        answer = self._ask(mutation, {"what": what})[field]
        if "backfillId" not in answer:
            raise DaemonError(f"Dagster did not start the backfill: {answer.get('message', 'no reason given')}")
        return str(answer["backfillId"])

    def _check_root(self) -> None:
        """Whatever answers at the port may be another lakehouse's."""
        found = self._ask(_WHO, {})["instance"]
        info, daemon = found["info"], found["daemonHealth"]["daemonStatus"]
        if info is not None and str(self._settings.dagster_home) not in info:
            raise DaemonError(
                f"The Dagster at {self._url} keeps its state elsewhere than in {self._settings.dagster_home}, so it is "
                "another lakehouse's. LAKEHOUSE_PORT says where this one's listens, LAKEHOUSE_ROOT where its state is."
            )
        if not daemon["healthy"]:
            say("Dagster's daemon is not on at the moment: the backfill begins once it is.")

    def _ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  # loopback
            f"{self._url}/graphql",
            json.dumps({"query": query, "variables": dict(variables)}).encode(),
            {"content-type": "application/json"},
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # this machine is behind no proxy
        try:
            with direct.open(request, timeout=60) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            said = _json_or_nothing(error.read())
            if "errors" not in said:
                raise DaemonError(f"What answers at {self._url} is no Dagster (HTTP {error.code}).") from error
        except ValueError as error:
            raise DaemonError(f"What answers at {self._url} is no Dagster.") from error
        except OSError as error:
            raise DaemonError(
                f"Nothing answers at {self._url}: start `{program()} dev` and leave it on (LAKEHOUSE_PORT says where), "
                "or leave out --daemon to build in this process."
            ) from error
        if said.get("errors"):
            raise DaemonError(f"Dagster refuses: {said['errors'][0].get('message', said['errors'][0])}")
        data: dict[str, Any] = said["data"]
        return data


def _json_or_nothing(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def launch(
    settings: Settings,
    names: Sequence[str],
    wanted: Mapping[str, Collection[date]],
    *,
    force: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Say what some days by table will take, and have the daemon build them.

    Raises:
        DaemonError: where `lakehouse dev` is not on, or refuses.
    """
    from lakehouse.commands.plans import plan_days

    plans = plan_days(settings, names, {name: set(days) for name, days in wanted.items()}, force=force)
    total, same = sum(len(p.build) for p in plans), sum(len(p.unchanged) for p in plans)
    known = [p.estimate.seconds for p in plans if p.build and p.estimate.seconds is not None]
    most = settings.backfill_days
    cut = f"in runs of at most {counted(most, 'day')}" if most else "a gapless range in one run"
    takes = f", about {sum(known):.0f} s of work as builds before it went" if known else ""
    say(f"{counted(total, 'partition')} to build, {same:,} unchanged, {cut}{takes}.")
    backfill_id = DaemonClient(settings).launch(wanted, force=force, title="lakehouse backfill")
    say(f"Backfill {backfill_id} is with the daemon, which looks every half a minute.")
    started(settings, backfill_id, wait=wait, as_json=as_json)


def started(settings: Settings, backfill_id: str, *, wait: bool, as_json: bool) -> None:
    """Follow a backfill that was just started, and end as `lakehouse backfill` does; or only say its id."""
    from lakehouse.commands.summary import print_summary

    if not wait:
        if as_json:
            print_json({"backfill_id": backfill_id})
        else:
            console().print(backfill_id)
            say(hint(backfill_id))
        return
    report = follow(settings, backfill_id)
    if as_json:
        print_json({"backfill_id": backfill_id, **report.as_json()})
    elif not report.interrupted:
        print_summary(report, settings)
        _say_what_is_behind(settings, report)
    raise typer.Exit(report.exit_code)


def _say_what_is_behind(settings: Settings, report: Report) -> None:
    """Days that a run has read from other days, which runs after it have published again: late rows, windows."""
    from lakehouse.build.touched import stale_days
    from lakehouse.commands.plans import lake_without_engine

    lake = lake_without_engine(settings)
    behind = {
        name: stale_days(lake, lake.table(name), {*each.published, *each.unchanged})
        for name, each in report.tables.items()
        if each.published or each.unchanged
    }
    number = sum(len(days) for days in behind.values())
    if number:
        named = "; ".join(f"{name} {days_text(days)}" for name, days in behind.items() if days)
        say(
            f"{counted(number, 'partition')} read what runs after theirs published ({named}). The sensor `landed` "
            f"builds these, or: {program()} backfill --touched"
        )


def follow(settings: Settings, backfill_id: str) -> Report:
    """Show a backfill's progress until it is over; Ctrl-C only stops the showing."""
    from lakehouse.orchestration.backfills import state_of
    from lakehouse.orchestration.instance import opened_instance

    with opened_instance(settings) as instance:
        bars: NoBars = NoBars()
        watch = Watch(instance, backfill_id)
        if sys.stderr.isatty():
            totals = {name: len(days) for name, days in watch.target.items()}
            bars = Bars(Console(file=sys.stderr, force_terminal=True), totals)
            watch.on_step = bars.step
        said = "running"
        try:
            with bars:
                watch.look()
                while not watch.is_over:
                    time.sleep(LOOK)
                    watch.look()
                    if (state := state_of(watch.backfill)) != said:
                        said = state
                        say(f"Backfill {backfill_id} is {state}.")
        except KeyboardInterrupt:
            say(f"No longer following; backfill {backfill_id} goes on. {hint(backfill_id)}")
            watch.report.interrupted = True
            return watch.report
        watch.close()
        return watch.report


def hint(backfill_id: str) -> str:
    """What can be done with a backfill that is on."""
    return f"{program()} backfills show {backfill_id}; also: pause, resume, cancel."
