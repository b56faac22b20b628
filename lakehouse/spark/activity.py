"""What an engine does, as its own pages tell it: its memory, the queries that are on, and the slowest of the last ones.

Numbers and ids alone: the pages' descriptions of queries hold plans, and those hold values of rows.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PATIENCE = 10.0  # seconds for a page: the first one takes some; of an engine that hangs, the first is the last
_LATE, _SLOWEST = 50, 3  # the last queries, and how many of them are shown
_SESSION = re.compile(r"_Session_([0-9a-f-]{36})_")
_NO_PROXY = urllib.request.ProxyHandler({})  # one of the environment is not for this machine


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes:
        number: by which the engine's pages name it.
        session: of Spark Connect; empty: of none.
        seconds: it has taken so far, or took.
        tasks: of its jobs so far, without those that were not needed.
        tasks_done: of these.
        failed: it ended without an answer.
        url: its page.
    """

    number: int
    session: str
    seconds: float
    tasks: int
    tasks_done: int
    failed: bool
    url: str


@dataclass(frozen=True)
class Activity:
    """What an engine does.

    Attributes:
        heap_most_mb: most of the heap that was in use since the engine started; None: not told yet.
        running: queries that are on, the longest first.
        slowest: of the last ones that are over.
    """

    heap_most_mb: int | None
    running: list[Query]
    slowest: list[Query]


def activity(pages: str) -> Activity | None:
    """What an engine does now; None where its pages do not answer.

    Args:
        pages: where they are.
    """
    try:
        app = _application(pages)
        executors = _asked(pages, f"{app}/executors")
        queries = _asked(pages, f"{app}/sql?details=false&planDescription=false&length=100000")
        return _read(pages, executors, queries[-_LATE:], jobs_of(pages))
    except (OSError, ValueError, LookupError, TypeError):  # gone, or of another version of Spark
        return None


def jobs_of(pages: str) -> list[dict[str, Any]]:
    """The engine's last jobs, as Spark's REST interface tells of them: by `jobId` and `jobTags`, among others.

    Args:
        pages: where its pages are.

    Raises:
        OSError, ValueError, LookupError: they do not answer.
    """
    found: list[dict[str, Any]] = _asked(pages, f"{_application(pages)}/jobs")
    return found


def _application(pages: str) -> str:
    return f"/api/v1/applications/{_asked(pages, '/api/v1/applications')[0]['id']}"


def _asked(pages: str, path: str) -> Any:
    with urllib.request.build_opener(_NO_PROXY).open(pages + path, timeout=_PATIENCE) as answer:
        return json.load(answer)


def _read(
    pages: str,
    executors: Sequence[Mapping[str, Any]],
    queries: Sequence[Mapping[str, Any]],
    jobs: Sequence[Mapping[str, Any]],
) -> Activity:
    heap = max((int(each.get("peakMemoryMetrics", {}).get("JVMHeapMemory", 0)) for each in executors), default=0)
    known = {int(each["jobId"]): each for each in jobs}
    found = [(each["status"], _query(pages, each, known)) for each in queries]
    slowest_first = sorted(found, key=lambda each: -each[1].seconds)
    return Activity(
        heap_most_mb=round(heap / 2**20) or None,
        running=[query for status, query in slowest_first if status == "RUNNING"],
        slowest=[query for status, query in slowest_first if status != "RUNNING"][:_SLOWEST],
    )


def _query(pages: str, query: Mapping[str, Any], jobs: Mapping[int, Mapping[str, Any]]) -> Query:
    ids = [*query["runningJobIds"], *query["successJobIds"], *query["failedJobIds"]]
    mine = [jobs[each] for each in ids if each in jobs]
    sessions = [match[1] for job in mine for tag in job.get("jobTags", ()) if (match := _SESSION.search(tag))]
    return Query(
        number=int(query["id"]),
        session=sessions[0] if sessions else "",
        seconds=int(query["duration"]) / 1000,
        tasks=sum(int(job["numTasks"]) - int(job["numSkippedTasks"]) for job in mine),
        tasks_done=sum(int(job["numCompletedTasks"]) for job in mine),
        failed=query["status"] == "FAILED",
        url=f"{pages}/SQL/execution/?id={query['id']}",
    )
