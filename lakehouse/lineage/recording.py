"""A transform's plan without an engine: it runs on frames of Spark Connect's client, which only write down its steps.

The plan is a message of a public protocol (`pyspark.sql.connect.proto`), which Spark reads by the same names and kinds
in every version. The text that `explain` prints is no such thing: constants stand in it as they are, with their commas
and brackets, and it takes an engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyspark.sql.connect.proto as connect
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse.contracts.derived import NO_FRAME
from lakehouse.contracts.lineage import Source
from lakehouse.lineage.relations import frame_of
from lakehouse.lineage.values import Column, Frame, NotDerivedError, Value
from lakehouse.spark.options import REMOTE


def recorded(
    transform: Callable[..., DataFrame], inputs: Mapping[str, Sequence[tuple[str, Source | None]]]
) -> Frame:  # fmt: skip
    """What the rows of a transform are made of.

    Args:
        transform: a pure function of frames.
        inputs: by parameter the columns that it finds there, each with what it is called; None where it has no source.

    Raises:
        NotDerivedError: for anything whose sources are not known for certain.
    """
    recorder = _Recorder()
    for name, columns in inputs.items():
        found = (Column(c, Value(frozenset({source} if source else ()))) for c, source in columns)
        recorder.frames[name] = Frame(tuple(found))
    with _recording(recorder):
        made = transform(**{name: _leaf(recorder, name) for name in inputs})
        return _made_of(recorder, made)


@contextmanager
def _recording(recorder: _Recorder) -> Iterator[None]:
    """Have functions of columns be Spark Connect's, and the recorder be the session that is found active."""
    from pyspark.sql.connect.session import SparkSession  # a second to import, and rarely needed

    held = SparkSession._active_session  # noqa: SLF001  # of this thread; there is no other way to stand in for it
    before, was = getattr(held, "session", None), os.environ.get(REMOTE)
    held.session, os.environ[REMOTE] = recorder, "1"
    try:
        yield
    finally:
        held.session = before
        if was is None:
            del os.environ[REMOTE]
        else:
            os.environ[REMOTE] = was


def _leaf(recorder: _Recorder, name: str) -> Any:
    """A frame that stands for one of `recorder.frames`."""
    from pyspark.sql.connect.dataframe import DataFrame as Recorded  # as above
    from pyspark.sql.connect.plan import Read  # as above

    return Recorded(Read(name), recorder)  # type: ignore[arg-type]


def _made_of(recorder: _Recorder, frame: Any) -> Frame:
    plan = getattr(frame, "_plan", None)
    if plan is None:
        raise NotDerivedError(f"{'nothing' if frame is None else f'a {type(frame).__name__}'} {NO_FRAME}")
    return frame_of(plan.to_proto(recorder).root, recorder.frames)


class _Recorder:
    """A session that answers what can be told from the plan alone; whatever else it is asked is refused by name."""

    is_mock_session = True  # the client then asks nobody whether a column is there
    is_stopped = False
    session_id = "recorded"

    def __init__(self) -> None:
        self.frames: dict[str, Frame] = {}

    @property
    def client(self) -> _Recorder:
        return self

    @property
    def conf(self) -> _Recorder:
        return self

    def get(self, key: str, _: Any = None) -> Any:
        """A setting: the client asks how it sends Python functions, and debugs itself; on another a plan may depend."""
        if not key.startswith(("spark.python.sql.dataFrameDebugging", "spark.sql.execution.pythonUDF.")):
            raise NotDerivedError(f"the setting {key}")
        return "false"

    def schema(self, plan: connect.Plan) -> T.StructType:
        """Names of columns, of which no type is known."""
        names = [each.name for each in frame_of(plan.root, self.frames).columns]
        if not all(names):
            raise NotDerivedError("names of columns where one has none of its own: give it one by alias()")
        return T.StructType([T.StructField(name, _Untold()) for name in names])

    def createDataFrame(self, data: Any, schema: Any = None, **_: Any) -> Any:  # noqa: N802  # Spark's name
        """Rows that are written in the transform: of no source."""
        names = data.column_names if isinstance(data, pa.Table) else schema
        names = names.names if isinstance(names, T.StructType) else names
        if not isinstance(names, list | tuple):
            raise NotDerivedError("createDataFrame without a list of names or a StructType")
        self.frames[name := f"constant {len(self.frames)}"] = Frame(tuple(Column(each, Value()) for each in names))
        return _leaf(self, name)

    def _parse_ddl(self, _: str) -> T.StructType:
        return T.StructType()  # of functions in Python, which are refused or are of their arguments whatever they give

    def _set_relation_in_plan(self, plan: connect.Plan, relation: connect.Relation) -> None:
        plan.root.CopyFrom(relation)

    def __getattr__(self, name: str) -> Any:
        raise NotDerivedError(f"{name} of the session")


class _Untold(T.DataType):
    """A type that nobody may look at: what would follow from it is not known."""

    def __eq__(self, other: object) -> bool:
        raise NotDerivedError("the type of a column")

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Untold, ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise NotDerivedError("the type of a column")

    def simpleString(self) -> str:  # noqa: N802  # Spark's name
        raise NotDerivedError("the type of a column")

    typeName = jsonValue = json = simpleString  # noqa: N815  # Spark's names
