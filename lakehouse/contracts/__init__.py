"""The vocabulary of table files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse.contracts.clock import Clock
from lakehouse.contracts.declare import table
from lakehouse.contracts.extract import Extract
from lakehouse.contracts.features import Features
from lakehouse.contracts.figures import Count, Sum
from lakehouse.contracts.landing import Landing
from lakehouse.contracts.policy import Anomalies, Freshness, Layout, Privacy, Quality, Quarantine, Volume
from lakehouse.contracts.rules import Rule, rule
from lakehouse.contracts.slices import SliceBy
from lakehouse.contracts.table import Input, Table
from lakehouse.contracts.topic import Topic

if TYPE_CHECKING:
    from lakehouse.contracts.bronze import BronzeModel
    from lakehouse.contracts.message import MessageModel

__all__ = [
    "Anomalies",
    "BronzeModel",
    "Clock",
    "Count",
    "Extract",
    "Features",
    "Freshness",
    "Input",
    "Landing",
    "Layout",
    "MessageModel",
    "Privacy",
    "Quality",
    "Quarantine",
    "Rule",
    "SliceBy",
    "Sum",
    "Table",
    "Topic",
    "Volume",
    "rule",
    "table",
]


def __getattr__(name: str) -> Any:
    """A model brings pandera, pandas and Spark with it, which only those need who load a table file."""
    if name == "BronzeModel":
        from lakehouse.contracts.bronze import BronzeModel

        return BronzeModel
    if name == "MessageModel":
        from lakehouse.contracts.message import MessageModel

        return MessageModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
