"""Backfills through Dagster's daemon: asked for over GraphQL, as its interface does, and followed in its storage."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

# Dagster (1.13) has no public name for its own backfills.
from dagster._core.execution.backfill import PartitionBackfill

from lakehouse.days import contiguous
from lakehouse.errors import DaemonError
from lakehouse.orchestration.backfills import state_of, without_pause
from lakehouse.orchestration.instance import STARTED_AGAIN, opened_instance
from lakehouse.orchestration.run_tags import why_now
from lakehouse.orchestration.slices import tags_for
from lakehouse.runs.executing import PLAIN, Asked
from lakehouse.runs.listener import QUIET, Listener
from lakehouse.runs.reports import Report
from lakehouse.runs.watch import Watch
from lakehouse.servers.graphql import ask
from lakehouse.servers.ports import HERE
from lakehouse.servers.web import web_port
from lakehouse.settings import Settings
from lakehouse.texts import program

LOOK = 1.0  # seconds between two looks at what has happened
_WHO = """{instance {info daemonHealth {daemonStatus(daemonType: "BACKFILL") {healthy}}}}"""
_LAUNCH = """mutation($what: LaunchBackfillParams!) {launchPartitionBackfill(backfillParams: $what) {
    ... on LaunchBackfillSuccess {backfillId} ... on Error {message}}}"""
_AGAIN = """mutation($what: ReexecutionParams!) {reexecutePartitionBackfill(reexecutionParams: $what) {
    ... on LaunchBackfillSuccess {backfillId} ... on Error {message}}}"""


class DaemonClient:
    """What the web server of `lakehouse dev` is asked.

    Args:
        settings: whose root it is, and whose port where none is on.
        say: is told what people should know, such as that nothing begins yet.

    Raises:
        DaemonError: from every method, where nothing answers, what answers is no Dagster, or it refuses.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None] = QUIET.say) -> None:
        self._settings = settings
        self._say = say
        self._url = f"http://{HERE}:{web_port(settings)}"

    def launch(self, wanted: Mapping[str, Collection[date]], *, asked: Asked = PLAIN, title: str = "") -> str:
        """Start a backfill of some days, which may differ by table; returns its id.

        Args:
            wanted: days by table.
            asked: how its runs are to build; that they are a backfill's, and what they print, is Dagster's to say.
            title: as people read it in the interface.
        """
        tags = {**STARTED_AGAIN, **tags_for(asked.slices), **why_now()}
        config = {"resources": {"lakehouse": {"config": {"force": True}}}} if asked.force else None
        return self._launched(wanted, tags, config, title)

    def rest(self, backfill: PartitionBackfill, wanted: Mapping[str, Collection[date]]) -> str:
        """Start a backfill of some days of another one that is over, which builds as that one did; returns its id.

        Args:
            backfill: the other one.
            wanted: days by table.
        """
        return self._launched(wanted, without_pause(backfill.tags), backfill.run_config, backfill.title or "")

    def _launched(
        self,
        wanted: Mapping[str, Collection[date]],
        tags: Mapping[str, str],
        config: Mapping[str, Any] | None,
        title: str,
    ) -> str:
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
        if config:
            what["runConfigData"] = config
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
        if info is not None and not _names(yaml.safe_load(info), self._settings.dagster_home):
            raise DaemonError(
                f"The Dagster at {self._url} keeps its state elsewhere than in {self._settings.dagster_home}, so it is "
                "another lakehouse's. LAKEHOUSE_PORT says where this one's listens, LAKEHOUSE_ROOT where its state is."
            )
        if not daemon["healthy"]:
            self._say("Dagster's daemon is not on at the moment: the backfill begins once it is.")

    def _ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return ask(self._url, query, variables)
        except TimeoutError as error:  # it is held up; what it was asked, it may do once it goes on
            raise DaemonError(
                f"What listens at {self._url} did not answer in time. If it is this lakehouse's web interface, it may "
                f"begin later what was asked: look before you do it again, `{program()} backfills list`."
            ) from error
        except OSError as error:
            raise DaemonError(
                f"Nothing answers at {self._url}: start `{program()} dev` and leave it on (LAKEHOUSE_PORT says where), "
                "or leave out --daemon to build in this process."
            ) from error


def _names(told: object, folder: Path) -> bool:
    """Whether what Dagster tells of itself has a folder, or a path below it, among its values.

    It is compared as a value: the text has other letters where the path is not plain ASCII, and breaks long paths.
    """
    if isinstance(told, Mapping):
        return any(_names(each, folder) for each in told.values())
    if isinstance(told, list):
        return any(_names(each, folder) for each in told)
    return isinstance(told, str) and Path(told).is_relative_to(folder)


def follow(settings: Settings, backfill_id: str, listener: Listener = QUIET) -> Report:
    """Tell of a backfill's progress until it is over; an interrupt (Ctrl-C) ends only the telling.

    Args:
        settings: where the lakehouse is.
        backfill_id: of a backfill that was launched.
        listener: is told of every step and day, and of states such as paused.

    Returns:
        What became of every day so far; `interrupted` where it was not followed to its end.

    Raises:
        DaemonError: where there is no such backfill.
    """
    with opened_instance(settings) as instance:
        watch = Watch(instance, backfill_id, listener)
        said = "running"
        try:
            with listener.elsewhere({name: len(days) for name, days in watch.target.items()}):
                watch.look()
                while not watch.is_over:
                    time.sleep(LOOK)
                    watch.look()
                    if (state := state_of(watch.backfill)) != said:
                        said = state
                        listener.say(f"Backfill {backfill_id} is {state}.")
        except KeyboardInterrupt:
            listener.say(f"No longer following; backfill {backfill_id} goes on. {hint(backfill_id)}")
            watch.report.interrupted = True
            return watch.report
        watch.close()
        return watch.report


def hint(backfill_id: str) -> str:
    """What can be done with a backfill that is on."""
    return f"{program()} backfills show {backfill_id}; also: pause, resume, cancel."
