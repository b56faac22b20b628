"""Tests of lakehouse.tables."""
