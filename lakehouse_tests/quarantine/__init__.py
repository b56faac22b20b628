"""Tests of lakehouse.quarantine."""
