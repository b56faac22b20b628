"""The vocabulary of table files."""

from lakehouse.contracts.bronze import BronzeModel
from lakehouse.contracts.clock import Clock
from lakehouse.contracts.extract import Extract
from lakehouse.contracts.landing import Landing
from lakehouse.contracts.rules import Rule, rule
from lakehouse.contracts.slices import SliceBy
from lakehouse.contracts.table import Anomalies, Input, Table, Volume, table

__all__ = [
    "Anomalies",
    "BronzeModel",
    "Clock",
    "Extract",
    "Input",
    "Landing",
    "Rule",
    "SliceBy",
    "Table",
    "Volume",
    "rule",
    "table",
]
