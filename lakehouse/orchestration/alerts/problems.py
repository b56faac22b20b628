"""Which findings are news: one alert while something stays failing, a reminder after the quiet time, a recovery."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakehouse.days import is_younger
from lakehouse.orchestration.alerts.message import ERROR, FAILED, RECOVERED, STILL_FAILING, Message, sentence

Key = tuple[str, str, str]
"""Table, check, day; the day is empty where the check speaks of the whole table."""


@dataclass(frozen=True)
class Failure:
    """A check that failed, with what it found."""

    key: Key
    severity: str
    text: str


@dataclass
class Observed:
    """What one step of one run showed, all of it.

    Attributes:
        run_id: the run; empty for what no run does.
        at: time of the newest event, seconds since the epoch.
        failures: by key.
        passed: checks that passed by name and day.
        evaluated: tables and checks that had a result over the whole step.
        audited: tables and days that were published, thus audited, by this step.
        present: tables and days that were found published, unchanged ones included; without a day where a step ended
            well.
        run_failure: what ended the run, where no step did; `run_severity` is ERROR, or WARN where a person did.
        run_backfill: the backfill that a person cancelled, and the run with it.
        run_tables: what the run was to build, where it is known: their owners are told.
        silent: it is remembered and not told.
    """

    run_id: str
    at: float = 0.0
    failures: dict[Key, Failure] = field(default_factory=dict)
    passed: set[Key] = field(default_factory=set)
    evaluated: set[tuple[str, str]] = field(default_factory=set)
    audited: set[tuple[str, str]] = field(default_factory=set)
    present: set[tuple[str, str]] = field(default_factory=set)
    run_failure: str = ""
    run_severity: str = ERROR
    run_backfill: str = ""
    run_tables: frozenset[str] = frozenset()
    silent: bool = False

    def heals(self, key: Key, build: str) -> bool:
        """Whether the step showed that a problem is over; `build` is the check that stands for the step itself."""
        table, check, day = key
        if key in self.failures:
            return False
        if check == build:
            return (table, day) in self.present
        # A step over many days says which days failed and sums up the rest: a day it published passed the others.
        return key in self.passed or ((table, day) in self.audited and (table, check) in self.evaluated)


@dataclass(frozen=True)
class Problem:
    """Something that fails: since when, when it was last told, and how often it was seen (seconds since the epoch)."""

    key: Key
    severity: str
    since: float
    told: float
    seen: int
    text: str


@dataclass
class News:
    """What a step changes: problems to keep, problems that are over, and what is told."""

    problems: list[Problem] = field(default_factory=list)
    over: list[Key] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


def judge(
    observed: Observed, known: Mapping[Key, Problem], owners: Mapping[str, str], quiet: float, build: str
) -> News:
    """What is news in a step, in the light of what is known to fail.

    Args:
        observed: the step.
        known: the problems so far.
        owners: by table.
        quiet: seconds before something that goes on failing is told again.
        build: the check that stands for the step itself.
    """
    news = News()
    _judge_failures(news, observed, known, owners, quiet)
    _judge_healed(news, observed, known, owners, build)
    if text := observed.run_failure:
        for owner in sorted({owners.get(table, "") for table in observed.run_tables}) or [""]:
            run_id, at, backfill = observed.run_id, observed.at, observed.run_backfill
            news.messages.append(
                Message(FAILED, observed.run_severity, "", "run", owner, (), text, run_id, at, backfill)
            )
    if observed.silent:  # what it shows is kept, and nobody is told
        news.messages.clear()
    return news


def _judge_failures(
    news: News, observed: Observed, known: Mapping[Key, Problem], owners: Mapping[str, str], quiet: float
) -> None:
    """Keep every failure of the step; tell what is new or worse, and what was last told `quiet` seconds ago.

    One message for all days of a check, whose text is that of the first of them.
    """
    for _, failures in _by_check(observed.failures.values()):
        told: list[Failure] = []
        kind = STILL_FAILING
        for failure in sorted(failures, key=lambda each: each.key):
            old = known.get(failure.key)
            worse = old is None or (failure.severity == ERROR and old.severity != ERROR)
            due = old is not None and not is_younger(old.told, observed.at, quiet)  # also where the clock was put back
            if worse or due:
                told.append(failure)
                kind = FAILED if worse else kind
            news.problems.append(_seen(failure, old, observed.at, told=worse or due))
        if told:
            news.messages.append(_message(kind, _worst(told), [f.key for f in told], told[0].text, observed, owners))


def _judge_healed(
    news: News, observed: Observed, known: Mapping[Key, Problem], owners: Mapping[str, str], build: str
) -> None:
    """Close the problems that the step has healed, and tell it once for all days of a check."""
    for _, problems in _by_check(each for key, each in known.items() if observed.heals(key, build)):
        keys = sorted(problem.key for problem in problems)
        times = sum(problem.seen for problem in problems)
        # More times than days: some of them failed again and again, which is worth a word.
        found = f"failed {times} times before" if times > len(keys) else ""
        news.over += keys
        news.messages.append(_message(RECOVERED, _worst(problems), keys, found, observed, owners))


T = TypeVar("T", Failure, Problem)


def _by_check(found: Iterable[T]) -> list[tuple[tuple[str, str], list[T]]]:
    groups: dict[tuple[str, str], list[T]] = defaultdict(list)
    for each in found:
        groups[each.key[:2]].append(each)
    return sorted(groups.items())


def _worst(found: Iterable[Failure | Problem]) -> str:
    return max((each.severity for each in found), key=lambda each: each == ERROR)


def _seen(failure: Failure, old: Problem | None, at: float, *, told: bool) -> Problem:
    if old is None:
        return Problem(failure.key, failure.severity, at, at, 1, failure.text)
    return replace(old, severity=failure.severity, told=at if told else old.told, seen=old.seen + 1, text=failure.text)


def _message(
    kind: str, severity: str, keys: list[Key], found: str, observed: Observed, owners: Mapping[str, str]
) -> Message:
    table, check = keys[0][:2]
    days = tuple(day for *_, day in keys if day)
    text = sentence(kind, table, check, days, found)
    if kind == RECOVERED and found:
        text = f"{sentence(kind, table, check, days, '')} ({found})"
    return Message(kind, severity, table, check, owners.get(table, ""), days, text, observed.run_id, observed.at)
