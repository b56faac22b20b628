"""The vocabulary of table files."""

from lakehouse.contracts.bronze import BronzeModel
from lakehouse.contracts.clock import Clock
from lakehouse.contracts.declare import table
from lakehouse.contracts.extract import Extract
from lakehouse.contracts.figures import Count, Sum
from lakehouse.contracts.landing import Landing
from lakehouse.contracts.policy import Anomalies, Freshness, Layout, Privacy, Quality, Quarantine, Volume
from lakehouse.contracts.rules import Rule, rule
from lakehouse.contracts.slices import SliceBy
from lakehouse.contracts.table import Input, Table

__all__ = [
    "Anomalies",
    "BronzeModel",
    "Clock",
    "Count",
    "Extract",
    "Freshness",
    "Input",
    "Landing",
    "Layout",
    "Privacy",
    "Quality",
    "Quarantine",
    "Rule",
    "SliceBy",
    "Sum",
    "Table",
    "Volume",
    "rule",
    "table",
]
