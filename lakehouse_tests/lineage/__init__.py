"""Tests of lakehouse.lineage."""
