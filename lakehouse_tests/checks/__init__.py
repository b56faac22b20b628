"""Tests of lakehouse.checks."""
