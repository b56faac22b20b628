"""Tests of lakehouse.contracts."""
