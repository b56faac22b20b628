"""The sensor that watches checks, runs and freshness, and tells those who own what fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dagster import DagsterInstance, DefaultSensorStatus, SensorDefinition, SensorEvaluationContext, SkipReason, sensor
from deltalake.exceptions import DeltaError
from filelock import FileLock, Timeout

from lakehouse.build.verdicts import table_verdicts, verdicts
from lakehouse.catalog import tables
from lakehouse.contracts import Table
from lakehouse.days import is_younger
from lakehouse.errors import LakehouseError
from lakehouse.orchestration.alerts.compared import is_settling, not_told
from lakehouse.orchestration.alerts.events import BUILD, SETTLES_IN, first_position, last_position, read_batch
from lakehouse.orchestration.alerts.problems import Observed, judge
from lakehouse.orchestration.alerts.removed import CanFail, forget_removed
from lakehouse.orchestration.alerts.sinks import Sink, SinkError, sinks_of
from lakehouse.orchestration.alerts.store import Pending, Store, opened_store
from lakehouse.orchestration.checks import align, align_inputs
from lakehouse.read.lake import Lake, PinnedLake
from lakehouse.records.ledger import LEDGER
from lakehouse.settings import Settings, get_settings

INTERVAL = 30  # seconds
COMPARED_FOR = 600.0  # seconds in which a table that has not changed is not looked at again
LONGEST = 25.0  # seconds of sending in one look; Dagster gives a sensor a minute


class AlertDeliveryError(LakehouseError):
    """Alerts wait for a sink that did not take them; they are kept and tried again at the next look."""


_SEEN: dict[tuple[Path, str], tuple[str, float]] = {}
"""By root and table, the versions of its logs when its checks were last compared, and when; kept by the process."""

_UNHEARD: dict[str, float] = {}
"""By target that did not answer the last time, when that was; kept by the process."""


@dataclass
class Look:
    """What one look did: steps taken in, messages made, messages sent by sink, and why others wait."""

    taken_in: int = 0
    made: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    problems: list[str] = field(default_factory=list)


def alerts_sensor(
    owners: Mapping[str, str],
    *,
    settles_in: float = SETTLES_IN,
    sinks: Callable[[Settings], Mapping[str, Sink]] = sinks_of,
) -> SensorDefinition:
    """The sensor; on from the start, since the log is always a sink.

    Args:
        owners: by table.
        settles_in: seconds after which the events of a step are all in the log.
        sinks: by name, from the settings of the moment.
    """

    @sensor(
        name="alerts",
        minimum_interval_seconds=INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Sends failed and recovered checks, broken runs and stale tables to LAKEHOUSE_ALERT_WEBHOOK and "
        "to logs/alerts.jsonl under the root. The command lakehouse alerts list shows them.",
    )
    def alerts(context: SensorEvaluationContext) -> SkipReason:
        settings = get_settings()
        store_file = store_path(settings)
        store_file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(store_file.with_suffix(".lock"), timeout=0), opened_store(store_file) as store:
                assert context.repository_def is not None
                forget_removed(store, CanFail.of(context.repository_def, settings))
                done = look(
                    context.instance,
                    store,
                    sinks(settings),
                    owners,
                    quiet=settings.alert_quiet_hours * 3600,
                    settles_in=settles_in,
                )
                context.update_cursor(str(store.position))  # to be seen in Dagster; what counts is in the store
        except Timeout:
            return SkipReason("Another process is sending alerts.")
        if done.problems:
            raise AlertDeliveryError(
                f"{done.waiting} alert(s) wait and are tried again: {'; '.join(done.problems)}. "
                "`lakehouse alerts test` tries every sink."
            )
        sent = ", ".join(f"{number} to {name}" for name, number in sorted(done.sent.items()))
        return SkipReason(f"Sent {sent}." if sent else "Nothing new.")

    return alerts


def store_path(settings: Settings) -> Path:
    """Where alerts keep their memory: beside the event log that it speaks of."""
    return settings.dagster_home / "alerts.db"


def look(
    instance: DagsterInstance,
    store: Store,
    sinks: Mapping[str, Sink],
    owners: Mapping[str, str],
    *,
    quiet: float,
    lake: Lake | None = None,
    now: float | None = None,
    settles_in: float = SETTLES_IN,
) -> Look:
    """Take in what is new in the event log and how the checks stand, and send what is to be sent.

    Args:
        instance: whose event log.
        store: the memory.
        sinks: by name.
        owners: by table.
        quiet: seconds before what goes on failing is told again.
        lake: whose tables say how their checks stand; None: that of the settings.
        now: seconds since the epoch.
        settles_in: seconds; events younger than that are left for the next look.
    """
    began = time.monotonic()
    moment = time.time() if now is None else now
    looking = _Looking(instance, store, sinks, owners, quiet, moment, settles_in)
    more = True
    while more and time.monotonic() - began < LONGEST:
        more = looking.take_in()
    if not more:  # else what fails would be told before the events that led to it
        looking.compare(lake or PinnedLake(get_settings(), tables()))
    _send(store, sinks, looking.done, began + LONGEST)
    store.tidy()
    return looking.done


@dataclass
class _Looking:
    """One look: what it looks at, and what it has done so far. `quiet`, `now` and `settles_in` are in seconds."""

    instance: DagsterInstance
    store: Store
    sinks: Mapping[str, Sink]
    owners: Mapping[str, str]
    quiet: float
    now: float
    settles_in: float
    done: Look = field(default_factory=Look)

    def take_in(self) -> bool:
        """Take in the next events, in one transaction with the position behind them; False where there are no more.

        Killed in the middle, the next look begins at the old position with the old problems: nothing is told twice.
        """
        after = self.store.position
        if after is None or after > last_position(self.instance):  # the first look, or a new event log
            after = first_position(self.instance, self.now)
        batch = read_batch(self.instance, after, self.now, settles_in=self.settles_in)
        self.done.taken_in += len(batch.observed)
        with self.store.transaction():
            self._judge(batch.observed)
            self.store.move(batch.position)
        return batch.more

    def compare(self, lake: Lake) -> None:
        """Take in how the checks of the tables stand: what no event has said, and what is over."""
        changed = bool(self.done.taken_in)
        for name, table in lake.tables.items():
            versions = _versions(lake, table)
            before, at = _SEEN.get((lake.settings.root, name), ("", 0.0))
            if not self.done.taken_in and before == versions and is_younger(at, self.now, COMPARED_FOR):
                continue
            changed |= before != versions or at > 0
            try:
                failed = [*verdicts(lake, table), *table_verdicts(lake, table)]
            except DeltaError as error:  # a table that cannot be read is told by whoever reads it
                self.done.problems.append(f"{name}: {type(error).__name__}")
                continue
            with self.store.transaction():
                self._judge(not_told(table, failed, self.store.problems(), self.now, self.settles_in))
            align(self.instance, table, failed)
            # Whether a refused day is still wanted is told by the landing zone too, which is not in the versions.
            again = any(each.blocking or is_settling(each, self.now, self.settles_in) for each in failed)
            _SEEN[lake.settings.root, name] = versions, 0.0 if again else self.now
        if changed or self.done.made:
            with suppress(DeltaError, LakehouseError, OSError):  # what cannot be read is told by whoever reads it
                align_inputs(self.instance, lake)

    def _judge(self, found: Iterable[Observed]) -> None:
        """Keep what is news, step by step: the second of two steps is judged in the light of the first."""
        known = self.store.problems()
        for observed in found:
            news = judge(observed, known, self.owners, self.quiet, BUILD)
            known |= {each.key: each for each in news.problems}
            known = {key: each for key, each in known.items() if key not in news.over}
            self.store.take(news, self.sinks)
            self.done.made += len(news.messages)


def _versions(lake: Lake, table: Table) -> str:
    """The versions that say which checks of a table fail; while they stay, only the time can change the answer."""
    return " ".join(str(lake.snapshot(name).version) for name in (table.id, table.quarantine_id, LEDGER))


def _send(store: Store, sinks: Mapping[str, Sink], done: Look, until: float) -> None:
    silent: set[str] = set()  # targets that do not answer: their other messages keep their order and wait
    for each, sink, target in _in_turn(store, sinks):
        if target in silent or time.monotonic() > until:
            done.waiting += 1
            continue
        try:
            sink.send(each.message)
        except SinkError as error:
            store.not_delivered(each, str(error))
            done.waiting += 1
            problem = f"{target}: {error}"
            done.problems += [problem] if problem not in done.problems else []
            if error.passing:
                silent.add(target)
                _UNHEARD[target] = time.monotonic()
        else:
            store.delivered(each)
            _UNHEARD.pop(target, None)
            done.sent[target] = done.sent.get(target, 0) + 1


def _in_turn(store: Store, sinks: Mapping[str, Sink]) -> list[tuple[Pending, Sink, str]]:
    """What is to be sent, and to whom; a target's messages keep their order, and those that nobody takes are dropped.

    Targets that did not answer the last time come after all others, and of them the one that was asked first: waiting
    for a few of them takes a whole look, and nobody else would get an alert for as long as they hang.
    """
    found = []
    for each in store.pending():
        sink = sinks.get(each.sink)
        target = sink.target(each.message) if sink else None
        if sink is None or target is None:
            store.drop(each)
        else:
            found.append((each, sink, target))
    return sorted(found, key=lambda one: _UNHEARD.get(one[2], 0.0))
