"""The version of the machinery that decides rows: how files are read, rules judged, rows chosen and set aside."""

from __future__ import annotations

ENGINE_VERSION = 1
"""Raised where the same table files and inputs can give other rows than before: every day is then of older code.

A test notices a change of the modules in question, and asks.
"""
