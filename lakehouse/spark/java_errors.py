"""What a JVM of this process says went wrong, as the error that a Spark Connect server would raise for it.

pyspark (4.2) leaves whatever it has no class for to Py4J, each failed job among it. Such an error is no
`PySparkException`: nobody would try again after a lost executor, the values of rows in it would be kept, and its first
line says only that something was called.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors.exceptions import captured

_converted = captured.convert_exception


class SparkException(captured.CapturedException):
    """What pyspark has no class for, by the name that Spark Connect gives it."""


def named(e: Any) -> captured.CapturedException:
    """The error to raise for one of the JVM, which is never Py4J's.

    Args:
        e: the object of the JVM.
    """
    found = _converted(e)
    if not isinstance(found, captured.UnknownException):
        return found
    said = e.getMessage() or e.toString()
    return SparkException(desc=said, stackTrace=e.toString(), cause=e.getCause())


def name_all() -> None:
    """Have pyspark raise these; it looks up at each error what makes one of it."""
    captured.convert_exception = named
