"""Tests of lakehouse.records."""
