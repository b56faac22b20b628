"""A `lakehouse dev` of the tests' own: a free port, a temporary root, stopped with everything that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from lakehouse.days import days_between
from lakehouse.servers.graphql import ask
from lakehouse.servers.ports import free_port
from lakehouse.settings import Settings
from lakehouse.spark.engine_place import EnginePlace
from lakehouse.spark.warm import places
from lakehouse_tests.commands.conftest import run
from lakehouse_tests.conftest import ALONE, ENGINES, PII_KEY, TINY

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 180
RUN_SECONDS = 600  # a day takes 20 s on an idle laptop; the machine may be building something else
STOP_SECONDS = 20


def _processes(groups: Collection[int]) -> dict[int, str]:
    """The command line of each process of some groups, by its id."""
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if os.getpgid(int(folder.name)) in groups:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


class Server:
    """The web server and daemon, as `lakehouse dev` starts them, and what they say over GraphQL.

    `settings` are variables in place of, or beside, those that every server of the tests has.
    """

    program = "lakehouse.cli"

    def __init__(self, root: Path, first_day: str, **settings: str) -> None:
        self.root = root
        self.log = root / "dev.log"
        self._first_day = first_day
        self._settings = settings
        self._process: subprocess.Popen[bytes]
        self.port = 0
        self.url = ""

    def __enter__(self) -> Self:
        self.port = self.port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        with self.log.open("ab") as log:
            # A session of its own: its group holds the server, the daemon, the code server and every run.
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.program, "dev", "--port", str(self.port)],
                cwd=self._folder(),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_for(self._answers, "the server answers", START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for place in self._warm():  # that the daemon's runs started; the server's own ends with it
            place.end()

    def _warm(self) -> list[EnginePlace]:
        return places(Settings(root=self.root, engine_dir=self.root / "engine"))

    @contextmanager
    def engine_held(self) -> Iterator[None]:
        """Nobody joins the warm engine meanwhile: a run waits in the first step that needs it."""
        with ExitStack() as doors:
            for place in self._warm():
                doors.enter_context(place.door())
            yield

    def _end(self) -> None:
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, sent)
            with suppress(TimeoutError):
                wait_for(self._is_gone, "the server's processes are gone", STOP_SECONDS)
                return

    def restart_after_kill(self) -> None:
        """SIGKILL for the server, the daemon and everything they have started; then a new one on the same port."""
        os.killpg(self._process.pid, signal.SIGKILL)
        wait_for(self._is_gone, "the killed processes are gone", STOP_SECONDS)
        self.__enter__()

    def engines(self) -> list[str]:
        """The command line of each engine that a run has started, warm ones included."""
        groups = {self._process.pid, *(each.pid for place in self._warm() if (each := place.address()))}
        found = _processes(groups).values()
        return [
            line for line in found if " org.apache.spark.deploy.SparkSubmit" in line and "launcher.Main" not in line
        ]

    def code_server(self) -> int:
        """The process that serves the code to the web interface and the daemon; 0 where there is none."""
        found = _processes({self._process.pid})
        return next((pid for pid, line in found.items() if " api grpc " in line), 0)

    def _environment(self) -> dict[str, str]:
        ours = {
            "LAKEHOUSE_ROOT": str(self.root),
            "LAKEHOUSE_FIRST_DAY": self._first_day,
            "LAKEHOUSE_PII_KEY": PII_KEY,
            "LAKEHOUSE_AUTO_DAYS": "0",  # what runs is what the tests start
            "FRESHNESS_DAEMON_INTERVAL_SECONDS": "5",
            "LAKEHOUSE_SPARK_MEMORY": "1200m",
            "SPARK_SUBMIT_OPTS": ALONE["SPARK_SUBMIT_OPTS"],
            "LAKEHOUSE_ENGINE_MINUTES": "10",
            ENGINES: str(self.root / "engine"),
            "LAKEHOUSE_SPARK_CONFIG": json.dumps(TINY),
            "PYTHONPATH": str(REPOSITORY),
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DAGSTER_")}
        return inherited | ours | {f"LAKEHOUSE_{name.upper()}": value for name, value in self._settings.items()}

    def _folder(self) -> Path:
        return self.root

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"`lakehouse dev` ended with code {self._process.returncode}:\n{self.log_tail()}")
        try:
            with urllib.request.urlopen(f"{self.url}/server_info", timeout=5) as answer:  # noqa: S310  # loopback
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _is_gone(self) -> bool:
        self._process.poll()
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def log_tail(self, lines: int = 60) -> str:
        """The last lines that the server and its runs wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def ask(self, query: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The data of a GraphQL answer.

        Raises:
            DaemonError: the query is wrong.
        """
        return ask(self.url, query, variables)

    def command(self, *arguments: str) -> Any:
        """What a command of the terminal says as JSON, whatever its exit code."""
        call = [sys.executable, "-m", "lakehouse.cli", *arguments, "--json"]
        done = subprocess.run(call, cwd=self.root, env=self._environment(), capture_output=True, text=True, check=False)
        return json.loads(done.stdout)

    def look(self, *arguments: str) -> Any:
        """What a command that only looks says as JSON; in this process, since to start one takes longer than the look."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._environment().items():
                patch.setenv(name, value)
            return run(self.root, *arguments, "--json").json

    def ticks(self, sensor: str) -> list[dict[str, Any]]:
        """The last looks of a sensor, newest first: `status`, `skipReason`, `runIds`, `timestamp`."""
        query = """query($sensor: SensorSelector!) {sensorOrError(sensorSelector: $sensor) {... on Sensor {
            sensorState {ticks(limit: 10) {status skipReason runIds timestamp}}}}}"""
        selector = {
            "repositoryName": "__repository__",
            "repositoryLocationName": "lakehouse.definitions",
            "sensorName": sensor,
        }
        found: list[dict[str, Any]] = self.ask(query, {"sensor": selector})["sensorOrError"]["sensorState"]["ticks"]
        return found

    def run_status(self, run_id: str) -> str:
        """Dagster's word for the state of a run, such as SUCCESS."""
        found = self.ask("query($id: ID!) {runOrError(runId: $id) {... on Run {status}}}", {"id": run_id})
        return str(found["runOrError"]["status"])

    def finished_run(self, run_id: str) -> str:
        """The run's state once it is over."""
        over = {"SUCCESS", "FAILURE", "CANCELED"}
        return wait_for(lambda: _one_of(self.run_status(run_id), over), f"run {run_id} is over", RUN_SECONDS)

    def backfill(self, backfill_id: str) -> dict[str, Any]:
        """A backfill's `status`, its `runs`, and its `counts` by table: (targeted, materialized, failed)."""
        query = """query($id: String!) {partitionBackfillOrError(backfillId: $id) {... on PartitionBackfill {
            status runs(limit: 50) {runId status}
            assetBackfillData {assetBackfillStatuses {... on AssetPartitionsStatusCounts {
                assetKey {path} numPartitionsTargeted numPartitionsMaterialized numPartitionsFailed}}}}}}"""
        found: dict[str, Any] = self.ask(query, {"id": backfill_id})["partitionBackfillOrError"]
        statuses = (found.pop("assetBackfillData") or {}).get("assetBackfillStatuses", [])
        found["counts"] = {
            ".".join(each["assetKey"]["path"]): (
                each["numPartitionsTargeted"],
                each["numPartitionsMaterialized"],
                each["numPartitionsFailed"],
            )
            for each in statuses
        }
        return found

    def finished_backfill(self, backfill_id: str) -> dict[str, Any]:
        """The backfill once the daemon, which looks every 30 seconds, has closed it."""
        query = "query($id: String!) {partitionBackfillOrError(backfillId: $id) {... on PartitionBackfill {status}}}"

        def closed() -> bool:  # asked for often; the counts of all its tables take the server a while
            status: str = self.ask(query, {"id": backfill_id})["partitionBackfillOrError"]["status"]
            return status.startswith(("COMPLETED", "FAILED", "CANCELED"))

        wait_for(closed, f"backfill {backfill_id} is over", RUN_SECONDS)
        return self.backfill(backfill_id)

    def days_by_state(self, table: str) -> dict[str, list[str]]:
        """The days that are MATERIALIZED, FAILED or MATERIALIZING, as the partition bar draws them."""
        query = """query($key: AssetKeyInput!) {assetNodeOrError(assetKey: $key) {... on AssetNode {
            assetPartitionStatuses {... on TimePartitionStatuses {ranges {startKey endKey status}}}}}}"""
        found = self.ask(query, {"key": {"path": table.split(".")}})
        states: dict[str, list[str]] = {}
        for each in found["assetNodeOrError"]["assetPartitionStatuses"]["ranges"]:
            days = days_between(date.fromisoformat(each["startKey"]), date.fromisoformat(each["endKey"]))
            states.setdefault(each["status"], []).extend(map(str, days))
        return states


class PlainServer(Server):
    """As `dagster dev` starts them, by what Dagster finds at the top of the repository."""

    program = "dagster"

    def _folder(self) -> Path:
        folder = self.root.with_name(f"{self.root.name}-plain")
        folder.mkdir(exist_ok=True)
        for name in ("workspace.yaml", "dagster.yaml"):
            with suppress(FileExistsError):
                (folder / name).symlink_to(REPOSITORY / name)
        return folder


def wait_for(what: Callable[[], T | None], means: str, seconds: float) -> T:
    """The first truthy answer.

    Raises:
        TimeoutError: there was none in time.
    """
    until = time.monotonic() + seconds
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:.0f} s, but it did not come to pass that {means}")
        time.sleep(0.5)


def _one_of(status: str, wanted: set[str]) -> str | None:
    return status if status in wanted else None
