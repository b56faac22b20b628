"""Tests of lakehouse.runs."""
