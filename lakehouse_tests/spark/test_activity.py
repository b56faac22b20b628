"""What is told of an engine's queries: numbers and ids, of what its pages answer. No engine needed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lakehouse.servers.ports import free_port
from lakehouse.spark import activity

SESSION = "0aa6b1f2-0000-4000-8000-000000000001"


def query(number: int, status: str, milliseconds: int, **jobs: list[int]) -> dict[str, Any]:
    """As the pages tell one."""
    none: dict[str, list[int]] = {"runningJobIds": [], "successJobIds": [], "failedJobIds": []}
    return {"id": number, "status": status, "duration": milliseconds, "description": "name = 'Bob'", **none, **jobs}


def job(number: int, done: int, skipped: int = 0) -> dict[str, Any]:
    """As the pages tell one."""
    tag = f"SparkConnect_OperationTag_User_lakehouse_Session_{SESSION}_Operation_0aa6b1f2"
    tasks = {"numTasks": 10, "numCompletedTasks": done, "numSkippedTasks": skipped}
    return {"jobId": number, "jobTags": ["mine", tag], "description": "name = 'Bob'", **tasks}


def test_queries_are_told_in_numbers_alone() -> None:
    """Without it, a value that somebody looked for would be in what they show of their engine."""
    queries = [query(n, "COMPLETED", n * 1000) for n in range(5)]
    queries += [query(5, "RUNNING", 3500, runningJobIds=[2], successJobIds=[1, 99]), query(6, "FAILED", 9000)]
    executors = [{"id": "driver", "peakMemoryMetrics": {"JVMHeapMemory": 300 * 2**20}}]
    found = activity._read("http://there", executors, queries, [job(1, 6, skipped=4), job(2, 3)])
    assert found.heap_most_mb == 300
    assert [asdict(each) for each in found.running] == [
        {
            "number": 5,
            "session": SESSION,
            "seconds": 3.5,
            "tasks": 16,
            "tasks_done": 9,
            "failed": False,
            "url": "http://there/SQL/execution/?id=5",
        }
    ]
    assert [(each.number, each.failed, each.session) for each in found.slowest] == [
        (6, True, ""),
        (4, False, ""),
        (3, False, ""),
    ]
    assert "Bob" not in str(found)


def test_an_engine_whose_pages_do_not_answer_is_told_without_them() -> None:
    """Without it, nobody could see the state of the very engine that hangs."""
    assert activity.activity(f"http://127.0.0.1:{free_port()}") is None
