"""Tests of lakehouse.bronze."""
